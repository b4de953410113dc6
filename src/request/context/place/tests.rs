//! Where everything stands, byte for byte. `HEAD`, `LINE`, `SNAP` and `RECALL` stand for the frozen texts.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::{Frozen, build, takes_block};
use crate::config::{RecallPlace, SystemRole};
use crate::ids::{AgentId, MemoryId, OrgId};
use crate::openai::ChatRequest;
use crate::providers::ModelProfile;
use crate::session::{
    Block, Element, Elements, Enveloped, Opening, OpeningParts, SessionKey, SessionSecret, Text,
};
use crate::tokens::{Family, Tally};

use RecallPlace::{Inline, Separate};
use SystemRole::{Multi, Single};

fn owner() -> Arc<SessionKey> {
    Arc::new(SessionKey {
        org: OrgId::new(),
        agent: AgentId::new(),
        user: None,
        id: "trip".parse().unwrap(),
    })
}

const FREE: Tally = Tally::given(Family::Unknown, 0);

/// An envelope that is this text.
fn text(text: &'static str) -> Enveloped {
    let element = Element {
        id: MemoryId::new(),
        json: Bytes::from_static(text.as_bytes()),
        cost: FREE,
    };
    let elements = Elements::new(&[Arc::new(element)]).unwrap();
    Enveloped::new("", Arc::new(elements), "", FREE)
}

fn opening() -> Opening {
    let owner = owner();
    Opening::new(OpeningParts {
        nonce: SessionSecret::new(&[1; 32]).nonce(&owner, 1),
        owner,
        epoch: 1,
        nonce_epoch: 1,
        directive: Some(1),
        head: Text::new("HEAD"),
        line: Bytes::from_static(b"LINE"),
        snapshot: Some(text("SNAP")),
        cost: FREE,
        reason: None,
    })
}

fn profile(system_role: SystemRole, recall: RecallPlace) -> ModelProfile {
    ModelProfile {
        system_role,
        recall,
        ..ModelProfile::of("unheard-of", None, 32_768)
    }
}

/// The messages as sent, with a block at each of these places.
fn placed(messages: &str, blocks: &[usize], profile: ModelProfile) -> String {
    let (head, tail) = ("{ \"model\": \"m\" , \"messages\" : ", ", \"n\":1 }\n");
    let body = Bytes::from([head, messages, tail].concat());
    let chat = ChatRequest::parse(body, 100).unwrap();
    let block = Block::new(owner(), 1, Some(text("RECALL")), None).unwrap();
    let blocks: Vec<(usize, &Block)> = blocks.iter().map(|place| (*place, &block)).collect();
    let opening = opening();
    let frozen = Frozen {
        opening: &opening,
        blocks: &blocks,
    };
    let sent = build(&chat, &frozen, profile)
        .into_body(chat.body())
        .to_bytes();
    let sent = String::from_utf8(sent.to_vec()).unwrap();
    let inside = sent.strip_prefix(head).and_then(|s| s.strip_suffix(tail));
    inside.expect("only the messages change").to_owned()
}

#[track_caller]
fn check(kind: (SystemRole, RecallPlace), blocks: &[usize], messages: &str, expected: &str) {
    assert_eq!(placed(messages, blocks, profile(kind.0, kind.1)), expected);
}

#[test]
fn several_system_messages_stand_around_the_clients_own() {
    check(
        (Multi, Separate),
        &[1, 3],
        r#"[ {"role":"system","content":"be kind"} , {"role":"user","content":"a"},{"role":"assistant","content":"b"},
            {"content": "c", "role": "user"} ]"#,
        r#"[ {"role":"system","content":"HEAD"},{"role":"system","content":"be kind"},{"role":"system","content":"LINE\n\nSNAP"} , {"role":"user","content":"RECALL"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},
            {"role":"user","content":"RECALL"},{"content": "c", "role": "user"} ]"#,
    );
}

#[test]
fn a_single_system_message_holds_everything_around_the_clients_text() {
    check(
        (Single, Inline),
        &[1],
        r#"[{"role":"system","content":"be \"kind\""},{"role":"user","content":"a"}]"#,
        r#"[{"role":"system","content":"HEAD\n\nbe \"kind\"\n\nLINE\n\nSNAP"},{"role":"user","content":"RECALL\n\na"}]"#,
    );
}

#[test]
fn parts_get_parts_and_are_not_touched() {
    check(
        (Single, Inline),
        &[1],
        r#"[{"role":"system","content":[ {"type":"text","text":"one","cache_control":{"type":"ephemeral"}}, {"text":"two","type":"text"} ]},{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}},{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]"#,
        r#"[{"role":"system","content":[ {"type":"text","text":"HEAD\n\n"},{"type":"text","text":"one","cache_control":{"type":"ephemeral"}}, {"text":"two","type":"text"},{"type":"text","text":"\n\nLINE\n\nSNAP"} ]},{"role":"user","content":[{"type":"text","text":"RECALL\n\n"},{"type":"image_url","image_url":{"url":"data:x"}},{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]"#,
    );
    check(
        (Multi, Separate),
        &[1],
        r#"[{"role":"system","content":[{"type":"text","text":"one","cache_control":{"type":"ephemeral"}}]},{"role":"user","content":[{"type":"text","text":"a"}]}]"#,
        r#"[{"role":"system","content":"HEAD"},{"role":"system","content":[{"type":"text","text":"one","cache_control":{"type":"ephemeral"}}]},{"role":"system","content":"LINE\n\nSNAP"},{"role":"user","content":"RECALL"},{"role":"user","content":[{"type":"text","text":"a"}]}]"#,
    );
}

