//! Chat requests with an `Idempotency-Key`: a repeated one has the first one's answer, and the provider is asked once.

use ibex::auth::Permissions;
use ibex::telemetry::metrics::Exposition;
use serde_json::{Value, json};

use super::{CHAT, chat, until};
use crate::support::{Event, Overrides, Script, TestApp, Upstream, completion, patient};

async fn app(upstream: &Upstream) -> TestApp {
    TestApp::with(&upstream.url(), patient, Overrides::default()).await
}

/// What was claimed is completed, and what was dropped is given back, in the background.
async fn settled(app: &TestApp, label: &str, count: u64) {
    let line = format!("ibex_chat_idempotency_total{{result=\"{label}\"}} {count}");
    until("a claim", || {
        app.app
            .metrics
            .render(Exposition::Text)
            .unwrap()
            .contains(&line)
    })
    .await;
}

#[tokio::test]
async fn a_repeated_request_has_the_first_answer_and_calls_nobody() {
    let upstream = Upstream::echo_ok().await;
    let app = app(&upstream).await;
    let client = app.client().header("idempotency-key", "order-7");
    let first = client.post(CHAT, &chat()).await;
    assert_eq!((first.status.as_u16(), upstream.hits()), (200, 1));
    assert_eq!(first.headers.get("x-idempotency-replayed"), None);
    let mut again = client.post(CHAT, &chat()).await;
    while again.status.as_u16() == 409 {
        assert_eq!(again.code(), "IDEMPOTENCY_IN_PROGRESS");
        again = client.post(CHAT, &chat()).await;
    }
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(again.header("x-idempotency-replayed"), "true");
    assert_eq!(again.header("content-type"), first.header("content-type"));
    assert_eq!(
        again.header("x-ibex-session-id"),
        first.header("x-ibex-session-id")
    );
    assert!(!again.header("x-ratelimit-remaining").is_empty());
    assert_eq!(upstream.hits(), 1);
    let sent = upstream.last();
    assert!(
        sent.request.values("idempotency-key").is_empty(),
        "it stays here"
    );

    let mut other = chat();
    other["temperature"] = json!(0.1);
    let reused = client.post(CHAT, &other).await;
    assert_eq!(
        (reused.status.as_u16(), &*reused.code()),
        (409, "IDEMPOTENCY_KEY_REUSE")
    );
    assert_eq!(upstream.hits(), 1);
}

#[tokio::test]
async fn a_key_belongs_to_its_scope() {
    let upstream = Upstream::echo_ok().await;
    let app = app(&upstream).await;
    let keyed = || app.client().header("idempotency-key", "order-7");
    keyed().post(CHAT, &chat()).await;
    for user in ["ann", "bob"] {
        let answer = keyed()
            .header("x-ibex-user-id", user)
            .post(CHAT, &chat())
            .await;
        assert_eq!(answer.headers.get("x-idempotency-replayed"), None, "{user}");
    }
    let org = ibex::ids::OrgId::new();
    let agent = ibex::ids::AgentId::new();
    app.create_org(org).await;
    app.create_agent(org, agent).await;
    let token = app.mint(org, None, None, Permissions::all()).await;
    let other = app
        .client_with(&token, Some(agent))
        .header("idempotency-key", "order-7");
    let answer = other.post(CHAT, &chat()).await;
    assert_eq!(answer.headers.get("x-idempotency-replayed"), None);
    assert_eq!(upstream.hits(), 4);
}

#[tokio::test]
async fn two_at_once_call_the_provider_once() {
    let go = Event::default();
    let answering = go.clone();
    let upstream =
        Upstream::start(move |_: &_| Script::new().wait(&answering).json("200 OK", &completion()))
            .await;
    let app = app(&upstream).await;
    let client = app.client().header("idempotency-key", "order-7");
    let second = async {
        until("the first call", || upstream.hits() == 1).await;
        let second = client.post(CHAT, &chat()).await;
        go.set();
        second
    };
    let body = chat();
    let (first, second) = tokio::join!(client.post(CHAT, &body), second);
    assert_eq!(first.status.as_u16(), 200);
    assert_eq!(
        (second.status.as_u16(), &*second.code()),
        (409, "IDEMPOTENCY_IN_PROGRESS")
    );
    assert_eq!((second.header("retry-after"), upstream.hits()), ("1", 1));
}

/// Answers with this status once, and well after that.
async fn failing_once(status: &'static str) -> Upstream {
    let failed = Event::default();
    Upstream::start(move |_: &_| {
        if failed.is_set() {
            return Script::new().json("200 OK", &completion());
        }
        failed.set();
        Script::new().json(status, &json!({"error": {"message": "no"}}))
    })
    .await
}

#[tokio::test]
async fn what_another_try_may_mend_is_not_kept_and_the_rest_is() {
    for (status, kept) in [
        ("400 Bad Request", true),
        ("422 Unprocessable Entity", true),
        ("429 Too Many Requests", false),
        ("500 Internal Server Error", false),
        ("503 Service Unavailable", false),
    ] {
        let upstream = failing_once(status).await;
        let app = app(&upstream).await;
        let client = app.client().header("x-idempotency-key", "order-7");
        let first = client.post(CHAT, &chat()).await;
        assert!(!first.status.is_success(), "{status}");
        let again = loop {
            let again = client.post(CHAT, &chat()).await;
            if again.status.as_u16() != 409 {
                break again;
            }
        };
        let replayed = again.headers.contains_key("x-idempotency-replayed");
        assert_eq!(replayed, kept, "{status}");
        assert_eq!(upstream.hits(), if kept { 1 } else { 2 }, "{status}");
        if kept {
            assert_eq!((again.status, again.body), (first.status, first.body));
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_key() {
    let upstream = Upstream::start(|request: &crate::support::Received| {
        if request.json()["model"] == "slow" {
            Script::new().hang()
        } else {
            Script::new().json("200 OK", &completion())
        }
    })
    .await;
    let app = app(&upstream).await;
    let client = app.client().header("idempotency-key", "order-7");
    let slow = json!({"model": "slow", "messages": [{"role": "user", "content": "hi"}]});
    tokio::select! {
        _ = client.post(CHAT, &slow) => panic!("nobody answers"),
        () = until("the call", || upstream.hits() == 1) => {}
    }
    settled(&app, "claimed", 1).await;
    // Another body under the same key: the claim is gone with the client.
    let answered = loop {
        let answer = client.post(CHAT, &chat()).await;
        if answer.status.as_u16() != 409 {
            break answer;
        }
    };
    assert_eq!(answered.status.as_u16(), 200);
}

#[tokio::test]
async fn a_stream_and_a_bad_key_are_refused() {
    let upstream = Upstream::echo_ok().await;
    let app = app(&upstream).await;
    let client = app.client();
    let keyed = client.clone().header("idempotency-key", "order-7");
    let refused = keyed.post(CHAT, &super::streamed()).await;
    assert_eq!(refused.status.as_u16(), 400);
    let text: Value = refused.json();
    assert_eq!(text["error"]["param"], "Idempotency-Key");
    let long = "k".repeat(256);
    for key in ["", long.as_str(), "ß"] {
        let refused = client.clone().header("idempotency-key", key);
        let refused = refused.post(CHAT, &chat()).await;
        assert_eq!(refused.status.as_u16(), 400, "{key}");
    }
    let two = keyed.header("x-idempotency-key", "order-8");
    assert_eq!(two.post(CHAT, &chat()).await.status.as_u16(), 400);
    assert_eq!(upstream.hits(), 0);
}
