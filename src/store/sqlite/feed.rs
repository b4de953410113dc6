//! The change feed: one entry for each write, in the transaction of the write, so the newest entry's number is the store's revision.

use async_trait::async_trait;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteStore;
use super::connect::Database;
use super::error::{OpenError, closed};
use super::rows::{Columns, limit, snapshot, user_column};
use crate::ids::{AgentId, MemoryId, OrgId, TokenId};
use crate::memory::PartitionKey;
use crate::store::{Change, ChangeFeed, ChangeKind, StoreError};

/// Entries that are kept. A cache that is further behind starts anew.
const KEPT: i64 = 100_000;
/// Writes between two removals of old entries.
const TRIM_EVERY: i64 = 1_000;

/// Appends an entry inside the caller's transaction and returns its revision.
pub(super) fn append(conn: &Connection, kind: &ChangeKind) -> Result<i64, StoreError> {
    let sql = "INSERT INTO changes (kind, org, agent, user, ref) VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = conn.prepare_cached(sql)?;
    let revision = match kind {
        ChangeKind::Org(org) => insert.insert(params![
            "org",
            org.as_bytes(),
            None::<&[u8]>,
            None::<&str>,
            org.as_bytes()
        ]),
        ChangeKind::Agent(org, agent) => insert.insert(params![
            "agent",
            org.as_bytes(),
            agent.as_bytes(),
            None::<&str>,
            agent.as_bytes()
        ]),
        ChangeKind::Token(token) => insert.insert(params![
            "token",
            None::<&[u8]>,
            None::<&[u8]>,
            None::<&str>,
            token.as_bytes()
        ]),
        ChangeKind::Directive(org, agent) => insert.insert(params![
            "directive",
            org.as_bytes(),
            agent.as_bytes(),
            None::<&str>,
            agent.as_bytes()
        ]),
        ChangeKind::Memory(PartitionKey { org, agent, user }, id) => insert.insert(params![
            "memory",
            org.as_bytes(),
            agent.as_bytes(),
            user_column(user.as_ref()),
            id.as_bytes()
        ]),
        // Read from the gaps of the feed, never written.
        ChangeKind::Everything => return Err(StoreError::Damaged("change")),
    }?;
    if revision % TRIM_EVERY == 0 {
        conn.prepare_cached("DELETE FROM changes WHERE revision <= ?1")?
            .execute([revision - KEPT])?;
    }
    Ok(revision)
}

/// Tells whether another connection wrote, of this process or another: the engine's data version moves then. It is kept apart from the
/// pool because the number is only comparable on one connection.
#[derive(Debug)]
pub(super) struct Watch {
    state: Mutex<Option<(Connection, i64)>>,
}

impl Watch {
    pub(super) fn open(database: &Database) -> Result<Self, OpenError> {
        let conn = database.reader()?;
        let seen = data_version(&conn)?;
        Ok(Self {
            state: Mutex::new(Some((conn, seen))),
        })
    }

    fn moved(&self) -> Result<bool, StoreError> {
        let mut state = self.state.lock();
        let (conn, seen) = state.as_mut().ok_or_else(closed)?;
        let now = data_version(conn)?;
        Ok(std::mem::replace(seen, now) != now)
    }

    pub(super) fn close(&self) {
        drop(self.state.lock().take());
    }
}

/// Reads shared memory and, after a write elsewhere, one page: fast enough for an I/O thread.
pub(super) fn data_version(conn: &Connection) -> rusqlite::Result<i64> {
    conn.prepare_cached("PRAGMA data_version")?
        .query_row([], |row| row.get(0))
}

#[async_trait]
impl ChangeFeed for SqliteStore {
    async fn revision(&self) -> Result<i64, StoreError> {
        self.read(newest).await
    }

    async fn changes_after(&self, revision: i64, limit: usize) -> Result<Vec<Change>, StoreError> {
        self.read(move |conn| changes_after(conn, revision, limit))
            .await
    }

    async fn poll(&self) -> Result<bool, StoreError> {
        self.writer.retry_scrub();
        self.watch.moved()
    }

    async fn ping(&self) -> Result<(), StoreError> {
        if !self.writer.is_alive() {
            return Err(StoreError::Unavailable("the writer stopped".to_owned()));
        }
        self.read(|conn| newest(conn).map(|_| ())).await
    }
}

pub(super) fn newest(conn: &Connection) -> Result<i64, StoreError> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'changes'";
    let newest = conn
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(newest.unwrap_or(0))
}

fn changes_after(conn: &Connection, revision: i64, most: usize) -> Result<Vec<Change>, StoreError> {
    // One snapshot, so that nothing is trimmed between the look at both ends and the reading.
    let snapshot = snapshot(conn)?;
    let newest = newest(&snapshot)?;
    let oldest: Option<i64> = snapshot
        .prepare_cached("SELECT min(revision) FROM changes")?
        .query_row([], |row| row.get(0))?;
    // Ahead of the store happens when an older copy of the file was put back under a running server.
    let gap = revision > newest || revision < oldest.map_or(newest, |first| first - 1);
    if gap {
        return Ok(vec![Change {
            revision: newest,
            kind: ChangeKind::Everything,
        }]);
    }
    let sql = "SELECT revision, kind, org, agent, user, ref FROM changes WHERE revision > ?1 ORDER BY revision LIMIT ?2";
    let mut select = snapshot.prepare_cached(sql)?;
    let mut rows = select.query(params![revision, limit(most)])?;
    let mut changes = Vec::new();
    while let Some(row) = rows.next()? {
        changes.push(change(Columns::of(row, "change"))?);
    }
    Ok(changes)
}

fn change(mut columns: Columns<'_>) -> Result<Change, StoreError> {
    let revision = columns.take()?;
    let kind: std::sync::Arc<str> = columns.take()?;
    let org = columns.take::<Option<[u8; 16]>>()?.map(OrgId::from_bytes);
    let agent = columns.take::<Option<[u8; 16]>>()?.map(AgentId::from_bytes);
    let user = columns.user()?;
    let id: [u8; 16] = columns.take()?;
    let kind = match (&*kind, org, agent) {
        ("org", Some(org), _) => ChangeKind::Org(org),
        ("agent", Some(org), Some(agent)) => ChangeKind::Agent(org, agent),
        ("token", _, _) => ChangeKind::Token(TokenId::from_bytes(id)),
        ("directive", Some(org), Some(agent)) => ChangeKind::Directive(org, agent),
        ("memory", Some(org), Some(agent)) => {
            ChangeKind::Memory(PartitionKey { org, agent, user }, MemoryId::from_bytes(id))
        }
        _ => return Err(columns.damaged()),
    };
    Ok(Change { revision, kind })
}
