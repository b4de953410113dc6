//! Single flight: of several requests that would compute the same, one does, and the others read what it settled.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

use crate::session::{ChainHash, LaneKey};

/// What is computed once: a lane's opening, or one of its turns.
type Key = (LaneKey, Option<ChainHash>);
type Lock = Arc<tokio::sync::Mutex<()>>;

/// The computations under way.
#[derive(Debug, Clone, Default)]
pub struct Flights {
    locks: Arc<Mutex<HashMap<Key, Lock, RandomState>>>,
    waiting: Arc<AtomicUsize>,
}

/// One that waits, for as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to compute. Dropped, the next one gets it.
#[derive(Debug)]
pub struct Flight {
    flights: Flights,
    key: Key,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Flights {
    /// Requests that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits for the right to open `lane`, or to settle one of its turns; nothing when the deadline passes first.
    pub async fn enter(
        &self,
        lane: &LaneKey,
        turn: Option<ChainHash>,
        deadline: Instant,
    ) -> Option<Flight> {
        let key = (lane.clone(), turn);
        let lock = Arc::clone(self.locks.lock().entry(key.clone()).or_default());
        // Made first, so that whoever gives up takes the entry away as well.
        let mut flight = Flight {
            flights: self.clone(),
            key,
            guard: None,
        };
        if let Ok(guard) = Arc::clone(&lock).try_lock_owned() {
            flight.guard = Some(guard);
            return Some(flight);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(&self.waiting);
        flight.guard = Some(timeout_at(deadline, lock.lock_owned()).await.ok()?);
        drop(waiting);
        Some(flight)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut locks = self.flights.locks.lock();
        drop(self.guard.take());
        // One reference is the map's. Nobody can take another one while the map is locked.
        if locks
            .get(&self.key)
            .is_some_and(|lock| Arc::strong_count(lock) == 1)
        {
            locks.remove(&self.key);
        }
    }
}
