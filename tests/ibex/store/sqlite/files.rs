//! A folder with a store file. The library's own tests compile this file too.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;

use ibex::config::StoreConfig;
use ibex::store::StoreError;
use ibex::store::sqlite::SqliteStore;

use super::Engine;

/// A folder with a store file; every `open` is a handle of its own, as another process would have.
pub(crate) struct Files {
    pub(crate) folder: TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("data/ibex.db")
    }

    pub(crate) fn open(&self) -> Arc<SqliteStore> {
        Arc::new(SqliteStore::open(&self.path(), &StoreConfig::default()).unwrap())
    }

    /// A plain connection beside the store.
    pub(crate) fn raw(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }
}

#[async_trait]
impl Engine for SqliteStore {
    async fn close(&self) -> Result<(), StoreError> {
        Self::close(self).await
    }
}
