//! The budget: what the partitions hold together, and who leaves when it is too much.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Slot, Slots};

/// A scope reads two partitions, its own and the shared one. The two used last stay even if they alone are too much: of two that took
/// turns in leaving, each request would find one missing.
const STAY: usize = 2;

/// More than the excess leaves, a part of the budget so large: looking through all partitions is not worth it for one.
const SPARE: usize = 16;

impl Slots {
    /// What the partitions hold, in bytes.
    pub(in crate::memory::search) fn bytes(&self) -> usize {
        self.total.bytes()
    }

    fn is_too_large(&self) -> bool {
        self.bytes() > self.settings.bytes
    }

    /// Evicts in the background, if there is a reason to and nobody does yet.
    pub(in crate::memory::search) fn look_at_size(self: &Arc<Self>) {
        if self.is_too_large() && !self.eviction_begun.swap(true, Ordering::Relaxed) {
            let slots = Arc::clone(self);
            self.tasks.spawn(async move {
                slots.evict_when_too_large().await;
                slots.eviction_begun.store(false, Ordering::Relaxed);
            });
        }
    }

    /// Brings the size below the budget where that is possible.
    pub(super) async fn evict_when_too_large(self: &Arc<Self>) {
        if !self.is_too_large() {
            return;
        }
        let slots = Arc::clone(self);
        // Thousands of partitions may be looked through, and freed.
        let evicted = tokio::task::spawn_blocking(move || slots.evict());
        if evicted.await.is_err() {
            tracing::error!("an eviction from the index was broken off");
        }
    }

    fn evict(&self) {
        let _one_at_a_time = self.evicting.lock();
        if !self.is_too_large() {
            return;
        }
        let budget = self.settings.bytes;
        let enough = budget - budget / SPARE;
        // Those that are being loaded have somebody who waits, and will be counted when they are whole.
        let loaded = self.table.iter().filter(|slot| slot.is_loaded());
        let mut loaded: Vec<(u64, Arc<Slot>)> = loaded
            .map(|slot| (slot.used.load(Ordering::Relaxed), Arc::clone(&slot)))
            .collect();
        loaded.sort_unstable_by_key(|(used, _)| *used);
        let leaving = loaded.len().saturating_sub(STAY);
        for (used, slot) in loaded.into_iter().take(leaving) {
            if self.bytes() <= enough {
                return;
            }
            // Somebody may have asked for it since the look.
            let idle = slot.used.load(Ordering::Relaxed) == used;
            if idle && self.remove(&slot) {
                self.settings.figures.evictions.inc();
            }
        }
        if self.is_too_large() && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                bytes = self.bytes(),
                budget,
                "the index exceeds memory.index_bytes by what the partitions in use hold; they stay"
            );
        }
    }
}
