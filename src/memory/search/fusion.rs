//! Scores of all partitions on one scale, and what a score is worth.
//!
//! Cosines and BM25 are brought to 0..1 over everything that was searched and added up: sums gain over either alone, where sums of
//! reciprocal ranks lose. Dialogue turns are also scored together with the turn before them, lend a part of their score to their
//! neighbours, and gain when the query names their speaker; a turn such as "Yes, last summer!" is found by what surrounds it.

use std::ops::Range;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::memory::PartitionKey;

use super::columns::{Columns, NONE, Row};
use super::evidence::Evidence;
use super::partition::{CHUNK_ROWS, Interrupted, Partition};
use super::pass::{K1, Lexical, Pass, TermWeights};
use super::scale::Scale;
use super::{Hit, Query, SearchError};

/// The weights of the sum.
#[derive(Debug, Clone, Copy)]
pub struct Weights {
    /// Cosine of the text.
    pub cosine: f32,
    /// Cosine of the previous turn and this one.
    pub pair_cosine: f32,
    /// BM25 of the text.
    pub lexical: f32,
    /// BM25 of the previous turn and this one.
    pub pair_lexical: f32,
    /// Share of the better neighbour turn's score.
    pub neighbour: f32,
    /// Share of the weaker neighbour's score.
    pub other_neighbour: f32,
    /// Share of the better score two turns away.
    pub second_neighbour: f32,
    /// Share of the best score three or four turns away.
    pub far_neighbour: f32,
    /// The query names the speaker.
    pub speaker: f32,
}

impl Weights {
    /// Chosen on dialogue questions; without dialogue only the first four matter, and pairs equal their texts.
    pub const CHOSEN: Self = Self {
        cosine: 0.25,
        pair_cosine: 0.25,
        lexical: 0.45,
        pair_lexical: 0.43,
        neighbour: 0.35,
        other_neighbour: 0.08,
        second_neighbour: 0.44,
        far_neighbour: 0.13,
        speaker: 0.68,
    };
}

/// Hits whose evidence decides on the belief in all.
const JUDGED: usize = 10;

/// The best `limit` memories of `partitions` for `query` that are current at `now`, best first. Runs on the calling thread.
///
/// # Errors
/// [`SearchError::Deadline`] when `deadline` passes first.
pub fn search_partitions(
    partitions: &[Arc<Partition>],
    query: &Query,
    now: Timestamp,
    limit: usize,
    deadline: Instant,
) -> Result<Vec<Hit>, SearchError> {
    search_weighted(partitions, query, now, limit, deadline, &Weights::CHOSEN)
}

/// [`search_partitions`] with other weights.
///
/// # Errors
/// As there.
pub fn search_weighted(
    partitions: &[Arc<Partition>],
    query: &Query,
    now: Timestamp,
    limit: usize,
    deadline: Instant,
    weights: &Weights,
) -> Result<Vec<Hit>, SearchError> {
    loop {
        let search = Search {
            partitions,
            query,
            now,
            limit,
            deadline,
            weights,
        };
        match search.run() {
            Ok(hits) => return Ok(hits),
            Err(Interrupted::Deadline) => return Err(SearchError::Deadline),
            Err(Interrupted::Moved) => {}
        }
    }
}

struct Search<'a> {
    partitions: &'a [Arc<Partition>],
    query: &'a Query,
    now: Timestamp,
    limit: usize,
    deadline: Instant,
    weights: &'a Weights,
}

/// A row of one of the partitions with its sum.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    partition: usize,
    row: u32,
    sum: f32,
}

