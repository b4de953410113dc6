//! The hot set: the memories of a partition that stand highest whatever is asked, and the pinned ones.
//!
//! Each is scored with its real cosine and term overlap against the query; nothing is hot enough to be relevant by itself.

mod members;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::auth::Scope;
use crate::memory::Memory;
use crate::memory::embedder::Calibration;

pub(super) use members::HotMembers;

use members::Member;

use super::columns::Columns;
use super::evidence::{self, Evidence};
use super::partition::{Interrupted, Partition};
use super::pass::TermWeights;
use super::terms::{Side, Term, terms};
use super::{BranchError, Compared, Hit, HotBranch, Index, Query, SearchError, standing};

/// The hot branch over the partitions of an index.
#[derive(Debug, Clone)]
pub struct HotSet {
    index: Arc<Index>,
}

impl HotSet {
    /// The hot sets of `index`'s partitions; they are loaded, kept current and dropped with it.
    #[must_use]
    pub fn new(index: Arc<Index>) -> Self {
        Self { index }
    }

    /// Has the members of large partitions chosen in the background where they are unknown or old: that walks every row, and no request
    /// waits for it. The former members, at first none, serve meanwhile.
    fn freshen(&self, partitions: &[Arc<Partition>], now: Timestamp) {
        let large = |p: &&Arc<Partition>| p.len() > self.index.inline_rows();
        for partition in partitions.iter().filter(large) {
            if !partition.write(|columns| columns.hot.begin_choosing(now)) {
                continue;
            }
            let partition = Arc::clone(partition);
            self.index.tasks().spawn(async move {
                let work = tokio::task::spawn_blocking(move || {
                    let chosen = refresh(&partition, now, Instant::now() + CHOICE_TIME);
                    partition.write(|columns| columns.hot.choosing = false);
                    chosen
                });
                if !matches!(work.await, Ok(Ok(()))) {
                    tracing::warn!("the hot set of a large partition could not be chosen");
                }
            });
        }
    }

    /// The `limit` members that stand highest, without a query.
    ///
    /// # Errors
    /// When the deadline passes first or the store fails.
    pub async fn members(
        &self,
        scope: &Scope,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Arc<Memory>>, BranchError> {
        let partitions = self.index.partitions(scope, deadline).await?;
        let now = self.index.now();
        let mut members: Vec<(f32, Arc<Memory>)> = Vec::new();
        for partition in &partitions {
            let (walked, all) = (Arc::clone(partition), deadline);
            tokio::task::spawn_blocking(move || refresh(&walked, now, all))
                .await
                .map_err(|_| SearchError::Interrupted)??;
            members.extend(current(partition, now));
        }
        Ok(best(members, scope, limit))
    }
}

/// The members of a partition that are valid now, with their standing.
fn current(partition: &Partition, now: Timestamp) -> Vec<(f32, Arc<Memory>)> {
    partition.read(|columns| {
        let rows = columns
            .hot
            .members
            .iter()
            .filter_map(|m| Some((m.standing, columns.memory(m.row)?)));
        rows.filter(|(_, memory)| memory.is_current(now))
            .map(|(standing, memory)| (standing, Arc::clone(memory)))
            .collect()
    })
}

/// The `limit` members of a scope that stand highest.
fn best(mut members: Vec<(f32, Arc<Memory>)>, scope: &Scope, limit: usize) -> Vec<Arc<Memory>> {
    members.retain(|(_, memory)| memory.partition.visible_to(scope));
    members.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.id.cmp(&b.1.id)));
    members.truncate(limit);
    members.into_iter().map(|(_, memory)| memory).collect()
}

#[async_trait]
impl HotBranch for HotSet {
    async fn hot(
        &self,
        scope: &Scope,
        query: &Query,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Hit>, BranchError> {
        let partitions = self.index.partitions(scope, deadline).await?;
        let now = self.index.now();
        self.freshen(&partitions, now);
        let inline = self.index.inline_rows();
        let mut hits = hot_members(
            &partitions,
            query,
            now,
            limit,
            Inline {
                rows: inline,
                deadline,
            },
        )?;
        hits.retain(|hit| hit.memory.partition.visible_to(scope));
        Ok(hits)
    }

    async fn standing(
        &self,
        scope: &Scope,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Arc<Memory>>, BranchError> {
        let partitions = self.index.partitions(scope, deadline).await?;
        let now = self.index.now();
        self.freshen(&partitions, now);
        let mut members = Vec::new();
        for partition in &partitions {
            if partition.len() <= self.index.inline_rows() {
                refresh(partition, now, deadline)?;
            }
            members.extend(current(partition, now));
        }
        Ok(best(members, scope, limit))
    }
}

/// What may be done for a request on its own thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inline {
    /// Rows of a partition whose members are chosen then and there.
    pub(super) rows: usize,
    /// Until when.
    pub(super) deadline: Instant,
}

/// Time for choosing the members of a large partition in the background.
const CHOICE_TIME: Duration = Duration::from_secs(60);

/// After this many restarts a choice is installed although rows have changed meanwhile: with writes all the time it would never be.
const RESTARTS: usize = 3;

/// At most `limit` members that the query touches, best first.
pub(super) fn hot_members(
    partitions: &[Arc<Partition>],
    query: &Query,
    now: Timestamp,
    limit: usize,
    inline: Inline,
) -> Result<Vec<Hit>, SearchError> {
    let weights = TermWeights::new(query, partitions);
    let asked = Asked::new(&weights);
    let mut scored: Vec<(f32, Hit)> = Vec::new();
    for partition in partitions {
        if partition.len() <= inline.rows {
            refresh(partition, now, inline.deadline)?;
        }
        partition.read(|columns| {
            let compared = query
                .vector_for(partition.model())
                .filter(|c| c.vector.dimensions() == columns.dimensions);
            let members = columns.hot.members.iter();
            scored
                .extend(members.filter_map(|member| score(columns, member, compared, &asked, now)));
        });
    }
    // Relevance grows with the odds: only of those that stay is it computed.
    let better = |a: &(f32, Hit), b: &(f32, Hit)| {
        b.0.total_cmp(&a.0)
            .then_with(|| a.1.memory.id.cmp(&b.1.memory.id))
    };
    if scored.len() > limit {
        scored.select_nth_unstable_by(limit, better);
        scored.truncate(limit);
    }
    scored.sort_unstable_by(better);
    let hits = scored.into_iter().map(|(log_odds, hit)| Hit {
        relevance: evidence::alone(log_odds),
        ..hit
    });
    Ok(hits.collect())
}

/// The query's terms, ready for many short lists of terms to be compared with.
struct Asked<'a> {
    weights: &'a TermWeights,
    /// A bit for each term, by its hash: nearly every term that was not asked for is told by it.
    bits: [u64; 16],
}

