//! A load: the rows of a partition, page by page, in the background. It goes on when those who wait for it have given up.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use tokio::time::Instant;

use crate::memory::Memory;
use crate::store::StoreError;
use crate::telemetry::LoadEnd;

use super::{Slot, Slots};

/// Rows of a page. Reading and analysing it takes some milliseconds: what a small partition may have to wait behind a large one.
const PAGE: usize = 512;

/// Up to this many are put in where they stand, some microseconds each.
const INLINE: usize = 16;

/// Partitions that nobody waits for are not loaded while this many others are.
pub(super) const WARMED_AT_ONCE: u64 = 16;

impl Slots {
    pub(super) fn start_load(self: &Arc<Self>, slot: Arc<Slot>) {
        let slots = Arc::clone(self);
        self.loading.fetch_add(1, Ordering::Relaxed);
        self.tasks.spawn(async move {
            let began = Instant::now();
            let ended = tokio::select! {
                biased;
                // A panic is the partition's failure alone, and nobody waits for what will never end.
                ended = AssertUnwindSafe(slots.read_all(&slot)).catch_unwind() => {
                    ended.unwrap_or(Err(StoreError::Damaged("partition")))
                }
                () = slots.tasks.stopping() => Err(StoreError::Unavailable("the process ends".to_owned())),
            };
            let abandoned = slots.is_abandoned(&slot);
            let end = match &ended {
                Ok(()) => LoadEnd::Complete,
                Err(_) if abandoned => LoadEnd::Abandoned,
                Err(_) => LoadEnd::Failed,
            };
            slots.settings.figures.loaded(end, began.elapsed());
            if ended.is_err() {
                // The next request tries again.
                slots.remove(&slot);
            } else if slot.used.load(Ordering::Relaxed) > 0 {
                // Whoever asked for it comes again. A load that took long must not be the first to leave.
                slots.touch(&slot);
            }
            // It was empty: this is the only place that sets it.
            drop(slot.ended.set(ended));
            slot.end.notify_waiters();
            slots.tidy(&slot);
            slots.evict_when_too_large().await;
            slots.loading.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Whether a partition was dropped while it was being loaded, and nobody waits for it any more.
    fn is_abandoned(&self, slot: &Arc<Slot>) -> bool {
        !self.is_held(slot) && Arc::strong_count(slot) == 1
    }

    async fn read_all(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let turn = self.turns.acquire().await;
            let turn =
                turn.map_err(|_| StoreError::Unavailable("the index is closed".to_owned()))?;
            let key = slot.partition.key();
            let page = self.store.partition_memories(key, after, PAGE).await?;
            let whole = page.len() >= PAGE;
            after = page.last().map(|memory| memory.id);
            put_in(slot, page).await?;
            drop(turn);
            if !whole {
                break;
            }
            if self.is_abandoned(slot) {
                return Err(StoreError::Unavailable("nobody waits for it".to_owned()));
            }
            self.evict_when_too_large().await;
        }
        let partition = Arc::clone(&slot.partition);
        off_thread(move || partition.shrink()).await
    }
}

async fn put_in(slot: &Slot, page: Vec<Memory>) -> Result<(), StoreError> {
    if page.len() <= INLINE {
        slot.partition.fill(page);
        return Ok(());
    }
    let partition = Arc::clone(&slot.partition);
    off_thread(move || partition.fill(page)).await
}

/// Work that I/O threads have no time for.
async fn off_thread(work: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| StoreError::Damaged("partition"))
}
