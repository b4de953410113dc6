//! Relations between memories, and the end of what is replaced.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::row_of;
use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey};
use crate::store::sqlite::feed;
use crate::store::sqlite::rows::{Columns, all, micros, user_column};
use crate::store::{ChangeKind, Decider, Relation, StoreError, StoredRelation, Verdict};

/// Ends an active memory at `end`. What ends in the future stays active until then; its validity says so. Answers whether it was as it
/// was judged.
pub(super) fn retire(
    conn: &Connection,
    newer: &Memory,
    verdict: &Verdict,
    end: Timestamp,
) -> Result<bool, StoreError> {
    let (org, agent, user, _) = row_of(newer);
    let sql = "UPDATE memories SET valid_until = min(coalesce(valid_until, ?6), ?6), updated_at = max(updated_at, ?7),
                      status = CASE WHEN ?6 <= ?7 THEN 'superseded' ELSE status END
               WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4 AND status = 'active' AND text_revision = ?5";
    let existing = verdict.existing;
    let ended = conn.prepare_cached(sql)?.execute(params![
        org,
        agent,
        user,
        existing.as_bytes(),
        verdict.judged,
        micros(end),
        micros(newer.updated_at)
    ])?;
    if ended > 0 {
        changed(conn, &newer.partition, existing)?;
    }
    Ok(ended > 0)
}

/// Takes an active memory out of circulation because `newer` says the same for now. It keeps its time.
pub(super) fn shelve(
    conn: &Connection,
    newer: &Memory,
    existing: MemoryId,
) -> Result<(), StoreError> {
    let (org, agent, user, _) = row_of(newer);
    let sql = "UPDATE memories SET status = 'superseded', updated_at = max(updated_at, ?5)
               WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4 AND status = 'active'";
    let at = micros(newer.updated_at);
    let values = params![org, agent, user, existing.as_bytes(), at];
    conn.prepare_cached(sql)?.execute(values)?;
    changed(conn, &newer.partition, existing)?;
    Ok(())
}

/// Puts a changed memory into the feed and gives it the revision.
pub(in crate::store::sqlite) fn changed(
    conn: &Connection,
    partition: &PartitionKey,
    id: MemoryId,
) -> Result<i64, StoreError> {
    let revision = feed::append(conn, &ChangeKind::Memory(partition.clone(), id))?;
    let sql =
        "UPDATE memories SET revision = ?5 WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4";
    let PartitionKey { org, agent, user } = partition;
    conn.prepare_cached(sql)?.execute(params![
        org.as_bytes(),
        agent.as_bytes(),
        user_column(user.as_ref()),
        id.as_bytes(),
        revision
    ])?;
    Ok(revision)
}

/// Whether the memory that was judged is still there with that text.
pub(super) fn stands(
    conn: &Connection,
    newer: &Memory,
    verdict: &Verdict,
) -> Result<bool, StoreError> {
    let (org, agent, user, _) = row_of(newer);
    let sql = "SELECT 1 FROM memories WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4 AND text_revision = ?5
               AND status IN ('active', 'superseded')";
    let values = params![
        org,
        agent,
        user,
        verdict.existing.as_bytes(),
        verdict.judged
    ];
    Ok(conn.prepare_cached(sql)?.exists(values)?)
}

/// Notes a relation; once is enough.
pub(super) fn insert(
    conn: &Connection,
    partition: &PartitionKey,
    (source, target): (MemoryId, MemoryId),
    (relation, by): (Relation, Decider),
    at: Timestamp,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO memory_relations (org, agent, user, source, target, kind, by, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
               ON CONFLICT DO NOTHING";
    let PartitionKey { org, agent, user } = partition;
    conn.prepare_cached(sql)?.execute(params![
        org.as_bytes(),
        agent.as_bytes(),
        user_column(user.as_ref()),
        source.as_bytes(),
        target.as_bytes(),
        relation.as_str(),
        by.as_str(),
        micros(at)
    ])?;
    Ok(())
}

pub(super) fn of(
    conn: &Connection,
    partition: &PartitionKey,
    id: MemoryId,
) -> Result<Vec<StoredRelation>, StoreError> {
    let sql = "SELECT source, target, kind, by, at FROM memory_relations
               WHERE org = ?1 AND agent = ?2 AND user = ?3 AND (source = ?4 OR target = ?4) ORDER BY at, source, target";
    let PartitionKey { org, agent, user } = partition;
    let values = params![
        org.as_bytes(),
        agent.as_bytes(),
        user_column(user.as_ref()),
        id.as_bytes()
    ];
    all(conn, sql, values, relation)
}

fn relation(row: &Row<'_>) -> Result<StoredRelation, StoreError> {
    let mut columns = Columns::of(row, "relation");
    Ok(StoredRelation {
        source: MemoryId::from_bytes(columns.take()?),
        target: MemoryId::from_bytes(columns.take()?),
        relation: columns.parsed(Relation::parse)?,
        by: columns.parsed(Decider::parse)?,
        at: columns.time()?,
    })
}

/// Removes what a forgotten memory was to others: a relation of nothing says nothing.
pub(in crate::store::sqlite) fn forget(
    conn: &Connection,
    partition: &PartitionKey,
    id: MemoryId,
) -> Result<(), StoreError> {
    let PartitionKey { org, agent, user } = partition;
    for sql in [
        "DELETE FROM memory_relations WHERE org = ?1 AND agent = ?2 AND user = ?3 AND source = ?4",
        "DELETE FROM memory_relations WHERE org = ?1 AND agent = ?2 AND user = ?3 AND target = ?4",
        "DELETE FROM escalations WHERE org = ?1 AND agent = ?2 AND user = ?3 AND newer = ?4",
        "DELETE FROM escalations WHERE org = ?1 AND agent = ?2 AND user = ?3 AND older = ?4",
    ] {
        conn.prepare_cached(sql)?.execute(params![
            org.as_bytes(),
            agent.as_bytes(),
            user_column(user.as_ref()),
            id.as_bytes()
        ])?;
    }
    Ok(())
}
