//! OPS-06: liveness asks nothing, readiness asks the store, and neither they nor the metrics tell anything about tenants.

use http::StatusCode;
use ibex::config::Config;
use serde_json::{Value, json};

use super::service;
use crate::support::{Client, Overrides, TestApp, Upstream, patient};

const CANARY: &str = "heronfeather";

async fn probe(app: &TestApp, path: &str) -> (StatusCode, Value) {
    let answer = Client::new(app.address).get(path).await;
    (answer.status, answer.json())
}

#[tokio::test]
async fn a_closed_store_is_not_ready_and_still_alive() {
    let app = service().await;
    let (status, ready) = probe(&app, "/ready").await;
    assert_eq!(
        (
            status,
            &ready["status"],
            &ready["checks"]["store"]["status"]
        ),
        (StatusCode::OK, &json!("ok"), &json!("ok"))
    );
    app.store.close().await.unwrap();
    for _ in 0..20 {
        assert_eq!(
            probe(&app, "/health").await,
            (StatusCode::OK, json!({"status": "ok", "checks": {}}))
        );
        let (status, ready) = probe(&app, "/ready").await;
        assert_eq!(
            (
                status,
                &ready["status"],
                &ready["checks"]["store"]["status"]
            ),
            (
                StatusCode::SERVICE_UNAVAILABLE,
                &json!("unhealthy"),
                &json!("failed")
            )
        );
        assert!(ready["checks"]["store"]["latency_ms"].is_number());
    }
}

#[tokio::test]
async fn no_provider_is_degraded_and_draining_is_not_ready() {
    let none = |config: &mut Config| {
        patient(config);
        config.providers.clear();
    };
    let app = TestApp::with("http://127.0.0.1:9/v1", none, Overrides::default()).await;
    let (status, ready) = probe(&app, "/ready").await;
    assert_eq!(
        (
            status,
            &ready["status"],
            &ready["checks"]["provider"]["status"]
        ),
        (StatusCode::OK, &json!("degraded"), &json!("not_configured"))
    );
    app.app.set_draining();
    let (status, ready) = probe(&app, "/ready").await;
    assert_eq!(
        (status, &ready["status"]),
        (StatusCode::SERVICE_UNAVAILABLE, &json!("draining"))
    );
    assert_eq!(probe(&app, "/health").await.0, StatusCode::OK);
}

#[tokio::test]
async fn probes_are_not_counted_and_tell_no_version_or_address() {
    let tight = |config: &mut Config| {
        patient(config);
        config.rate_limit.default_rpm = 1;
    };
    let app = TestApp::with("http://127.0.0.1:9/v1", tight, Overrides::default()).await;
    for path in ["/health", "/ready"] {
        for _ in 0..5 {
            let answer = Client::new(app.address).get(path).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}");
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            for secret in [
                env!("CARGO_PKG_VERSION"),
                "127.0.0.1",
                "ibex.db",
                "sqlite",
                "sk-upstream",
            ] {
                assert!(!text.contains(secret), "{text}");
            }
            assert!(
                answer
                    .headers
                    .keys()
                    .all(|name| !name.as_str().contains("ratelimit"))
            );
            assert_eq!(answer.header("server"), "");
        }
    }
}

#[tokio::test]
async fn metrics_hold_no_identifier_and_no_content() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::with(&upstream.url(), patient, Overrides::default()).await;
    let client = app
        .client()
        .header("x-ibex-user-id", "user-heronfeather")
        .header("x-ibex-session-id", "session-heronfeather");
    let content = format!("The {CANARY} is under the third stone.");
    let id = client
        .post("/v1/memories", &json!({"content": content}))
        .await
        .json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    client
        .post(
            "/v1/directives",
            &json!({"content": format!("Mention the {CANARY}."), "promote": true}),
        )
        .await;
    client
        .post(
            "/v1/memories/search",
            &json!({"query": format!("Where is the {CANARY}?")}),
        )
        .await;
    let chat = |model: &str, stream: bool| json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": format!("Where is the {CANARY}?")}]});
    for (model, stream) in [
        ("gpt-4o", false),
        ("gpt-4o", true),
        ("model-heronfeather", false),
    ] {
        assert_eq!(
            client
                .post("/v1/chat/completions", &chat(model, stream))
                .await
                .status,
            StatusCode::OK
        );
    }
    client.get(&format!("/v1/models/{CANARY}")).await;
    client.get(&format!("/nowhere/{CANARY}")).await;
    client
        .post_raw("/v1/chat/completions", format!("{{{CANARY}"))
        .await;
    client.get(&format!("/v1/memories/{id}")).await;
    Client::new(app.address)
        .header("authorization", "Bearer heronfeather")
        .get("/v1/memories")
        .await;
    let answer = Client::new(app.address).get("/metrics").await;
    assert_eq!(answer.status, StatusCode::OK);
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(text.contains("ibex_"), "{text}");
    let token_id = app
        .token
        .strip_prefix("ibex_pat_")
        .unwrap()
        .split('_')
        .next()
        .unwrap();
    for secret in [
        CANARY,
        &app.org.to_string(),
        &app.agent.to_string(),
        &id,
        token_id,
        &app.address.to_string(),
    ] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    assert!(
        text.contains("/v1/chat/completions")
            && text.contains("VALIDATION_ERROR") | text.contains("INVALID_JSON"),
        "{text}"
    );
}
