//! Embedders over HTTP, and what a change of the embedder does.

mod asking;
mod serving;
mod change;

use ibex::config::{Config, EmbedderConfig, EmbedderKind};
use serde_json::{Value, json};

use crate::support::{Received, Script, Upstream};

/// The embedder behind `upstream`, with time enough for a busy machine.
fn over(upstream: &Upstream) -> EmbedderConfig {
    EmbedderConfig {
        kind: EmbedderKind::Http,
        base_url: Some(upstream.url()),
        model: Some("test-embed".to_owned()),
        timeout_ms: 20_000,
        ..EmbedderConfig::default()
    }
}

/// Uses that embedder.
fn with(embedder: EmbedderConfig) -> impl FnOnce(&mut Config) {
    move |config| {
        crate::support::patient(config);
        config.store.poll_interval_ms = 5;
        config.embedder = embedder;
    }
}

/// The texts of a request.
fn texts(request: &Received) -> Vec<String> {
    serde_json::from_value(request.json()["input"].clone()).expect("texts")
}

/// An answer with these vectors, last first: their places are in `index`.
fn vectors(vectors: &[Vec<f32>]) -> Value {
    let data = vectors.iter().enumerate().rev();
    let data: Vec<Value> = data
        .map(|(index, vector)| json!({"object": "embedding", "index": index, "embedding": vector}))
        .collect();
    json!({"object": "list", "model": "test-embed", "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}})
}

/// An answer in which every text has the same vector: a cosine of 1 tells that this model's vectors were compared.
fn alike(request: &Received) -> Script {
    let same = vec![vec![0.0, 3.0]; texts(request).len()];
    Script::new().json("200 OK", &vectors(&same))
}
