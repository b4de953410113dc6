//! Records of sessions: noted on the request path in memory, written to the store in the background, many in one transaction.
//!
//! A stop writes what is left. A crash loses the last moments; then the session's epoch rotates, because what was lost may have been sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::app::App;
use crate::ids::MemoryId;
use crate::session::record::{OpeningRecord, SessionRecord, TurnEnd, TurnRecord};
use crate::session::{ChainHash, LaneKey, Opening, Outcome, Turn};
use crate::store::Store;

/// Records that wait while the store is slow; beyond it new ones are dropped and counted.
const MOST: usize = 65_536;
/// Records in one transaction.
const BATCH: usize = 1_024;

/// Records that are not written yet.
pub struct Records {
    waiting: Mutex<Vec<SessionRecord>>,
    /// How many were ever noted, and how many of those are written or given up.
    noted: watch::Sender<u64>,
    done: watch::Sender<u64>,
    lost: AtomicU64,
    store: Arc<dyn Store>,
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records").finish_non_exhaustive()
    }
}

impl Records {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            waiting: Mutex::default(),
            noted: watch::Sender::new(0),
            done: watch::Sender::new(0),
            lost: AtomicU64::new(0),
            store,
        }
    }

    fn note(&self, record: SessionRecord) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= MOST {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.push(record);
        drop(waiting);
        self.noted.send_modify(|noted| *noted += 1);
    }

    /// A lane opened, or rotated its epoch.
    pub fn opened(&self, key: &LaneKey, opening: &Opening, drops_blocks: bool, at: Timestamp) {
        let record = OpeningRecord {
            epoch: opening.epoch,
            nonce_epoch: opening.nonce_epoch,
            directive: opening.directive,
            snapshot: opening.ids().collect(),
            sha256: *opening.sha256(),
            reason: opening.reason,
            drops_blocks,
            at,
        };
        self.note(SessionRecord::Opened(key.clone(), record));
    }

    /// A turn was settled.
    pub fn settled(&self, key: &LaneKey, turn: &Turn, outcome: &Outcome, at: Timestamp) {
        let block = outcome.block();
        let record = TurnRecord {
            chain: turn.chain,
            anchor: turn.anchor,
            nonce_epoch: block.map_or(0, |b| b.nonce_epoch()),
            memories: block.map(|b| b.ids().collect()).unwrap_or_default(),
            state: block.and_then(|b| b.state()).map(|s| (s.from, s.to)),
            digest: block.map(|b| *b.digest()),
            at,
        };
        self.note(SessionRecord::Settled(key.clone(), record));
    }

    /// Memories left a lane's blocks.
    pub fn forgotten(&self, key: &LaneKey, gone: Vec<MemoryId>) {
        self.note(SessionRecord::Forgotten(key.clone(), gone));
    }

    /// A turn's provider call ended.
    pub fn ended(&self, key: &LaneKey, turn: ChainHash, end: TurnEnd) {
        self.note(SessionRecord::Ended(key.clone(), turn, end));
    }

    /// Records that were dropped because too many waited.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until everything that was noted before this call is in the store, or was given up.
    pub async fn flushed(&self) {
        let noted = *self.noted.borrow();
        let mut done = self.done.subscribe();
        // The sender lives as long as this value does.
        let _done = done.wait_for(|done| *done >= noted).await;
    }

    async fn write_all(&self) {
        loop {
            let mut batch = std::mem::take(&mut *self.waiting.lock());
            if batch.is_empty() {
                return;
            }
            if batch.len() > BATCH {
                let rest = batch.split_off(BATCH);
                let mut waiting = self.waiting.lock();
                let newer = std::mem::replace(&mut *waiting, rest);
                waiting.extend(newer);
            }
            let count = batch.len() as u64;
            if let Err(error) = self.store.record_sessions(batch).await {
                self.lost.fetch_add(count, Ordering::Relaxed);
                tracing::warn!(records = count, "session records were not stored: {error}");
            }
            self.done.send_modify(|done| *done += count);
        }
    }
}

/// Writes records as they come, and the last of them when the process stops.
pub(in crate::app) async fn write(app: App) {
    let mut noted = app.sessions.records.noted.subscribe();
    loop {
        let stopping = tokio::select! {
            changed = noted.changed() => changed.is_err(),
            () = app.tasks.stopping() => true,
        };
        app.sessions.records.write_all().await;
        if stopping {
            return;
        }
    }
}
