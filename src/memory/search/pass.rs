//! One query over one partition: the cosine and the term score of every row, alone and together with the turn before it.

use std::ops::Range;
use std::sync::Arc;

use tokio::time::Instant;

use crate::memory::embedder::Calibration;

use super::columns::{Columns, NONE, Row};
use super::lexicon::{Posting, Postings};
use super::partition::{CHUNK_ROWS, Interrupted, Partition, in_time};
use super::scan::Scanned;
use super::terms::Term;
use super::{Compared, Query};

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
    /// The terms that some memory contains.
    pub(super) terms: Vec<(Term, f32)>,
    /// Natural logarithm of one more than the memories that are searched.
    pub(super) log_documents: f32,
    /// Sum of all weights, absent terms included.
    pub(super) total: f32,
    /// What one term of a text's length adds to the length normalisation.
    per_length: f32,
}

impl TermWeights {
    /// Joint statistics, so that a term's weight does not depend on which partition holds it.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "statistics need no more than seven digits"
    )]
    pub(super) fn new(
        query: &Query,
        partitions: &[Arc<Partition>],
        deadline: Instant,
    ) -> Result<Self, Interrupted> {
        let (mut documents, mut length) = (0usize, 0f64);
        let mut holding = vec![0u32; query.terms().len()];
        for partition in partitions {
            partition.read(deadline, |columns| {
                let whole = columns.background.as_deref();
                let all = whole.map_or(columns.live, |w| w.documents.max(columns.live));
                documents += all;
                // The candidates' length is as good a guess at the others' as any.
                length += columns.live_length * all as f64 / columns.live.max(1) as f64;
                for (count, (term, _)) in holding.iter_mut().zip(query.terms()) {
                    let here = columns.lexicon.postings(*term).live;
                    *count += whole.map_or(here, |whole| whole.holding(*term, here));
                }
            })?;
        }
        let all = documents as f64 + PRIOR_DOCUMENTS;
        let rarity = |count: u32| {
            (1.0 + (all - f64::from(count) + 0.5) / (f64::from(count) + 0.5)).ln() as f32
        };
        let unseen = rarity(0);
        let mut total = 0.0;
        let mut terms = Vec::with_capacity(holding.len());
        for (&(term, factor), count) in query.terms().iter().zip(holding) {
            let weight = factor * if count == 0 { unseen } else { rarity(count) };
            total += weight;
            if count > 0 {
                terms.push((term, weight));
            }
        }
        let average_length = (length / documents.max(1) as f64).max(1.0) as f32;
        Ok(Self {
            terms,
            log_documents: (documents as f32).ln_1p(),
            total,
            per_length: K1 * B / average_length,
        })
    }

    /// A weight as a share of all weights, 0 to 1.
    pub(super) fn share(&self, part: f32) -> f32 {
        if self.total > 0.0 {
            (part / self.total.min(LONG_QUERY_WEIGHT)).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// BM25 of one term in one text.
    fn score(&self, weight: f32, count: f32, length: f32) -> f32 {
        weight * (K1 + 1.0) * count / (count + K1 * (1.0 - B) + self.per_length * length)
    }
}

/// The term scores of a row.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lexical {
    /// BM25.
    pub(super) score: f32,
    /// Weight of the terms it contains.
    pub(super) mass: f32,
}

/// Every row's raw scores.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) generation: u64,
    pub(super) rows: usize,
    /// Whether any row is a dialogue turn.
    pub(super) dialogue: bool,
    /// What the cosines mean.
    pub(super) calibration: Calibration,
    /// The mean cosine of all that the rows stand for, where the rows are candidates.
    pub(super) mean_cosine: Option<f32>,
    /// Cosines; empty without a comparable query vector.
    pub(super) cosines: Vec<f32>,
    /// Cosines of the previous turn and this one together; empty without dialogue.
    pub(super) pair_cosines: Vec<f32>,
    /// Of the text.
    pub(super) lexical: Vec<Lexical>,
    /// Of the previous turn and this one as one text; empty without dialogue.
    pub(super) pair_lexical: Vec<Lexical>,
}

