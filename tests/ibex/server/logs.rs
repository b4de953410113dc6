//! Whatever happens, no log line holds content or a credential.

use http::{Method, StatusCode};
use serde_json::json;

use crate::support::{Log, Overrides, TestApp, Upstream, patient};

/// A word that no source of the program contains.
const CANARY: &str = "quillwort";

#[tokio::test]
async fn no_line_holds_content_or_credentials() {
    let (log, _capturing) = Log::captured("debug,ibex=trace");
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::with(&upstream.url(), patient, Overrides::default()).await;
    let client = app
        .client()
        .header("x-ibex-user-id", "user-quillwort")
        .header("cookie", "c=quillwort");
    let text = format!("The {CANARY} grows by the weir.");
    let question = format!("Where does the {CANARY} grow?");
    let created = client
        .post(
            "/v1/memories",
            &json!({"content": text, "metadata": {"k": CANARY}}),
        )
        .await;
    assert_eq!(created.status, StatusCode::CREATED);
    client.post("/v1/memories", &json!({"content": text})).await;
    client
        .post(
            "/v1/memories",
            &json!({"content": CANARY, CANARY: CANARY, "category": CANARY}),
        )
        .await;
    client
        .post("/v1/directives", &json!({"content": text, "promote": true}))
        .await;
    client
        .post("/v1/memories/search", &json!({"query": question}))
        .await;
    let chat = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": question}]});
    let answer = client.post("/v1/chat/completions", &chat).await;
    assert_eq!(answer.header("x-ibex-memories-injected"), "1");
    client.post("/v1/context/preview", &chat).await;
    client
        .post_raw(
            "/v1/chat/completions",
            format!("{{\"messages\": [{{\"role\": \"{CANARY}\""),
        )
        .await;
    client
        .post(
            "/v1/chat/completions",
            &json!({"model": "gpt-4o", "messages": [{"role": CANARY, "content": text}]}),
        )
        .await;
    client
        .clone()
        .header("authorization", "Bearer ibex_pat_quillwort")
        .get("/v1/memories")
        .await;
    client
        .clone()
        .header("x-api-key", CANARY)
        .get("/v1/memories")
        .await;
    client.get(&format!("/v1/memories?{CANARY}={CANARY}")).await;
    let typed = client.clone().header("content-type", "application/json");
    for (state, status) in [
        (json!({"facts": [{"text": text}]}), StatusCode::OK),
        (
            json!({"facts": [{"text": text, CANARY: text}]}),
            StatusCode::BAD_REQUEST,
        ),
        (
            json!({"constraints": [{"id": text, "text": ""}]}),
            StatusCode::BAD_REQUEST,
        ),
    ] {
        let (path, body) = ("/v1/sessions/trip/working-state", state.to_string());
        let answer = typed.send(Method::PUT, path, body.into()).await;
        assert_eq!(answer.status, status);
    }
    let id = created.json()["id"].as_str().unwrap().to_owned();
    client.delete(&format!("/v1/memories/{id}")).await;
    app.store.close().await.unwrap();
    client
        .post(
            "/v1/memories",
            &json!({"content": format!("{text} Again.")}),
        )
        .await;
    client
        .post("/v1/memories/search", &json!({"query": question}))
        .await;
    drop(upstream);
    client.post("/v1/chat/completions", &chat).await;

    let logged = log.text();
    let requests = logged
        .lines()
        .filter(|line| line.contains("\"message\":\"request\""))
        .count();
    assert!(requests >= 17, "every request has its line: {logged}");
    assert!(logged.contains("\"WARN\""), "faults are told: {logged}");
    let secret = app.secret();
    for canary in [CANARY, secret, "sk-upstream-invented"] {
        let found: Vec<&str> = logged
            .lines()
            .filter(|line| line.contains(canary))
            .collect();
        assert_eq!(found, [""; 0]);
    }
}
