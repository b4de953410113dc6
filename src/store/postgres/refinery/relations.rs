//! Relations between memories, and the end of what is replaced.

use jiff::Timestamp;
use sqlx::postgres::PgRow;

use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey};
use crate::store::postgres::links::Link;
use crate::store::postgres::memories::{changed, in_partition};
use crate::store::postgres::rows::{Columns, memory_uuid, micros};
use crate::store::postgres::tx::Tx;
use crate::store::{Decider, Relation, StoreError, StoredRelation, Verdict};

/// Ends an active memory at `end`. What ends in the future stays active until then; its validity says so. Answers whether it was as it
/// was judged.
pub(super) async fn retire(
    tx: &mut Tx,
    newer: &Memory,
    verdict: &Verdict,
    end: Timestamp,
) -> Result<bool, StoreError> {
    let sql = "UPDATE memories SET valid_until = least(valid_until, $6), updated_at = greatest(updated_at, $7),
                      status = CASE WHEN $6 <= $7 THEN 'superseded' ELSE status END
               WHERE org = $1 AND agent = $2 AND user_id = $3 AND id = $4 AND status = 'active' AND text_revision = $5";
    let existing = verdict.existing;
    let update = in_partition(sqlx::query(sql), &newer.partition)
        .bind(memory_uuid(existing))
        .bind(verdict.judged)
        .bind(micros(end))
        .bind(micros(newer.updated_at));
    let ended = tx.execute(update).await? > 0;
    if ended {
        changed(tx, &newer.partition, existing);
    }
    Ok(ended)
}

/// Takes an active memory out of circulation because `newer` says the same for now. It keeps its time.
pub(super) async fn shelve(
    tx: &mut Tx,
    newer: &Memory,
    existing: MemoryId,
) -> Result<(), StoreError> {
    let sql = "UPDATE memories SET status = 'superseded', updated_at = greatest(updated_at, $5)
               WHERE org = $1 AND agent = $2 AND user_id = $3 AND id = $4 AND status = 'active'";
    let update = in_partition(sqlx::query(sql), &newer.partition)
        .bind(memory_uuid(existing))
        .bind(micros(newer.updated_at));
    tx.execute(update).await?;
    changed(tx, &newer.partition, existing);
    Ok(())
}

/// Whether the memory that was judged is still there with that text.
pub(super) async fn stands(
    tx: &mut Tx,
    newer: &Memory,
    verdict: &Verdict,
) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM memories WHERE org = $1 AND agent = $2 AND user_id = $3 AND id = $4 AND text_revision = $5
               AND status IN ('active', 'superseded')";
    let found = in_partition(sqlx::query(sql), &newer.partition)
        .bind(memory_uuid(verdict.existing))
        .bind(verdict.judged);
    Ok(tx.row(found).await?.is_some())
}

/// Notes a relation; once is enough.
pub(super) async fn insert(
    tx: &mut Tx,
    partition: &PartitionKey,
    (source, target): (MemoryId, MemoryId),
    (relation, by): (Relation, Decider),
    at: Timestamp,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO memory_relations (org, agent, user_id, source, target, kind, by, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
               ON CONFLICT DO NOTHING";
    let insert = in_partition(sqlx::query(sql), partition)
        .bind(memory_uuid(source))
        .bind(memory_uuid(target))
        .bind(relation.as_str())
        .bind(by.as_str())
        .bind(micros(at));
    tx.execute(insert).await?;
    Ok(())
}

pub(super) async fn of(
    link: &mut Link,
    partition: &PartitionKey,
    id: MemoryId,
) -> Result<Vec<StoredRelation>, StoreError> {
    let sql = "SELECT source, target, kind, by, at FROM memory_relations
               WHERE org = $1 AND agent = $2 AND user_id = $3 AND (source = $4 OR target = $4) ORDER BY at, source, target";
    let rows = link
        .rows(in_partition(sqlx::query(sql), partition).bind(memory_uuid(id)))
        .await?;
    rows.iter().map(relation).collect()
}

fn relation(row: &PgRow) -> Result<StoredRelation, StoreError> {
    let mut columns = Columns::of(row, "relation");
    Ok(StoredRelation {
        source: MemoryId::from_bytes(columns.id()?),
        target: MemoryId::from_bytes(columns.id()?),
        relation: columns.parsed(Relation::parse)?,
        by: columns.parsed(Decider::parse)?,
        at: columns.time()?,
    })
}

/// Removes what a forgotten memory was to others: a relation of nothing says nothing.
pub(in crate::store::postgres) async fn forget(
    tx: &mut Tx,
    partition: &PartitionKey,
    id: MemoryId,
) -> Result<(), StoreError> {
    let sql = "WITH edges AS (DELETE FROM memory_relations WHERE org = $1 AND agent = $2 AND user_id = $3 AND (source = $4 OR target = $4))
               DELETE FROM escalations WHERE org = $1 AND agent = $2 AND user_id = $3 AND (newer = $4 OR older = $4)";
    tx.execute(in_partition(sqlx::query(sql), partition).bind(memory_uuid(id)))
        .await?;
    Ok(())
}
