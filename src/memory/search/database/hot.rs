//! The hot branch where a partition is not in this process: replicas tell each other which memories stand highest, and the store hands those
//! out. Where nobody has told, the pinned and the newest ones stand in.
//!
//! Only identifiers are told. What is read for them is what the store has now, so nothing that was forgotten comes back by this way.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use moka::sync::Cache;
use tokio::time::{Instant, timeout_at};

use crate::auth::Scope;
use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey};
use crate::store::StoreError;

use super::super::hot::{Inline, best, current, hot_members, refresh};
use super::super::{BranchError, Hit, HotBranch, Index, Partition, Query, SearchError};
use super::{Candidates, Staged};

/// Standing decays by days: this often is often enough.
const TOLD_AGAIN: Duration = Duration::from_secs(60);
/// Partitions of which it is remembered that they were told.
const TOLD: u64 = 65_536;

/// Where replicas tell each other which memories of a partition stand highest.
#[async_trait]
pub trait StandingIds: Send + Sync + fmt::Debug {
    /// What was told last, the highest first; nothing where nothing was, or nobody answers.
    async fn told(&self, partition: &PartitionKey) -> Option<Vec<MemoryId>>;
    /// Tells it, as it is at that time.
    async fn tell(&self, partition: &PartitionKey, ids: Vec<MemoryId>, at: Timestamp);
}

/// What one replica has from others, and tells them.
pub(super) struct Shared {
    with: Arc<dyn StandingIds>,
    told: Cache<PartitionKey, ()>,
}

impl Shared {
    pub(super) fn new(with: Arc<dyn StandingIds>) -> Self {
        Self {
            with,
            told: Cache::builder()
                .max_capacity(TOLD)
                .time_to_live(TOLD_AGAIN)
                .build(),
        }
    }
}

impl Staged {
    /// The members of each partition that `scope` reads, as partitions that hold nothing else.
    async fn members_of(
        &self,
        scope: &Scope,
        deadline: Instant,
    ) -> Result<Vec<Arc<Partition>>, SearchError> {
        let keys = PartitionKey::for_read(scope);
        let found =
            futures_util::future::try_join_all(keys.iter().map(|key| self.standing_in(key)));
        let found = timeout_at(deadline, found)
            .await
            .map_err(|_| SearchError::Deadline)??;
        let partitions = keys.iter().zip(found).map(|(key, memories)| {
            let found = Candidates {
                documents: memories.len() as u64,
                memories,
                ..Candidates::default()
            };
            Arc::new(self.partition(key, &[], found))
        });
        Ok(partitions.collect())
    }

    async fn standing_in(&self, key: &PartitionKey) -> Result<Vec<Memory>, StoreError> {
        let told = match &self.shared {
            Some(shared) => shared.with.told(key).await,
            None => None,
        };
        let (now, most) = (self.index.now(), self.index.hot_set_size());
        let ids = told.unwrap_or_default();
        if !ids.is_empty() {
            let members = self.store.standing(key, Some(&ids), most, now).await?;
            if !members.is_empty() {
                return Ok(members);
            }
        }
        self.store.standing(key, None, most, now).await
    }

    /// Tells other replicas the members of the partitions that are in this process, in the background and once in a while.
    fn tell(&self, scope: &Scope) {
        let Some(shared) = &self.shared else { return };
        for key in PartitionKey::for_read(scope) {
            if shared.told.contains_key(&key) {
                continue;
            }
            let (now, most) = (self.index.now(), self.index.hot_set_size());
            let Some(ids) = members_in(&self.index, &key, most, now) else {
                continue;
            };
            shared.told.insert(key.clone(), ());
            let with = Arc::clone(&shared.with);
            self.index
                .tasks()
                .spawn(async move { with.tell(&key, ids, now).await });
        }
    }
}

/// The members of a partition in this process; nothing where they are not chosen yet.
fn members_in(
    index: &Index,
    key: &PartitionKey,
    most: usize,
    now: Timestamp,
) -> Option<Vec<MemoryId>> {
    let partition = index.held(key)?;
    // It is read without a wait, or another time.
    let members = current(&partition, now, most, Instant::now()).ok()?;
    let ids: Vec<MemoryId> = members.iter().map(|(_, memory)| memory.id).collect();
    (!ids.is_empty()).then_some(ids)
}

#[async_trait]
impl HotBranch for Staged {
    async fn hot(
        &self,
        scope: &Scope,
        query: &Query,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Hit>, BranchError> {
        if self.is_in_process(scope, deadline).await? {
            let hits = self.hot.hot(scope, query, limit, deadline).await?;
            self.tell(scope);
            return Ok(hits);
        }
        let partitions = self.members_of(scope, deadline).await?;
        let inline = Inline {
            rows: usize::MAX,
            deadline,
        };
        let mut hits = hot_members(&partitions, query, self.index.now(), limit, inline)?;
        hits.retain(|hit| hit.memory.partition.visible_to(scope));
        Ok(hits)
    }

    async fn standing(
        &self,
        scope: &Scope,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Arc<Memory>>, BranchError> {
        if self.is_in_process(scope, deadline).await? {
            let members = self.hot.standing(scope, limit, deadline).await?;
            self.tell(scope);
            return Ok(members);
        }
        let now = self.index.now();
        let mut members = Vec::new();
        for partition in self.members_of(scope, deadline).await? {
            refresh(&partition, now, deadline)?;
            members.extend(current(&partition, now, limit, deadline)?);
        }
        Ok(best(members, scope, limit))
    }

    async fn members(
        &self,
        scope: &Scope,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Arc<Memory>>, BranchError> {
        if self.is_in_process(scope, deadline).await? {
            return HotBranch::members(&self.hot, scope, limit, deadline).await;
        }
        self.standing(scope, limit, deadline).await
    }
}