impl<'a> Asked<'a> {
    fn new(weights: &'a TermWeights) -> Self {
        let mut asked = Self {
            weights,
            bits: [0; 16],
        };
        for (term, _) in &weights.terms {
            let (word, bit) = term.place();
            if let Some(word) = asked.bits.get_mut(word) {
                *word |= bit;
            }
        }
        asked
    }

    /// The weight of a term; 0 when it was not asked for.
    fn weight(&self, term: Term) -> f32 {
        let (word, bit) = term.place();
        if self.bits.get(word).is_none_or(|word| word & bit == 0) {
            return 0.0;
        }
        let mut terms = self.weights.terms.iter();
        terms
            .find(|(asked, _)| *asked == term)
            .map_or(0.0, |(_, weight)| *weight)
    }
}

/// A member as a hit with its log odds, its relevance still to be computed.
fn score(
    columns: &Columns,
    member: &Member,
    compared: Option<Compared<'_>>,
    asked: &Asked<'_>,
    now: Timestamp,
) -> Option<(f32, Hit)> {
    let memory = columns
        .memory(member.row)
        .filter(|memory| memory.is_current(now))?;
    let row = columns.row(member.row)?;
    let similarity = compared
        .filter(|_| row.scale > 0.0)
        .map(|c| (c.vector.dot(columns.vector(member.row)) * row.scale).clamp(0.0, 1.0));
    let mass: f32 = member.terms.iter().map(|&term| asked.weight(term)).sum();
    let evidence = Evidence {
        similarity,
        coverage: asked.weights.share(mass),
        mass,
        log_among: asked.weights.log_documents,
        calibration: compared.map_or(Calibration::BUILT_IN, |c| c.calibration),
    };
    let (similarity, coverage) = (similarity.unwrap_or(0.0), evidence.coverage);
    if similarity <= 0.0 && coverage <= 0.0 {
        return None;
    }
    let hit = Hit {
        memory: Arc::clone(memory),
        similarity,
        lexical: coverage,
        coverage,
        relevance: 0.0,
    };
    Some((evidence.log_odds(), hit))
}

/// Chooses the members of a partition when they are unknown or old. Rows are read in chunks; a change in between starts it again.
fn refresh(partition: &Partition, now: Timestamp, deadline: Instant) -> Result<(), SearchError> {
    for restart in 0.. {
        let (fresh, generation, rows, changes, size) = partition.read(|c| {
            (
                c.hot.is_fresh(now),
                c.generation,
                c.rows.len(),
                c.hot.changes,
                c.hot.size,
            )
        });
        if fresh {
            return Ok(());
        }
        let mut best: Vec<(bool, f32, u32, Arc<Memory>)> = Vec::new();
        let read = partition.chunks(generation, rows, deadline, |columns, range| {
            let memories = columns.memories.get(range.clone()).unwrap_or_default();
            for (index, memory) in (range.start..).zip(memories) {
                if let (Some(memory), Ok(row)) = (memory, u32::try_from(index)) {
                    best.push((
                        memory.pinned,
                        standing::standing(memory, now),
                        row,
                        Arc::clone(memory),
                    ));
                }
            }
            best.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
            let pinned = best
                .iter()
                .take_while(|(pinned, ..)| *pinned)
                .count()
                .min(size);
            best.truncate(pinned + size);
        });
        match read {
            Err(Interrupted::Deadline) => return Err(SearchError::Deadline),
            Err(Interrupted::Moved) => continue,
            Ok(()) => {}
        }
        let members = best
            .iter()
            .map(|(_, _, row, memory)| {
                Member::new(*row, memory, terms(&memory.content, Side::Document), now)
            })
            .collect();
        let installed = partition.write(|columns| {
            // A row that is gone is passed over when it is read; a moved one would be another memory.
            let usable = columns.hot.changes == changes
                || restart >= RESTARTS && columns.generation == generation;
            if usable {
                columns.hot.install(members, now);
            }
            usable
        });
        if installed {
            break;
        }
    }
    Ok(())
}
