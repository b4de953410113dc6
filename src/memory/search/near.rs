//! Which memories of one partition are much alike, by their vectors alone: what the write path asks about a new one.

use std::sync::Arc;

use tokio::time::Instant;

use crate::memory::{Memory, PartitionKey};

use super::columns::Columns;
use super::partition::{Interrupted, Partition};
use super::vectors::QueryVector;
use super::{Index, SearchError};

/// Rows that every question is asked of before the next ones are: with 256 dimensions they stay in the cache of one core.
const BLOCK: usize = 512;

/// A memory and the cosine of its vector and the question's.
pub type Alike = (Arc<Memory>, f32);

/// What is asked of one partition.
#[derive(Debug, Clone, Copy)]
pub struct Nearness {
    /// Cosines above this one count.
    pub above: f32,
    /// At most so many memories for each question.
    pub most: usize,
    /// When to stop: what was found by then is the answer.
    pub deadline: Instant,
}

impl Index {
    /// For each vector of `model` the memories of the partition that are alike, most alike first. Late questions stay without an answer, and
    /// so do all where the partition is not searched by that model; how many have one is told.
    ///
    /// # Errors
    /// When the partition is not loaded by the deadline.
    pub async fn alike(
        &self,
        key: &PartitionKey,
        (model, vectors): (&str, &[Arc<[f32]>]),
        asked: Nearness,
    ) -> Result<(Vec<Vec<Alike>>, usize), SearchError> {
        let partition = self.partition(key, asked.deadline).await?;
        if partition.model() != model {
            return Ok((vec![Vec::new(); vectors.len()], 0));
        }
        let questions: Vec<Option<QueryVector>> =
            vectors.iter().map(|v| QueryVector::new(v)).collect();
        let work = move || nearest(&partition, &questions, asked);
        let rows = vectors.len().saturating_mul(self.rows_of(key));
        if rows <= self.inline_rows() {
            return Ok(work());
        }
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|_| SearchError::Interrupted)
    }
}

/// The answers, and how many questions were asked of every row.
fn nearest(
    partition: &Partition,
    questions: &[Option<QueryVector>],
    asked: Nearness,
) -> (Vec<Vec<Alike>>, usize) {
    let mut found: Vec<Vec<Alike>> = Vec::new();
    found.resize_with(questions.len(), Vec::new);
    // A few at a time, so that what is interrupted has answered the first ones in full.
    const AT_ONCE: usize = 32;
    let mut answered = 0;
    for (questions, found) in questions.chunks(AT_ONCE).zip(found.chunks_mut(AT_ONCE)) {
        let (generation, rows) = partition.read(|c| (c.generation, c.rows.len()));
        let passed = partition.chunks(generation, rows, asked.deadline, |columns, range| {
            for start in range.clone().step_by(BLOCK) {
                let block = start..range.end.min(start + BLOCK);
                for (question, found) in questions.iter().zip(&mut *found) {
                    if let Some(question) = question {
                        scan(columns, question, &block, asked.above, found);
                    }
                }
            }
        });
        match passed {
            Ok(()) => answered += questions.len(),
            Err(Interrupted::Deadline) => break,
            // Rows moved: what was found so far may be there twice, which the end sorts out.
            Err(Interrupted::Moved) => {}
        }
    }
    for found in &mut found {
        found.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.id.cmp(&b.0.id)));
        found.dedup_by_key(|(memory, _)| memory.id);
        found.truncate(asked.most);
    }
    (found, answered)
}

fn scan(
    columns: &Columns,
    question: &QueryVector,
    rows: &std::ops::Range<usize>,
    above: f32,
    found: &mut Vec<Alike>,
) {
    let dimensions = question.dimensions();
    if columns.dimensions != dimensions {
        return;
    }
    let bytes = rows.start * dimensions..rows.end * dimensions;
    let mut products = Vec::with_capacity(BLOCK);
    question.scan(
        columns.vectors.get(bytes).unwrap_or_default(),
        &mut products,
    );
    for (index, product) in rows.clone().zip(products) {
        let scale = columns.rows.get(index).map_or(0.0, |row| row.scale);
        let cosine = product * scale;
        if cosine > above
            && let Ok(row) = u32::try_from(index)
            && let Some(memory) = columns.memory(row)
        {
            found.push((Arc::clone(memory), cosine.min(1.0)));
        }
    }
}
