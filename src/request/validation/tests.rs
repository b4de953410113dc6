//! What is refused, and under which name.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Limits, MAX_LISTED, ValidationError, validate};
use crate::error::{ApiError, Code};
use crate::openai::chat::ChatRequest;

const LIMITS: Limits = Limits { max_messages: 10 };

fn check(body: &str) -> Result<(), ValidationError> {
    let chat = ChatRequest::parse(Bytes::copy_from_slice(body.as_bytes()), LIMITS.max_messages)?;
    validate(&chat, LIMITS)
}

/// The wrong fields with their codes.
fn faults(body: &Value) -> Vec<(String, &'static str)> {
    match check(&body.to_string()) {
        Ok(()) => Vec::new(),
        Err(error) => {
            let error = ApiError::from(error);
            assert_eq!(error.code, Code::ValidationError);
            assert_eq!(
                error.param.as_ref(),
                error.fields.first().map(|fault| &fault.field)
            );
            error
                .fields
                .iter()
                .map(|fault| (fault.field.clone(), fault.code))
                .collect()
        }
    }
}

fn with(field: &str, value: impl Into<Value>) -> Vec<(String, &'static str)> {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    body[field] = value.into();
    faults(&body)
}

fn messages(messages: impl Into<Value>) -> Vec<(String, &'static str)> {
    faults(&json!({"model": "m", "messages": messages.into()}))
}

fn one(field: &str, code: &'static str) -> Vec<(String, &'static str)> {
    vec![(field.to_owned(), code)]
}

#[test]
fn a_plain_request_and_unknown_fields_pass() {
    let body = json!({
        "model": "m", "x_vendor": {"a": [1]}, "chat_template_kwargs": {"enable_thinking": false}, "temperature": 2, "max_tokens": 0, "n": 1, "stream": true,
        "stream_options": {"include_usage": true, "x": 1},
        "messages": [{"role": "critic", "content": "?", "name": "zora", "reasoning_content": ".."}, {"role": "user", "content": [{"type": "video"}, 3]}]
    });
    assert_eq!(faults(&body), []);
    let nulls = json!({"model": "m", "messages": [{"role": "user"}], "temperature": null, "max_tokens": null, "max_completion_tokens": null, "n": null,
                       "stream": null, "stream_options": null, "tools": null});
    assert_eq!(faults(&nulls), []);
}

/// RW-05: every form of missing content that OpenAI takes is taken.
#[test]
fn missing_content_passes_in_every_form() {
    let history = json!([
        {"role": "user", "content": []}, {"role": "assistant", "content": ""}, {"role": "assistant", "content": null, "refusal": "no", "tool_calls": null},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "a"}]}, {"role": "tool", "content": "", "tool_call_id": "a"},
        {"role": "assistant", "tool_calls": [{"id": "a"}]}, {"role": "tool", "tool_call_id": "a"}, {"role": "assistant", "tool_calls": []}
    ]);
    assert_eq!(messages(history), []);
    assert_eq!(
        messages(json!([{"role": "user", "content": 3}])),
        one("messages[0].content", "INVALID_FORMAT")
    );
    assert_eq!(
        messages(json!([{"role": "user", "content": {"type": "text"}}])),
        one("messages[0].content", "INVALID_FORMAT")
    );
}

