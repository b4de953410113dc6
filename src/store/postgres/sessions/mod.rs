//! Sessions: what is written down of a conversation, and what is asked. Every statement names organisation, agent, user and session.
//!
//! ```text
//! record           opened, settled, ended: the records of the request path, as one statement
//! view             a lane to be rendered again; a session to be looked at
//! working_state    its versions
//! run              which processes keep sessions here, and whether one of them has died
//! row              epochs and turns as rows
//! ```

mod record;
mod view;
mod working_state;
mod run;
mod row;

use async_trait::async_trait;
use jiff::Timestamp;

use super::PostgresStore;
use super::rows::{Statement, agent_uuid, micros, org_uuid, user_column};
use crate::session::record::{LaneRecord, SessionRecord, SessionView};
use crate::session::{LaneKey, SessionKey};
use crate::store::{SessionStore, StoreError, StoredState};

pub(super) use run::Run;

/// The session whose key is bound to the first four parameters: what the rows of the other tables hang on.
const SESSION: &str = "(SELECT s.seq FROM sessions s WHERE s.org = $1 AND s.agent = $2 AND s.user_id = $3 AND s.id = $4)";

#[async_trait]
impl SessionStore for PostgresStore {
    async fn record_sessions(&self, records: Vec<SessionRecord>) -> Result<(), StoreError> {
        self.beat();
        record::apply(&self.links, &records).await
    }

    async fn begin_run(&self) -> Result<bool, StoreError> {
        self.begin().await
    }

    async fn end_run(&self) -> Result<(), StoreError> {
        self.end().await
    }

    async fn knows_session(&self, key: &SessionKey) -> Result<bool, StoreError> {
        self.has_session(key).await
    }

    async fn session_lane(&self, key: &LaneKey) -> Result<Option<LaneRecord>, StoreError> {
        let mut snapshot = self.snapshot(key.session.org).await?;
        view::lane(&mut snapshot, key).await
    }

    async fn session(
        &self,
        key: &SessionKey,
        turns: usize,
    ) -> Result<Option<SessionView>, StoreError> {
        let mut snapshot = self.snapshot(key.org).await?;
        view::session(&mut snapshot, key, turns).await
    }

    async fn terminate_session(
        &self,
        key: &SessionKey,
        at: Timestamp,
    ) -> Result<Option<bool>, StoreError> {
        // The row as it was before tells whether this call ended it.
        let sql = "WITH found AS (SELECT s.seq, s.terminated_at FROM sessions s
                                  WHERE s.org = $1 AND s.agent = $2 AND s.user_id = $3 AND s.id = $4 FOR UPDATE),
                        ended AS (UPDATE sessions s SET terminated_at = $5 FROM found
                                  WHERE s.org = $1 AND s.seq = found.seq AND found.terminated_at IS NULL)
                   SELECT terminated_at IS NULL FROM found";
        let mut link = self.session_tx(key).await?;
        let row = link
            .row(keyed(sqlx::query(sql), key).bind(micros(at)))
            .await?;
        link.commit().await?;
        row.map(|row| super::rows::Columns::of(&row, "session").take())
            .transpose()
    }

    async fn put_working_state(
        &self,
        key: &SessionKey,
        json: String,
        at: Timestamp,
    ) -> Result<StoredState, StoreError> {
        let mut link = self.session_tx(key).await?;
        let stored = working_state::put(&mut link, key, &json, at).await?;
        link.commit().await?;
        Ok(stored)
    }

    async fn working_state(
        &self,
        key: &SessionKey,
        version: Option<u32>,
    ) -> Result<Option<StoredState>, StoreError> {
        let mut snapshot = self.snapshot(key.org).await?;
        working_state::get(&mut snapshot, key, version).await
    }

    async fn delete_sessions(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        self.prune("sessions", before, limit).await
    }
}

impl PostgresStore {
    /// A transaction that writes a session, and nothing that the feed tells of. Writers of one session wait for its row.
    async fn session_tx(
        &self,
        key: &SessionKey,
    ) -> Result<super::links::Link, super::error::Fault> {
        super::tx::unannounced(&self.links, key.org).await
    }
}

/// A statement whose first four parameters are a session's key.
fn keyed(statement: Statement, key: &SessionKey) -> Statement {
    let SessionKey {
        org,
        agent,
        user,
        id,
    } = key;
    statement
        .bind(org_uuid(*org))
        .bind(agent_uuid(*agent))
        .bind(user_column(user.as_ref()))
        .bind(id.as_str())
}
