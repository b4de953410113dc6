//! A large batch is embedded in pieces, and every memory gets its own vector.

use std::sync::Arc;

use async_trait::async_trait;
use ibex::memory::PartitionKey;
use ibex::memory::embedder::{EmbedError, Embedder};
use ibex::store::MemoryStore;
use parking_lot::Mutex;
use serde_json::json;

use crate::support::{Overrides, TestApp, patient};

/// Says a text's length as its vector, and notes what it was asked.
#[derive(Debug, Default)]
struct Noting(Mutex<Vec<usize>>);

#[async_trait]
impl Embedder for Noting {
    fn model(&self) -> &str {
        "noting-2"
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.0.lock().push(texts.len());
        Ok(texts
            .iter()
            .map(|t| vec![f32::from(u8::try_from(t.len()).expect("short")), 1.0])
            .collect())
    }
}

#[tokio::test]
async fn a_batch_is_embedded_in_pieces_and_in_order() {
    let embedder = Arc::new(Noting::default());
    let overrides = Overrides {
        embedder: Some(embedder.clone()),
        ..Overrides::default()
    };
    let app = TestApp::with("http://127.0.0.1:9/v1", patient, overrides).await;
    let memories: Vec<_> = (1..=20)
        .map(|n| json!({"content": "x".repeat(n)}))
        .collect();
    let answer = app
        .client()
        .post("/v1/memories/batch", &json!({"memories": memories}))
        .await
        .json();
    assert_eq!(*embedder.0.lock(), [8, 8, 4]);
    let partition = PartitionKey {
        org: app.org,
        agent: app.agent,
        user: None,
    };
    for (n, result) in answer["results"]
        .as_array()
        .expect("a list")
        .iter()
        .enumerate()
    {
        let id = result["id"].as_str().unwrap_or_else(|| panic!("{result}"));
        let stored = app
            .store
            .memory(std::slice::from_ref(&partition), id.parse().expect("an id"))
            .await
            .expect("the store answers")
            .expect("stored");
        let vector = stored.embedding.expect("embedded").vector;
        let length = f32::from(u8::try_from(n + 1).expect("short"));
        assert_eq!(vector[0].to_bits(), length.to_bits());
    }
}
