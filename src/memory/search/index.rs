//! The partitions in memory: loaded from the store on first use, then kept current by the changes that commit.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use dashmap::DashMap;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::auth::Scope;
use crate::config::MemoryConfig;
use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey};
use crate::seams::Clock;
use crate::store::{MemoryStore, StoreError};
use crate::tasks::Tasks;

use super::fusion::search_partitions;
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
}

impl IndexSettings {
    /// The settings of `[memory]` where every memory has a vector of `model`.
    #[must_use]
    pub fn new(model: impl Into<Arc<str>>, config: &MemoryConfig) -> Self {
        Self {
            spaces: Arc::new(Spaces::complete(model.into())),
            hot_set_size: config.hot_set_size,
            inline_search_rows: config.inline_search_rows,
        }
    }
}

/// The index: one [`Partition`] for each partition key that was asked for.
pub struct Index {
    store: Arc<dyn MemoryStore>,
    clock: Arc<dyn Clock>,
    tasks: Tasks,
    settings: IndexSettings,
    // The default hasher is seeded: keys contain what clients choose.
    slots: Arc<DashMap<PartitionKey, Arc<Slot>>>,
}

/// Where the load of a partition stands.
#[derive(Debug, Clone)]
enum Load {
    Running,
    Done,
    Failed(StoreError),
}

/// A change that came while the partition was being loaded.
#[derive(Debug)]
enum Waiting {
    Upsert(Arc<Memory>),
    Remove(MemoryId),
}

/// A partition and its load. Changes wait until the load has put in what the store held; revisions settle which is newer.
#[derive(Debug)]
struct Slot {
    partition: Arc<Partition>,
    load: watch::Sender<Load>,
    /// `None` once loaded.
    waiting: Mutex<Option<Vec<Waiting>>>,
}

impl Slot {
    fn apply(&self, change: Waiting) {
        let mut waiting = self.waiting.lock();
        match waiting.as_mut() {
            Some(waiting) => waiting.push(change),
            None => self.apply_now(change),
        }
    }

    fn apply_now(&self, change: Waiting) {
        match change {
            Waiting::Upsert(memory) => self.partition.upsert(memory),
            Waiting::Remove(id) => self.partition.remove(id),
        }
    }

