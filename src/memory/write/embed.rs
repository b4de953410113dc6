//! Stage 4, embed: takes new memories, yields them with their vector and token counts. A failure stores nothing.

use std::sync::Arc;

use crate::app::App;
use crate::memory::embedder::EmbedError;
use crate::memory::{Embedding, escape};
use crate::tokens::TokenCounts;

use super::{Batch, WriteError};

/// Texts that are embedded without a pause. Embedding is CPU work on a thread that requests run on: eight texts of the greatest length
/// are a fraction of what a whole batch may be.
const AT_ONCE: usize = 8;

pub(super) async fn stage(app: &App, batch: &mut Batch) {
    let texts: Vec<Arc<str>> = batch
        .going()
        .map(|candidate| Arc::clone(&candidate.memory.content))
        .collect();
    if texts.is_empty() {
        return;
    }
    let model: Arc<str> = app.embedder.model().into();
    let vectors = match embed(app, &texts).await {
        Ok(vectors) => vectors,
        Err(error) => return refuse(batch, error.0),
    };
    let Some(counts) = count(app, texts).await else {
        return refuse(batch, "counting was broken off");
    };
    for ((candidate, vector), tokens) in batch.going().zip(vectors).zip(counts) {
        candidate.memory.tokens = tokens;
        candidate.memory.embedding = Some(Embedding {
            model: Arc::clone(&model),
            vector: vector.into(),
        });
    }
}

/// The vectors of all texts, in order. Between pieces others get the thread.
async fn embed(app: &App, texts: &[Arc<str>]) -> Result<Vec<Vec<f32>>, EmbedError> {
    let mut vectors = Vec::with_capacity(texts.len());
    for piece in texts.chunks(AT_ONCE) {
        if !vectors.is_empty() {
            tokio::task::yield_now().await;
        }
        let borrowed: Vec<&str> = piece.iter().map(|t| &**t).collect();
        let embedded = app.embedder.embed(&borrowed).await?;
        if embedded.len() != piece.len() {
            return Err(EmbedError(
                "the embedder answered with another number of vectors",
            ));
        }
        vectors.extend(embedded);
    }
    Ok(vectors)
}

/// Counts what each content costs once it is escaped. On a worker thread: a batch is a million characters, and the vocabularies may
/// still be loading.
async fn count(app: &App, texts: Vec<Arc<str>>) -> Option<Vec<TokenCounts>> {
    let counter = app.counter.clone();
    let work = move || texts.iter().map(|t| counter.counts(&escape(t))).collect();
    tokio::task::spawn_blocking(work).await.ok()
}

fn refuse(batch: &mut Batch, reason: &str) {
    tracing::warn!("embedding failed: {reason}");
    batch.refuse(&WriteError::EmbeddingFailed);
}
