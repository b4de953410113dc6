//! The embedded engine: one SQLite file in WAL mode, one writer thread that commits in groups, a few read connections.
//!
//! ```text
//! connect      folder, file, settings of every connection; migrations: the schema in numbered steps
//! writer       queue -> group -> one transaction -> answers; use counts and log upkeep in between
//! readers      the pool
//! identity     directives     memories     sessions     feed       one trait each
//! transfer     the whole of it, out and in
//! fences       what was forgotten last, asked on every request
//! rows         columns to values                      error        engine errors to store errors
//! ```
//!
//! Several processes may have the file open: every write takes the engine's write lock at its start, and the change feed is a table.

mod connect;
mod migrations;
mod writer;
mod readers;
mod rows;
mod identity;
mod directives;
mod memories;
mod refinery;
mod fences;
mod sessions;
mod feed;
mod transfer;
mod error;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

pub use error::OpenError;

use super::StoreError;
use crate::config::StoreConfig;

/// The embedded store. Cheap to share behind an `Arc`; it must live inside a Tokio runtime.
pub struct SqliteStore {
    writer: Arc<writer::Writer>,
    readers: readers::Readers,
    watch: feed::Watch,
    fences: fences::Fences,
}

impl SqliteStore {
    /// Opens the file at `path`, creating folder (mode 0700), file (mode 0600) and schema where they are missing. It blocks: call it
    /// at the start of the program.
    ///
    /// # Errors
    /// When the file cannot be created or opened, belongs to another program, or was written by a newer version.
    pub fn open(path: &Path, settings: &StoreConfig) -> Result<Self, OpenError> {
        let database =
            connect::Database::prepare(path, Duration::from_millis(settings.busy_timeout_ms))?;
        Ok(Self {
            readers: readers::Readers::open(&database, settings.read_connections)?,
            watch: feed::Watch::open(&database)?,
            fences: fences::Fences::open(&database)?,
            writer: Arc::new(writer::Writer::start(&database)?),
        })
    }

    /// Finishes every queued write and closes the file; whatever comes later is refused.
    ///
    /// # Errors
    /// When the writer had stopped before.
    pub async fn close(&self) -> Result<(), StoreError> {
        let writer = Arc::clone(&self.writer);
        let drained = tokio::task::spawn_blocking(move || writer.close()).await;
        self.readers.close();
        self.watch.close();
        self.fences.close();
        drained.map_err(|_| StoreError::Unavailable("closing was broken off".to_owned()))?
    }

    async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.readers.run(work).await
    }

    async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.writer.run(work).await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
