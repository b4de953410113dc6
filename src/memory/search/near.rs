//! Which memories of one partition are much alike, by their vectors alone: what the write path asks about a new one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::ids::MemoryId;
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
    /// Until when to wait for the partition.
    pub deadline: Instant,
    /// How long to compare: what was found by then is the answer.
    pub within: Duration,
}

/// Who tells what is alike.
#[async_trait]
pub trait NearBranch: Send + Sync {
    /// For each vector of `model` the memories of the partition that are alike, most alike first. Late questions stay without an answer, and
    /// so do all where the partition is not searched by that model; how many have one is told.
    ///
    /// # Errors
    /// When the partition is not loaded by the deadline.
    async fn alike(
        &self,
        key: &PartitionKey,
        question: (&str, &[Arc<[f32]>]),
        asked: Nearness,
    ) -> Result<(Vec<Vec<Alike>>, usize), SearchError>;
}

#[async_trait]
impl NearBranch for Index {
    async fn alike(
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
        let rows = vectors.len().saturating_mul(partition.len());
        let asked = Nearness {
            deadline: Instant::now() + asked.within,
            ..asked
        };
        let work = move || nearest(&partition, &questions, asked);
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
    // A few at a time, so that what is interrupted has answered the first ones in full.
    const AT_ONCE: usize = 32;
    let mut found = Vec::with_capacity(questions.len());
    for questions in questions.chunks(AT_ONCE) {
        let answers = loop {
            match answers(partition, questions, asked) {
                Err(Interrupted::Moved) => {}
                answers => break answers,
            }
        };
        let Ok(answers) = answers else { break };
        found.extend(answers);
    }
    let answered = found.len();
    found.resize_with(questions.len(), Vec::new);
    (found, answered)
}

/// A row that is alike.
struct Close {
    row: u32,
    id: MemoryId,
    cosine: f32,
}

fn answers(
    partition: &Partition,
    questions: &[Option<QueryVector>],
    asked: Nearness,
) -> Result<Vec<Vec<Alike>>, Interrupted> {
    let (generation, rows) = partition.read(asked.deadline, |c| (c.generation, c.rows.len()))?;
    let mut found: Vec<Vec<Close>> = Vec::new();
    found.resize_with(questions.len(), Vec::new);
    partition.chunks(generation, rows, asked.deadline, |columns, range| {
        for start in range.clone().step_by(BLOCK) {
            let block = start..range.end.min(start + BLOCK);
            for (question, found) in questions.iter().zip(&mut found) {
                if let Some(question) = question {
                    scan(columns, question, &block, asked.above, found);
                }
            }
        }
    })?;
    for found in &mut found {
        found.sort_unstable_by(|a, b| b.cosine.total_cmp(&a.cosine).then_with(|| a.id.cmp(&b.id)));
        found.truncate(asked.most);
    }
    partition.read(asked.deadline, |columns| {
        if columns.generation != generation {
            return Err(Interrupted::Moved);
        }
        let restored = |close: &Close| {
            let (row, kept) = (columns.row(close.row)?, columns.kept(close.row)?);
            Some((kept.restore(row, partition.key()), close.cosine))
        };
        let found = found.iter();
        Ok(found
            .map(|all| all.iter().filter_map(restored).collect())
            .collect())
    })?
}

fn scan(
    columns: &Columns,
    question: &QueryVector,
    rows: &std::ops::Range<usize>,
    above: f32,
    found: &mut Vec<Close>,
) {
    let dimensions = question.dimensions();
    if columns.dimensions() != dimensions {
        return;
    }
    let bytes = columns.vectors.block_from(rows.start);
    let bytes = bytes.get(..rows.len() * dimensions).unwrap_or_default();
    let mut products = [0.0; BLOCK];
    let products = products.get_mut(..rows.len()).unwrap_or_default();
    question.scan(bytes, products);
    let scales = columns.scales.block_from(rows.start);
    for ((index, product), scale) in rows.clone().zip(products).zip(scales) {
        let cosine = *product * scale;
        if cosine > above
            && let Ok(row) = u32::try_from(index)
            && let Some(kept) = columns.kept(row)
        {
            found.push(Close {
                row,
                id: kept.id,
                cosine: cosine.min(1.0),
            });
        }
    }
}
