//! Frozen sessions of one process: bounded in lanes and bytes, least recently used out first, and dropped when idle.

mod lane;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;

use super::{BlockFate, CacheError, Held, Sent, SessionCache};
use crate::config::SessionConfig;
use crate::session::{LaneKey, Opening, Outcome, Turn};

use lane::LaneState;

/// A lane with its weight at the last change.
#[derive(Debug, Clone)]
struct Entry {
    state: Arc<Mutex<LaneState>>,
    bytes: u32,
}

/// The process's own cache.
pub struct InProcess {
    lanes: Cache<LaneKey, Entry, foldhash::fast::RandomState>,
    idle: Duration,
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess")
            .field("lanes", &self.lanes.entry_count())
            .finish_non_exhaustive()
    }
}

impl InProcess {
    /// An empty cache.
    #[must_use]
    pub fn new(settings: &SessionConfig) -> Self {
        // One bound for both: a lane never weighs less than its share of the bytes.
        let share = settings.max_bytes / settings.max_lanes.max(1);
        let least = u32::try_from(share).unwrap_or(u32::MAX).max(1);
        let lanes = Cache::builder()
            .max_capacity(settings.max_bytes)
            .weigher(move |_, entry: &Entry| entry.bytes.max(least))
            // A new session must never be turned away in favour of an old one.
            .eviction_policy(EvictionPolicy::lru())
            .build_with_hasher(foldhash::fast::RandomState::default());
        Self {
            lanes,
            idle: Duration::from_secs(settings.idle_s),
        }
    }

    /// Drops lanes that were idle for too long, and tells how many lanes and bytes are held.
    pub fn sweep(&self) -> (u64, u64) {
        for (key, entry) in &self.lanes {
            if self.is_idle(&entry.state.lock()) {
                self.lanes.invalidate(&*key);
            }
        }
        self.lanes.run_pending_tasks();
        (self.lanes.entry_count(), self.lanes.weighted_size())
    }

    /// Forgets everything, as if the process had been restarted.
    pub fn clear(&self) {
        self.lanes.invalidate_all();
    }

    fn is_idle(&self, state: &LaneState) -> bool {
        state.idle_since().elapsed() >= self.idle
    }

    fn entry(&self, key: &LaneKey) -> Option<Entry> {
        let entry = self.lanes.get(key)?;
        if self.is_idle(&entry.state.lock()) {
            self.lanes.invalidate(key);
            return None;
        }
        Some(entry)
    }

    /// Changes a lane, which is made when it is not there, and weighs it again.
    fn change<T>(&self, key: &LaneKey, change: impl FnOnce(&mut LaneState) -> T) -> T {
        let fresh = || Entry {
            state: Arc::new(Mutex::new(LaneState::new())),
            bytes: 0,
        };
        let entry = self
            .entry(key)
            .unwrap_or_else(|| self.lanes.get_with(key.clone(), fresh));
        let (answer, bytes) = {
            let mut state = entry.state.lock();
            state.touch();
            let answer = change(&mut state);
            (answer, u32::try_from(state.bytes()).unwrap_or(u32::MAX))
        };
        if bytes != entry.bytes {
            self.lanes.insert(key.clone(), Entry { bytes, ..entry });
        }
        answer
    }
}

#[async_trait]
impl SessionCache for InProcess {
    async fn read(&self, key: &LaneKey, turns: &[Turn]) -> Result<Option<Held>, CacheError> {
        Ok(self.entry(key).map(|entry| {
            let mut state = entry.state.lock();
            state.touch();
            state.held(turns)
        }))
    }

    async fn restore(
        &self,
        key: &LaneKey,
        opening: Arc<Opening>,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(), CacheError> {
        self.change(key, |lane| {
            if lane.opening().is_some() {
                return Ok(());
            }
            let nonce_epoch = opening.nonce_epoch;
            lane.mark_restored();
            lane.open(opening);
            lane.settle(nonce_epoch, turns).map(drop)
        })
    }

    async fn open(
        &self,
        key: &LaneKey,
        opening: Arc<Opening>,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(Arc<Opening>, Vec<Outcome>), CacheError> {
        self.change(key, |lane| {
            let nonce_epoch = opening.nonce_epoch;
            let held = lane.open(opening);
            Ok((held, lane.settle(nonce_epoch, turns)?))
        })
    }

    async fn settle(
        &self,
        key: &LaneKey,
        nonce_epoch: u32,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<Vec<Outcome>, CacheError> {
        self.change(key, |lane| lane.settle(nonce_epoch, turns))
    }

    async fn rotate(
        &self,
        key: &LaneKey,
        from: u32,
        opening: Arc<Opening>,
        blocks: BlockFate,
    ) -> Result<Arc<Opening>, CacheError> {
        if self.entry(key).is_none() {
            return Err(CacheError::Rotated);
        }
        self.change(key, |lane| lane.rotate(from, opening, &blocks))
    }

    async fn turns(&self, key: &LaneKey) -> Result<Vec<(Turn, Outcome)>, CacheError> {
        let entry = self.entry(key);
        Ok(entry.map_or_else(Vec::new, |entry| entry.state.lock().all()))
    }

    async fn checked(&self, key: &LaneKey, revision: i64, turns: usize) -> Result<(), CacheError> {
        if let Some(entry) = self.entry(key) {
            entry.state.lock().note_checked(revision, turns);
        }
        Ok(())
    }

    async fn sent(&self, key: &LaneKey, sent: Sent) -> Result<(), CacheError> {
        if let Some(entry) = self.entry(key) {
            entry.state.lock().note_sent(sent);
        }
        Ok(())
    }
}
