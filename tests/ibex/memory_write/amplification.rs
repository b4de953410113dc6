//! An error stays small whatever it is about.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::service;

#[tokio::test]
async fn unknown_fields_are_listed_up_to_a_limit_and_cut() {
    let app = service().await;
    let long = "é".repeat(5_000);
    let fields: Map<String, Value> = (0..2_000)
        .map(|i| (format!("{i}"), json!(1)))
        .chain([(long.clone(), json!(1))])
        .collect();
    let refused = app
        .client()
        .post("/v1/memories", &Value::Object(fields))
        .await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let error = refused.json()["error"].take();
    let listed = error["field_errors"].as_array().unwrap();
    assert_eq!(listed.len(), 20);
    assert_eq!(error["param"], "content", "known fields come first");
    let one = app
        .client()
        .post("/v1/memories", &json!({"content": "a", long: 1}))
        .await;
    let error = one.json()["error"].take();
    assert_eq!(error["param"], "é".repeat(64));
    assert!(one.body.len() < 1_000, "{}", one.body.len());
}
