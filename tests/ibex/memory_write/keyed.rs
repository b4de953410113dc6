//! Keyed writes: the five cases of the ledger, over the API.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use http::{Method, StatusCode};
use ibex::memory::embedder::{EmbedError, Embedder};
use ibex::seams::{Clock, SystemClock};
use ibex::store::RefineryStore;
use ibex::store::sqlite::SqliteStore;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};

use super::service;
use crate::support::{Answer, Client, Overrides, TestApp, patient, soon};

const REPLAYED: &str = "x-idempotency-replayed";

fn keyed(app: &TestApp, key: &str) -> Client {
    app.client().header("idempotency-key", key)
}

async fn count(client: &Client) -> usize {
    let listed = client.get("/v1/memories?limit=100").await.json();
    listed["memories"].as_array().unwrap().len()
}

fn refused(answer: &Answer) -> (StatusCode, String) {
    (answer.status, answer.code())
}

#[tokio::test]
async fn a_repeated_write_has_the_first_one_s_outcome() {
    let app = service().await;
    let client = keyed(&app, "order-1");
    let first = client
        .post(
            "/v1/memories",
            &json!({"content": "The ferry leaves at noon.", "pinned": true}),
        )
        .await;
    assert_eq!(
        (first.status, first.header(REPLAYED)),
        (StatusCode::CREATED, "")
    );
    // Spaces and the order of members make no other request, nor does the header's other name.
    let other_name = app.client().header("x-idempotency-key", "\"order-1\"");
    let again = other_name
        .post_raw(
            "/v1/memories",
            r#"{ "pinned":true, "content":"The ferry leaves at noon." }"#,
        )
        .await;
    assert_eq!(
        (again.status, again.header(REPLAYED)),
        (StatusCode::CREATED, "true")
    );
    assert_eq!(again.json()["id"], first.json()["id"]);
    assert_eq!(count(&client).await, 1);
}

#[tokio::test]
async fn a_key_is_for_one_request_of_one_agent() {
    let app = service().await;
    let client = keyed(&app, "k");
    let body = json!({"content": "One."});
    assert_eq!(
        client.post("/v1/memories", &body).await.status,
        StatusCode::CREATED
    );
    let conflict = (StatusCode::CONFLICT, "IDEMPOTENCY_CONFLICT".to_owned());
    let other = client
        .post("/v1/memories", &json!({"content": "Two."}))
        .await;
    assert_eq!(refused(&other), conflict);
    let batch = client
        .post("/v1/memories/batch", &json!({"memories": [body]}))
        .await;
    assert_eq!(
        refused(&batch),
        conflict,
        "the same body on another route is another request"
    );
    let user = client
        .clone()
        .header("x-ibex-user-id", "ann")
        .post("/v1/memories", &body)
        .await;
    assert_eq!(
        refused(&user),
        conflict,
        "another user's memory is another request"
    );
    let agent = ibex::ids::AgentId::new();
    app.create_agent(app.org, agent).await;
    let other_agent = app
        .client_with(&app.token, Some(agent))
        .header("idempotency-key", "k");
    let written = other_agent.post("/v1/memories", &body).await;
    assert_eq!(
        (written.status, written.header(REPLAYED)),
        (StatusCode::CREATED, "")
    );
    assert_eq!(count(&client).await, 1);
}

#[tokio::test]
async fn a_batch_is_replayed_with_every_member_s_outcome() {
    let app = service().await;
    app.client()
        .post("/v1/memories", &json!({"content": "Known."}))
        .await;
    let client = keyed(&app, "batch");
    let body = json!({"memories": [{"content": "A."}, {"content": ""}, {"content": "known."}, {"content": "a."}, {"content": "B."}]});
    let first = client.post("/v1/memories/batch", &body).await;
    let again = client.post("/v1/memories/batch", &body).await;
    let statuses = |answer: &Answer| -> Vec<u64> {
        let results = answer.json()["results"].take();
        results
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["status"].as_u64().unwrap())
            .collect()
    };
    assert_eq!(statuses(&first), [201, 400, 409, 409, 201]);
    assert_eq!(first.json()["results"], again.json()["results"]);
    assert_eq!(
        (first.header(REPLAYED), again.header(REPLAYED)),
        ("", "true")
    );
    assert_eq!(count(&client).await, 3);
}

