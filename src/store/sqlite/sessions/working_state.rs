//! Versions of the working state.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::{SESSION, columns, open};
use crate::session::SessionKey;
use crate::store::sqlite::rows::{Columns, micros, one};
use crate::store::{StoreError, StoredState};

pub(super) fn put(
    conn: &Connection,
    key: &SessionKey,
    json: &str,
    at: Timestamp,
) -> Result<StoredState, StoreError> {
    open(conn, key, at)?;
    let sql = "INSERT INTO session_states (session, version, json, turn, at)
               SELECT seq, (SELECT coalesce(max(version), 0) + 1 FROM session_states WHERE session = seq), ?5, turns, ?6
               FROM sessions WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4
               RETURNING version, json, turn, at";
    let (org, agent, user, id) = columns(key);
    let values = params![org, agent, user, id, json, micros(at)];
    let stored = one(conn, sql, values, state)?.ok_or(StoreError::Missing("session"))?;
    prune(conn, key, &stored)?;
    Ok(stored)
}

/// Versions behind the newest that are kept whatever refers to them: a turn that tells of one may not be recorded yet.
const KEPT: u32 = 64;

/// Deletes the version that is behind by so many, unless a turn leads from or to it. One a write keeps up with the writes.
fn prune(conn: &Connection, key: &SessionKey, newest: &StoredState) -> Result<(), StoreError> {
    let Some(old) = newest.version.checked_sub(KEPT).filter(|old| *old > 0) else {
        return Ok(());
    };
    let sql = format!(
        "DELETE FROM session_states AS s WHERE session = {SESSION} AND version = ?5 AND NOT EXISTS
         (SELECT 1 FROM session_turns AS t WHERE t.session = s.session AND (state_from = ?5 OR state_to = ?5))"
    );
    let (org, agent, user, id) = columns(key);
    conn.prepare_cached(&sql)?
        .execute(params![org, agent, user, id, old])?;
    Ok(())
}

pub(super) fn get(
    conn: &Connection,
    key: &SessionKey,
    version: Option<u32>,
) -> Result<Option<StoredState>, StoreError> {
    let sql = format!(
        "SELECT version, json, turn, at FROM session_states WHERE session = {SESSION} AND (?5 IS NULL OR version = ?5)
         ORDER BY version DESC LIMIT 1"
    );
    let (org, agent, user, id) = columns(key);
    one(conn, &sql, params![org, agent, user, id, version], state)
}

fn state(row: &Row<'_>) -> Result<StoredState, StoreError> {
    let mut columns = Columns::of(row, "working state");
    Ok(StoredState {
        version: columns.take()?,
        json: columns.take()?,
        turn: columns.take()?,
        at: columns.time()?,
    })
}
