//! Every byte outside the edited spans goes out as it came.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Body;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Edits, RewrittenBody};
use crate::openai::chat::ChatRequest;

fn edited(body: &str, edit: impl FnOnce(&mut Edits, &ChatRequest)) -> String {
    let chat = ChatRequest::parse(Bytes::copy_from_slice(body.as_bytes()), 100).unwrap();
    let mut edits = Edits::default();
    edit(&mut edits, &chat);
    String::from_utf8(edits.into_body(chat.body()).to_bytes().to_vec()).unwrap()
}

fn drain(body: RewrittenBody) -> Vec<u8> {
    let mut body = pin!(body);
    let mut sent = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let promised = body.size_hint().exact().unwrap();
        match body.as_mut().poll_frame(&mut context) {
            Poll::Ready(Some(Ok(frame))) => {
                let data = frame.into_data().unwrap();
                assert_eq!(
                    body.size_hint().exact().unwrap(),
                    promised - data.len() as u64
                );
                sent.extend_from_slice(&data);
            }
            Poll::Ready(None) => {
                assert!(body.is_end_stream() && promised == 0);
                return sent;
            }
            Poll::Pending => panic!("nothing to wait for"),
        }
    }
}

#[test]
fn spans_go_out_in_order_and_the_rest_is_not_copied() {
    let body = Bytes::from_static(b"0123456789");
    let mut edits = Edits::default();
    edits.insert(10, "end");
    edits.replace(4..6, "x");
    edits.insert(2, "a");
    edits.insert(2, "b");
    edits.insert(0, "start");
    let frames = edits.into_frames(&body);
    assert_eq!(frames.concat(), b"start01ab23x6789end");
    let slices: Vec<_> = frames
        .iter()
        .filter(|frame| body.as_ptr_range().contains(&frame.as_ptr()))
        .collect();
    assert_eq!(slices, ["01", "23", "6789"]);
    assert_eq!(Edits::default().into_frames(&body), [body]);
}

#[test]
fn overlapping_replacements_never_panic() {
    let body = Bytes::from_static(b"0123456789");
    let mut edits = Edits::default();
    edits.replace(2..6, "x");
    edits.replace(4..8, "y");
    edits.insert(99, "z");
    assert_eq!(edits.into_frames(&body).concat(), b"01xy89z");
}

/// HTTP-01: the length is that of the bytes that go out, and a clone kept back can be sent again.
#[test]
fn the_length_is_exact_and_a_clone_starts_anew() {
    let body = Bytes::from("{\r\n\t\"text\" : \"snö ❄ 雪\"\r\n}");
    let mut edits = Edits::default();
    edits.insert(1, "\"é\":1,");
    let rewritten = edits.into_body(&body);
    let length = rewritten.remaining();
    let kept = rewritten.clone();
    let first = drain(rewritten);
    assert_eq!(first.len() as u64, length);
    assert_eq!(drain(kept), first);
    assert!(RewrittenBody::from(Bytes::new()).is_end_stream());
    assert_eq!(
        drain(RewrittenBody::from(Bytes::from_static(b"abc"))),
        b"abc"
    );
}

#[test]
fn the_model_is_mapped_where_it_stands() {
    let body = "{\"seed\":12345678901234567890123, \"model\"\t:\t\"a\" ,\"top_p\":0.70}";
    let sent = edited(body, |edits, chat| {
        edits.set_model(chat.model_range().unwrap(), "prov/\"b\"")
    });
    assert_eq!(sent, body.replace("\"a\"", "\"prov/\\\"b\\\"\""));
}

/// Spellings that a parse and print would change.
fn spelled() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "1.0",
        "1e-7",
        "9007199254740993",
        "-0",
        "0.70",
        "\"\\u00e9\\/\"",
        "\"\\ud83d\"",
        "null",
        "[ ]",
        "{\"z\":1,\"a\":2}",
        "\"雪山 🦉\"",
        "{ \"a\" :\r\n\t[1.50] }",
        "\"\"",
        "\"{\\\"model\\\":1}\"",
    ])
    .prop_map(str::to_owned)
}

fn message() -> impl Strategy<Value = String> {
    (
        prop::sample::select(vec!["user", "assistant", "system"]),
        spelled(),
        spelled(),
        prop::sample::select(vec!["", " ", "\r\n\t"]),
    )
        .prop_map(|(role, content, extra, space)| {
            format!(
                "{{{space}\"content\":{content},{space}\"x\":{extra},\"role\":{space}\"{role}\"}}"
            )
        })
}

proptest! {
    #[test]
    fn the_rest_of_the_body_is_untouched(
        messages in prop::collection::vec(message(), 1..5),
        fields in prop::collection::vec(spelled(), 0..5),
        space in prop::sample::select(vec!["", " ", "\r\n\t"]),
        mapped in any::<String>(),
    ) {
        let fields: String = fields.iter().enumerate().map(|(index, value)| format!(",{space}\"f{index}\":{value}")).collect();
        let (before, after) = (format!("{{{space}\"model\":"), format!("{fields},{space}\"messages\":[{}]}}", messages.join(",")));
        let sent = edited(&format!("{before}\"m\"{after}"), |edits, chat| {
            edits.set_model(chat.model_range().unwrap(), &mapped);
            edits.insert(chat.messages()[0].range.start, r#"{"role":"system","content":"new"},"#);
        });
        let inserted = r#"{"role":"system","content":"new"},"#;
        let expected = [&before, &serde_json::to_string(&mapped).unwrap(), &after.replacen("\"messages\":[", &format!("\"messages\":[{inserted}"), 1)];
        prop_assert_eq!(&sent, &expected.map(String::as_str).concat());
        let parsed: Value = serde_json::from_str(&sent.replace("\\ud83d", "")).unwrap();
        prop_assert_eq!(&parsed["model"], &json!(mapped));
        prop_assert_eq!(parsed["messages"].as_array().unwrap().len(), messages.len() + 1);
    }
}
