//! The hot set: the memories of a partition that stand highest whatever is asked, and the pinned ones.
//!
//! Each is scored with its real cosine and term overlap against the query; nothing is hot enough to be relevant by itself.

mod members;
mod scoring;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::auth::Scope;
use crate::memory::Memory;

pub(super) use members::HotMembers;
pub(super) use scoring::hot_members;

use members::{Member, keep_best};

use super::partition::{Interrupted, Partition};
use super::terms::{Side, terms};
use super::{BranchError, Hit, HotBranch, Index, Query, SearchError};

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
    fn freshen(&self, partitions: &[Arc<Partition>], now: Timestamp, deadline: Instant) {
        let large = |p: &&Arc<Partition>| p.len() > self.index.inline_rows();
        for partition in partitions.iter().filter(large) {
            // Nearly always they are fresh, and readers do not hold each other up.
            let fresh = partition.read(deadline, |columns| columns.hot.is_fresh(now));
            let begin = || partition.write_by(deadline, |columns| columns.hot.begin_choosing(now));
            if fresh != Ok(false) || begin() != Some(true) {
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
}

/// The `limit` members of a partition that are valid now and stand highest, with their standing.
pub(super) fn current(
    partition: &Partition,
    now: Timestamp,
    limit: usize,
    deadline: Instant,
) -> Result<Vec<(f32, Arc<Memory>)>, SearchError> {
    let found = partition.read(deadline, |columns| {
        let of = |row: u32| Some((columns.row(row)?, columns.kept(row)?));
        let rows = columns.hot.members.iter();
        let mut members: Vec<_> = rows
            .filter_map(|member| Some((member, of(member.row)?)))
            .filter(|(_, (row, _))| row.is_valid(now.as_microsecond()))
            .collect();
        members.sort_unstable_by(|(a, (_, x)), (b, (_, y))| {
            b.standing
                .total_cmp(&a.standing)
                .then_with(|| x.id.cmp(&y.id))
        });
        members.truncate(limit);
        let made = |(member, (row, kept)): (&Member, _)| {
            (member.standing, member.memory(row, kept, partition.key()))
        };
        members.into_iter().map(made).collect()
    });
    found.map_err(SearchError::from)
}

/// The `limit` members of a scope that stand highest.
pub(super) fn best(
    mut members: Vec<(f32, Arc<Memory>)>,
    scope: &Scope,
    limit: usize,
) -> Vec<Arc<Memory>> {
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
        self.freshen(&partitions, now, deadline);
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
        self.freshen(&partitions, now, deadline);
        let mut members = Vec::new();
        for partition in &partitions {
            if partition.len() <= self.index.inline_rows() {
                refresh(partition, now, deadline)?;
            }
            members.extend(current(partition, now, limit, deadline)?);
        }
        Ok(best(members, scope, limit))
    }

    async fn members(
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
            members.extend(current(partition, now, limit, deadline)?);
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

/// Chooses the members of a partition when they are unknown or old. Rows are read in chunks; a change in between starts it again.
pub(super) fn refresh(
    partition: &Partition,
    now: Timestamp,
    deadline: Instant,
) -> Result<(), SearchError> {
    for restart in 0.. {
        let (fresh, generation, rows, changes, size) = partition.read(deadline, |c| {
            (
                c.hot.is_fresh(now),
                c.generation,
                c.rows.len(),
                c.hot.changes,
                c.hot.size,
            )
        })?;
        if fresh {
            return Ok(());
        }
        let mut best: Vec<Member> = Vec::new();
        let read = partition.chunks(generation, rows, deadline, |columns, range| {
            let living = columns.kept.block_from(range.start).iter();
            let rows = columns.rows.block_from(range.start);
            for ((index, kept), row) in range.zip(living).zip(rows) {
                if let (Some(kept), Ok(at)) = (kept, u32::try_from(index)) {
                    best.push(Member::new(at, row, kept, now));
                }
            }
            keep_best(&mut best, size);
        });
        match read {
            Err(Interrupted::Deadline) => return Err(SearchError::Deadline),
            Err(Interrupted::Moved) => continue,
            Ok(()) => {}
        }
        let members = partition.read(deadline, |columns| {
            let best = std::mem::take(&mut best).into_iter();
            if columns.lexicon.is_few() {
                return best.collect();
            }
            let text = |m: &Member| columns.kept(m.row).map_or("", |kept| &kept.content);
            best.map(|member| {
                let terms = terms(text(&member), Side::Document);
                member.with_terms(terms)
            })
            .collect()
        })?;
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
