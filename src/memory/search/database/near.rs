//! What is much alike to a new memory, where its partition is not in this process: the store's nearest, held against the question here.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::{Instant, timeout_at};

use crate::memory::{Memory, PartitionKey};

use super::super::SearchError;
use super::super::near::{Alike, NearBranch, Nearness};
use super::{Staged, Wanted};

#[async_trait]
impl NearBranch for Staged {
    async fn alike(
        &self,
        key: &PartitionKey,
        (model, vectors): (&str, &[Arc<[f32]>]),
        asked: Nearness,
    ) -> Result<(Vec<Vec<Alike>>, usize), SearchError> {
        let in_process = timeout_at(asked.deadline, self.may_be_in_process(key));
        if in_process.await.map_err(|_| SearchError::Deadline)?? {
            return self.index.alike(key, (model, vectors), asked).await;
        }
        let model: Arc<str> = model.into();
        let until = Instant::now() + asked.within;
        let mut found = Vec::with_capacity(vectors.len());
        for vector in vectors {
            let wanted = Wanted {
                vector: Some((Arc::clone(&model), Arc::clone(vector))),
                words: Vec::new(),
                limit: asked.most,
                now: self.index.now(),
            };
            // What is late stays without an answer: it is a signal.
            let Ok(candidates) = timeout_at(until, self.store.candidates(key, &wanted)).await
            else {
                break;
            };
            let memories = candidates?.memories;
            found.push(above(memories, (&model, vector), asked));
        }
        let answered = found.len();
        found.resize_with(vectors.len(), Vec::new);
        Ok((found, answered))
    }
}

/// Those of the same model whose cosine counts, most alike first.
fn above(memories: Vec<Memory>, (model, asked): (&str, &[f32]), nearness: Nearness) -> Vec<Alike> {
    let alike = |memory: Memory| {
        let embedding = memory.embedding.as_ref()?;
        let cosine = (*embedding.model == *model).then(|| cosine(asked, &embedding.vector))??;
        (cosine > nearness.above).then(|| (Arc::new(memory), cosine))
    };
    let mut found: Vec<Alike> = memories.into_iter().filter_map(alike).collect();
    found.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.id.cmp(&b.0.id)));
    found.truncate(nearness.most);
    found
}

/// Nothing for the zero vector and for vectors of different dimensions.
fn cosine(a: &[f32], b: &[f32]) -> Option<f32> {
    if a.len() != b.len() {
        return None;
    }
    let dot = |x: &[f32], y: &[f32]| -> f32 { x.iter().zip(y).map(|(x, y)| x * y).sum() };
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    (lengths > 0.0).then(|| dot(a, b) / lengths)
}
