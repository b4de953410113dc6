//! The change feed's follower: what other processes (the command line, mostly) wrote reaches this one's caches within a poll.
//!
//! Changes of this process come back too; applying one twice changes nothing, because every cache compares revisions or only forgets.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::ids::MemoryId;
use crate::memory::PartitionKey;
use crate::store::{Change, ChangeKind, StoreError};

use super::App;

/// Changes taken at once.
const BATCH: usize = 1_000;

pub(super) async fn follow(app: App) {
    let pause = Duration::from_millis(app.config.store.poll_interval_ms);
    let mut follower = Follower {
        app,
        seen: None,
        behind: false,
    };
    loop {
        if let Err(error) = follower.step().await {
            tracing::warn!("change feed: {error}; it is read again from where it stood");
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
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
            for change in &changes {
                if let ChangeKind::Memory(partition, id) = &change.kind {
                    self.apply_memory(partition, *id).await?;
                }
            }
            seen = last.revision;
            self.applied(seen);
        }
    }

    fn applied(&mut self, revision: i64) {
        self.seen = Some(revision);
        self.app.applied.store(revision, Ordering::Release);
    }

    fn apply_at_once(&self, change: &Change) {
        match &change.kind {
            ChangeKind::Org(_) | ChangeKind::Agent(..) | ChangeKind::Token(_) => {
                self.app.verifier.invalidate(&change.kind);
            }
            ChangeKind::Directive(org, agent) => {
                self.app.cached_directives.invalidate(*org, *agent);
            }
            ChangeKind::Everything => self.forget_everything(),
            ChangeKind::Memory(..) => {}
        }
    }

    /// A partition that is not loaded will be read as it is then.
    async fn apply_memory(&self, partition: &PartitionKey, id: MemoryId) -> Result<(), StoreError> {
        let index = &self.app.index;
        if !index.holds(partition) {
            // What was rendered of it for a session may have been forgotten.
            self.app.sessions.renderings.forget();
            return Ok(());
        }
        match self
            .app
            .store
            .memory(std::slice::from_ref(partition), id)
            .await
        {
            Ok(Some(memory)) => index.upsert(memory),
            Ok(None) => {
                index.remove(partition, id);
                self.app.sessions.renderings.forget();
            }
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

    fn forget_everything(&self) {
        self.app.verifier.invalidate_all();
        self.app.cached_directives.invalidate_all();
        self.app.index.invalidate_all();
        self.app.sessions.renderings.forget();
    }
}
