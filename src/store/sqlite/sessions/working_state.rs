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
    one(conn, sql, values, state)?.ok_or(StoreError::Missing("session"))
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
