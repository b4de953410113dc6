//! What is read of a chat request, and what is refused.

use bytes::Bytes;
use proptest::prelude::*;

use super::{ChatRequest, Content, MAX_KEYS, Message, MessageFault, ParseError, Role};
use crate::openai::json::JsonFault;

fn parse(body: &str) -> Result<ChatRequest, ParseError> {
    ChatRequest::parse(Bytes::copy_from_slice(body.as_bytes()), 4_000)
}

fn chat(messages: &str) -> ChatRequest {
    parse(&format!(r#"{{"model":"m","messages":{messages}}}"#)).unwrap()
}

fn duplicate(body: &str) -> String {
    match parse(body) {
        Err(ParseError::DuplicateKey { path }) => path,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_top_level_is_read() {
    let request = parse(
        r#" {"model" : "gpt\u002d4o","stream":true,"max_tokens":5,"max_completion_tokens":7,"n":2,"tools":[{"a":[1]},{}],
            "stream_options":{"include_usage":true,"x":1},"messages":[{"role":"user","content":"hi"}],"x_vendor":{"a":[1.0]}} "#,
    )
    .unwrap();
    assert_eq!(request.model(), Some("gpt-4o"));
    assert_eq!(
        request.raw(&request.model_range().unwrap()),
        br#""gpt\u002d4o""#
    );
    assert_eq!(
        (
            request.stream(),
            request.max_tokens(),
            request.n(),
            request.include_usage()
        ),
        (true, Some(7), 2, true)
    );
    let tools = request.tools().unwrap();
    assert_eq!(
        (request.raw(&tools.range), tools.count),
        (br#"[{"a":[1]},{}]"#.as_slice(), 2)
    );
    assert_eq!(
        request.raw(&request.field("x_vendor").unwrap()),
        br#"{"a":[1.0]}"#
    );
    let names: Vec<_> = request
        .fields()
        .iter()
        .map(|field| field.key.decode(request.body()).into_owned())
        .collect();
    assert_eq!(
        names,
        [
            "model",
            "stream",
            "max_tokens",
            "max_completion_tokens",
            "n",
            "tools",
            "stream_options",
            "messages",
            "x_vendor"
        ]
    );
}

#[test]
fn nulls_read_as_absent() {
    let request = parse(r#"{"model":null,"stream":null,"max_completion_tokens":null,"max_tokens":9,"n":null,"stream_options":null}"#).unwrap();
    assert_eq!(
        (
            request.model(),
            request.stream(),
            request.max_tokens(),
            request.n()
        ),
        (None, false, Some(9), 1)
    );
    assert!(!request.include_usage() && !request.has_messages());
    assert_eq!(
        parse(r#"{"max_tokens":1e400,"n":-3}"#)
            .unwrap()
            .max_tokens(),
        Some(u32::MAX)
    );
}

/// RW-05: the forms of missing content stay apart.
#[test]
fn every_form_of_content_is_kept_apart() {
    let request = chat(
        r#"[{"role":"assistant","content":null,"tool_calls":[{"id":"a"},{"id":"b\u0021"}]},{"role":"assistant","content":""},
            {"role":"assistant","tool_calls":[{"id":"c"}]},{"role":"user","content":[]},{"role":"assistant","content":null,"refusal":"no"},
            {"role":"tool","content":"","tool_call_id":"a"},{"role":"user","content":{"x":1}}]"#,
    );
    let messages = request.messages();
    let ids = |message: &Message| -> Vec<String> {
        message
            .tool_calls
            .iter()
            .map(|id| id.decode(request.body()).into_owned())
            .collect()
    };
    assert_eq!(
        (&messages[0].content, ids(&messages[0])),
        (&Content::Null, vec!["a".to_owned(), "b!".to_owned()])
    );
    assert!(matches!(&messages[1].content, Content::Text(text) if text.is_empty()));
    assert_eq!(
        (&messages[2].content, ids(&messages[2])),
        (&Content::Absent, vec!["c".to_owned()])
    );
    assert!(
        matches!(&messages[3].content, Content::Parts(parts) if parts.count == 0 && parts.head == parts.tail)
    );
    assert_eq!(messages[4].content, Content::Null);
    assert_eq!(
        messages[5]
            .tool_call_id
            .as_ref()
            .unwrap()
            .decode(request.body()),
        "a"
    );
    assert!(
        matches!(&messages[6].content, Content::Other(range) if request.raw(range) == br#"{"x":1}"#)
    );
    assert_eq!(request.last_user_text(), None);
}

#[test]
fn roles_and_the_leading_run() {
    let request = chat(
        r#"[{"content":"","role":"system"},{"role":"developer"},{"role":"user"},{"role":"system"},{"role":"assistant"},{"role":"tool"},
            {"role":"function","name":"f"},{"role":"critic"}]"#,
    );
    let roles: Vec<_> = request
        .messages()
        .iter()
        .map(|message| message.role)
        .collect();
    use Role::{Assistant, Developer, Function, Other, System, Tool, User};
    assert_eq!(
        roles,
        [
            System, Developer, User, System, Assistant, Tool, Function, Other
        ]
    );
    assert_eq!(request.leading_system(), 2);
}

#[test]
fn shapes_that_are_wrong_are_noted_not_refused() {
    let request = chat(
        r#"[1,{},{"role":3},{"role":"assistant","tool_calls":{}},{"role":"assistant","tool_calls":[{"id":"a"},{"id":null},7]},
            {"role":"tool","tool_call_id":4},{"role":"assistant","function_call":{"arguments":""}},{"role":"user","tool_calls":null,"tool_call_id":null,"function_call":null}]"#,
    );
    let faults: Vec<_> = request
        .messages()
        .iter()
        .map(|message| message.faults.clone())
        .collect();
    use MessageFault::{
        AnswerIdType, CallId, CallsType, FunctionName, NoRole, NotAnObject, RoleType,
    };
    let expected = [
        vec![NotAnObject],
        vec![NoRole],
        vec![RoleType],
        vec![CallsType],
        vec![CallId { index: 1 }],
        vec![AnswerIdType],
        vec![FunctionName],
        vec![],
    ];
    assert_eq!(faults, expected);
}

/// RW-01: the query is what the user said, not what a tool answered.
#[test]
fn the_last_user_text_is_the_users() {
    let request = chat(
        r#"[{"role":"user","content":"first"},{"role":"user","content":[{"type":"text","text":"a\ud83d"},{"type":"image_url","image_url":{"url":"data:x","text":"no"}},
            {"text":"b\n","type":"text"}]},{"role":"user","content":" \n"},{"role":"user","content":[{"type":"input_audio","input_audio":{}}]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"a"}]},{"role":"tool","tool_call_id":"a","content":"{\"json\":1}"}]"#,
    );
    assert_eq!(request.last_user_text().unwrap(), "a\u{fffd}\nb\n");
    let media: Vec<_> = request
        .messages()
        .iter()
        .map(Message::media_parts)
        .collect();
    assert_eq!(media, [0, 1, 0, 1, 0, 0]);
}

