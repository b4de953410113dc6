//! Versions of the working state.

use jiff::Timestamp;
use sqlx::postgres::PgRow;

use super::{SESSION, keyed};
use crate::session::SessionKey;
use crate::store::postgres::error::constraint;
use crate::store::postgres::links::Link;
use crate::store::postgres::rows::{Columns, composed, micros, stored_text};
use crate::store::{StoreError, StoredState};

/// The session is created where it is missing, and its use is noted either way. Its row is locked from then on.
pub(super) async fn put(
    link: &mut Link,
    key: &SessionKey,
    json: &str,
    at: Timestamp,
) -> Result<StoredState, StoreError> {
    let sql = "INSERT INTO sessions AS s (org, agent, user_id, id, created_at, used_at) VALUES ($1, $2, $3, $4, $5, $5)
               ON CONFLICT (org, agent, user_id, id) DO UPDATE SET used_at = greatest(s.used_at, excluded.used_at),
                  terminated_at = CASE WHEN s.terminated_at < excluded.used_at THEN NULL ELSE s.terminated_at END";
    let opened = link
        .execute(keyed(sqlx::query(sql), key).bind(micros(at)))
        .await;
    opened.map_err(|fault| constraint(fault, "session", "agent"))?;
    let sql = "INSERT INTO session_states (org, session, version, json, turn, at)
               SELECT s.org, s.seq, (SELECT coalesce(max(v.version), 0) + 1 FROM session_states v WHERE v.org = s.org AND v.session = s.seq),
                      $5, s.turns, $6
               FROM sessions s WHERE s.org = $1 AND s.agent = $2 AND s.user_id = $3 AND s.id = $4
               RETURNING version, json, turn, at";
    let insert = keyed(sqlx::query(sql), key)
        .bind(stored_text(json))
        .bind(micros(at));
    let row = link.row(insert).await?;
    let stored = row
        .as_ref()
        .map(state)
        .transpose()?
        .ok_or(StoreError::Missing("session"))?;
    prune(link, key, &stored).await?;
    Ok(stored)
}

/// Versions behind the newest that are kept whatever refers to them: a turn that tells of one may not be recorded yet.
const KEPT: u32 = 64;

/// Deletes the version that is behind by so many, unless a turn leads from or to it. One a write keeps up with the writes.
async fn prune(link: &mut Link, key: &SessionKey, newest: &StoredState) -> Result<(), StoreError> {
    let Some(old) = newest.version.checked_sub(KEPT).filter(|old| *old > 0) else {
        return Ok(());
    };
    let sql = format!(
        "DELETE FROM session_states AS v WHERE v.org = $1 AND v.session = {SESSION} AND v.version = $5 AND NOT EXISTS
         (SELECT 1 FROM session_turns AS t WHERE t.org = $1 AND t.session = v.session AND (t.state_from = $5 OR t.state_to = $5))"
    );
    link.execute(keyed(composed(sql), key).bind(i64::from(old)))
        .await?;
    Ok(())
}

pub(super) async fn get(
    link: &mut Link,
    key: &SessionKey,
    version: Option<u32>,
) -> Result<Option<StoredState>, StoreError> {
    let sql = format!(
        "SELECT version, json, turn, at FROM session_states WHERE org = $1 AND session = {SESSION} AND ($5::bigint IS NULL OR version = $5)
         ORDER BY version DESC LIMIT 1"
    );
    let row = link
        .row(keyed(composed(sql), key).bind(version.map(i64::from)))
        .await?;
    row.as_ref().map(state).transpose()
}

fn state(row: &PgRow) -> Result<StoredState, StoreError> {
    let mut columns = Columns::of(row, "working state");
    Ok(StoredState {
        version: columns.number()?,
        json: columns.text()?,
        turn: columns.number()?,
        at: columns.time()?,
    })
}