impl Search<'_> {
    fn run(&self) -> Result<Vec<Hit>, Interrupted> {
        let terms = TermWeights::new(self.query, self.partitions, self.deadline)?;
        let mut passes = Vec::with_capacity(self.partitions.len());
        for partition in self.partitions {
            passes.push(Pass::run(self.query, &terms, partition, self.deadline)?);
        }
        let scale = Scale::over(&passes, self.deadline)?;
        let mut candidates = Best::new(self.limit);
        for (at, (partition, pass)) in self.partitions.iter().zip(&passes).enumerate() {
            self.collect(at, partition, pass, &scale, &mut candidates)?;
        }
        let candidates = candidates.into_vec();
        let mut hits = Vec::with_capacity(candidates.len());
        self.each_partition(&passes, |at, partition, columns, pass| {
            let own = candidates
                .iter()
                .filter(|candidate| candidate.partition == at);
            let key = partition.key();
            hits.extend(own.filter_map(|one| self.found(columns, key, pass, *one, &terms)));
        })?;
        hits.sort_unstable_by(|a, b| {
            b.sum
                .total_cmp(&a.sum)
                .then_with(|| a.hit.memory.id.cmp(&b.hit.memory.id))
        });
        Ok(calibrated(hits))
    }

    /// Visits the partitions under their locks, if no row has moved since the pass.
    fn each_partition(
        &self,
        passes: &[Pass],
        mut work: impl FnMut(usize, &Partition, &Columns, &Pass),
    ) -> Result<(), Interrupted> {
        for (at, (partition, pass)) in self.partitions.iter().zip(passes).enumerate() {
            partition.read(self.deadline, |columns| {
                if columns.generation != pass.generation {
                    return Err(Interrupted::Moved);
                }
                work(at, partition, columns, pass);
                Ok(())
            })??;
        }
        Ok(())
    }

    /// The current rows of one partition with their sums, neighbours and speakers included.
    fn collect(
        &self,
        at: usize,
        partition: &Partition,
        pass: &Pass,
        scale: &Scale,
        into: &mut Best,
    ) -> Result<(), Interrupted> {
        if pass.dialogue {
            let sums = scale.sums(self.weights, pass, self.deadline)?;
            return self.each_chunk(partition, pass, |columns, range| {
                for (index, &own) in range.clone().zip(sums.get(range).unwrap_or_default()) {
                    if let Some(row) = columns.rows.get(index).filter(|_| own > 0.0) {
                        let sum = own + self.lent(columns, row, &sums);
                        self.offer(into, (at, index), row, sum);
                    }
                }
            });
        }
        // Nobody looks at another row's sum: one chunk of them is enough, and stays in the cache.
        let mut sums = vec![0.0; pass.rows.min(CHUNK_ROWS)];
        self.each_chunk(partition, pass, |columns, range| {
            let sums = sums.get_mut(..range.len()).unwrap_or_default();
            scale.sum_rows(self.weights, pass, range.start, sums);
            for (index, &sum) in range.zip(&*sums) {
                if sum > 0.0
                    && into.takes(sum)
                    && let Some(row) = columns.rows.get(index)
                {
                    self.offer(into, (at, index), row, sum);
                }
            }
        })
    }

    fn each_chunk(
        &self,
        partition: &Partition,
        pass: &Pass,
        work: impl FnMut(&Columns, Range<usize>),
    ) -> Result<(), Interrupted> {
        partition.chunks(pass.generation, pass.rows, self.deadline, work)
    }

    /// Takes a row that is current, if it is good enough.
    fn offer(&self, into: &mut Best, (at, index): (usize, usize), row: &Row, sum: f32) {
        if into.takes(sum)
            && row.is_valid(self.now.as_microsecond())
            && let Ok(row) = u32::try_from(index)
        {
            into.add(Candidate {
                partition: at,
                row,
                sum,
            });
        }
    }

    /// What a dialogue turn gains from its neighbours and its speaker.
    fn lent(&self, columns: &Columns, row: &Row, sums: &[f32]) -> f32 {
        let of = |neighbour: u32| sums.get(neighbour as usize).copied().unwrap_or(0.0);
        let (mut back, mut on) = (row.previous, row.next);
        let (before, after) = (of(back), of(on));
        // The better score two, three and four turns away.
        let [second, third, fourth] = std::array::from_fn(|_| {
            back = columns.row(back).map_or(NONE, |row| row.previous);
            on = columns.row(on).map_or(NONE, |row| row.next);
            of(back).max(of(on))
        });
        let named = row.speaker.is_some_and(|speaker| self.query.names(speaker));
        self.weights.neighbour * before.max(after)
            + self.weights.other_neighbour * before.min(after)
            + self.weights.second_neighbour * second
            + self.weights.far_neighbour * third.max(fourth)
            + if named { self.weights.speaker } else { 0.0 }
    }

    /// A candidate as a hit, its relevance still to be judged.
    fn found(
        &self,
        columns: &Columns,
        key: &PartitionKey,
        pass: &Pass,
        candidate: Candidate,
        terms: &TermWeights,
    ) -> Option<Found> {
        let row = columns.row(candidate.row)?;
        let kept = columns.kept(candidate.row)?;
        if !row.is_valid(self.now.as_microsecond()) {
            return None;
        }
        let of = |column: &[Lexical]| {
            let found = column.get(candidate.row as usize);
            found.copied().unwrap_or_default()
        };
        let (lexical, pair) = (of(&pass.lexical), of(&pass.pair_lexical));
        let hit = Hit {
            memory: kept.restore(row, key),
            similarity: pass
                .cosines
                .get(candidate.row as usize)
                .map_or(0.0, |cosine| cosine.clamp(0.0, 1.0)),
            lexical: terms.share(lexical.score / (K1 + 1.0)),
            coverage: terms.share(lexical.mass),
            relevance: 0.0,
        };
        let evidence = Evidence {
            similarity: (!pass.cosines.is_empty()).then_some(hit.similarity),
            coverage: hit.coverage.max(terms.share(pair.mass)),
            mass: lexical.mass,
            log_among: terms.log_documents,
            calibration: pass.calibration,
        };
        Some(Found {
            sum: candidate.sum,
            hit,
            evidence,
        })
    }
}

