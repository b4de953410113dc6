//! Sessions as the store keeps them: what is needed to render a session's bytes again, and checkpoints. No text but the working state's.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::session::record::{LaneRecord, SessionRecord, SessionView};
use crate::session::{LaneKey, SessionKey};

use super::StoreError;

/// One version of a session's working state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredState {
    /// Counts from 1 in the session.
    pub version: u32,
    /// The state as JSON.
    pub json: String,
    /// The session's settled turns when it was written.
    pub turn: u32,
    /// When it was written.
    pub at: Timestamp,
}

/// Sessions. Nothing here is in the change feed: a session is one conversation's own.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// Applies records in order, in one transaction: all of them or, after an error, none. Opening or settling twice is like once; every
    /// end counts. Records of a lane that is not there are passed over: its session was deleted meanwhile.
    async fn record_sessions(&self, records: Vec<SessionRecord>) -> Result<(), StoreError>;
    /// Notes that a process begins to keep sessions here. Answers whether the last one that did ended with [`end_run`](Self::end_run), so
    /// that all of its records are there.
    async fn begin_run(&self) -> Result<bool, StoreError>;
    /// Notes that all records of the process are stored.
    async fn end_run(&self) -> Result<(), StoreError>;
    /// Whether there is such a session. Cheap enough for every request that opens one, and never waits for a writer.
    ///
    /// # Errors
    /// When the store cannot tell.
    async fn knows_session(&self, key: &SessionKey) -> Result<bool, StoreError>;
    /// What a lane needs to be rendered again; nothing when it was never opened.
    async fn session_lane(&self, key: &LaneKey) -> Result<Option<LaneRecord>, StoreError>;
    /// A session with its lanes and its newest `turns` turns.
    async fn session(
        &self,
        key: &SessionKey,
        turns: usize,
    ) -> Result<Option<SessionView>, StoreError>;
    /// Marks a session as ended by its client. Answers whether this call did it; nothing when there is no such session. A use that began
    /// later makes it active again.
    async fn terminate_session(
        &self,
        key: &SessionKey,
        at: Timestamp,
    ) -> Result<Option<bool>, StoreError>;
    /// Appends a version of the working state, creating the session where it is missing.
    async fn put_working_state(
        &self,
        key: &SessionKey,
        json: String,
        at: Timestamp,
    ) -> Result<StoredState, StoreError>;
    /// A version of the working state, the newest when none is named.
    async fn working_state(
        &self,
        key: &SessionKey,
        version: Option<u32>,
    ) -> Result<Option<StoredState>, StoreError>;
    /// Deletes at most `limit` sessions that were last used before `before`, with all that belongs to them. Answers how many.
    async fn delete_sessions(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}
