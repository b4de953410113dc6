//! The schema, as numbered steps compiled into the program. `PRAGMA user_version` holds the number of the last step applied.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::error::OpenError;

/// Step `n` is at index `n - 1`. A released step is never edited; a change is a new one.
const STEPS: &[&str] = &[
    include_str!("migrations/0001_initial.sql"),
    include_str!("migrations/0002_sessions.sql"),
    include_str!("migrations/0003_refinery.sql"),
    include_str!("migrations/0004_imports.sql"),
];

/// Brings the schema up to date. A file that is up to date is not written to, so opening it wakes nobody.
pub(super) fn migrate(conn: &Connection) -> Result<(), OpenError> {
    let known = STEPS.len() as i64;
    if version(conn)? == known {
        return Ok(());
    }
    // The version is read again inside the write lock: of two processes that start together one migrates, the other finds it done.
    let transaction = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    let found = version(&transaction)?;
    if found > known {
        return Err(OpenError::NewerSchema { found, known });
    }
    let applied = usize::try_from(found).map_err(|_| OpenError::Foreign)?;
    if applied == 0 && !is_empty(&transaction)? {
        return Err(OpenError::Foreign);
    }
    for step in STEPS.iter().skip(applied) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(())
}

fn version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.query_row("PRAGMA user_version", [], |row| row.get(0))
}

fn is_empty(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row(
        "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)",
        [],
        |row| row.get(0),
    )
}