impl Pass {
    /// Scores every row that exists when it starts.
    pub(super) fn run(
        query: &Query,
        weights: &TermWeights,
        partition: &Partition,
        deadline: Instant,
    ) -> Result<Self, Interrupted> {
        let (generation, rows, dialogue, dimensions) = partition.read(deadline, |c| {
            (c.generation, c.rows.len(), c.dialogue > 0, c.dimensions())
        })?;
        let mean_cosine = partition.read(deadline, |c| c.background.as_ref()?.mean_cosine)?;
        let mut pass = Self {
            generation,
            rows,
            dialogue,
            calibration: Calibration::BUILT_IN,
            mean_cosine,
            cosines: Vec::new(),
            pair_cosines: Vec::new(),
            lexical: vec![Lexical::default(); rows],
            pair_lexical: vec![Lexical::default(); if dialogue { rows } else { 0 }],
        };
        if let Some(Compared {
            vector,
            calibration,
        }) = query
            .vector_for(partition.model())
            .filter(|c| c.vector.dimensions() == dimensions)
        {
            pass.calibration = calibration;
            let scanned = Scanned {
                partition,
                generation,
                rows,
                deadline,
            };
            pass.cosines = scanned.cosines(vector)?;
            if dialogue {
                pass.pair_cosines(partition, deadline)?;
            }
        }
        pass.add_terms(weights, partition, deadline)?;
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
            let rows = columns.rows.block_from(range.start);
            let own = cosines.get(range).unwrap_or_default();
            pairs.extend(own.iter().zip(rows).map(|(&own, row)| {
                match cosines.get(row.previous as usize) {
                    Some(&previous) if row.pair_norm > 0.0 => (own + previous) / row.pair_norm,
                    _ => own,
                }
            }));
        })
    }

    /// Adds the scores of all terms that matter. Postings are walked in chunks like rows are; most queries need one.
    fn add_terms(
        &mut self,
        weights: &TermWeights,
        partition: &Partition,
        deadline: Instant,
    ) -> Result<(), Interrupted> {
        let least = weights.total * NEGLIGIBLE_SHARE;
        let mut terms = weights
            .terms
            .iter()
            .filter(|(_, weight)| *weight >= least)
            .peekable();
        let mut start = 0;
        while terms.peek().is_some() {
            in_time(deadline)?;
            partition.read(deadline, |columns| {
                if columns.generation != self.generation {
                    return Err(Interrupted::Moved);
                }
                let mut room = CHUNK_ROWS;
                while room > 0
                    && let Some(&&(term, weight)) = terms.peek()
                {
                    let postings = columns.lexicon.postings(term);
                    let end = postings.len().min(start + room);
                    self.add_postings(columns, postings, start..end, weight, weights);
                    room -= end.saturating_sub(start);
                    start = end;
                    if start >= postings.len() {
                        start = 0;
                        terms.next();
                    }
                }
                Ok(())
            })??;
        }
        Ok(())
    }

    fn add_postings(
        &mut self,
        columns: &Columns,
        postings: Postings<'_>,
        range: Range<usize>,
        weight: f32,
        weights: &TermWeights,
    ) {
        postings.each(range, |at, Posting { row, count }| {
            let (Some(place), Some(lexical)) =
                (columns.row(row), self.lexical.get_mut(row as usize))
            else {
                return;
            };
            let count = f32::from(count);
            lexical.score += weights.score(weight, count, place.length);
            lexical.mass += weight;
            if !self.dialogue {
                return;
            }
            let before = count_at(postings, at, place.previous, row);
            self.add_pair(columns, place, row, (count + before, weight), weights);
            if place.next != NONE
                && count_at(postings, at, place.next, row) == 0.0
                && let Some(next) = columns.row(place.next)
            {
                self.add_pair(columns, next, place.next, (count, weight), weights);
            }
        });
    }

    /// Adds a term's score to the pair view of `row`, given how often the two turns contain it.
    fn add_pair(
        &mut self,
        columns: &Columns,
        place: &Row,
        row: u32,
        (count, weight): (f32, f32),
        weights: &TermWeights,
    ) {
        // Two turns are compared with twice the average length.
        let length = match columns.row(place.previous) {
            Some(previous) => (place.length + previous.length) / 2.0,
            None => place.length,
        };
        if let Some(pair) = self.pair_lexical.get_mut(row as usize) {
            pair.mass += weight;
            pair.score += weights.score(weight, count, length);
        }
    }
}

/// How often `wanted` contains the term of `postings`, whose entry `at` is `row`. Neighbours mostly stand side by side.
fn count_at(postings: Postings<'_>, at: usize, wanted: u32, row: u32) -> f32 {
    if wanted == NONE {
        return 0.0;
    }
    let found = if wanted.checked_add(1) == Some(row) {
        at.checked_sub(1).and_then(|at| postings.get(at))
    } else if row.checked_add(1) == Some(wanted) {
        postings.get(at + 1)
    } else {
        postings.of_row(wanted)
    };
    found
        .filter(|posting| posting.row == wanted)
        .map_or(0.0, |posting| f32::from(posting.count))
}
