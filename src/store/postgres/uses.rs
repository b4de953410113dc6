//! Use counts: added up in memory and written behind, as telemetry. What cannot be stored is lost.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::error::Fault;
use super::links::Links;
use super::rows::{agent_uuid, memory_uuid, micros, org_uuid, user_column};
use crate::ids::{MemoryId, OrgId};
use crate::memory::PartitionKey;
use crate::store::StoreError;
use crate::tasks::Tasks;

/// Counters that wait while the database is slow; beyond it new ones are refused.
const MOST: usize = 65_536;
/// Counters in one statement.
const BATCH: usize = 1_024;

type Counts = HashMap<(PartitionKey, MemoryId), Count>;

#[derive(Debug, Clone, Copy)]
struct Count {
    uses: i64,
    last: Timestamp,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    /// A task is storing them.
    storing: bool,
    closed: bool,
}

/// Use counts that are not stored yet.
#[derive(Debug)]
pub(super) struct Uses {
    state: Mutex<State>,
    /// Held by whoever stores counts, so that a close waits for the counts that are on their way.
    writing: tokio::sync::Mutex<()>,
    links: Links,
    tasks: Tasks,
}

impl Uses {
    pub(super) fn new(links: Links, tasks: Tasks) -> Self {
        Self {
            state: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            links,
            tasks,
        }
    }

    /// Notes a use of each memory of `ids` that one of `partitions` holds.
    pub(super) fn note(
        self: &Arc<Self>,
        partitions: &[PartitionKey],
        ids: &[MemoryId],
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Fault::Closed.into());
        }
        if state.counts.len() >= MOST {
            return Err(StoreError::Unavailable(
                "the write queue is full".to_owned(),
            ));
        }
        for key in partitions
            .iter()
            .flat_map(|p| ids.iter().map(|id| (p.clone(), *id)))
        {
            let count = state
                .counts
                .entry(key)
                .or_insert(Count { uses: 0, last: at });
            count.uses = count.uses.saturating_add(1);
            count.last = count.last.max(at);
        }
        if !std::mem::replace(&mut state.storing, true) {
            let uses = Arc::clone(self);
            self.tasks.spawn(async move { uses.store().await });
        }
        Ok(())
    }

    /// Stores what waits, until nothing does.
    async fn store(&self) {
        let _alone = self.writing.lock().await;
        while let Some(counts) = self.next() {
            let mut by_org: BTreeMap<OrgId, Vec<(PartitionKey, MemoryId, Count)>> = BTreeMap::new();
            for ((partition, id), count) in counts {
                by_org
                    .entry(partition.org)
                    .or_default()
                    .push((partition, id, count));
            }
            for (org, counts) in by_org {
                for batch in counts.chunks(BATCH) {
                    if let Err(error) = self.write(org, batch).await {
                        tracing::warn!(%error, memories = batch.len(), "use counts were not stored");
                    }
                }
            }
        }
    }

    fn next(&self) -> Option<Counts> {
        let mut state = self.state.lock();
        if state.counts.is_empty() {
            state.storing = false;
            return None;
        }
        Some(std::mem::take(&mut state.counts))
    }

    async fn write(
        &self,
        org: OrgId,
        counts: &[(PartitionKey, MemoryId, Count)],
    ) -> Result<(), StoreError> {
        let agents: Vec<_> = counts.iter().map(|(p, ..)| agent_uuid(p.agent)).collect();
        let users: Vec<_> = counts
            .iter()
            .map(|(p, ..)| user_column(p.user.as_ref()))
            .collect();
        let ids: Vec<_> = counts.iter().map(|(_, id, _)| memory_uuid(*id)).collect();
        let uses: Vec<_> = counts.iter().map(|(.., count)| count.uses).collect();
        let lasts: Vec<_> = counts
            .iter()
            .map(|(.., count)| micros(count.last))
            .collect();
        let statement = sqlx::query("SELECT count_uses($1, $2, $3, $4, $5, $6)")
            .bind(org_uuid(org))
            .bind(agents)
            .bind(users)
            .bind(ids)
            .bind(uses)
            .bind(lasts);
        self.links.link().await?.execute(statement).await?;
        Ok(())
    }

    /// Refuses further counts and stores those that wait.
    pub(super) async fn close(&self) {
        self.state.lock().closed = true;
        self.store().await;
    }
}
