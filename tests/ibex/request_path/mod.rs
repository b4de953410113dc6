//! The request path over real sockets: order, refusals, framing, provider answers, streams, clients that leave.

mod raw;
mod order;
mod credentials;
mod refusals;
mod rates;
mod bodies;
mod framing;
mod provider;
mod streams;
mod timeouts;
mod stalled_client;
mod pass_through;
mod token_estimates;
mod leaving;
mod keyed;
mod pressure;

use std::time::Duration;

use bytes::Bytes;
use ibex::config::Config;
use serde_json::{Value, json};

use crate::support::{Answer, Overrides, Received, TestApp, Upstream, soon};

const CHAT: &str = "/v1/chat/completions";

/// A chat request that asks for one document.
fn chat() -> Value {
    json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]})
}

/// A chat request that asks for events.
fn streamed() -> Value {
    json!({"model": "gpt-4o", "stream": true, "messages": [{"role": "user", "content": "hi"}]})
}

/// The model that a request names: tests choose an answer by it.
fn model_of(request: &Received) -> String {
    request.json()["model"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// A service with an edited configuration.
async fn app_with(upstream: &Upstream, edit: impl FnOnce(&mut Config)) -> TestApp {
    TestApp::with(&upstream.url(), edit, Overrides::default()).await
}

/// Goes on when `condition` holds; every other task runs meanwhile.
async fn until(what: &str, condition: impl Fn() -> bool) {
    soon(what, async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Lets everybody go on who can: the test's runtime has one thread, and sockets on loopback need no time.
async fn settled() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

/// Moves the clock on. The test's runtime has one thread, so nothing runs between the jump and the clock's going on as before.
async fn jump(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Nothing of any request is held any more.
async fn released(app: &TestApp) {
    until("everything to be released", || {
        app.app.slots.taken() == 0
            && app.app.inflight.bytes() == 0
            && app.app.metrics.answers_open.get() == 0
    })
    .await;
}

/// The value of one line of `/metrics`; 0 when it is not there yet.
async fn metric(app: &TestApp, line: &str) -> u64 {
    let text = app.client().get("/metrics").await.body;
    let text = String::from_utf8(text.to_vec()).expect("text");
    text.lines()
        .find_map(|l| l.strip_prefix(line)?.strip_prefix(' '))
        .map_or(0, |value| value.parse().expect("a whole number"))
}

/// The labels of the one route.
const ROUTE: &str = "provider=\"openai\",model=\"other\"";

/// Tokens counted so far, in and out.
async fn counted_tokens(app: &TestApp) -> (u64, u64) {
    (
        metric(
            app,
            &format!("ibex_tokens_total{{{ROUTE},direction=\"input\"}}"),
        )
        .await,
        metric(
            app,
            &format!("ibex_tokens_total{{{ROUTE},direction=\"output\"}}"),
        )
        .await,
    )
}

/// An error that OpenAI's SDKs can read, with this status and code.
#[track_caller]
fn assert_refused(what: &str, answer: &Answer, status: u16, code: &str) {
    let text = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status.as_u16(), status, "{what}: {text}");
    assert_eq!(answer.code(), code, "{what}: {text}");
    assert_eq!(answer.header("content-type"), "application/json", "{what}");
    let error = &answer.json()["error"];
    assert!(
        error["message"].as_str().is_some_and(|m| !m.is_empty()),
        "{what}"
    );
    assert!(error["type"].is_string(), "{what}");
    assert_eq!(error["request_id"], answer.header("x-request-id"), "{what}");
}

/// No call and not even a connection went to the provider.
#[track_caller]
fn assert_untouched(what: &str, upstream: &Upstream) {
    assert_eq!(
        (upstream.hits(), upstream.connections()),
        (0, 0),
        "{what} reached the provider"
    );
}

/// A body with `bytes` of plain text in its one message.
fn chat_of(bytes: usize) -> Bytes {
    let (head, tail) = (
        r#"{"model":"gpt-4o","messages":[{"role":"user","content":""#,
        r#""}]}"#,
    );
    let mut text = "owl ".repeat(bytes.div_ceil(4));
    text.truncate(bytes - head.len() - tail.len());
    format!("{head}{text}{tail}").into()
}
