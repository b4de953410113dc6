//! The lock around a partition's columns. Readers hold it for one chunk of work and look at the deadline in between, so a long search
//! delays neither a write nor its own request; nor does it wait for a lock beyond its deadline.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{RwLock, RwLockWriteGuard};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey};

use super::columns::{Background, Columns};
use super::prepared::{Levels, Prepared};
use super::share::{Share, Total};
use super::space::Space;

/// Rows a reader handles between two looks at the deadline: 2 MB of vectors, well under half a millisecond.
pub(super) const CHUNK_ROWS: usize = 8_192;

/// Rows that are put in under one lock.
const ROWS_PER_LOCK: usize = 128;

/// Rows up to which the dead are cleared away within the change that made them too many: it takes a few milliseconds.
const COMPACTED_AT_ONCE: usize = 16_384;

/// Rows from which giving the memory back takes longer than a request should wait.
const SLOW_TO_FREE: usize = 1_024;

/// What the index needs for each partition besides it: its load, its place in the table, and the handles.
const SLOT_BYTES: usize = 256;

/// Why a pass stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupted {
    /// Rows moved while the lock was free; start again.
    Moved,
    /// The deadline passed.
    Deadline,
}

/// Fails once `deadline` has passed.
pub(super) fn in_time(deadline: Instant) -> Result<(), Interrupted> {
    if Instant::now() >= deadline {
        return Err(Interrupted::Deadline);
    }
    Ok(())
}

/// The searchable memories of one partition.
#[derive(Debug)]
pub struct Partition {
    key: PartitionKey,
    space: Space,
    columns: RwLock<Columns>,
    /// As in the columns, for those who may not wait for the lock.
    live: AtomicUsize,
    /// Most rows are dead, and too many for whoever made the last change to clear them away.
    untidy: AtomicBool,
    /// Somebody does it.
    clearing: AtomicBool,
    share: Share,
}

impl Partition {
    /// An empty partition whose vectors are those of `model`, with room for `hot` members in its hot set.
    #[must_use]
    pub fn new(key: PartitionKey, model: Arc<str>, hot: usize) -> Self {
        Self::within(key, Space::Stored(model), hot, Arc::default())
    }

    /// A partition in `space` whose size is part of a total.
    pub(super) fn within(key: PartitionKey, space: Space, hot: usize, total: Arc<Total>) -> Self {
        let partition = Self {
            key,
            space,
            columns: RwLock::new(Columns::new(hot)),
            live: AtomicUsize::new(0),
            untidy: AtomicBool::new(false),
            clearing: AtomicBool::new(false),
            share: Share::new(total),
        };
        partition.write(|_| ());
        partition
    }

    /// A partition of candidates that stand for a whole one, outside the index.
    pub(super) fn standing_for(key: PartitionKey, space: Space, background: Background) -> Self {
        // Whoever stands for others may stand high.
        let partition = Self::within(key, space, background.candidates, Arc::default());
        partition.write(|columns| columns.background = Some(Box::new(background)));
        partition
    }

    /// Which partition it is.
    #[must_use]
    pub fn key(&self) -> &PartitionKey {
        &self.key
    }

