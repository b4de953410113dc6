//! The ledger of keyed writes.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use crate::store::sqlite::error::constraint;
use crate::store::sqlite::rows::{Columns, limit, micros, one};
use crate::store::{LedgerEntry, LedgerKey, LedgerMember, LedgerOutcome, LedgerRow, StoreError};

/// What [`StoreError::Conflict`] names.
const KEY: &str = "idempotency key";

/// Refuses a key that was used, and frees one whose time is over. The write lock is held from here to the entry.
pub(super) fn ask(conn: &Connection, entry: &LedgerEntry) -> Result<(), StoreError> {
    if row(conn, &entry.key, entry.since)?.is_some() {
        return Err(StoreError::Conflict(KEY));
    }
    let LedgerKey { org, agent, key } = &entry.key;
    conn.prepare_cached("DELETE FROM ledger WHERE org = ?1 AND agent = ?2 AND key = ?3")?
        .execute(params![org.as_bytes(), agent.as_bytes(), key.as_str()])?;
    Ok(())
}

/// Enters what became of the members.
pub(super) fn settle(
    conn: &Connection,
    entry: &LedgerEntry,
    rows: &[LedgerOutcome],
) -> Result<(), StoreError> {
    let outcomes = entry
        .members
        .iter()
        .map(|member| match member {
            LedgerMember::Known(outcome) => Some(*outcome),
            LedgerMember::Row(row) => rows.get(*row).copied(),
            LedgerMember::Repeats(row) => rows.get(*row).map(|outcome| outcome.repeated()),
        })
        .collect::<Option<Vec<LedgerOutcome>>>();
    let json = outcomes
        .and_then(|o| serde_json::to_string(&o).ok())
        .ok_or(StoreError::Missing("row"))?;
    let LedgerKey { org, agent, key } = &entry.key;
    let sql =
        "INSERT INTO ledger (org, agent, key, asked, outcomes, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let values = params![
        org.as_bytes(),
        agent.as_bytes(),
        key.as_str(),
        entry.asked,
        json,
        micros(entry.at)
    ];
    let entered = conn.prepare_cached(sql)?.execute(values);
    entered.map_err(|e| constraint(e, KEY, "agent"))?;
    Ok(())
}

pub(super) fn row(
    conn: &Connection,
    key: &LedgerKey,
    since: Timestamp,
) -> Result<Option<LedgerRow>, StoreError> {
    let sql = "SELECT asked, outcomes FROM ledger WHERE org = ?1 AND agent = ?2 AND key = ?3 AND at >= ?4";
    let LedgerKey { org, agent, key } = key;
    let values = params![
        org.as_bytes(),
        agent.as_bytes(),
        key.as_str(),
        micros(since)
    ];
    one(conn, sql, values, entry)
}

fn entry(row: &Row<'_>) -> Result<LedgerRow, StoreError> {
    let mut columns = Columns::of(row, "ledger entry");
    Ok(LedgerRow {
        asked: columns.take()?,
        outcomes: columns.parsed(|text| serde_json::from_str(text).ok())?,
    })
}

pub(super) fn prune(conn: &Connection, before: Timestamp, most: usize) -> Result<u64, StoreError> {
    let sql = "DELETE FROM ledger WHERE (org, agent, key) IN (SELECT org, agent, key FROM ledger WHERE at < ?1 LIMIT ?2)";
    let deleted = conn
        .prepare_cached(sql)?
        .execute(params![micros(before), limit(most)])?;
    Ok(deleted as u64)
}
