//! What the refinery reads and writes of a memory's row.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::row::{self, COLUMNS, Reader};
use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey, Source, Status};
use crate::store::sqlite::rows::{limit, micros, user_column};
use crate::store::{Draft, StoreError};
use crate::tokens::TokenCounts;

/// Inserts a draft's row as `memory` at a revision.
pub(in crate::store::sqlite) fn insert_row(
    conn: &Connection,
    memory: &Memory,
    draft: &Draft,
    revision: i64,
) -> rusqlite::Result<()> {
    row::insert(conn, memory, draft.slot.as_ref(), revision)?;
    set_review(conn, memory, draft.review.as_deref())
}

/// Writes every field that an edit can change.
pub(in crate::store::sqlite) fn update_row(
    conn: &Connection,
    memory: &Memory,
    draft: &Draft,
) -> rusqlite::Result<()> {
    row::update(conn, memory, draft.slot.as_ref())?;
    set_review(conn, memory, draft.review.as_deref())
}

/// Rarely anything: a row is inserted without a reason, and most stay so.
fn set_review(conn: &Connection, memory: &Memory, review: Option<&str>) -> rusqlite::Result<()> {
    if memory.status != Status::Quarantined && review.is_none() && memory.text_revision == 0 {
        return Ok(());
    }
    let sql = "UPDATE memories SET review = ?2 WHERE id = ?1";
    conn.prepare_cached(sql)?
        .execute(params![memory.id.as_bytes(), review])?;
    Ok(())
}

/// The tombstone of a text that an edit took away.
pub(in crate::store::sqlite) fn bury(
    conn: &Connection,
    held: &Memory,
    at: Timestamp,
) -> rusqlite::Result<()> {
    let tombstone = Memory {
        id: MemoryId::new(),
        content: "".into(),
        labels: Vec::new(),
        valid_until: None,
        observed_at: None,
        source: Source {
            kind: String::new(),
            session: None,
            turn: None,
        },
        metadata: None,
        pinned: false,
        status: Status::Forgotten,
        supersedes: Box::default(),
        updated_at: at,
        embedding: None,
        tokens: TokenCounts::default(),
        ..held.clone()
    };
    row::insert(conn, &tombstone, None, held.revision)
}

/// The quarantined memory with this content hash: a repeated write is held once.
pub(in crate::store::sqlite) fn held_back(
    conn: &Connection,
    partition: &PartitionKey,
    hash: &[u8; 32],
) -> Result<Option<MemoryId>, StoreError> {
    let sql = "SELECT id FROM memories WHERE org = ?1 AND agent = ?2 AND user = ?3 AND content_hash = ?4 AND status = 'quarantined'";
    id_where(conn, sql, partition, hash)
}

pub(in crate::store::sqlite) fn is_tombstoned(
    conn: &Connection,
    partition: &PartitionKey,
    hash: &[u8; 32],
) -> Result<bool, StoreError> {
    let sql = "SELECT id FROM memories WHERE org = ?1 AND agent = ?2 AND user = ?3 AND content_hash = ?4 AND status = 'forgotten'";
    Ok(id_where(conn, sql, partition, hash)?.is_some())
}

fn id_where(
    conn: &Connection,
    sql: &str,
    partition: &PartitionKey,
    hash: &[u8],
) -> Result<Option<MemoryId>, StoreError> {
    let PartitionKey { org, agent, user } = partition;
    let user = user_column(user.as_ref());
    let values = params![org.as_bytes(), agent.as_bytes(), user, hash];
    let mut select = conn.prepare_cached(sql)?;
    let id = select.query_row(values, |row| row.get(0)).optional()?;
    Ok(id.map(MemoryId::from_bytes))
}

pub(in crate::store::sqlite) fn slot_mates(
    conn: &Connection,
    partition: &PartitionKey,
    slot: &[u8; 16],
    most: usize,
) -> Result<Vec<Memory>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM memories WHERE org = ?1 AND agent = ?2 AND user = ?3 AND slot = ?4
         AND status IN ('active', 'superseded') ORDER BY valid_from DESC, id DESC LIMIT ?5"
    );
    let PartitionKey { org, agent, user } = partition;
    let user = user_column(user.as_ref());
    let values = params![org.as_bytes(), agent.as_bytes(), user, slot, limit(most)];
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query(values)?;
    let mut reader = Reader::default();
    let mut mates = Vec::new();
    while let Some(row) = rows.next()? {
        mates.push(reader.memory(row)?);
    }
    Ok(mates)
}

/// A memory was written once more: a use of the one that is there.
pub(in crate::store::sqlite) fn written_again(
    conn: &Connection,
    partition: &PartitionKey,
    id: MemoryId,
    at: Timestamp,
) -> Result<(), StoreError> {
    let sql = "UPDATE memories SET retrieval_count = min(retrieval_count + 1, 4294967295),
                      updated_at = max(updated_at, ?5), retrieved_at = max(coalesce(retrieved_at, ?5), ?5)
               WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4";
    let PartitionKey { org, agent, user } = partition;
    conn.prepare_cached(sql)?.execute(params![
        org.as_bytes(),
        agent.as_bytes(),
        user_column(user.as_ref()),
        id.as_bytes(),
        micros(at)
    ])?;
    crate::store::sqlite::refinery::relations::changed(conn, partition, id)?;
    Ok(())
}
