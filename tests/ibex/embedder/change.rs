//! A change of the embedder: memories are found at every step, vectors of two models are never compared, and in the end every memory has a
//! vector of the new model.

use http::StatusCode;
use ibex::config::EmbedderConfig;
use ibex::memory::PartitionKey;
use ibex::memory::embedder::{StaticMiniLm, static_minilm};
use ibex::store::MemoryStore;
use serde_json::json;

use super::{over, texts, vectors, with};
use crate::support::{Event, Overrides, Received, Script, TestApp, Upstream, soon};

/// A word of it is in every memory, so that each is found whatever its vector is.
const QUESTION: &str = "Which pet did Ann adopt?";
const ANSWER: &str = "Ann adopted a puppy.";
const LATER: &str = "Ann collects stamps.";
const REFUSED: &str = "Ann's unspeakable words.";
const NOBODY: &str = "http://127.0.0.1:9/v1";

/// The new model: the question and its answer have one direction, everything else another.
fn answered(request: &Received) -> Script {
    let vector = |text: &String| {
        if text == QUESTION || text == ANSWER {
            vec![0.0, 3.0]
        } else {
            vec![2.0, 1.0]
        }
    };
    let found: Vec<Vec<f32>> = texts(request).iter().map(vector).collect();
    Script::new().json("200 OK", &vectors(&found))
}

/// The cosine by the built-in model.
fn built_in(content: &str) -> f64 {
    let model = StaticMiniLm::shared();
    let (question, text) = (model.embed_one(QUESTION), model.embed_document(content));
    f64::from(question.iter().zip(&text).map(|(a, b)| a * b).sum::<f32>()).max(0.0)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 0.02
}

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
    let memories = app
        .store
        .partition_memories(&partition, None, 100)
        .await
        .unwrap();
    memories
        .iter()
        .map(|memory| memory.embedding.as_ref().unwrap().model.to_string())
        .collect()
}

/// Asks until the new model serves; the answer is found every time, and by one of the two models.
async fn new_model_serves(app: &TestApp) {
    soon("the new model serves", async {
        loop {
            let now = cosine(app, ANSWER).await;
            if close(now, 1.0) {
                return;
            }
            assert!(close(now, built_in(ANSWER)), "{now}");
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A service with the built-in embedder and these memories.
async fn with_memories(contents: &[&str]) -> TestApp {
    let app = TestApp::with(
        NOBODY,
        with(EmbedderConfig::default()),
        Overrides::default(),
    )
    .await;
    for content in contents {
        remember(&app, content).await;
        let found = cosine(&app, content).await;
        assert!(close(found, built_in(content)), "{content}: {found}");
    }
    assert!(built_in(ANSWER) < 0.9, "the two models can be told apart");
    app
}

#[tokio::test]
async fn old_vectors_serve_until_the_new_ones_are_complete() {
    let others = ["Ann pays her invoices in March.", "Ann drinks tea at five."];
    let app = with_memories(&[ANSWER, others[0], others[1]]).await;
    // Batches of documents wait; questions and single memories do not.
    let go = Event::default();
    let held = go.clone();
    let server = Upstream::start(move |request| match texts(request).len() {
        1 => answered(request),
        _ => Script::new().wait(&held).send_all(answered(request)),
    })
    .await;
    let app = app
        .restarted(NOBODY, with(over(&server)), Overrides::default())
        .await;
    server.exchange(0).await;
    remember(&app, LATER).await;
    for content in [ANSWER, others[0], others[1], LATER] {
        let found = cosine(&app, content).await;
        assert!(close(found, built_in(content)), "{content}: {found}");
    }
    let mut stored = models(&app).await;
    stored.sort();
    let old = static_minilm::MODEL;
    assert_eq!(stored, ["http:test-embed", old, old, old]);
    let ready = crate::support::Client::new(app.address).get("/ready").await;
    let ready = &ready.json()["checks"]["embeddings"]["status"];
    assert_eq!(ready, "catching_up");
    go.set();
    new_model_serves(&app).await;
    assert_eq!(models(&app).await, vec!["http:test-embed"; 4]);
    assert!(close(cosine(&app, LATER).await, 0.447));

    // And back: the built-in embedder needs no stored vector to serve.
    let app = app
        .restarted(
            NOBODY,
            with(EmbedderConfig::default()),
            Overrides::default(),
        )
        .await;
    assert!(close(cosine(&app, ANSWER).await, built_in(ANSWER)));
    soon("every vector is the built-in embedder's again", async {
        while models(&app).await != vec![static_minilm::MODEL; 4] {
            assert!(close(cosine(&app, ANSWER).await, built_in(ANSWER)));
        }
    })
    .await;
}

#[tokio::test]
async fn a_text_that_the_new_model_does_not_take_keeps_nothing_else_back() {
    let app = with_memories(&[ANSWER, REFUSED]).await;
    let server = Upstream::start(|request| {
        if texts(request).iter().any(|text| text == REFUSED) {
            Script::new().whole("400 Bad Request", "", "")
        } else {
            answered(request)
        }
    })
    .await;
    let app = app
        .restarted(NOBODY, with(over(&server)), Overrides::default())
        .await;
    new_model_serves(&app).await;
    assert_eq!(models(&app).await, vec!["http:test-embed"; 2]);
    // Found by its words, compared with nothing.
    assert!(close(cosine(&app, REFUSED).await, 0.0));
}
