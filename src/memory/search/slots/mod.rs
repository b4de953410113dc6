//! The partitions in memory, by key: one is loaded when it is first asked for and leaves when the index has grown past its budget and
//! others were used since.
//!
//! A partition is in the table before anything of it is read, and leaves the table before it is forgotten. So a change that commits is
//! either put into the partition, whatever its load has read so far, because revisions decide which is newer; or it was committed before
//! the next load reads. No order of loads, changes and evictions loses one.

mod budget;
mod load;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use dashmap::DashMap;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::memory::PartitionKey;
use crate::store::{MemoryStore, StoreError};
use crate::tasks::Tasks;

use super::share::Total;
use super::{IndexSettings, Partition, SearchError};

/// See the module.
pub(super) struct Slots {
    store: Arc<dyn MemoryStore>,
    tasks: Tasks,
    settings: IndexSettings,
    // The default hasher is seeded: keys contain what clients choose.
    table: DashMap<PartitionKey, Arc<Slot>>,
    total: Arc<Total>,
    /// Uses so far: what tells which of two partitions was used last.
    uses: AtomicU64,
    /// Held for one page of a load at a time; it is fair, so a small partition does not wait for a large one.
    turns: Semaphore,
    /// Loads that are not over.
    loading: AtomicU64,
    /// Held by whoever evicts.
    evicting: Mutex<()>,
    eviction_begun: AtomicBool,
    warned: AtomicBool,
}

/// A partition and its load.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) partition: Arc<Partition>,
    /// How the load ended; unset while it runs.
    ended: OnceLock<Result<(), StoreError>>,
    end: Notify,
    /// When it was used last, counted in uses of the index; 0 when nobody has asked for it yet.
    used: AtomicU64,
}

impl Slot {
    pub(super) fn is_loaded(&self) -> bool {
        matches!(self.ended.get(), Some(Ok(())))
    }

    /// Waits until `deadline` for the load's end.
    pub(super) async fn loaded(&self, deadline: Instant) -> Result<(), SearchError> {
        loop {
            // Made before the look: an end between the two wakes it.
            let end = self.end.notified();
            match self.ended.get() {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => return Err(SearchError::Store(error.clone())),
                None => {}
            }
            timeout_at(deadline, end)
                .await
                .map_err(|_| SearchError::Deadline)?;
        }
    }
}

impl Slots {
    pub(super) fn new(store: Arc<dyn MemoryStore>, tasks: Tasks, settings: IndexSettings) -> Self {
        Self {
            store,
            tasks,
            table: DashMap::new(),
            total: Total::new(settings.figures.bytes.clone()),
            uses: AtomicU64::new(0),
            turns: Semaphore::new(settings.loads.max(1)),
            loading: AtomicU64::new(0),
            evicting: Mutex::new(()),
            eviction_begun: AtomicBool::new(false),
            warned: AtomicBool::new(false),
            settings,
        }
    }

    pub(super) const fn settings(&self) -> &IndexSettings {
        &self.settings
    }

    pub(super) const fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The slot of a partition that is loaded or being loaded.
    pub(super) fn get(&self, key: &PartitionKey) -> Option<Arc<Slot>> {
        self.table.get(key).map(|slot| Arc::clone(&slot))
    }

    /// The slot of a partition somebody asks for; whoever asks first starts its load.
    pub(super) fn asked(self: &Arc<Self>, key: &PartitionKey) -> Arc<Slot> {
        let slot = self.slot(key);
        self.touch(&slot);
        slot
    }

    /// The same, but not counted as a use: those that are only written to leave before those that are asked.
    pub(super) fn slot(self: &Arc<Self>, key: &PartitionKey) -> Arc<Slot> {
        self.get(key).unwrap_or_else(|| self.begin(key))
    }

    /// Starts loading a partition that nobody asks for yet, where that costs nobody anything: others would have to leave for it, or wait
    /// behind it, otherwise.
    pub(super) fn warm(self: &Arc<Self>, key: &PartitionKey) {
        let room = self.bytes() < self.settings.bytes / 8 * 7;
        let idle = self.loading.load(Ordering::Relaxed) < load::WARMED_AT_ONCE;
        if room && idle && !self.table.contains_key(key) {
            self.begin(key);
        }
    }

    /// After changes to a partition: clears up behind them, in the background. Cheap enough for every write.
    pub(super) fn tidy(self: &Arc<Self>, slot: &Slot) {
        if slot.partition.is_untidy() {
            let partition = Arc::clone(&slot.partition);
            self.tasks.spawn(async move {
                let compacted = tokio::task::spawn_blocking(move || partition.compact());
                if compacted.await.is_err() {
                    tracing::error!("clearing up a large partition was broken off");
                }
            });
        }
        self.look_at_size();
    }

    /// Drops a partition: the next use loads it again.
    pub(super) fn drop_one(&self, key: &PartitionKey) {
        if let Some((_, slot)) = self.table.remove(key) {
            self.left(&slot);
        }
    }

    /// The partitions that are loaded or being loaded.
    pub(super) fn keys(&self) -> Vec<PartitionKey> {
        self.table.iter().map(|slot| slot.key().clone()).collect()
    }

    /// Drops every partition.
    pub(super) fn drop_all(&self) {
        self.table.retain(|_, slot| {
            self.left(slot);
            false
        });
    }

    /// Whether a load or an eviction is under way.
    #[cfg(test)]
    pub(super) fn is_busy(&self) -> bool {
        self.loading.load(Ordering::Relaxed) > 0 || self.eviction_begun.load(Ordering::Relaxed)
    }

    fn touch(&self, slot: &Slot) {
        let now = self.uses.fetch_add(1, Ordering::Relaxed) + 1;
        slot.used.store(now, Ordering::Relaxed);
    }

    /// A slot for `key` and its load, unless somebody was faster.
    fn begin(self: &Arc<Self>, key: &PartitionKey) -> Arc<Slot> {
        let mut first = false;
        let slot = Arc::clone(&self.table.entry(key.clone()).or_insert_with(|| {
            first = true;
            let partition = Partition::within(
                key.clone(),
                self.settings.spaces.of(key),
                self.settings.hot_set_size,
                Arc::clone(&self.total),
            );
            Arc::new(Slot {
                partition: Arc::new(partition),
                ended: OnceLock::new(),
                end: Notify::new(),
                used: AtomicU64::new(0),
            })
        }));
        if first {
            self.settings.figures.partitions.inc();
            self.start_load(Arc::clone(&slot));
        }
        slot
    }

    fn is_held(&self, slot: &Arc<Slot>) -> bool {
        let current = self.get(slot.partition.key());
        current.is_some_and(|current| Arc::ptr_eq(&current, slot))
    }

    /// Removes `slot`, if it is the one in the table.
    fn remove(&self, slot: &Arc<Slot>) -> bool {
        let key = slot.partition.key();
        let own = |_: &PartitionKey, current: &mut Arc<Slot>| Arc::ptr_eq(current, slot);
        let removed = self.table.remove_if_mut(key, own).is_some();
        if removed {
            self.left(slot);
        }
        removed
    }

    fn left(&self, slot: &Slot) {
        slot.partition.leave();
        self.settings.figures.partitions.dec();
    }
}
