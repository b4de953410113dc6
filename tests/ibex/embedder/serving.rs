//! MEM-17: an embedder that fails, hangs or drips costs a chat neither its answer nor its time; the headers tell, and after a few failures
//! it is not asked any more.

use http::StatusCode;
use ibex::config::EmbedderConfig;
use serde_json::json;

use super::{over, with};
use crate::support::{Answer, Overrides, Script, TestApp, Upstream, chunk};

/// Failures in a row after which an embedder is left alone.
const FAILURES: usize = 5;

async fn chat(app: &TestApp, n: usize) -> Answer {
    let question = format!("What is question number {n} about?");
    let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": question}]});
    app.client().post("/v1/chat/completions", &body).await
}

/// An embedder that answers every question with `script` is given up, and every chat is answered all the same. It has time enough to be
/// reached on a busy machine.
async fn is_given_up(script: Script, reason: &str) {
    let (provider, server) = (Upstream::echo_ok().await, Upstream::playing(script).await);
    let embedder = EmbedderConfig {
        timeout_ms: 250,
        document_timeout_ms: 250,
        ..over(&server)
    };
    let app = TestApp::with(&provider.url(), with(embedder), Overrides::default()).await;
    for n in 0..FAILURES + 3 {
        let answer = chat(&app, n).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.header("x-ibex-context-status"), "partial");
        assert_eq!(answer.header("x-ibex-context-degradation"), "L1");
        let expected = if n < FAILURES {
            reason
        } else {
            "embedding=error"
        };
        assert_eq!(answer.header("x-ibex-context-reason"), expected, "{n}");
    }
    assert_eq!(server.hits(), FAILURES, "then it is left alone");
    assert_eq!(provider.hits(), FAILURES + 3);
}

#[tokio::test]
async fn an_embedder_that_fails_is_given_up() {
    let failing = Script::new().whole("500 Oops", "", "");
    is_given_up(failing, "embedding=error").await;
}

#[tokio::test]
async fn an_embedder_that_says_nothing_is_given_up() {
    is_given_up(Script::new().hang(), "embedding=timeout").await;
}

#[tokio::test]
async fn an_embedder_that_drips_is_given_up() {
    let dripping = Script::new()
        .chunked_head("content-type: application/json\r\n")
        .send(chunk("{\"data\""))
        .hang();
    is_given_up(dripping, "embedding=timeout").await;
}

#[tokio::test]
async fn without_its_vector_a_question_finds_memories_by_words() {
    let provider = Upstream::echo_ok().await;
    // Documents are taken; questions are not.
    let server = Upstream::start(|request| {
        if super::texts(request).iter().any(|text| text.ends_with('?')) {
            Script::new().whole("503 Busy", "", "")
        } else {
            super::alike(request)
        }
    })
    .await;
    let app = TestApp::with(&provider.url(), with(over(&server)), Overrides::default()).await;
    let client = app.client();
    let memory = json!({"content": "The ferry to Skye leaves at noon."});
    let stored = client.post("/v1/memories", &memory).await;
    assert_eq!(stored.status, StatusCode::CREATED);
    let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "When does the ferry to Skye leave?"}]});
    let answer = client.post("/v1/chat/completions", &body).await;
    assert_eq!(answer.header("x-ibex-context-reason"), "embedding=error");
    assert_eq!(answer.header("x-ibex-memories-injected"), "1");
}