#[test]
fn the_clients_role_of_a_system_message_is_kept() {
    check(
        (Multi, Separate),
        &[],
        r#"[{"role":"developer","content":"s"},{"role":"user","content":"a"}]"#,
        r#"[{"role":"developer","content":"HEAD"},{"role":"developer","content":"s"},{"role":"developer","content":"LINE\n\nSNAP"},{"role":"user","content":"a"}]"#,
    );
    check(
        (Single, Inline),
        &[],
        r#"[{"role":"developer","content":"s"},{"role":"user","content":"a"}]"#,
        r#"[{"role":"developer","content":"HEAD\n\ns\n\nLINE\n\nSNAP"},{"role":"user","content":"a"}]"#,
    );
}

#[test]
fn without_system_text_the_prefix_is_one_message_before_all_others() {
    let expected = r#"[{"role":"system","content":"HEAD\n\nLINE\n\nSNAP"},{"role":"assistant","content":"hi"},{"role":"user","content":"a"}]"#;
    for role in [Multi, Single] {
        check(
            (role, Separate),
            &[],
            r#"[{"role":"assistant","content":"hi"},{"role":"user","content":"a"}]"#,
            expected,
        );
    }
    check(
        (Multi, Separate),
        &[0],
        r#"[{"role":"user","content":"a"}]"#,
        r#"[{"role":"system","content":"HEAD\n\nLINE\n\nSNAP"},{"role":"user","content":"RECALL"},{"role":"user","content":"a"}]"#,
    );
    check(
        (Multi, Separate),
        &[],
        "[ ]",
        r#"[{"role":"system","content":"HEAD\n\nLINE\n\nSNAP"} ]"#,
    );
}

#[test]
fn of_several_leading_system_messages_the_first_and_the_last_are_met() {
    let messages = r#"[{"role":"system","content":"one"},{"role":"system","content":"two"},{"role":"user","content":"a"},{"role":"system","content":"later"}]"#;
    check(
        (Single, Inline),
        &[],
        messages,
        r#"[{"role":"system","content":"HEAD\n\none"},{"role":"system","content":"two\n\nLINE\n\nSNAP"},{"role":"user","content":"a"},{"role":"system","content":"later"}]"#,
    );
    check(
        (Multi, Separate),
        &[],
        messages,
        r#"[{"role":"system","content":"HEAD"},{"role":"system","content":"one"},{"role":"system","content":"two"},{"role":"system","content":"LINE\n\nSNAP"},{"role":"user","content":"a"},{"role":"system","content":"later"}]"#,
    );
}

#[test]
fn without_system_messages_everything_is_in_the_first_user_message() {
    let kind = (SystemRole::None, Separate);
    check(
        kind,
        &[0, 2],
        r#"[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]"#,
        r#"[{"role":"user","content":"HEAD\n\nLINE\n\nSNAP\n\nRECALL\n\na"},{"role":"assistant","content":"b"},{"role":"user","content":"RECALL\n\nc"}]"#,
    );
    check(
        kind,
        &[0],
        r#"[{"role":"user","content":[{"type":"text","text":"a"}]}]"#,
        r#"[{"role":"user","content":[{"type":"text","text":"HEAD\n\nLINE\n\nSNAP\n\n"},{"type":"text","text":"RECALL\n\n"},{"type":"text","text":"a"}]}]"#,
    );
    check(
        kind,
        &[],
        r#"[{"role":"assistant","content":"b"}]"#,
        r#"[{"role":"user","content":"HEAD\n\nLINE\n\nSNAP"},{"role":"assistant","content":"b"}]"#,
    );
    check(
        kind,
        &[],
        r#"[{"role":"user","content":[]},{"role":"user","content":"c"}]"#,
        r#"[{"role":"user","content":"HEAD\n\nLINE\n\nSNAP"},{"role":"user","content":[]},{"role":"user","content":"c"}]"#,
    );
    // A user message behind another one's answer opens nothing: what stood before it was sent without.
    check(
        kind,
        &[1],
        r#"[{"role":"assistant","content":"b"},{"role":"user","content":"c"}]"#,
        r#"[{"role":"user","content":"HEAD\n\nLINE\n\nSNAP"},{"role":"assistant","content":"b"},{"role":"user","content":"RECALL\n\nc"}]"#,
    );
}