#[test]
fn single_fields_are_held_to_their_limits() {
    let user = json!({"role": "user"});
    let table = [
        ("model", json!(""), "REQUIRED"),
        ("model", json!(null), "REQUIRED"),
        ("model", json!(7), "INVALID_FORMAT"),
        ("model", json!("é".repeat(257)), "TOO_LONG"),
        ("max_tokens", json!(1_048_577), "RANGE_ERROR"),
        ("max_completion_tokens", json!(-1), "RANGE_ERROR"),
        ("max_tokens", json!(1.5), "INVALID_FORMAT"),
        ("max_tokens", json!("5"), "INVALID_FORMAT"),
        ("n", json!(0), "RANGE_ERROR"),
        ("n", json!(true), "INVALID_FORMAT"),
        ("temperature", json!(2.1), "RANGE_ERROR"),
        ("temperature", json!(-0.1), "RANGE_ERROR"),
        ("stream", json!("true"), "INVALID_FORMAT"),
        ("stream_options", json!([]), "INVALID_FORMAT"),
        ("messages", json!(null), "REQUIRED"),
        ("messages", json!([]), "REQUIRED"),
        ("messages", json!("hi"), "INVALID_FORMAT"),
        ("messages", json!(vec![&user; 11]), "TOO_MANY"),
    ];
    for (field, value, code) in table {
        assert_eq!(with(field, value), one(field, code));
    }
    let include_usage = with("stream_options", json!({"include_usage": 1}));
    assert_eq!(
        include_usage,
        one("stream_options.include_usage", "INVALID_FORMAT")
    );
    let at_the_limit = [
        ("model", json!("é".repeat(256))),
        ("max_tokens", json!(1_048_576)),
        ("max_tokens", json!(16.0)),
        ("messages", json!(vec![&user; 10])),
    ];
    for (field, value) in at_the_limit {
        assert_eq!(with(field, value), []);
    }
}

