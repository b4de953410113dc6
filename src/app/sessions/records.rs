//! Records of sessions: noted on the request path in memory, written to the store in the background, many in one transaction.
//!
//! What cannot be stored is tried again, in order. A stop writes what is left and says so in the store; after a crash the newest rows may
//! be missing, and a session that shows it starts a new epoch, because what was lost may have been sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::app::App;
use crate::ids::MemoryId;
use crate::session::record::{OpeningRecord, SessionRecord, TurnEnd, TurnRecord};
use crate::session::{ChainHash, LaneKey, Opening, Outcome, Turn};
use crate::store::{Store, StoreError};

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
    /// Whether the run before this one ended well; nothing before the store was asked.
    ended_well: watch::Sender<Option<bool>>,
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
            ended_well: watch::Sender::new(None),
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

    /// Records that wait.
    pub fn depth(&self) -> usize {
        self.waiting.lock().len()
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

    /// Whether every record that was ever noted is in the store, in this run and the one before.
    pub async fn are_whole(&self) -> bool {
        self.flushed().await;
        let mut ended_well = self.ended_well.subscribe();
        let known = ended_well.wait_for(Option::is_some).await;
        let known = known.is_ok_and(|known| *known == Some(true));
        known && self.lost() == 0
    }

    /// Whether the run before this one is known not to have ended well.
    pub fn came_after_a_crash(&self) -> bool {
        *self.ended_well.borrow() == Some(false)
    }

    /// Writes what waits. What the store does not take goes back to its place, and the answer is no.
    async fn write_all(&self) -> bool {
        loop {
            let batch = self.next_batch();
            if batch.is_empty() {
                return true;
            }
            let count = batch.len() as u64;
            match self.store.record_sessions(batch.clone()).await {
                Ok(()) => self.done.send_modify(|done| *done += count),
                Err(StoreError::Unavailable(why)) => {
                    self.put_back(batch, &why);
                    return false;
                }
                Err(_) if self.write_singly(batch).await => {}
                Err(_) => return false,
            }
        }
    }

    fn next_batch(&self) -> Vec<SessionRecord> {
        let mut waiting = self.waiting.lock();
        let size = waiting.len().min(BATCH);
        let rest = waiting.split_off(size);
        std::mem::replace(&mut *waiting, rest)
    }

    fn put_back(&self, records: Vec<SessionRecord>, why: &str) {
        tracing::warn!(records = records.len(), "session records wait: {why}");
        let mut waiting = self.waiting.lock();
        let newer = std::mem::replace(&mut *waiting, records);
        waiting.extend(newer);
    }

    /// One record that the store refuses costs no other one. What it does not take now goes back, as above.
    async fn write_singly(&self, batch: Vec<SessionRecord>) -> bool {
        let mut left = batch.into_iter();
        while let Some(record) = left.next() {
            match self.store.record_sessions(vec![record.clone()]).await {
                Ok(()) => {}
                Err(StoreError::Unavailable(why)) => {
                    self.put_back(std::iter::once(record).chain(left).collect(), &why);
                    return false;
                }
                Err(error) => {
                    self.lost.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!("a session record was not stored: {error}");
                }
            }
            self.done.send_modify(|done| *done += 1);
        }
        true
    }
}

/// Between two attempts while the store takes nothing.
const AGAIN: Duration = Duration::from_secs(1);

/// Writes records as they come, and the last of them when the process stops.
pub(in crate::app) async fn write(app: App) {
    let records = &app.sessions.records;
    let ended_well = app.store.begin_run().await.unwrap_or_else(|error| {
        tracing::warn!("the last run's end is not known: {error}");
        false
    });
    records.ended_well.send_replace(Some(ended_well));
    let mut noted = records.noted.subscribe();
    let mut written = true;
    loop {
        let stopping = tokio::select! {
            changed = noted.changed(), if written => changed.is_err(),
            () = tokio::time::sleep(AGAIN), if !written => false,
            () = app.tasks.stopping() => true,
        };
        written = records.write_all().await;
        if stopping {
            break;
        }
    }
    if !written || records.lost() > 0 {
        tracing::warn!("session records are missing in the store");
    } else if let Err(error) = app.store.end_run().await {
        tracing::warn!("the end of this run was not noted: {error}");
    }
}
