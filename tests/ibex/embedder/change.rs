//! A change of the embedder: memories are found at every step, vectors of two models are never compared, and in the end every memory has a
//! vector of the new model.

use http::StatusCode;
use ibex::config::EmbedderConfig;
use ibex::memory::PartitionKey;
use ibex::memory::embedder::static_minilm;
use ibex::store::MemoryStore;
use serde_json::json;

use super::{alike, over, texts, with};
use crate::support::{Event, Overrides, Script, TestApp, Upstream, soon};

/// No word in common with the memory that answers it.
const QUESTION: &str = "Which pet does she have?";
const ANSWER: &str = "Ann adopted a puppy.";
const NOBODY: &str = "http://127.0.0.1:9/v1";

async fn remember(app: &TestApp, content: &str) {
    let answer = app
        .client()
        .post("/v1/memories", &json!({"content": content}))
        .await;
    assert_eq!(answer.status, StatusCode::CREATED, "{:?}", answer.body);
}

/// The cosine of the question and the memory with this text, which must be found.
async fn cosine(app: &TestApp, content: &str) -> f64 {
    let body = json!({"query": QUESTION, "limit": 50});
    let found = app.client().post("/v1/memories/search", &body).await;
    assert_eq!(found.status, StatusCode::OK);
    let found = found.json();
    let found = found["results"].as_array().unwrap();
    let hit = found.iter().find(|hit| hit["content"] == content);
    hit.unwrap_or_else(|| panic!("{content} is not found"))["similarity"]
        .as_f64()
        .unwrap()
}

/// The model of every stored vector.
async fn models(app: &TestApp) -> Vec<String> {
    let partition = PartitionKey {
        org: app.org,
        agent: app.agent,
        user: None,
    };
    let memories = app.store.partition_memories(&partition).await.unwrap();
    memories
        .iter()
        .map(|memory| memory.embedding.as_ref().unwrap().model.to_string())
        .collect()
}

/// Asks until the cosine is this one; the memory is found every time, and the cosine is never anything but one of the two.
async fn becomes(app: &TestApp, former: f64, wanted: f64) {
    let close = |a: f64, b: f64| (a - b).abs() < 0.02;
    soon("the other model serves", async {
        loop {
            let now = cosine(app, ANSWER).await;
            if close(now, wanted) {
                return;
            }
            assert!(close(now, former), "{now}");
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn old_vectors_serve_until_the_new_ones_are_complete() {
    let app = TestApp::with(
        NOBODY,
        with(EmbedderConfig::default()),
        Overrides::default(),
    )
    .await;
    for content in [ANSWER, "The invoice is due in March.", "Tea is at five."] {
        remember(&app, content).await;
    }
    let built_in = cosine(&app, ANSWER).await;
    assert!(built_in > 0.2 && built_in < 0.9, "{built_in}");

    // Batches of documents wait; questions and single memories do not.
    let go = Event::default();
    let held = go.clone();
    let server = Upstream::start(move |request| match texts(request).len() {
        1 => alike(request),
        _ => Script::new().wait(&held).send_all(alike(request)),
    })
    .await;
    let app = app
        .restarted(NOBODY, with(over(&server)), Overrides::default())
        .await;
    server.exchange(0).await;
    assert!((cosine(&app, ANSWER).await - built_in).abs() < 0.02);
    remember(&app, "Bob collects stamps.").await;
    assert!(
        cosine(&app, "Bob collects stamps.").await < 0.9,
        "a vector of the new model is not compared yet"
    );
    let ready = crate::support::Client::new(app.address).get("/ready").await;
    assert_eq!(
        ready.json()["checks"]["embeddings"]["status"],
        "catching_up"
    );
    go.set();
    becomes(&app, built_in, 1.0).await;
    assert_eq!(models(&app).await, vec!["http:test-embed"; 4]);
    assert!((cosine(&app, "Bob collects stamps.").await - 1.0).abs() < 0.02);

    // And back: the built-in embedder needs no stored vector to serve.
    let app = app
        .restarted(
            NOBODY,
            with(EmbedderConfig::default()),
            Overrides::default(),
        )
        .await;
    assert!((cosine(&app, ANSWER).await - built_in).abs() < 0.02);
    soon("every vector is the built-in embedder's again", async {
        while models(&app).await != vec![static_minilm::MODEL; 4] {
            assert!((cosine(&app, ANSWER).await - built_in).abs() < 0.02);
        }
    })
    .await;
}

#[tokio::test]
async fn a_text_that_the_new_model_does_not_take_keeps_nothing_else_back() {
    let app = TestApp::with(
        NOBODY,
        with(EmbedderConfig::default()),
        Overrides::default(),
    )
    .await;
    remember(&app, ANSWER).await;
    remember(&app, "Unspeakable pet words.").await;
    let built_in = cosine(&app, ANSWER).await;
    let server = Upstream::start(|request| {
        if texts(request)
            .iter()
            .any(|text| text.starts_with("Unspeak"))
        {
            Script::new().whole("400 Bad Request", "", "")
        } else {
            alike(request)
        }
    })
    .await;
    let app = app
        .restarted(NOBODY, with(over(&server)), Overrides::default())
        .await;
    becomes(&app, built_in, 1.0).await;
    assert_eq!(models(&app).await, vec!["http:test-embed"; 2]);
    // Found by its words, compared with nothing.
    assert_eq!(cosine(&app, "Unspeakable pet words.").await, 0.0);
}