#[test]
fn all_faults_come_at_once_and_none_repeats_a_value() {
    let body = json!({"temperature": 99, "stream": "SECRET", "messages": [1, {"content": "SECRET"}, {"role": 5}, {"role": "tool", "tool_call_id": "SECRET"}]});
    let expected = [
        ("model", "REQUIRED"),
        ("temperature", "RANGE_ERROR"),
        ("stream", "INVALID_FORMAT"),
        ("messages[0]", "INVALID_FORMAT"),
        ("messages[1].role", "REQUIRED"),
        ("messages[2].role", "INVALID_FORMAT"),
        ("messages[3].tool_call_id", "INVALID_FORMAT"),
    ];
    assert_eq!(
        faults(&body),
        expected.map(|(field, code)| (field.to_owned(), code))
    );
    let error = ApiError::from(check(&body.to_string()).unwrap_err());
    assert_eq!(
        error.message,
        "'model' is required (6 more: see field_errors)"
    );
    assert!(!format!("{error:?}").contains("SECRET"));
    let chat = ChatRequest::parse(
        Bytes::from(format!(r#"{{"messages":[{}1]}}"#, "1,".repeat(500))),
        1_000,
    )
    .unwrap();
    let Err(ValidationError::Fields(listed)) = validate(
        &chat,
        Limits {
            max_messages: 1_000,
        },
    ) else {
        panic!()
    };
    assert_eq!(listed.len(), MAX_LISTED);
}

#[test]
fn a_body_that_cannot_be_read_has_its_own_codes() {
    let code = |body: &str| ApiError::from(check(body).unwrap_err()).code;
    assert_eq!(code("{\"model\":}"), Code::InvalidJson);
    assert_eq!(code("[]"), Code::InvalidJson);
    let twice = ApiError::from(check(r#"{"model":"SECRET","mod\u0065l":"b"}"#).unwrap_err());
    assert_eq!(
        (twice.code, twice.param.as_deref()),
        (Code::ValidationError, Some("model"))
    );
    assert_eq!(twice.fields[0].code, "DUPLICATE");
    assert!(!twice.message.contains("SECRET"));
}

#[test]
fn an_error_does_not_grow_with_the_request() {
    let key = "é".repeat(10_000);
    let twice = ApiError::from(check(&format!(r#"{{"{key}":1,"{key}":2}}"#)).unwrap_err());
    let cut = "é".repeat(64);
    assert_eq!(twice.param.as_deref(), Some(&*cut));
    assert!(twice.message.len() < 300 && twice.fields[0].message.len() < 300);
    let ids: Vec<Value> = (0..1_000)
        .map(|id| json!({"id": id.to_string(), "type": "function"}))
        .collect();
    let unanswered = messages(json!([{"role": "assistant", "tool_calls": ids}]));
    assert_eq!(unanswered.len(), MAX_LISTED);
}

fn call(ids: &[&str]) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": ids.iter().map(|id| json!({"id": id, "type": "function"})).collect::<Vec<_>>()})
}

fn answer(id: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": "{}"})
}

/// RW-01: whole units pass, in any order of their answers.
#[test]
fn whole_tool_units_pass() {
    let user = json!({"role": "user", "content": "u"});
    assert_eq!(
        messages(
            json!([{"role": "system", "content": "s"}, user, call(&["a", "b"]), answer("b"), answer("a")])
        ),
        []
    );
    assert_eq!(
        messages(json!([
            user,
            call(&["a"]),
            answer("a"),
            call(&["a"]),
            answer("a"),
            user
        ])),
        []
    );
    let legacy = [
        json!({"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}}),
        json!({"role": "function", "name": "f"}),
    ];
    assert_eq!(messages(json!([user, legacy[0], legacy[1], user])), []);
}

#[test]
fn half_a_tool_unit_is_refused_by_name() {
    let user = json!({"role": "user", "content": "u"});
    assert_eq!(
        messages(json!([user, answer("a")])),
        one("messages[1].tool_call_id", "INVALID_FORMAT")
    );
    assert_eq!(
        messages(json!([user, call(&["a", "b"]), answer("a"), user])),
        one("messages[1].tool_calls[1]", "REQUIRED")
    );
    assert_eq!(
        messages(json!([user, call(&["a"])])),
        one("messages[1].tool_calls[0]", "REQUIRED")
    );
    assert_eq!(
        messages(json!([call(&["a"]), answer("a"), answer("a")])),
        one("messages[2].tool_call_id", "DUPLICATE")
    );
    assert_eq!(
        messages(json!([call(&["a"]), answer("a"), answer("z")])),
        one("messages[2].tool_call_id", "INVALID_FORMAT")
    );
    assert_eq!(
        messages(json!([call(&["a", "a"]), answer("a")])),
        one("messages[0].tool_calls[1].id", "DUPLICATE")
    );
    assert_eq!(
        messages(json!([call(&["a"]), {"role": "tool"}]))[0],
        ("messages[1].tool_call_id".to_owned(), "REQUIRED")
    );
    let between = messages(json!([call(&["a"]), {"role": "system", "content": "s"}, answer("a")]));
    assert_eq!(
        between,
        [
            ("messages[0].tool_calls[0]".to_owned(), "REQUIRED"),
            ("messages[2].tool_call_id".to_owned(), "INVALID_FORMAT")
        ]
    );
}

#[test]
fn half_a_function_pair_is_refused_by_name() {
    let caller = json!({"role": "assistant", "function_call": {"name": "f"}});
    assert_eq!(
        messages(json!([caller, {"role": "user"}])),
        one("messages[0].function_call", "REQUIRED")
    );
    assert_eq!(
        messages(json!([caller, {"role": "function", "name": "g"}])),
        one("messages[1].name", "INVALID_FORMAT")
    );
    assert_eq!(
        messages(json!([{"role": "function", "name": "f"}])),
        one("messages[0]", "INVALID_FORMAT")
    );
}

proptest! {
    /// Units in any order pass; without one of their messages they do not.
    #[test]
    fn a_history_of_whole_units_passes_and_a_missing_answer_does_not(
        units in prop::collection::vec(prop::collection::vec("[a-c]{1,2}", 0..3), 1..3), reversed in any::<bool>(), missing in any::<prop::sample::Index>(),
    ) {
        let mut history = Vec::new();
        for ids in units {
            let mut ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            ids.sort_unstable();
            ids.dedup();
            history.push(json!({"role": "user", "content": "u"}));
            if !ids.is_empty() {
                history.push(call(&ids));
            }
            if reversed {
                ids.reverse();
            }
            history.extend(ids.into_iter().map(answer));
        }
        prop_assert_eq!(messages(json!(history)), []);
        let at = missing.index(history.len());
        let needed = history[at]["role"] != "user";
        history.remove(at);
        prop_assume!(!history.is_empty());
        prop_assert_eq!(messages(json!(history)).is_empty(), !needed);
    }
}