#[tokio::test]
async fn what_was_forgotten_is_not_replayed() {
    let app = service().await;
    let client = keyed(&app, "gone");
    let body = json!({"content": "The vault opens with a brass key."});
    let id = client.post("/v1/memories", &body).await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let batch_key = keyed(&app, "gone-batch");
    let batch = json!({"memories": [{"content": "The spare lies under a stone."}]});
    let written = batch_key.post("/v1/memories/batch", &batch).await.json();
    client.delete(&format!("/v1/memories/{id}")).await;
    client
        .delete(&format!(
            "/v1/memories/{}",
            written["results"][0]["id"].as_str().unwrap()
        ))
        .await;
    let again = client.post("/v1/memories", &body).await;
    assert_eq!(
        refused(&again),
        (StatusCode::NOT_FOUND, "NOT_FOUND".to_owned())
    );
    assert!(!String::from_utf8_lossy(&again.body).contains("brass"));
    let again = batch_key.post("/v1/memories/batch", &batch).await.json();
    assert_eq!(again["results"][0]["status"], 404);
    assert_eq!(
        count(&client).await,
        0,
        "a repetition does not bring it back"
    );
}

#[tokio::test]
async fn keys_that_are_none_are_refused() {
    let app = service().await;
    let body = json!({"content": "Kept out."});
    let long = "k".repeat(256);
    for client in [
        keyed(&app, ""),
        keyed(&app, &long),
        keyed(&app, "a b"),
        keyed(&app, "a").header("x-idempotency-key", "b"),
        keyed(&app, "a").another("idempotency-key", "b"),
    ] {
        let answer = client.post("/v1/memories", &body).await;
        assert_eq!(
            refused(&answer),
            (StatusCode::BAD_REQUEST, "VALIDATION_ERROR".to_owned())
        );
        assert_eq!(answer.json()["error"]["param"], "Idempotency-Key");
    }
    let twice = keyed(&app, "a")
        .header("x-idempotency-key", "a")
        .post("/v1/memories", &body)
        .await;
    assert_eq!(
        twice.status,
        StatusCode::CREATED,
        "the same key under both names is one key"
    );
}

/// An embedder that waits until it is let go.
#[derive(Debug)]
struct Held {
    arrived: Notify,
    go: Semaphore,
}

#[async_trait]
impl Embedder for Held {
    fn model(&self) -> &str {
        "held"
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.arrived.notify_one();
        self.go.acquire().await.unwrap().forget();
        Ok(texts.iter().map(|_| vec![1.0, 0.0]).collect())
    }
}