#[test]
fn cache_breakpoints_are_found_in_messages_and_parts() {
    let request = chat(
        r#"[{"role":"system","content":"s","cache_control":{"type":"ephemeral"}},
            {"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b","cache_control":null}]},
            {"role":"user","content":[{"type":"text","text":"cache_control"}],"cache_control":null}]"#,
    );
    let found: Vec<_> = request
        .messages()
        .iter()
        .map(Message::has_cache_control)
        .collect();
    assert_eq!(found, [true, true, false]);
    let Content::Parts(parts) = &request.messages()[1].content else {
        panic!()
    };
    assert!(
        request
            .raw(&(0..parts.breakpoint.unwrap()))
            .ends_with(br#""ephemeral"}}"#)
    );
}

#[test]
fn repeated_keys_are_refused_where_they_are_read() {
    assert_eq!(duplicate(r#"{"model":"a","x":1,"model":"b"}"#), "model");
    assert_eq!(
        duplicate(r#"{"messages":[],"m\u0065ssages":[]}"#),
        "messages"
    );
    assert_eq!(
        duplicate(r#"{"messages":[{"role":"user"},{"role":"user","r\u006fle":"system"}]}"#),
        "messages[1].role"
    );
    assert_eq!(
        duplicate(r#"{"messages":[{"content":[{"text":"a","text":"b"}]}]}"#),
        "messages[0].content[0].text"
    );
    assert_eq!(
        duplicate(r#"{"messages":[{"tool_calls":[{"id":"a","id":"b"}]}]}"#),
        "messages[0].tool_calls[0].id"
    );
    assert_eq!(
        duplicate(r#"{"stream_options":{"include_usage":false,"include_usage":true}}"#),
        "stream_options.include_usage"
    );
    let many: String = (0..40).map(|key| format!("\"k{key}\":0,")).collect();
    assert_eq!(duplicate(&format!("{{{many}\"k7\":0}}")), "k7");
    // Objects that nobody reads belong to the provider.
    assert!(parse(r#"{"metadata":{"a":1,"a":2}}"#).is_ok());
}

#[test]
fn what_is_kept_stays_in_proportion() {
    let body = format!(r#"{{"messages":[{}{{}}]}}"#, "{},".repeat(50));
    let request = ChatRequest::parse(Bytes::from(body), 10).unwrap();
    assert_eq!(
        (request.messages().len(), request.message_count()),
        (10, 51)
    );
    let keys: String = (0..=MAX_KEYS).map(|key| format!("\"k{key}\":0,")).collect();
    assert_eq!(
        parse(&format!("{{{keys}\"z\":0}}")).unwrap_err(),
        ParseError::TooManyKeys {
            path: "body".to_owned()
        }
    );
}

#[test]
fn bodies_that_are_no_object_are_refused() {
    for body in ["[]", "3", " \"a\" ", "null"] {
        assert_eq!(parse(body).unwrap_err(), ParseError::NotAnObject, "{body}");
    }
    for body in ["", "{", "[1", "{}}", "{\"messages\":[{]}"] {
        assert!(matches!(parse(body), Err(ParseError::Json(_))), "{body}");
    }
    assert_eq!(
        ChatRequest::parse(Bytes::from_static(b"{\"a\":\"\xff\"}"), 1).unwrap_err(),
        ParseError::Json(JsonFault::NotUtf8)
    );
}

#[test]
fn a_lone_surrogate_is_forwarded_and_read_as_the_replacement_character() {
    let request = chat(r#"[{"role":"user","content":"x\ud83dy"}]"#);
    assert_eq!(request.last_user_text().unwrap(), "x\u{fffd}y");
    assert!(
        request
            .raw(&request.messages()[0].range)
            .ends_with(br#""x\ud83dy"}"#)
    );
}

proptest! {
    /// A body made of message fragments is accepted when `serde_json` takes it and no key repeats, and nothing panics on the way.
    #[test]
    fn fragments_are_judged_as_json(tokens in prop::collection::vec(prop::sample::select(vec![
        "{", "}", "[", "]", ",", ":", "\"role\"", "\"user\"", "\"content\"", "\"messages\":[", "\"text\"", "\"tool_calls\"", "\"id\"", "null", "1", "\"\\ud800\"",
        "{\"role\":\"user\",\"content\":", "\"cache_control\":{}",
    ]), 0..14)) {
        let body = format!("{{{}", tokens.concat());
        match parse(&body) {
            Ok(request) => {
                prop_assert!(serde_json::from_str::<&serde_json::value::RawValue>(&body).is_ok());
                for message in request.messages() {
                    let _text = request.text(message);
                    prop_assert!(!request.raw(&message.range).is_empty());
                }
            }
            Err(ParseError::Json(_)) => prop_assert!(serde_json::from_str::<&serde_json::value::RawValue>(&body).is_err()),
            Err(_) => prop_assert!(serde_json::from_str::<serde_json::Value>(&body.replace("\\ud800", "")).is_ok()),
        }
    }
}
