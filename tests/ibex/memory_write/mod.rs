//! Writing memories over the API.

mod order;
mod api;
mod duplicates;
mod keyed;
mod refinery;
mod edit;
mod capture;
mod other_process;
mod validation;
mod amplification;
mod chunks;
mod classifier;
mod scripts;

use http::StatusCode;
use serde_json::{Value, json};

use crate::support::{Client, Overrides, TestApp, patient};

/// A service whose provider nobody calls.
async fn service() -> TestApp {
    TestApp::with("http://127.0.0.1:9/v1", patient, Overrides::default()).await
}

/// Writes a memory that must be taken; its id.
async fn create(client: &Client, body: &Value) -> String {
    let answer = client.post("/v1/memories", body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{:?}", answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// The ids of a list of results.
fn ids(list: &Value) -> Vec<String> {
    let id = |item: &Value| item["id"].as_str().unwrap().to_owned();
    list.as_array().unwrap().iter().map(id).collect()
}

async fn search(client: &Client, query: &str) -> Vec<String> {
    let answer = client
        .post("/v1/memories/search", &json!({"query": query}))
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    ids(&answer.json()["results"])
}