/// The `count` best candidates so far. Most rows are turned away by one comparison.
struct Best {
    count: usize,
    /// In any order; up to twice as many as wanted, so that a selection serves many offers.
    kept: Vec<Candidate>,
    /// What a candidate must exceed.
    least: f32,
}

impl Best {
    fn new(count: usize) -> Self {
        Self {
            count,
            kept: Vec::new(),
            least: f32::NEG_INFINITY,
        }
    }

    fn takes(&self, sum: f32) -> bool {
        sum > self.least
    }

    fn add(&mut self, candidate: Candidate) {
        self.kept.push(candidate);
        if self.kept.len() >= self.count.saturating_mul(2) {
            self.select();
        }
    }

    fn select(&mut self) {
        if self.kept.len() > self.count {
            if let Some(last) = self.count.checked_sub(1) {
                let (_, last, _) = self
                    .kept
                    .select_nth_unstable_by(last, |a, b| b.sum.total_cmp(&a.sum));
                self.least = last.sum;
            }
            self.kept.truncate(self.count);
        }
    }

    fn into_vec(mut self) -> Vec<Candidate> {
        self.select();
        self.kept
    }
}

/// A hit before its relevance is known.
struct Found {
    sum: f32,
    hit: Hit,
    evidence: Evidence,
}

/// Turns sums into relevances: each is its share of the best sum, times the belief that this query has an answer here.
fn calibrated(found: Vec<Found>) -> Vec<Hit> {
    let best = found.first().map_or(0.0, |first| first.sum);
    let belief = Evidence::belief_of_all(found.iter().take(JUDGED).map(|found| found.evidence));
    let relevance = |sum: f32| {
        if best > 0.0 {
            (belief * sum / best).clamp(0.0, 1.0)
        } else {
            0.0
        }
    };
    found
        .into_iter()
        .map(|found| Hit {
            relevance: relevance(found.sum),
            ..found.hit
        })
        .collect()
}