    /// Memories that can be found.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Whether nothing can be found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it holds, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.share.bytes()
    }

    /// Brings one memory up to date; a memory of another partition or of an older revision changes nothing.
    pub fn upsert(&self, memory: Arc<Memory>) {
        self.put(Arc::unwrap_or_clone(memory));
    }

    pub(super) fn put(&self, memory: Memory) {
        if memory.partition != self.key {
            return;
        }
        // A use or a vote is by far the most common change; the text of others is analysed outside the lock.
        let levels = Levels::new(&memory, &self.space);
        let changed = self.write(|columns| columns.update(memory, &levels));
        if let Some(memory) = changed {
            let prepared = Prepared::new(memory, levels);
            self.write(|columns| columns.upsert(prepared));
        }
    }

    /// [`Self::upsert`] of many that are mostly new.
    pub(super) fn fill(&self, memories: Vec<Memory>) {
        let own = memories.into_iter().filter(|m| m.partition == self.key);
        let mut prepared = own.map(|memory| {
            let levels = Levels::new(&memory, &self.space);
            Prepared::new(memory, levels)
        });
        loop {
            let some: Vec<Prepared> = prepared.by_ref().take(ROWS_PER_LOCK).collect();
            if some.is_empty() {
                return;
            }
            self.write(|columns| some.into_iter().for_each(|one| columns.upsert(one)));
        }
    }

    /// Removes a memory for good.
    pub fn remove(&self, id: MemoryId) {
        self.write(|columns| columns.remove(id));
    }

    /// Counts the uses of memories that are here.
    pub(super) fn count_uses(&self, ids: &[MemoryId]) {
        for some in ids.chunks(ROWS_PER_LOCK) {
            self.write(|columns| some.iter().for_each(|id| columns.count_use(*id)));
        }
    }

    /// Whether [`Self::compact`] is to be called; says so once until it was.
    pub(super) fn is_untidy(&self) -> bool {
        self.untidy.load(Ordering::Relaxed)
            && self.untidy.swap(false, Ordering::Relaxed)
            && !self.clearing.swap(true, Ordering::Relaxed)
    }

    /// Clears dead rows away. A large partition cannot be read meanwhile: its searches give up at their deadline.
    pub(super) fn compact(&self) {
        self.write(Columns::compact);
        self.clearing.store(false, Ordering::Relaxed);
    }

    /// Gives back what was reserved for more.
    pub(super) fn shrink(&self) {
        self.write(Columns::shrink);
    }

    /// Its size is part of the total no more, although a search may still hold it.
    pub(super) fn leave(&self) {
        self.share.leave();
    }

    pub(super) fn model(&self) -> &str {
        self.space.model()
    }

    /// Reads what is soon read whatever the partition's size.
    pub(super) fn read<T>(
        &self,
        deadline: Instant,
        work: impl FnOnce(&Columns) -> T,
    ) -> Result<T, Interrupted> {
        let columns = self.columns.try_read_until(deadline.into_std());
        Ok(work(&*columns.ok_or(Interrupted::Deadline)?))
    }

    /// Changes something when it can be done by `deadline`.
    pub(super) fn write_by<T>(
        &self,
        deadline: Instant,
        work: impl FnOnce(&mut Columns) -> T,
    ) -> Option<T> {
        let columns = self.columns.try_write_until(deadline.into_std())?;
        Some(self.change(columns, work))
    }

    pub(super) fn write<T>(&self, work: impl FnOnce(&mut Columns) -> T) -> T {
        self.change(self.columns.write(), work)
    }

    fn change<T>(
        &self,
        mut columns: RwLockWriteGuard<'_, Columns>,
        work: impl FnOnce(&mut Columns) -> T,
    ) -> T {
        let result = work(&mut columns);
        if columns.is_mostly_dead() {
            if columns.rows.len() <= COMPACTED_AT_ONCE {
                columns.compact();
            } else {
                self.untidy.store(true, Ordering::Relaxed);
            }
        }
        self.live.store(columns.live, Ordering::Relaxed);
        self.share.settle(columns.bytes() + self.own_bytes());
        result
    }

    /// Runs `work` over the rows before `rows` in chunks, looking at the deadline before each.
    pub(super) fn chunks(
        &self,
        generation: u64,
        rows: usize,
        deadline: Instant,
        mut work: impl FnMut(&Columns, Range<usize>),
    ) -> Result<(), Interrupted> {
        for start in (0..rows).step_by(CHUNK_ROWS) {
            let range = start..rows.min(start + CHUNK_ROWS);
            self.chunk(generation, range, deadline, &mut work)?;
        }
        Ok(())
    }

    /// Runs `work` over one chunk of rows, if there is time and no row has moved.
    pub(super) fn chunk(
        &self,
        generation: u64,
        range: Range<usize>,
        deadline: Instant,
        work: impl FnOnce(&Columns, Range<usize>),
    ) -> Result<(), Interrupted> {
        in_time(deadline)?;
        self.read(deadline, |columns| {
            if columns.generation != generation {
                return Err(Interrupted::Moved);
            }
            work(columns, range);
            Ok(())
        })?
    }

    fn own_bytes(&self) -> usize {
        // The columns count themselves. The key stands here and in the index's table.
        SLOT_BYTES + size_of::<Self>() - size_of::<Columns>()
            + size_of::<PartitionKey>()
            + self.key.user.as_ref().map_or(0, |user| user.as_str().len())
    }
}

impl Drop for Partition {
    /// A search may hold the last handle of an evicted partition, on a thread that serves requests. It does not wait until a million
    /// texts are freed.
    fn drop(&mut self) {
        self.share.leave();
        if self.len() < SLOW_TO_FREE {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let columns = std::mem::take(self.columns.get_mut());
            runtime.spawn_blocking(move || drop(columns));
        }
    }
}
