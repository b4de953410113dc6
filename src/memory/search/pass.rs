//! One query over one partition: the cosine and the term score of every row, alone and together with the turn before it.

use std::ops::Range;
use std::sync::Arc;

use tokio::time::Instant;

use super::Query;
use super::columns::{Columns, NONE, Posting, Postings, Row};
use super::partition::{CHUNK_ROWS, Interrupted, Partition};
use super::terms::Term;

/// BM25's saturation and length normalisation (the usual values).
pub(super) const K1: f32 = 1.2;
const B: f32 = 0.75;

/// Documents added to the count when a term's rarity is judged: in a partition of three memories no word is common yet.
const PRIOR_DOCUMENTS: f64 = 100.0;

/// A term with a smaller share of the query's weight is in nearly every memory: walking its postings would decide nothing.
const NEGLIGIBLE_SHARE: f32 = 0.02;

/// No memory is asked to match more than this: the weight of about six rare words. A long message carries much that it does not ask.
const LONG_QUERY_WEIGHT: f32 = 30.0;

/// The query's terms with their rarity over all partitions that are searched together.
#[derive(Debug, Default)]
pub(super) struct TermWeights {
    pub(super) terms: Vec<(Term, f32)>,
    /// Memories that are searched.
    pub(super) documents: f32,
    /// Sum of all weights.
    pub(super) total: f32,
    average_length: f32,
}

impl TermWeights {
    /// Joint statistics, so that a term's weight does not depend on which partition holds it.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "statistics need no more than seven digits"
    )]
    pub(super) fn new(query: &Query, partitions: &[Arc<Partition>]) -> Self {
        let (mut documents, mut length) = (0usize, 0f64);
        let mut holding = vec![0u32; query.terms().len()];
        for partition in partitions {
            partition.read(|columns| {
                documents += columns.live;
                length += columns.live_length;
                for (count, (term, _)) in holding.iter_mut().zip(query.terms()) {
                    *count += columns
                        .postings
                        .get(term)
                        .map_or(0, |postings| postings.live);
                }
            });
        }
        let all = documents as f64 + PRIOR_DOCUMENTS;
        let rarity = |count: u32| {
            (1.0 + (all - f64::from(count) + 0.5) / (f64::from(count) + 0.5)).ln() as f32
        };
        let terms: Vec<_> = query
            .terms()
            .iter()
            .zip(holding)
            .map(|(&(term, factor), count)| (term, factor * rarity(count)))
            .collect();
        let total = terms.iter().map(|(_, weight)| weight).sum();
        Self {
            terms,
            documents: documents as f32,
            total,
            average_length: (length / documents.max(1) as f64).max(1.0) as f32,
        }
    }

    /// A weight as a share of all weights, 0 to 1.
    pub(super) fn share(&self, part: f32) -> f32 {
        if self.total > 0.0 {
            (part / self.total.min(LONG_QUERY_WEIGHT)).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    fn score(&self, weight: f32, count: f32, length: f32, average: f32) -> f32 {
        weight * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length / average))
    }
}

/// The term scores of a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lexical {
    /// BM25 of the text.
    pub(super) own: f32,
    /// BM25 of the previous turn and this one as one text; `own` outside dialogues.
    pub(super) pair: f32,
    /// Weight of the terms it contains.
    pub(super) mass: f32,
    /// Weight of the terms that it or the turn before it contains; only in dialogues.
    pub(super) pair_mass: f32,
}

/// Every row's raw scores.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) generation: u64,
    pub(super) rows: usize,
    /// Whether any row is a dialogue turn.
    pub(super) dialogue: bool,
    /// Cosines; empty without a comparable query vector.
    pub(super) cosines: Vec<f32>,
    /// Cosines of the previous turn and this one together; empty without dialogue.
    pub(super) pair_cosines: Vec<f32>,
    pub(super) lexical: Vec<Lexical>,
}

impl Pass {
    /// Scores every row that exists when it starts.
    pub(super) fn run(
        query: &Query,
        weights: &TermWeights,
        partition: &Partition,
        deadline: Instant,
    ) -> Result<Self, Interrupted> {
        let (generation, rows, dialogue, dimensions) =
            partition.read(|c| (c.generation, c.rows.len(), c.dialogue > 0, c.dimensions));
        let mut pass = Self {
            generation,
            rows,
            dialogue,
            cosines: Vec::new(),
            pair_cosines: Vec::new(),
            lexical: vec![Lexical::default(); rows],
        };
        if let Some(vector) = query
            .vector_for(partition.model())
            .filter(|v| v.dimensions() == dimensions)
        {
            pass.cosines.reserve_exact(rows);
            partition.chunks(generation, rows, deadline, |columns, range| {
                let bytes = columns
                    .vectors
                    .get(range.start * dimensions..range.end * dimensions)
                    .unwrap_or_default();
                vector.scan(bytes, &mut pass.cosines);
                let cosines = pass.cosines.get_mut(range.clone()).unwrap_or_default();
                for (cosine, row) in cosines
                    .iter_mut()
                    .zip(columns.rows.get(range).unwrap_or_default())
                {
                    *cosine *= row.scale;
                }
            })?;
            if dialogue {
                pass.pair_cosines(partition, deadline)?;
            }
        }
        let least = weights.total * NEGLIGIBLE_SHARE;
        for &(term, weight) in weights.terms.iter().filter(|(_, weight)| *weight >= least) {
            pass.add_term(term, weight, weights, partition, deadline)?;
        }
        Ok(pass)
    }