#[test]
fn empty_contents_take_what_they_can() {
    check(
        (Single, Inline),
        &[1],
        r#"[{"role":"system","content":""},{"role":"user","content":""}]"#,
        r#"[{"role":"system","content":"HEAD\n\n\n\nLINE\n\nSNAP"},{"role":"user","content":"RECALL\n\n"}]"#,
    );
    for odd in ["[]", "null", "7"] {
        check(
            (Single, Inline),
            &[],
            &format!(r#"[{{"role":"system","content":{odd}}},{{"role":"user","content":"a"}}]"#),
            &format!(
                r#"[{{"role":"system","content":"HEAD"}},{{"role":"system","content":{odd}}},{{"role":"system","content":"LINE\n\nSNAP"}},{{"role":"user","content":"a"}}]"#
            ),
        );
    }
    let body = r#"{"messages":[{"role":"user"},{"role":"user","content":[]},{"role":"user","content":null},{"role":"user","content":""},{"role":"assistant","content":"b"}]}"#;
    let chat = ChatRequest::parse(Bytes::from(body), 10).unwrap();
    let takes = |recall| {
        let profile = profile(Multi, recall);
        let takes = chat.messages().iter().map(|m| takes_block(m, profile));
        takes.collect::<Vec<_>>()
    };
    assert_eq!(takes(Inline), [false, false, false, true, false]);
    assert_eq!(takes(Separate), [true, true, true, true, false]);
}

#[test]
fn nothing_comes_between_a_tool_call_and_its_answers() {
    let loops = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"1"},{"id":"2"}]},{"role":"tool","tool_call_id":"1","content":"x"},{"role":"tool","tool_call_id":"2","content":"y"}"#;
    for (recall, asked, again) in [
        (
            Separate,
            r#"{"role":"user","content":"RECALL"},{"role":"user","content":"a"}"#,
            r#"{"role":"user","content":"RECALL"},{"role":"user","content":"c"}"#,
        ),
        (
            Inline,
            r#"{"role":"user","content":"RECALL\n\na"}"#,
            r#"{"role":"user","content":"RECALL\n\nc"}"#,
        ),
    ] {
        check(
            (Multi, recall),
            &[0, 4],
            &format!(
                r#"[{{"role":"user","content":"a"}},{loops},{{"role":"user","content":"c"}}]"#
            ),
            &format!(
                r#"[{{"role":"system","content":"HEAD\n\nLINE\n\nSNAP"}},{asked},{loops},{again}]"#
            ),
        );
    }
}

#[test]
fn a_place_that_is_not_there_is_passed_over() {
    check(
        (Multi, Separate),
        &[7],
        r#"[{"role":"user","content":"a"}]"#,
        r#"[{"role":"system","content":"HEAD\n\nLINE\n\nSNAP"},{"role":"user","content":"a"}]"#,
    );
}

fn kinds() -> impl Strategy<Value = ModelProfile> {
    let role = prop::sample::select(vec![Multi, Single, SystemRole::None]);
    let recall = prop::sample::select(vec![Inline, Separate]);
    (role, recall).prop_map(|(role, recall)| profile(role, recall))
}

fn contents() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        r#""""#,
        r#""plain""#,
        r#""a \"quote\" é""#,
        "null",
        "[]",
        r#"[{"type":"text","text":"t"}]"#,
        r#"[ {"type":"image_url","image_url":{"url":"u"}} , {"type":"text","text":"t","cache_control":{"type":"ephemeral"}} ]"#,
    ])
    .prop_map(str::to_owned)
}

proptest! {
    /// What was put in can be cut out again, and what is left is what came.
    #[test]
    fn client_bytes_are_never_changed_moved_or_dropped(
        profile in kinds(),
        messages in prop::collection::vec((prop::sample::select(vec!["system", "developer", "user", "assistant", "tool"]), contents()), 1..8),
    ) {
        let came = messages.iter().map(|(role, content)| format!(r#"{{"role":"{role}","content":{content}}}"#));
        let came = format!("[{}]", came.collect::<Vec<_>>().join(" , "));
        let chat = ChatRequest::parse(Bytes::from(format!(r#"{{"messages":{came}}}"#)), 100).unwrap();
        let takes = chat.messages().iter().enumerate().filter(|(_, m)| takes_block(m, profile));
        let blocks: Vec<usize> = takes.map(|(place, _)| place).collect();
        let sent = placed(&came, &blocks, profile);
        prop_assert_eq!(sent.matches("RECALL").count(), blocks.len());
        for text in ["HEAD", "LINE", "SNAP"] {
            prop_assert_eq!(sent.matches(text).count(), 1);
        }
        let mut left = sent;
        let texts = [r"HEAD\n\nLINE\n\nSNAP", r"LINE\n\nSNAP", "HEAD", "RECALL"];
        for text in texts {
            for role in ["system", "developer", "user"] {
                left = left.replace(&format!(r#"{{"role":"{role}","content":"{text}"}},"#), "");
                left = left.replace(&format!(r#",{{"role":"{role}","content":"{text}"}}"#), "");
            }
            left = left.replace(&format!(r#"{{"type":"text","text":"{text}\n\n"}},"#), "");
            left = left.replace(&format!(r#",{{"type":"text","text":"\n\n{text}"}}"#), "");
        }
        for text in texts {
            left = left.replace(&format!(r"{text}\n\n"), "");
            left = left.replace(&format!(r"\n\n{text}"), "");
        }
        prop_assert_eq!(left, came);
    }
}
