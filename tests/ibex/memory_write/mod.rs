//! Writing memories over the API.

use http::StatusCode;
use serde_json::json;

use crate::support::TestApp;

#[tokio::test]
async fn a_memory_is_stored_found_and_forgotten() {
    let app = TestApp::start("http://127.0.0.1:9/v1").await;
    let client = app.client();
    let created = client
        .post(
            "/v1/memories",
            &json!({"content": "The harbour office closes at six.", "pinned": true}),
        )
        .await;
    assert_eq!(created.status, StatusCode::CREATED);
    let id = created.json()["id"].as_str().unwrap().to_owned();
    let found = client
        .post(
            "/v1/memories/search",
            &json!({"query": "When does the harbour office close?"}),
        )
        .await
        .json();
    assert_eq!(found["results"][0]["id"], id);
    let again = client
        .post(
            "/v1/memories",
            &json!({"content": " the HARBOUR office closes at six. "}),
        )
        .await;
    assert_eq!(
        (again.status, again.code()),
        (StatusCode::CONFLICT, "DUPLICATE_CONTENT".to_owned())
    );
    assert_eq!(again.json()["error"]["existing_memory_id"], id);
    assert_eq!(
        client.delete(&format!("/v1/memories/{id}")).await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        client.get(&format!("/v1/memories/{id}")).await.status,
        StatusCode::NOT_FOUND
    );
    let gone = client
        .post(
            "/v1/memories/search",
            &json!({"query": "When does the harbour office close?"}),
        )
        .await
        .json();
    assert_eq!(gone["results"], json!([]));
}