#[tokio::test]
async fn a_write_under_way_is_not_begun_again() {
    let held = Arc::new(Held {
        arrived: Notify::new(),
        go: Semaphore::new(0),
    });
    let overrides = Overrides {
        embedder: Some(held.clone()),
        ..Overrides::default()
    };
    let app = TestApp::with("http://127.0.0.1:9/v1", patient, overrides).await;
    let client = keyed(&app, "slow");
    let body = json!({"content": "Slowly does it."});
    let (first, ()) = tokio::join!(client.post("/v1/memories", &body), async {
        soon("the first write is under way", held.arrived.notified()).await;
        let second = client.post("/v1/memories", &body).await;
        assert_eq!(
            refused(&second),
            (StatusCode::CONFLICT, "IDEMPOTENCY_IN_PROGRESS".to_owned())
        );
        assert_eq!(second.header("retry-after"), "1");
        held.go.add_permits(1);
    });
    assert_eq!(first.status, StatusCode::CREATED);
    let third = client.post("/v1/memories", &body).await;
    assert_eq!(
        (third.status, third.header(REPLAYED)),
        (StatusCode::CREATED, "true")
    );
    // A client that leaves gives its claim back.
    let left = keyed(&app, "left");
    let body = json!({"content": "Nobody waits for this."});
    tokio::select! {
        _ = left.post("/v1/memories", &body) => unreachable!("it is held"),
        () = soon("the write is under way", held.arrived.notified()) => {}
    }
    held.go.add_permits(8);
    soon("the key is free", async {
        while left.post("/v1/memories", &body).await.status != StatusCode::CREATED {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(count(&client).await, 2);
}

#[tokio::test]
async fn forty_hands_with_one_key_write_once() {
    let app = service().await;
    let client = keyed(&app, "hands");
    let body = json!({"content": "Forty hands, one key."});
    let answers = join_all((0..40).map(|_| client.post("/v1/memories", &body))).await;
    let first = answers
        .iter()
        .filter(|a| a.status == StatusCode::CREATED && a.header(REPLAYED).is_empty());
    assert_eq!(first.count(), 1);
    for answer in &answers {
        let replayed = answer.status == StatusCode::CREATED;
        assert!(replayed || answer.code() == "IDEMPOTENCY_IN_PROGRESS");
    }
    assert_eq!(count(&client).await, 1);
}

/// A clock that a test moves.
#[derive(Debug)]
struct Moved(Mutex<Timestamp>);

impl Clock for Moved {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}

#[tokio::test]
async fn a_key_is_remembered_for_a_day() {
    let clock = Arc::new(Moved(Mutex::new(SystemClock.now())));
    let overrides = Overrides {
        clock: Some(clock.clone()),
        ..Overrides::default()
    };
    let app = TestApp::with("http://127.0.0.1:9/v1", patient, overrides).await;
    let client = keyed(&app, "daily");
    let body = json!({"content": "Today's soup is leek."});
    let id = client.post("/v1/memories", &body).await.json()["id"].take();
    let later = |hours: i64| {
        let mut now = clock.0.lock();
        *now = now.checked_add(SignedDuration::from_hours(hours)).unwrap();
    };
    later(23);
    assert_eq!(
        client.post("/v1/memories", &body).await.header(REPLAYED),
        "true"
    );
    later(2);
    let next = client
        .post("/v1/memories", &json!({"content": "Today's soup is pea."}))
        .await;
    assert_eq!(
        (next.status, next.header(REPLAYED)),
        (StatusCode::CREATED, "")
    );
    assert_ne!(next.json()["id"], id);
    later(25);
    assert_eq!(app.store.prune_ledger(clock.now(), 10).await.unwrap(), 1);
    assert_eq!(app.store.prune_ledger(clock.now(), 10).await.unwrap(), 0);
}

#[tokio::test]
async fn without_a_ledger_a_keyed_write_is_refused_and_nothing_is_stored() {
    let app = service().await;
    let client = keyed(&app, "closed");
    app.store.close().await.unwrap();
    let body = json!({"content": "Never stored."});
    let answer = client.post("/v1/memories", &body).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        answer.code() == "IDEMPOTENCY_UNAVAILABLE" || answer.code() == "AUTH_UNAVAILABLE",
        "{}",
        answer.code()
    );
}

#[tokio::test]
async fn two_processes_over_one_file_write_a_key_once() {
    let app = service().await;
    let other = SqliteStore::open(&app.app.config.store.path, &app.app.config.store).unwrap();
    let client = keyed(&app, "shared");
    let body = json!({"content": "Written by one of two."});
    let answer = client.post("/v1/memories", &body).await;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let key = ibex::store::LedgerKey {
        org: app.org,
        agent: app.agent,
        key: "shared".parse().unwrap(),
    };
    let row = other
        .ledger_row(&key, Timestamp::MIN)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        row.outcomes,
        [ibex::store::LedgerOutcome::Stored(id.parse().unwrap())]
    );
    let entry = ibex::store::LedgerEntry {
        key,
        asked: [7; 32],
        members: Vec::new(),
        at: SystemClock.now(),
        since: Timestamp::MIN,
    };
    let refused = other
        .commit(ibex::store::Refined {
            rows: Vec::new(),
            ledger: Some(entry),
        })
        .await;
    assert!(
        matches!(refused, Err(ibex::store::StoreError::Conflict(_))),
        "{refused:?}"
    );
    let listed: Value = client
        .send(Method::GET, "/v1/memories", bytes::Bytes::new())
        .await
        .json();
    assert_eq!(listed["memories"].as_array().unwrap().len(), 1);
}
