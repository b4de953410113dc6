//! Stage 5, near dedup: takes embedded memories, yields them with the active memories that are much alike.
//!
//! A signal and never a verdict: cosine alone joins "port 8080" with "port 8081". What is alike is told to the client, and the conflict
//! stage compares the words.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::app::App;
use crate::ids::MemoryId;
use crate::memory::search::Nearness;

use super::Batch;

/// Most near duplicates of one memory (contract, section 12).
const MOST: usize = 10;
/// How long a write may wait for its partition to be loaded.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long one memory is compared: a million others take less.
const TIME: Duration = Duration::from_millis(60);
/// What each further memory of a batch adds. An import into a large partition is compared only in part: it is a signal.
const SHARE: Duration = Duration::from_micros(100);

/// A memory that is much alike.
#[derive(Debug, Clone)]
pub struct Similar {
    /// Which.
    pub memory: Arc<crate::memory::Memory>,
    /// Cosine of both vectors.
    pub similarity: f32,
}

impl Similar {
    /// Its identifier.
    #[must_use]
    pub fn id(&self) -> MemoryId {
        self.memory.id
    }
}

pub(super) async fn stage(app: &App, batch: &mut Batch) {
    let vectors: Vec<Arc<[f32]>> = batch
        .going()
        .filter_map(|c| c.memory.embedding.as_ref().map(|e| Arc::clone(&e.vector)))
        .collect();
    let Ok(further) = u32::try_from(vectors.len().saturating_sub(1)) else {
        return;
    };
    if vectors.is_empty() {
        return;
    }
    let asked = Nearness {
        // Each model has its own scale; for the built-in one the contract's 0.92 (section 12).
        above: app.embedder.calibration().near_duplicate,
        most: MOST,
        deadline: Instant::now() + PATIENCE,
        within: TIME + SHARE.saturating_mul(further),
    };
    let question = (app.embedder.model(), &*vectors);
    let found = match app.near.alike(&batch.partition, question, asked).await {
        Ok((found, answered)) => {
            app.metrics.near_dedup(answered, vectors.len() - answered);
            found
        }
        Err(error) => {
            // Nothing is lost but the signal.
            tracing::warn!("near dedup: {error}");
            app.metrics.near_dedup(0, vectors.len());
            return;
        }
    };
    let with_vector = batch.going().filter(|c| c.memory.embedding.is_some());
    for (candidate, alike) in with_vector.zip(found) {
        let own = candidate.memory.id;
        candidate.similar = alike
            .into_iter()
            .filter(|(memory, _)| memory.id != own)
            .map(|(memory, similarity)| Similar { memory, similarity })
            .collect();
    }
}
