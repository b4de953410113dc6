//! What is judged of requests that pass through.

use http::StatusCode;
use serde_json::{Value, json};

use super::{assert_refused, assert_untouched};
use crate::support::{TestApp, Upstream};

#[tokio::test]
async fn a_request_without_a_model_reaches_no_provider() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    for path in ["/v1/responses", "/v1/completions", "/v1/embeddings"] {
        for (model, code) in [
            (None, "REQUIRED"),
            (Some(Value::Null), "REQUIRED"),
            (Some(json!("")), "REQUIRED"),
            (Some(json!(3)), "INVALID_FORMAT"),
            (Some(json!("m".repeat(257))), "TOO_LONG"),
        ] {
            let mut body = json!({"input": "hi"});
            if let Some(model) = model {
                body["model"] = model;
            }
            let refused = app.client().post(path, &body).await;
            assert_refused(path, &refused, 400, "VALIDATION_ERROR");
            let error = refused.json()["error"].take();
            assert_eq!(error["param"], "model");
            assert_eq!(error["field_errors"][0]["code"], code);
        }
    }
    assert_untouched("a request without a model", &upstream);
}

#[tokio::test]
async fn what_the_provider_stores_is_not_reachable() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    for (name, value) in [
        ("previous_response_id", json!("resp_1")),
        ("conversation", json!({"id": "conv_1"})),
        ("prompt", json!({"id": "pmpt_1"})),
    ] {
        let body = json!({"model": "gpt-4o", "input": "hi", name: value});
        let refused = app.client().post("/v1/responses", &body).await;
        assert_refused(name, &refused, 400, "VALIDATION_ERROR");
        let error = refused.json()["error"].take();
        assert_eq!(error["param"], name);
        let text = error["message"].as_str().expect("a text");
        assert!(text.contains("is not supported"), "{text}");
    }
    assert_untouched("a stored response", &upstream);
    let body = json!({"model": "gpt-4o", "input": "hi", "previous_response_id": null, "conversation": null, "prompt": null});
    let passed = app.client().post("/v1/responses", &body).await;
    assert_eq!(passed.status, StatusCode::OK);
    let prompt = json!({"model": "gpt-4o", "prompt": "hi"});
    let passed = app.client().post("/v1/completions", &prompt).await;
    assert_eq!(passed.status, StatusCode::OK, "a prompt is a text here");
}