    fn pair_cosines(
        &mut self,
        partition: &Partition,
        deadline: Instant,
    ) -> Result<(), Interrupted> {
        let (cosines, pairs) = (&self.cosines, &mut self.pair_cosines);
        pairs.reserve_exact(self.rows);
        partition.chunks(self.generation, self.rows, deadline, |columns, range| {
            let rows = columns.rows.get(range.clone()).unwrap_or_default();
            let own = cosines.get(range).unwrap_or_default();
            pairs.extend(own.iter().zip(rows).map(|(&own, row)| {
                match cosines.get(row.previous as usize) {
                    Some(&previous) if row.pair_norm > 0.0 => (own + previous) / row.pair_norm,
                    _ => own,
                }
            }));
        })
    }

    /// Adds one term's scores. Postings are walked in chunks like rows are.
    fn add_term(
        &mut self,
        term: Term,
        weight: f32,
        weights: &TermWeights,
        partition: &Partition,
        deadline: Instant,
    ) -> Result<(), Interrupted> {
        let mut start = 0;
        loop {
            if Instant::now() >= deadline {
                return Err(Interrupted::Deadline);
            }
            let more = partition.read(|columns| {
                if columns.generation != self.generation {
                    return Err(Interrupted::Moved);
                }
                let Some(postings) = columns.postings.get(&term) else {
                    return Ok(false);
                };
                let end = postings.list.len().min(start + CHUNK_ROWS);
                self.add_postings(columns, postings, start..end, weight, weights);
                start = end;
                Ok(end < postings.list.len())
            })?;
            if !more {
                return Ok(());
            }
        }
    }

    fn add_postings(
        &mut self,
        columns: &Columns,
        postings: &Postings,
        range: Range<usize>,
        weight: f32,
        weights: &TermWeights,
    ) {
        for (at, &Posting { row, count }) in range
            .clone()
            .zip(postings.list.get(range).unwrap_or_default())
        {
            let Some(columns_row) = columns.row(row) else {
                continue;
            };
            let count = f32::from(count);
            let score = weights.score(weight, count, columns_row.length, weights.average_length);
            if let Some(lexical) = self.lexical.get_mut(row as usize) {
                lexical.own += score;
                lexical.mass += weight;
                if !self.dialogue {
                    continue;
                }
            }
            let before = count_at(postings, at, columns_row.previous, row);
            self.add_pair(columns, columns_row, row, (count, before, weight), weights);
            if columns_row.next != NONE && count_at(postings, at, columns_row.next, row) == 0.0 {
                let Some(next) = columns.row(columns_row.next) else {
                    continue;
                };
                self.add_pair(
                    columns,
                    next,
                    columns_row.next,
                    (0.0, count, weight),
                    weights,
                );
            }
        }
    }

    /// Adds a term's score to the pair view of `row`, given its counts in the turn and in the one before.
    fn add_pair(
        &mut self,
        columns: &Columns,
        place: &Row,
        row: u32,
        (own, before, weight): (f32, f32, f32),
        weights: &TermWeights,
    ) {
        let (length, average) = match columns.row(place.previous) {
            Some(previous) => (place.length + previous.length, 2.0 * weights.average_length),
            None => (place.length, weights.average_length),
        };
        if let Some(lexical) = self.lexical.get_mut(row as usize) {
            lexical.pair_mass += weight;
            lexical.pair += weights.score(weight, own + before, length, average);
        }
    }
}

/// How often `wanted` contains the term of `postings`, whose entry `at` is `row`. Neighbours mostly stand side by side.
fn count_at(postings: &Postings, at: usize, wanted: u32, row: u32) -> f32 {
    if wanted == NONE {
        return 0.0;
    }
    let found = if wanted.checked_add(1) == Some(row) {
        at.checked_sub(1).and_then(|at| postings.list.get(at))
    } else if row.checked_add(1) == Some(wanted) {
        postings.list.get(at + 1)
    } else {
        postings
            .list
            .binary_search_by_key(&wanted, |posting| posting.row)
            .ok()
            .and_then(|at| postings.list.get(at))
    };
    found
        .filter(|posting| posting.row == wanted)
        .map_or(0.0, |posting| f32::from(posting.count))
}
