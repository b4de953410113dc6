//! The partitions in memory: loaded from the store on first use, then kept current by the changes that commit.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

use crate::auth::Scope;
use crate::config::MemoryConfig;
use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey};
use crate::seams::Clock;
use crate::store::MemoryStore;
use crate::tasks::Tasks;
use crate::telemetry::IndexFigures;

use super::fusion::search_partitions;
use super::slots::{Slot, Slots};
use super::{BranchError, ColdBranch, Hit, Partition, Query, SearchError, Spaces};

/// What an index is made of.
#[derive(Debug, Clone)]
pub struct IndexSettings {
    /// Which partitions are compared by the configured embedder's vectors.
    pub spaces: Arc<Spaces>,
    /// Members of a partition's hot set.
    pub hot_set_size: usize,
    /// Scopes up to this many memories are searched on the request's own thread.
    pub inline_search_rows: usize,
    /// Bytes of all partitions beyond which the least recently used ones leave.
    pub bytes: usize,
    /// Partitions read from the store at the same time; the others wait for their turn, page by page.
    pub loads: usize,
    /// What is counted.
    pub figures: IndexFigures,
}

impl IndexSettings {
    /// The settings of `[memory]` where every memory has a vector of `model`; one partition is read at a time.
    #[must_use]
    pub fn new(model: impl Into<Arc<str>>, config: &MemoryConfig) -> Self {
        Self {
            spaces: Arc::new(Spaces::complete(model.into())),
            hot_set_size: config.hot_set_size,
            inline_search_rows: config.inline_search_rows,
            bytes: config.index_bytes,
            loads: 1,
            figures: IndexFigures::default(),
        }
    }
}

/// The index: a [`Partition`] for each partition key that is in use.
pub struct Index {
    clock: Arc<dyn Clock>,
    pub(super) slots: Arc<Slots>,
}

impl Index {
    /// An index over `store` that holds nothing yet. Loads run as `tasks`.
    #[must_use]
    pub fn new(
        store: Arc<dyn MemoryStore>,
        clock: Arc<dyn Clock>,
        tasks: Tasks,
        settings: IndexSettings,
    ) -> Self {
        Self {
            clock,
            slots: Arc::new(Slots::new(store, tasks, settings)),
        }
    }

    /// The time that validity is judged by.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Takes a committed memory in. Applying one twice, or an older revision after a newer one, changes nothing. A partition that is not
    /// in memory stays out of it: its load reads what is committed now.
    pub fn upsert(&self, memory: Memory) {
        if let Some(slot) = self.slots.get(&memory.partition) {
            slot.partition.put(memory);
            self.slots.tidy(&slot);
        }
    }

    /// Starts loading a partition that is not loaded, while there is room. Whoever writes through this process will ask soon, and a session
    /// should not open while its memories are still being read.
    pub fn warm(&self, partition: &PartitionKey) {
        self.slots.warm(partition);
    }

    /// Which partitions are compared by what.
    #[must_use]
    pub fn spaces(&self) -> &Spaces {
        &self.slots.settings().spaces
    }

    /// Loads again the partitions in memory that lie in another space than they should by now.
    pub fn respace(&self) {
        let held = self.slots.keys();
        held.iter().for_each(|key| self.respace_one(key));
    }

    /// [`Self::respace`] of one partition.
    pub fn respace_one(&self, partition: &PartitionKey) {
        let wanted = self.spaces().of(partition);
        let misplaced = self
            .slots
            .get(partition)
            .is_some_and(|slot| slot.partition.model() != wanted.model());
        if misplaced {
            self.invalidate(partition);
            self.warm(partition);
        }
    }

    /// Removes a forgotten memory: after this no search that starts returns it.
    pub fn remove(&self, partition: &PartitionKey, id: MemoryId) {
        if let Some(slot) = self.slots.get(partition) {
            slot.partition.remove(id);
            self.slots.tidy(&slot);
        }
    }

    /// Counts the uses of memories, once for each time they are named, as the store does. A partition that is not in memory needs nothing:
    /// its load reads the counts.
    pub fn count_uses(&self, partition: &PartitionKey, ids: &[MemoryId]) {
        if let Some(slot) = self.slots.get(partition) {
            slot.partition.count_uses(ids);
        }
    }

