//! Every rule of a memory's fields, and that all broken ones are reported at once.

use http::StatusCode;
use serde_json::{Value, json};

use super::service;
use crate::support::Client;

/// Field and code of each reported fault.
async fn faults(client: &Client, body: &str) -> Vec<(String, String)> {
    let refused = client.post_raw("/v1/memories", body.to_owned()).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (StatusCode::BAD_REQUEST, "VALIDATION_ERROR"),
        "{body}"
    );
    let error = refused.json()["error"].take();
    let text = |fault: &Value, name: &str| fault[name].as_str().unwrap().to_owned();
    let list: Vec<_> = error["field_errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (text(f, "field"), text(f, "code")))
        .collect();
    assert_eq!(error["param"], list[0].0);
    list
}

#[tokio::test]
async fn each_rule_names_its_field_and_its_reason() {
    let app = service().await;
    let client = app.client();
    let long = "x".repeat(10_001);
    let source = "s".repeat(257);
    let metadata = format!(r#"{{"k":"{}"}}"#, "m".repeat(10_240));
    let rows = [
        (String::new(), "content", "REQUIRED"),
        (r#""content": null"#.into(), "content", "REQUIRED"),
        (r#""content": """#.into(), "content", "REQUIRED"),
        (r#""content": " \n\t""#.into(), "content", "REQUIRED"),
        (r#""content": 7"#.into(), "content", "INVALID_FORMAT"),
        (r#""content": ["a"]"#.into(), "content", "INVALID_FORMAT"),
        (r#""content": "\ud800""#.into(), "content", "INVALID_FORMAT"),
        (format!(r#""content": "{long}""#), "content", "TOO_LONG"),
        (r#""content": "a", "confidence": 1.01"#.into(), "confidence", "RANGE_ERROR"),
        (r#""content": "a", "confidence": -0.01"#.into(), "confidence", "RANGE_ERROR"),
        (r#""content": "a", "confidence": "high""#.into(), "confidence", "INVALID_FORMAT"),
        (r#""content": "a", "category": "weekly""#.into(), "category", "INVALID_FORMAT"),
        (r#""content": "a", "category": "Factual""#.into(), "category", "INVALID_FORMAT"),
        (r#""content": "a", "labels": "factual""#.into(), "labels", "INVALID_FORMAT"),
        (r#""content": "a", "labels": ["factual"]"#.into(), "labels", "INVALID_FORMAT"),
        (r#""content": "a", "labels": [{"label": "factual", "weight": 1}]"#.into(), "labels", "INVALID_FORMAT"),
        (r#""content": "a", "labels": []"#.into(), "labels", "TOO_MANY"),
        (r#""content": "a", "labels": [{"label": "factual", "confidence": 2}]"#.into(), "labels", "RANGE_ERROR"),
        (r#""content": "a", "labels": [{"label": "factual"}, {"label": "factual"}]"#.into(), "labels", "DUPLICATE"),
        (r#""content": "a", "category": "episodic", "labels": [{"label": "factual"}]"#.into(), "category", "INVALID_ENUM"),
        (r#""content": "a", "valid_from": "yesterday""#.into(), "valid_from", "INVALID_FORMAT"),
        (r#""content": "a", "valid_from": "2024-02-30T00:00:00Z""#.into(), "valid_from", "INVALID_FORMAT"),
        (r#""content": "a", "valid_from": "2024-02-01T00:00:00""#.into(), "valid_from", "INVALID_FORMAT"),
        (r#""content": "a", "valid_from": 1700000000"#.into(), "valid_from", "INVALID_FORMAT"),
        (r#""content": "a", "valid_from": "2024-02-02T00:00:00Z", "valid_until": "2024-02-01T00:00:00Z""#.into(), "valid_until", "RANGE_ERROR"),
        (r#""content": "a", "valid_from": "2024-02-02T00:00:00Z", "valid_until": "2024-02-02T00:00:00Z""#.into(), "valid_until", "RANGE_ERROR"),
        (r#""content": "a", "observed_at": "soon""#.into(), "observed_at", "INVALID_FORMAT"),
        (r#""content": "a", "metadata": []"#.into(), "metadata", "INVALID_FORMAT"),
        (r#""content": "a", "metadata": "text""#.into(), "metadata", "INVALID_FORMAT"),
        (format!(r#""content": "a", "metadata": {metadata}"#), "metadata", "TOO_LONG"),
        (r#""content": "a", "pinned": 1"#.into(), "pinned", "INVALID_FORMAT"),
        (r#""content": "a", "source": "api""#.into(), "source", "INVALID_FORMAT"),
        (r#""content": "a", "source": {"session": "s"}"#.into(), "source", "INVALID_FORMAT"),
        (r#""content": "a", "source": {"kind": "api", "turn": -1}"#.into(), "source", "INVALID_FORMAT"),
        (r#""content": "a", "source": {"kind": ""}"#.into(), "source", "TOO_LONG"),
        (format!(r#""content": "a", "source": {{"kind": "api", "session": "{source}"}}"#), "source", "TOO_LONG"),
        (r#""content": "a", "status": "active""#.into(), "status", "UNKNOWN_FIELD"),
        (r#""content": "a", "Content": "b""#.into(), "Content", "UNKNOWN_FIELD"),
    ];
    for (fields, field, code) in rows {
        let found = faults(&client, &format!("{{{fields}}}")).await;
        assert_eq!(
            found,
            [(field.to_owned(), code.to_owned())],
            "{}",
            fields.chars().take(80).collect::<String>()
        );
    }
    assert_eq!(
        client.get("/v1/memories").await.json()["memories"],
        json!([]),
        "nothing was stored"
    );
}

#[tokio::test]
async fn limits_are_met_exactly() {
    let app = service().await;
    let client = app.client();
    // 10,000 characters, not bytes.
    let metadata = format!(r#"{{"k":"{}"}}"#, "m".repeat(10_240 - 8));
    assert_eq!(metadata.len(), 10_240);
    for body in [
        format!(r#"{{"content":"{}"}}"#, "雪".repeat(10_000)),
        format!(r#"{{"content":"a","metadata":{metadata}}}"#),
        format!(r#"{{"content":"b","source":{{"kind":"{0}","session":"{0}"}}}}"#, "s".repeat(256)),
        r#"{"content":"c","confidence":0}"#.to_owned(),
        r#"{"content":"d","confidence":1,"category":null,"labels":null,"metadata":null,"source":null}"#.to_owned(),
        r#"{"content":"e","category":"factual","labels":[{"label":"factual"},{"label":"episodic","confidence":0.1},{"label":"procedural","confidence":0},{"label":"preference","confidence":0},{"label":"behavioral","confidence":0}]}"#.to_owned(),
    ] {
        let answer = client.post_raw("/v1/memories", body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{:?}", answer.body);
    }
}

#[tokio::test]
async fn all_faults_are_reported_at_once_and_no_value_is_repeated() {
    let app = service().await;
    let body = r#"{"content":"", "confidence": 7, "category": "canary", "valid_from": "canary", "metadata": [], "pinned": "canary", "canary_field": "canary"}"#;
    let refused = app.client().post_raw("/v1/memories", body).await;
    let fields: Vec<Value> = refused.json()["error"]["field_errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["field"].clone())
        .collect();
    assert_eq!(
        fields,
        [
            "content",
            "confidence",
            "category",
            "valid_from",
            "metadata",
            "pinned",
            "canary_field"
        ]
    );
    assert_eq!(
        String::from_utf8_lossy(&refused.body)
            .matches("canary")
            .count(),
        1,
        "only the field's name"
    );
}

#[tokio::test]
async fn what_is_no_object_is_refused() {
    let app = service().await;
    let client = app.client();
    for body in ["[]", "7", "\"text\"", "null", "true"] {
        assert_eq!(
            faults(&client, body).await,
            [("memory".to_owned(), "INVALID_FORMAT".to_owned())],
            "{body}"
        );
    }
    for body in [
        "",
        "{",
        "{\"content\": \"a\"} x",
        "{'content': 'a'}",
        "{\"content\": NaN}",
    ] {
        let refused = client.post_raw("/v1/memories", body).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (StatusCode::BAD_REQUEST, "INVALID_JSON"),
            "{body}"
        );
    }
    let text = client
        .header("content-type", "text/plain")
        .post_raw("/v1/memories", "{\"content\": \"a\"}")
        .await;
    assert_eq!(text.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}
