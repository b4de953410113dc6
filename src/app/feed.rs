//! The change feed's follower: what other processes (the command line, mostly) wrote reaches this one's caches within a poll, or
//! at once where it is announced.
//!
//! Changes of this process come back too; applying one twice changes nothing, because every cache compares revisions or only forgets.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey};
use crate::store::{Change, ChangeKind, StoreError};

use super::App;

/// Changes taken at once.
const BATCH: usize = 1_000;

/// Up to this many are put into the index where they stand, some microseconds each.
const INLINE: usize = 16;

/// How far the follower is, and what wakes it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The revision up to which every cache knows of every change.
    pub(super) applied: AtomicI64,
    /// Something may have changed.
    pub(super) announced: Notify,
    /// The last look that succeeded.
    pub(super) looked: Mutex<Option<Instant>>,
}

pub(super) async fn follow(app: App) {
    let pause = Duration::from_millis(app.config.store.poll_interval_ms);
    let mut follower = Follower {
        app,
        seen: None,
        behind: false,
    };
    loop {
        let step = follower.step().await;
        follower.app.metrics.feed_read(step.is_ok());
        match step {
            Ok(()) => *follower.app.feed.looked.lock() = Some(Instant::now()),
            Err(error) => {
                tracing::warn!("change feed: {error}; it is read again from where it stood");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = follower.app.feed.announced.notified() => {}
            () = follower.app.tasks.stopping() => return,
        }
    }
}

struct Follower {
    app: App,
    /// The revision that is applied in full.
    seen: Option<i64>,
    /// Something was written that is not applied yet. The store says so once; a failure must not forget it.
    behind: bool,
}

impl Follower {
    async fn step(&mut self) -> Result<(), StoreError> {
        let Some(seen) = self.seen else {
            let revision = self.app.store.revision().await?;
            // Requests may have filled caches before this was known.
            self.forget_everything();
            self.applied(revision);
            return Ok(());
        };
        self.behind |= self.app.store.poll().await?;
        if self.behind {
            self.catch_up(seen).await?;
            self.behind = false;
        }
        Ok(())
    }

    async fn catch_up(&mut self, mut seen: i64) -> Result<(), StoreError> {
        loop {
            let changes = self.app.store.changes_after(seen, BATCH).await?;
            let Some(last) = changes.last() else {
                return Ok(());
            };
            // What takes a right away does not wait behind an import.
            changes.iter().for_each(|change| self.apply_at_once(change));
            for (partition, ids) in by_partition(&changes) {
                self.apply_memories(partition, ids).await?;
            }
            seen = last.revision;
            self.applied(seen);
        }
    }

    fn applied(&mut self, revision: i64) {
        self.seen = Some(revision);
        self.app.feed.applied.store(revision, Ordering::Release);
    }

    fn apply_at_once(&self, change: &Change) {
        match &change.kind {
            ChangeKind::Org(_) | ChangeKind::Agent(..) | ChangeKind::Token(_) => {
                self.app.verifier.invalidate(&change.kind);
            }
            ChangeKind::Directive(org, agent) => {
                let at = Some(change.revision);
                self.app.cached_directives.invalidate(*org, *agent, at);
            }
            ChangeKind::Everything => self.forget_everything(),
            ChangeKind::Memory(..) => {}
        }
    }

    /// Brings one partition up to date with one read. A partition that is not loaded will be read as it is then.
    async fn apply_memories(
        &self,
        partition: &PartitionKey,
        ids: Vec<MemoryId>,
    ) -> Result<(), StoreError> {
        let index = &self.app.index;
        if !index.holds(partition) {
            // What was rendered of it for a session may have been forgotten.
            self.app.sessions.forget_texts();
            return Ok(());
        }
        let store = &self.app.store;
        match store
            .memories_by_id(std::slice::from_ref(partition), &ids)
            .await
        {
            Ok(memories) => self.replace(partition, &ids, memories).await,
            // One row that cannot be read must not hold up every change behind it.
            Err(StoreError::Damaged(what)) => {
                tracing::error!(
                    "change feed: a stored {what} is damaged; its partition is loaded again"
                );
                index.invalidate(partition);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Puts in what the store holds of `ids`, and removes what it holds no more.
    async fn replace(&self, partition: &PartitionKey, ids: &[MemoryId], memories: Vec<Memory>) {
        let held: HashSet<MemoryId> = memories.iter().map(|memory| memory.id).collect();
        // What is forgotten leaves first: nothing waits behind an import.
        let gone = || ids.iter().filter(|id| !held.contains(*id));
        gone().for_each(|id| self.app.index.remove(partition, *id));
        if gone().next().is_some() {
            self.app.sessions.forget_texts();
        }
        let index = self.app.index.clone();
        let upsert = move || memories.into_iter().for_each(|memory| index.upsert(memory));
        if ids.len() <= INLINE {
            return upsert();
        }
        if tokio::task::spawn_blocking(upsert).await.is_err() {
            tracing::error!("change feed: indexing was broken off; a partition is loaded again");
            self.app.index.invalidate(partition);
        }
    }

    fn forget_everything(&self) {
        self.app.verifier.invalidate_all();
        self.app.cached_directives.invalidate_all();
        self.app.index.invalidate_all();
        self.app.sessions.forget_texts();
    }
}

/// The changed memories of each partition, once each.
fn by_partition(changes: &[Change]) -> BTreeMap<&PartitionKey, Vec<MemoryId>> {
    let mut by_partition: BTreeMap<&PartitionKey, Vec<MemoryId>> = BTreeMap::new();
    for change in changes {
        if let ChangeKind::Memory(partition, id) = &change.kind {
            by_partition.entry(partition).or_default().push(*id);
        }
    }
    for ids in by_partition.values_mut() {
        ids.sort_unstable();
        ids.dedup();
    }
    by_partition
}
