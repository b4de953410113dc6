//! Connections and their settings. Every process that opens the file comes through here, so all of them agree on these.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::error::OpenError;
use super::migrations;
use crate::store::files;

/// Prepared statements kept for each connection: more than there are different statements.
const STATEMENTS: usize = 64;

/// Pause between two attempts.
const RETRY: Duration = Duration::from_millis(5);

/// Where the file is, and how long a statement waits for another process's lock.
#[derive(Debug, Clone)]
pub(super) struct Database {
    path: PathBuf,
    pub(super) busy_timeout: Duration,
}

/// What a commit promises.
#[derive(Debug, Clone, Copy)]
pub(super) enum Durability {
    /// Synced to disk: it survives a power failure.
    Acknowledged,
    /// Synced by the next acknowledged commit or checkpoint: it survives a crash of this process only.
    Telemetry,
}

impl Database {
    /// Creates folder and file where they are missing and brings the schema up to date.
    pub(super) fn prepare(path: &Path, busy_timeout: Duration) -> Result<Self, OpenError> {
        // The engine reads a name that begins with `file:` as a URI; an absolute path never does.
        let path = std::path::absolute(path)?;
        files::create_folder_of(&path)?;
        // The engine gives its `-wal` and `-shm` files the mode of this one.
        drop(files::open_private(&path)?);
        let database = Self { path, busy_timeout };
        let conn = database.connect()?;
        database.patiently(|| conn.pragma_update(None, "journal_mode", "WAL"))?;
        migrations::migrate(&conn)?;
        Ok(database)
    }

    /// Tries again while another process holds the file. The engine's own busy handler is not asked where waiting could be a deadlock, and
    /// changing the journal mode is such a place: processes that start together met an error there.
    fn patiently<T>(&self, attempt: impl Fn() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        let mut waited = Duration::ZERO;
        loop {
            let result = attempt();
            let busy = result
                .as_ref()
                .err()
                .and_then(rusqlite::Error::sqlite_error_code)
                == Some(ErrorCode::DatabaseBusy);
            if !busy || waited >= self.busy_timeout {
                return result;
            }
            std::thread::park_timeout(RETRY);
            waited += RETRY;
        }
    }

    /// A connection for reads only.
    pub(super) fn reader(&self) -> rusqlite::Result<Connection> {
        let conn = self.connect()?;
        conn.pragma_update(None, "query_only", true)?;
        Ok(conn)
    }

    /// A connection for writes.
    pub(super) fn writer(&self, durability: Durability) -> rusqlite::Result<Connection> {
        let conn = self.connect()?;
        let synchronous = match durability {
            Durability::Acknowledged => "FULL",
            Durability::Telemetry => "NORMAL",
        };
        conn.pragma_update(None, "synchronous", synchronous)?;
        conn.pragma_update(None, "foreign_keys", true)?;
        // A forgotten text must be gone from the file. FAST would overwrite it inside its page only; a long text also fills overflow
        // pages, which go to the free list when the row shrinks, and FAST leaves those as they were.
        conn.pragma_update(None, "secure_delete", true)?;
        // The writer thread checkpoints between groups; inside a commit it would delay the answers to that group.
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        Ok(conn)
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let conn = Connection::open_with_flags(
            &self.path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        conn.busy_timeout(self.busy_timeout)?;
        // Sorting must not spill memories into temporary files.
        conn.pragma_update(None, "temp_store", "MEMORY")?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(conn)
    }
}