    /// Drops a partition: the next search loads it again.
    pub fn invalidate(&self, partition: &PartitionKey) {
        self.slots.drop_one(partition);
    }

    pub(super) fn inline_rows(&self) -> usize {
        self.slots.settings().inline_search_rows
    }

    /// Members of a hot set.
    pub(super) fn hot_set_size(&self) -> usize {
        self.slots.settings().hot_set_size
    }

    /// A partition that is loaded.
    pub(super) fn held(&self, key: &PartitionKey) -> Option<Arc<Partition>> {
        let slot = self.slots.get(key)?;
        slot.is_loaded().then(|| Arc::clone(&slot.partition))
    }

    pub(super) fn tasks(&self) -> &Tasks {
        self.slots.tasks()
    }

    /// Whether a partition is loaded.
    #[must_use]
    pub fn is_loaded(&self, partition: &PartitionKey) -> bool {
        self.slots
            .get(partition)
            .is_some_and(|slot| slot.is_loaded())
    }

    /// Starts loading a partition that somebody has asked for.
    pub fn begin_load(&self, partition: &PartitionKey) {
        self.slots.asked(partition);
    }

    /// Whether a partition is loaded or being loaded.
    #[must_use]
    pub fn holds(&self, partition: &PartitionKey) -> bool {
        self.slots.get(partition).is_some()
    }

    /// What all partitions hold, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    /// How many memories of `scope` are loaded.
    #[must_use]
    pub fn rows(&self, scope: &Scope) -> usize {
        let keys = PartitionKey::for_read(scope);
        let slots = keys.iter().filter_map(|key| self.slots.get(key));
        slots.map(|slot| slot.partition.len()).sum()
    }

    /// One partition, loaded. It is no use that others would have to leave for: a writer looks at it.
    pub(super) async fn partition(
        &self,
        key: &PartitionKey,
        deadline: Instant,
    ) -> Result<Arc<Partition>, SearchError> {
        let slot = self.slots.slot(key);
        slot.loaded(deadline).await?;
        Ok(Arc::clone(&slot.partition))
    }

    /// Drops every partition.
    pub fn invalidate_all(&self) {
        self.slots.drop_all();
    }

    /// The best `limit` memories that `scope` may read. A partition that is not loaded is waited for until `deadline`; its load goes on
    /// beyond it.
    ///
    /// # Errors
    /// When the deadline passes first or the store fails.
    pub async fn search(
        &self,
        scope: &Scope,
        query: &Query,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Hit>, SearchError> {
        let partitions = self.partitions(scope, deadline).await?;
        let now = self.clock.now();
        let rows: usize = partitions.iter().map(|partition| partition.len()).sum();
        let mut hits = if rows <= self.inline_rows() {
            search_partitions(&partitions, query, now, limit, deadline)?
        } else {
            let query = query.clone();
            let work = tokio::task::spawn_blocking(move || {
                search_partitions(&partitions, &query, now, limit, deadline)
            });
            timeout_at(deadline, work)
                .await
                .map_err(|_| SearchError::Deadline)?
                .map_err(|_| SearchError::Interrupted)??
        };
        hits.retain(|hit| hit.memory.partition.visible_to(scope));
        Ok(hits)
    }

    /// The loaded partitions that `scope` reads.
    pub(super) async fn partitions(
        &self,
        scope: &Scope,
        deadline: Instant,
    ) -> Result<Vec<Arc<Partition>>, SearchError> {
        // All loads begin before one is waited for.
        let slots: Vec<Arc<Slot>> = PartitionKey::for_read(scope)
            .iter()
            .map(|key| self.slots.asked(key))
            .collect();
        let mut partitions = Vec::with_capacity(slots.len());
        for slot in slots {
            slot.loaded(deadline).await?;
            partitions.push(Arc::clone(&slot.partition));
        }
        Ok(partitions)
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("partitions", &self.slots.len())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl ColdBranch for Index {
    async fn cold(
        &self,
        scope: &Scope,
        query: &Query,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Hit>, BranchError> {
        self.search(scope, query, limit, deadline).await
    }
}
