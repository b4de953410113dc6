//! Two spellings of a message have one canonical form, and two messages have two.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::TestRng;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::Sink;
use crate::openai::ChatRequest;
use crate::openai::chat::MAX_KEYS;

#[derive(Default)]
struct Plain(Sha256);

impl Sink for Plain {
    fn feed(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn nested(&self) -> Self {
        Self::default()
    }

    fn digest(self) -> [u8; 16] {
        self.0.finalize()[..16].try_into().unwrap()
    }
}

fn hash(message: &str) -> [u8; 16] {
    let body = format!(r#"{{"messages":[ {message} ]}}"#);
    let chat = ChatRequest::parse(Bytes::from(body), 10).unwrap();
    let mut sink = Plain::default();
    chat.canonical(&chat.messages()[0], &mut sink);
    sink.digest()
}

fn same(spellings: &[&str]) {
    let hashes: BTreeSet<_> = spellings.iter().map(|spelling| hash(spelling)).collect();
    assert_eq!(hashes.len(), 1, "{spellings:?}");
}

fn distinct(messages: &[&str]) {
    let hashes: BTreeSet<_> = messages.iter().map(|message| hash(message)).collect();
    assert_eq!(hashes.len(), messages.len(), "{messages:?}");
}

#[test]
fn what_sdks_add_to_an_answer_that_they_send_back_does_not_count() {
    same(&[
        r#"{"role":"assistant","content":"a"}"#,
        r#" { "content" : "a" , "role" : "assistant" } "#,
        r#"{"role":"assistant","content":"a","refusal":"no","annotations":[1],"audio":{"id":"x"},"tool_calls":[ ],"function_call":null}"#,
        r#"{"role":"assistant","content":"\u0061","cache_control":{"type":"ephemeral"}}"#,
        r#"{"role":"assistant","content":[{"type":"text","text":"a"}]}"#,
        r#"{"role":"assistant","content":[ {"te\u0078t":"a","type":"t\u0065xt","cache_control":{"type":"ephemeral"},"x":null} ]}"#,
    ]);
}

#[test]
fn what_is_left_out_of_the_message_counts_further_inside() {
    distinct(&[
        r#"{"role":"user","content":[{"type":"a","refusal":"no"}]}"#,
        r#"{"role":"user","content":[{"type":"a"}]}"#,
        r#"{"role":"user","content":[{"type":"a","tool_calls":[]}]}"#,
        r#"{"role":"user","content":[{"type":"a","annotations":[]}]}"#,
    ]);
    same(&[
        r#"{"role":"user","content":[{"type":"a","x":{"y":[{"cache_control":1,"z":null}]}}]}"#,
        r#"{"role":"user","content":[{"x":{"y":[{}]},"type":"a"}]}"#,
    ]);
}

#[test]
fn roles_that_mean_nearly_the_same_are_distinct() {
    distinct(&[
        r#"{"role":"system","content":"a"}"#,
        r#"{"role":"developer","content":"a"}"#,
        r#"{"role":"user","content":"a"}"#,
    ]);
}

#[test]
fn values_do_not_run_together() {
    let values = [
        r#"["ab"]"#,
        r#"["a","b"]"#,
        r#"["a","","b"]"#,
        r#"[["a"],"b"]"#,
        r#"[["a","b"]]"#,
        r#"{"a":{"b":1}}"#,
        r#"{"a":{},"b":1}"#,
        r#"{"a":[],"b":1}"#,
        r#"{"ab":1}"#,
        r#"{"a":"b"}"#,
        r#"{"}":1}"#,
        r#"[{"a":1},{"b":1}]"#,
        r#"[{"a":1,"b":1}]"#,
        r#""""#,
        "[]",
        "{}",
        "[{}]",
        "[[]]",
        "[null]",
        "[null,null]",
        r#"["null"]"#,
        "1",
        r#""1""#,
        "[1]",
        "true",
        r#""true""#,
        "false",
        "-1",
        "10",
        r#""a""#,
        r#""a\"""#,
        r#""a\\""#,
        r#""a\\\"""#,
        r#""a\n""#,
        r#""an""#,
        r#""a\\n""#,
    ];
    let with = |value: &&str| format!(r#"{{"role":"user","content":"c","x":{value}}}"#);
    let mut messages: Vec<_> = values.iter().map(with).collect();
    messages.push(r#"{"role":"user","content":"c"}"#.to_owned());
    messages.push(r#"{"role":"user","x":"c"}"#.to_owned());
    messages.push(r#"{"role":"user","content":""}"#.to_owned());
    messages.push(r#"{"role":"user"}"#.to_owned());
    messages.extend(["7", "\"c\"", "null", "[]"].map(str::to_owned));
    distinct(&messages.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn only_a_text_part_that_is_nothing_else_is_a_string() {
    distinct(&[
        r#"{"role":"user","content":"a"}"#,
        r#"{"role":"user","content":["a"]}"#,
        r#"{"role":"user","content":[{"type":"text","text":"a","x":1}]}"#,
        r#"{"role":"user","content":[{"type":"text"}]}"#,
        r#"{"role":"user","content":[{"text":"a"}]}"#,
        r#"{"role":"user","content":[{"type":"refusal","text":"a"}]}"#,
        r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":""}]}"#,
        r#"{"role":"user","content":[{"type":"text","text":["a"]}]}"#,
        r#"{"role":"user","content":[]}"#,
    ]);
}

fn number(spelling: &str) -> String {
    format!(r#"{{"role":"user","x":[{spelling}]}}"#)
}

#[test]
fn numbers_count_by_their_value() {
    let groups: &[&[&str]] = &[
        &["1", "1.0", "1e0", "10e-1", "0.1E+1"],
        &["0", "-0", "0.0", "-0.0", "0e9"],
        &["-25", "-2.5e1"],
        &["0.1", "1e-1", "0.10"],
        &["1e300", "10e299"],
        &["9007199254740991", "9007199254740991.0"],
        &["9007199254740992"],
        &["9007199254740993"],
        &["9223372036854775807"],
        &["9223372036854775808"],
        &["-9223372036854775808"],
        &["18446744073709551615"],
        &["18446744073709551616"],
        &["18446744073709551617"],
        &["1e999"],
        &["1e998"],
    ];
    for group in groups {
        let spellings: Vec<_> = group.iter().map(|spelling| number(spelling)).collect();
        same(&spellings.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let firsts: Vec<_> = groups.iter().map(|group| number(group[0])).collect();
    distinct(&firsts.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn half_a_surrogate_pair_is_the_replacement_character() {
    same(&[
        r#"{"content":"a\ud800b"}"#,
        "{\"content\":\"a\u{fffd}b\"}",
        r#"{"content":"a\uFFFDb"}"#,
    ]);
    same(&[r#"{"content":"\ud83d\ude00"}"#, "{\"content\":\"😀\"}"]);
}

#[test]
fn an_object_too_wide_to_sort_counts_by_its_bytes() {
    let wide = |count: usize, first: &str| {
        let rest: String = (1..count).map(|i| format!(r#","k{i}":{i}"#)).collect();
        format!(r#"{{"role":"user","x":{{{first}{rest}}}}}"#)
    };
    let (plain, escaped) = (r#""k0":0"#, r#""\u006b0":0"#);
    same(&[&wide(MAX_KEYS, plain), &wide(MAX_KEYS, escaped)]);
    distinct(&[
        &wide(MAX_KEYS, plain),
        &wide(MAX_KEYS + 1, plain),
        &wide(MAX_KEYS + 1, escaped),
    ]);
}

#[test]
fn a_key_that_stands_twice_counts_twice() {
    distinct(&[
        r#"{"x":{"a":1,"a":2}}"#,
        r#"{"x":{"a":2,"a":1}}"#,
        r#"{"x":{"a":2}}"#,
    ]);
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c]{0,3}",
        "[ -~\u{0}-\u{1f}\u{7f}é字😀\"\\\\/]{0,12}",
        Just("x\n".repeat(20)),
    ]
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-4_i32..4).prop_map(|i| json!(f64::from(i) / 4.0)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let key = prop_oneof![
            text(),
            "cache_control|refusal|tool_calls|text|type".prop_map(String::from),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn message() -> impl Strategy<Value = Map<String, Value>> {
    let content = prop_oneof![
        text().prop_map(Value::from),
        text().prop_map(|text| json!([{"type": "text", "text": text}])),
        json_value(),
    ];
    let more = prop::collection::vec((text(), json_value()), 0..4);
    (content, more).prop_map(|(content, more)| {
        let mut message: Map<_, _> = more.into_iter().collect();
        message.insert("role".to_owned(), json!("user"));
        message.insert("content".to_owned(), content);
        message
    })
}

/// What the canonical form is a form of, by another way.
fn normal(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(key, value)| !value.is_null() && *key != "cache_control")
            .map(|(key, value)| (key.clone(), normal(value)))
            .collect(),
        Value::Array(values) => values.iter().map(normal).collect(),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the generated ones are small"
        )]
        Value::Number(number) if number.is_f64() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 => json!(float as i64),
            _ => value.clone(),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn normal_message(message: &Map<String, Value>) -> Value {
    let mut normal = normal(&Value::Object(message.clone()));
    let members = normal.as_object_mut().unwrap();
    members.retain(|key, _| !matches!(key.as_str(), "refusal" | "annotations" | "audio"));
    if members.get("tool_calls") == Some(&json!([])) {
        members.remove("tool_calls");
    }
    let lone = match members.get("content") {
        Some(Value::Array(parts)) if parts.len() == 1 => parts[0].as_object(),
        _ => None,
    };
    let text = lone
        .filter(|part| part.len() == 2 && part.get("type") == Some(&json!("text")))
        .and_then(|part| part.get("text"))
        .filter(|text| text.is_string());
    if let Some(text) = text.cloned() {
        members.insert("content".to_owned(), text);
    }
    normal
}

fn spell_text(text: &str, rng: &mut TestRng, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        let must = matches!(character, '"' | '\\' | '\0'..='\u{1f}');
        match rng.random_range(0..6) {
            0 => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04X}"));
                }
            }
            1 if character == '/' => out.push_str("\\/"),
            _ if must => {
                let quoted = serde_json::to_string(&character).unwrap();
                out.extend(quoted.chars().skip(1).take(quoted.chars().count() - 2));
            }
            _ => out.push(character),
        }
    }
    out.push('"');
}

fn spell(value: &Value, rng: &mut TestRng, out: &mut String) {
    let space = |rng: &mut TestRng| ["", "", " ", "\n\t", "\r\n  "][rng.random_range(0..5)];
    out.push_str(space(rng));
    match value {
        Value::String(text) => spell_text(text, rng, out),
        Value::Array(values) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                spell(value, rng, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            let (null, control) = (Value::Null, json!({"type": "ephemeral"}));
            let (absent, present) = ("~absent".to_owned(), "cache_control".to_owned());
            if rng.random() {
                members.push((&absent, &null));
            }
            if rng.random() && members.iter().all(|(key, _)| **key != present) {
                members.push((&present, &control));
            }
            let by = rng.random_range(0..members.len().max(1));
            members.rotate_left(by);
            if rng.random() {
                members.reverse();
            }
            out.push('{');
            for (index, (key, value)) in members.into_iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                out.push_str(space(rng));
                spell_text(key, rng, out);
                out.push(':');
                spell(value, rng, out);
            }
            out.push('}');
        }
        Value::Number(number) => match number.as_i64() {
            Some(small) if small.abs() < 1_000 && rng.random() => {
                let spellings = [
                    format!("{small}.0"),
                    format!("{small}e0"),
                    format!("{small}.00E+0"),
                ];
                out.push_str(&spellings[rng.random_range(0..3)]);
            }
            _ => out.push_str(&number.to_string()),
        },
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
    }
    out.push_str(space(rng));
}

/// A spelling of `message`, with members that do not count and with its text as a part or as a string.
fn spelling(message: &Map<String, Value>, rng: &mut TestRng) -> String {
    let mut message = message.clone();
    for (key, value) in [
        ("refusal", json!("no")),
        ("annotations", json!([])),
        ("audio", json!({"id": 1})),
        ("tool_calls", json!([])),
    ] {
        if rng.random() && !message.contains_key(key) {
            message.insert(key.to_owned(), value);
        }
    }
    let content = &mut message["content"];
    if content.is_string() && rng.random() {
        *content = json!([{"type": "text", "text": *content}]);
    }
    let mut out = String::new();
    spell(&Value::Object(message), rng, &mut out);
    out
}

/// Changes one leaf of `value`, the one that `at` counts down to.
fn change(value: &mut Value, at: &mut usize) -> bool {
    match value {
        Value::Array(values) if !values.is_empty() => values.iter_mut().any(|v| change(v, at)),
        Value::Object(members) if !members.is_empty() => {
            members.values_mut().any(|v| change(v, at))
        }
        _ if *at > 0 => {
            *at -= 1;
            false
        }
        Value::String(text) => {
            text.push('\u{1}');
            true
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            *value = json!("changed");
            true
        }
    }
}

proptest! {
    #[test]
    fn a_message_hashes_alike_however_it_is_spelled(message in message(), mut rng in any::<prop::sample::Index>().prop_perturb(|_, rng| rng)) {
        let plain = Value::Object(message.clone()).to_string();
        let other = spelling(&message, &mut rng);
        prop_assert_eq!(hash(&plain), hash(&other), "{} as {}", plain, other);
    }

    #[test]
    fn two_messages_hash_alike_only_if_they_say_the_same(one in message(), at in 0_usize..12, other in message()) {
        let mut changed = Value::Object(one.clone());
        change(&mut changed, &mut { at });
        for other in [&other, changed.as_object().unwrap()] {
            let alike = normal_message(&one) == normal_message(other);
            let (a, b) = (Value::Object(one.clone()).to_string(), Value::Object(other.clone()).to_string());
            prop_assert_eq!(hash(&a) == hash(&b), alike, "{} and {}", a, b);
        }
    }
}
