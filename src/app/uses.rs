//! Uses of memories: noted on the request path in memory, written to the store and counted by the index in the background, a batch at a
//! time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::ids::MemoryId;
use crate::memory::PartitionKey;
use crate::memory::search::Index;
use crate::seams::Clock;
use crate::store::Store;

use super::App;

/// How often noted uses are written.
const FLUSH: Duration = Duration::from_secs(2);
/// Uses kept while the store is slow; beyond it they are dropped: they are telemetry for ranking, not records.
const MOST: usize = 65_536;

/// Uses that are not written yet.
pub struct Uses {
    noted: Mutex<Vec<(PartitionKey, MemoryId)>>,
    store: Arc<dyn Store>,
    index: Arc<Index>,
    clock: Arc<dyn Clock>,
}

impl Uses {
    pub(super) fn new(store: Arc<dyn Store>, index: Arc<Index>, clock: Arc<dyn Clock>) -> Self {
        Self {
            noted: Mutex::default(),
            store,
            index,
            clock,
        }
    }

    /// Notes that each of `ids` was injected.
    pub fn note(&self, ids: impl Iterator<Item = (PartitionKey, MemoryId)>) {
        let mut noted = self.noted.lock();
        let room = MOST.saturating_sub(noted.len());
        noted.extend(ids.take(room));
    }

    /// Uses that wait.
    pub fn depth(&self) -> usize {
        self.noted.lock().len()
    }

    /// Writes and counts what was noted.
    pub async fn write(&self) {
        let noted = std::mem::take(&mut *self.noted.lock());
        let mut by_partition: BTreeMap<PartitionKey, Vec<MemoryId>> = BTreeMap::new();
        for (partition, id) in noted {
            by_partition.entry(partition).or_default().push(id);
        }
        let now = self.clock.now();
        for (partition, ids) in by_partition {
            let partitions = std::slice::from_ref(&partition);
            match self
                .store
                .bump_retrieved(partitions, ids.clone(), now)
                .await
            {
                Ok(()) => self.index.count_uses(&partition, &ids),
                Err(error) => tracing::warn!("retrieval counts: {error}"),
            }
        }
    }
}

pub(super) async fn flush(app: App) {
    loop {
        let stopping = tokio::select! {
            () = tokio::time::sleep(FLUSH) => false,
            () = app.tasks.stopping() => true,
        };
        app.uses.write().await;
        if stopping {
            return;
        }
    }
}