    /// Puts in what the store held, then what has changed since.
    fn fill(&self, memories: Vec<Memory>) {
        for memory in memories {
            self.partition.upsert(Arc::new(memory));
        }
        let mut waiting = self.waiting.lock();
        for change in waiting.take().unwrap_or_default() {
            self.apply_now(change);
        }
    }
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
            store,
            clock,
            tasks,
            settings,
            slots: Arc::default(),
        }
    }

    /// The time that validity is judged by.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Takes a committed memory in. Applying one twice, or an older revision after a newer one, changes nothing. A partition that nobody
    /// has asked for stays unloaded.
    pub fn upsert(&self, memory: Memory) {
        let slot = self
            .slots
            .get(&memory.partition)
            .map(|slot| Arc::clone(&slot));
        if let Some(slot) = slot {
            slot.apply(Waiting::Upsert(Arc::new(memory)));
        }
    }

    /// Starts loading a partition that is not loaded. Whoever writes through this process will ask soon, and a session should not open
    /// while its memories are still being read.
    pub fn warm(&self, partition: &PartitionKey) {
        self.slot(partition.clone());
    }

    /// Which partitions are compared by what.
    #[must_use]
    pub fn spaces(&self) -> &Spaces {
        &self.settings.spaces
    }

    /// Loads again the partitions in memory that lie in another space than they should by now.
    pub fn respace(&self) {
        let held: Vec<PartitionKey> = self.slots.iter().map(|slot| slot.key().clone()).collect();
        held.iter()
            .for_each(|partition| self.respace_one(partition));
    }

    /// [`Self::respace`] of one partition.
    pub fn respace_one(&self, partition: &PartitionKey) {
        let wanted = self.settings.spaces.of(partition);
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
        let slot = self.slots.get(partition).map(|slot| Arc::clone(&slot));
        if let Some(slot) = slot {
            slot.apply(Waiting::Remove(id));
        }
    }

    /// Drops a partition: the next search loads it again.
    pub fn invalidate(&self, partition: &PartitionKey) {
        self.slots.remove(partition);
    }

    pub(super) fn inline_rows(&self) -> usize {
        self.settings.inline_search_rows
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Whether a partition is loaded or being loaded.
    #[must_use]
    pub fn holds(&self, partition: &PartitionKey) -> bool {
        self.slots.contains_key(partition)
    }

    /// How many memories of `scope` are loaded.
    #[must_use]
    pub fn rows(&self, scope: &Scope) -> usize {
        let keys = PartitionKey::for_read(scope);
        let slots = keys.iter().filter_map(|key| self.slots.get(key));
        slots.map(|slot| slot.partition.len()).sum()
    }

    /// How many memories of a partition are loaded.
    pub(super) fn rows_of(&self, key: &PartitionKey) -> usize {
        self.slots.get(key).map_or(0, |slot| slot.partition.len())
    }

    /// One loaded partition.
    pub(super) async fn partition(
        &self,
        key: &PartitionKey,
        deadline: Instant,
    ) -> Result<Arc<Partition>, SearchError> {
        let slot = self.slot(key.clone());
        let loaded = matches!(*slot.load.borrow(), Load::Done);
        if !loaded {
            Self::wait(&slot, deadline).await?;
        }
        Ok(Arc::clone(&slot.partition))
    }

    /// Drops every partition.
    pub fn invalidate_all(&self) {
        self.slots.clear();
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
        let mut hits = if rows <= self.settings.inline_search_rows {
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
        let slots: Vec<Arc<Slot>> = PartitionKey::for_read(scope)
            .into_iter()
            .map(|key| self.slot(key))
            .collect();
        for slot in &slots {
            let loaded = matches!(*slot.load.borrow(), Load::Done);
            if !loaded {
                Self::wait(slot, deadline).await?;
            }
        }
        Ok(slots
            .iter()
            .map(|slot| Arc::clone(&slot.partition))
            .collect())
    }

    async fn wait(slot: &Slot, deadline: Instant) -> Result<(), SearchError> {
        let mut load = slot.load.subscribe();
        let ended = timeout_at(
            deadline,
            load.wait_for(|load| !matches!(load, Load::Running)),
        )
        .await;
        match ended
            .map_err(|_| SearchError::Deadline)?
            .map_err(|_| SearchError::Interrupted)?
            .clone()
        {
            Load::Failed(error) => Err(SearchError::Store(error)),
            Load::Done | Load::Running => Ok(()),
        }
    }

    /// The slot of a partition; whoever asks first starts its load.
    fn slot(&self, key: PartitionKey) -> Arc<Slot> {
        if let Some(slot) = self.slots.get(&key) {
            return Arc::clone(&slot);
        }
        let mut first = false;
        let slot = Arc::clone(&self.slots.entry(key.clone()).or_insert_with(|| {
            first = true;
            let space = self.settings.spaces.of(&key);
            let partition = Partition::within(key, space, self.settings.hot_set_size);
            let partition = Arc::new(partition);
            Arc::new(Slot {
                partition,
                load: watch::Sender::new(Load::Running),
                waiting: Mutex::new(Some(Vec::new())),
            })
        }));
        if first {
            self.start_load(Arc::clone(&slot));
        }
        slot
    }

    fn start_load(&self, slot: Arc<Slot>) {
        let (store, slots) = (Arc::clone(&self.store), Arc::clone(&self.slots));
        self.tasks.spawn(async move {
            let ended = match store.partition_memories(slot.partition.key()).await {
                Ok(memories) => {
                    let filling = Arc::clone(&slot);
                    let filled = tokio::task::spawn_blocking(move || filling.fill(memories)).await;
                    filled.map_or_else(
                        |_| Load::Failed(StoreError::Damaged("partition")),
                        |()| Load::Done,
                    )
                }
                Err(error) => Load::Failed(error),
            };
            if matches!(ended, Load::Failed(_)) {
                // The next request tries again.
                slots.remove_if(slot.partition.key(), |_, current| {
                    Arc::ptr_eq(current, &slot)
                });
            }
            slot.load.send_replace(ended);
        });
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
