//! The lock around a partition's columns. Readers hold it for one chunk of work and look at the deadline in between, so a long search
//! delays neither a write nor its own request.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::time::Instant;

use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey};

use super::columns::{Columns, Prepared};
use super::space::Space;

/// Rows a reader handles between two looks at the deadline: 2 MB of vectors, well under half a millisecond.
pub(super) const CHUNK_ROWS: usize = 8_192;

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
}

impl Partition {
    /// An empty partition whose vectors are those of `model`, with room for `hot` members in its hot set.
    #[must_use]
    pub fn new(key: PartitionKey, model: Arc<str>, hot: usize) -> Self {
        Self::within(key, Space::Stored(model), hot)
    }

    /// An empty partition in `space`.
    pub(super) fn within(key: PartitionKey, space: Space, hot: usize) -> Self {
        Self {
            key,
            space,
            columns: RwLock::new(Columns::new(hot)),
        }
    }

    /// Which partition it is.
    #[must_use]
    pub fn key(&self) -> &PartitionKey {
        &self.key
    }

    /// Memories that can be found.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.read().live
    }

    /// Whether nothing can be found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Brings one memory up to date; a memory of another partition or of an older revision changes nothing.
    pub fn upsert(&self, memory: Arc<Memory>) {
        // A use or a vote is by far the most common change; the text of others is analysed outside the lock.
        if memory.partition == self.key && !self.columns.write().update(&memory) {
            let prepared = Prepared::new(memory, &self.space);
            self.columns.write().upsert(prepared);
        }
    }

    /// Removes a memory for good.
    pub fn remove(&self, id: MemoryId) {
        self.columns.write().remove(id);
    }

    pub(super) fn model(&self) -> &str {
        self.space.model()
    }

    /// Reads without a deadline: for work that is small whatever the partition's size.
    pub(super) fn read<T>(&self, work: impl FnOnce(&Columns) -> T) -> T {
        work(&self.columns.read())
    }

    pub(super) fn write<T>(&self, work: impl FnOnce(&mut Columns) -> T) -> T {
        work(&mut self.columns.write())
    }

    /// Runs `work` over the rows before `rows` in chunks, looking at the deadline before each.
    pub(super) fn chunks(
        &self,
        generation: u64,
        rows: usize,
        deadline: Instant,
        mut work: impl FnMut(&Columns, std::ops::Range<usize>),
    ) -> Result<(), Interrupted> {
        for start in (0..rows).step_by(CHUNK_ROWS) {
            in_time(deadline)?;
            let columns = self.columns.read();
            if columns.generation != generation {
                return Err(Interrupted::Moved);
            }
            work(&columns, start..rows.min(start + CHUNK_ROWS));
        }
        Ok(())
    }
}
