//! What is the embedded engine's own: its files, their log and their locks. What every engine must do is in `tests/ibex/store`.

mod engine;
mod forget;
mod migrations;
mod sessions;

// The integration tests have it too.
#[path = "../../../../tests/ibex/store/sqlite/files.rs"]
mod files;

use super::SqliteStore;
use crate::memory::Memory;
use crate::store::testing::{
    Engine, memory, new_agent, new_org, new_partition, of_user, secret, time,
};
use crate::store::{Committed, RefineryStore, StoreError};

use files::Files;

impl SqliteStore {
    /// Writes memories about which nothing was decided.
    async fn commit_all(&self, memories: Vec<Memory>) -> Result<Vec<Committed>, StoreError> {
        self.commit(memories.into()).await
    }
}

/// All bytes of the database and its log.
fn bytes(files: &Files) -> Vec<u8> {
    let path = files.path().into_os_string();
    let read = |suffix: &str| {
        let mut path = path.clone();
        path.push(suffix);
        std::fs::read(path).unwrap_or_default()
    };
    [read(""), read("-wal")].concat()
}
