//! Sessions: what is written down of a conversation, and what is asked. Every statement but the removal of old ones names
//! organisation, agent, user and session.
//!
//! ```text
//! record           opened, settled, ended: the records of the request path
//! view             a lane to be rendered again; a session to be looked at
//! working_state    its versions
//! row              epochs and turns as rows
//! ```

mod record;
mod view;
mod working_state;
mod row;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::error::constraint;
use super::rows::{limit, micros, user_column};
use crate::session::record::{LaneRecord, SessionRecord, SessionView};
use crate::session::{LaneKey, SessionKey};
use crate::store::{SessionStore, StoreError, StoredState};

/// The session whose key is bound to the first four parameters: what the rows of the other tables hang on.
const SESSION: &str =
    "(SELECT seq FROM sessions WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4)";

#[async_trait]
impl SessionStore for SqliteStore {
    async fn record_sessions(&self, records: Vec<SessionRecord>) -> Result<(), StoreError> {
        self.write(move |conn| records.iter().try_for_each(|r| record::apply(conn, r)))
            .await
    }

    async fn begin_run(&self) -> Result<bool, StoreError> {
        self.write(|conn| {
            let whole = conn
                .prepare_cached("SELECT whole FROM session_runs WHERE id = 1")?
                .query_row([], |row| row.get(0))?;
            conn.prepare_cached("UPDATE session_runs SET whole = FALSE WHERE id = 1")?
                .execute([])?;
            Ok(whole)
        })
        .await
    }

    async fn end_run(&self) -> Result<(), StoreError> {
        self.write(|conn| {
            conn.prepare_cached("UPDATE session_runs SET whole = TRUE WHERE id = 1")?
                .execute([])?;
            Ok(())
        })
        .await
    }

    async fn knows_session(&self, key: &SessionKey) -> Result<bool, StoreError> {
        self.fences.knows_session(key)
    }

    async fn session_lane(&self, key: &LaneKey) -> Result<Option<LaneRecord>, StoreError> {
        let key = key.clone();
        self.read(move |conn| view::lane(conn, &key)).await
    }

    async fn session(
        &self,
        key: &SessionKey,
        turns: usize,
    ) -> Result<Option<SessionView>, StoreError> {
        let key = key.clone();
        self.read(move |conn| view::session(conn, &key, turns))
            .await
    }

    async fn terminate_session(
        &self,
        key: &SessionKey,
        at: Timestamp,
    ) -> Result<Option<bool>, StoreError> {
        let key = key.clone();
        self.write(move |conn| terminate(conn, &key, at)).await
    }

    async fn put_working_state(
        &self,
        key: &SessionKey,
        json: String,
        at: Timestamp,
    ) -> Result<StoredState, StoreError> {
        let key = key.clone();
        self.write(move |conn| working_state::put(conn, &key, &json, at))
            .await
    }

    async fn working_state(
        &self,
        key: &SessionKey,
        version: Option<u32>,
    ) -> Result<Option<StoredState>, StoreError> {
        let key = key.clone();
        self.read(move |conn| working_state::get(conn, &key, version))
            .await
    }

    async fn delete_sessions(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let scrub = self.writer.scrub();
        let work = move |conn: &Connection| {
            let deleted = delete(conn, before, limit)?;
            // Working states are text of the client's.
            if deleted > 0 {
                scrub.request();
            }
            Ok(deleted)
        };
        self.write(work).await
    }
}

/// A session's key as its four columns.
fn columns(key: &SessionKey) -> (&[u8; 16], &[u8; 16], &str, &str) {
    let SessionKey {
        org,
        agent,
        user,
        id,
    } = key;
    (
        org.as_bytes(),
        agent.as_bytes(),
        user_column(user.as_ref()),
        id.as_str(),
    )
}

/// Creates the session where it is missing, and notes its use either way.
fn open(conn: &Connection, key: &SessionKey, at: Timestamp) -> Result<(), StoreError> {
    let sql = "INSERT INTO sessions (org, agent, user, id, created_at, used_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)
               ON CONFLICT (org, agent, user, id) DO NOTHING";
    let (org, agent, user, id) = columns(key);
    conn.prepare_cached(sql)?
        .execute(params![org, agent, user, id, micros(at)])
        .map_err(|e| constraint(e, "session", "agent"))?;
    used(conn, key, micros(at), micros(at))
}

/// Notes a use that began at `began` and went on until `until`. One that began after the client's end of the session takes that end back;
/// a record that comes late does not.
fn used(conn: &Connection, key: &SessionKey, began: i64, until: i64) -> Result<(), StoreError> {
    let sql = "UPDATE sessions SET used_at = max(used_at, ?6),
                      terminated_at = CASE WHEN terminated_at < ?5 THEN NULL ELSE terminated_at END
               WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4";
    let (org, agent, user, id) = columns(key);
    conn.prepare_cached(sql)?
        .execute(params![org, agent, user, id, began, until])?;
    Ok(())
}

fn terminate(
    conn: &Connection,
    key: &SessionKey,
    at: Timestamp,
) -> Result<Option<bool>, StoreError> {
    let exists = format!("SELECT {SESSION} IS NOT NULL");
    let sql = "UPDATE sessions SET terminated_at = ?5 WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4 AND terminated_at IS NULL";
    let (org, agent, user, id) = columns(key);
    let ended = conn
        .prepare_cached(sql)?
        .execute(params![org, agent, user, id, micros(at)])?;
    let exists: bool = conn
        .prepare_cached(&exists)?
        .query_row(params![org, agent, user, id], |row| row.get(0))?;
    Ok(exists.then_some(ended > 0))
}

/// Whoever they belong to. The other tables' rows go with them.
fn delete(conn: &Connection, before: Timestamp, most: usize) -> Result<u64, StoreError> {
    let sql = "DELETE FROM sessions WHERE seq IN (SELECT seq FROM sessions WHERE used_at < ?1 ORDER BY used_at LIMIT ?2)";
    let deleted = conn
        .prepare_cached(sql)?
        .execute(params![micros(before), limit(most)])?;
    Ok(deleted as u64)
}
