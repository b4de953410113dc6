//! What the refinery reads and writes of a memory's row.

use jiff::Timestamp;

use super::row::{self, Beside, COLUMNS, FROM};
use super::{changed, in_partition, read, row_constraint};
use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey, Source, Status};
use crate::store::postgres::links::Link;
use crate::store::postgres::rows::{Columns, composed, limit, memory_uuid, micros};
use crate::store::postgres::tx::Tx;
use crate::store::{Draft, StoreError};
use crate::tokens::TokenCounts;

/// Inserts a draft's row as `memory`. It gets its revision at the end of the transaction.
pub(in crate::store::postgres) async fn insert_row(
    tx: &mut Tx,
    memory: &Memory,
    draft: &Draft,
) -> Result<(), StoreError> {
    let insert = row::insert(memory, beside(draft), 0)?;
    tx.link.execute(insert).await.map_err(row_constraint)?;
    Ok(())
}

/// Writes every field that an edit can change.
pub(in crate::store::postgres) async fn update_row(
    tx: &mut Tx,
    memory: &Memory,
    draft: &Draft,
) -> Result<(), StoreError> {
    let update = row::update(memory, beside(draft))?;
    tx.link.execute(update).await.map_err(row_constraint)?;
    Ok(())
}

fn beside(draft: &Draft) -> Beside<'_> {
    Beside {
        slot: draft.slot.as_ref(),
        review: draft.review.as_deref(),
    }
}

/// The tombstone of a text that an edit took away.
pub(in crate::store::postgres) async fn bury(
    tx: &mut Tx,
    held: &Memory,
    at: Timestamp,
) -> Result<(), StoreError> {
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
    let insert = row::insert(&tombstone, Beside::default(), held.revision)?;
    tx.execute(insert).await?;
    Ok(())
}

/// The quarantined memory with this content hash: a repeated write is held once.
pub(in crate::store::postgres) async fn held_back(
    link: &mut Link,
    partition: &PartitionKey,
    hash: &[u8; 32],
) -> Result<Option<MemoryId>, StoreError> {
    id_with(link, "quarantined", partition, hash).await
}

pub(in crate::store::postgres) async fn is_tombstoned(
    link: &mut Link,
    partition: &PartitionKey,
    hash: &[u8; 32],
) -> Result<bool, StoreError> {
    Ok(id_with(link, "forgotten", partition, hash).await?.is_some())
}

/// A memory with this status and hash. The status is part of the text, because it names a partial index.
async fn id_with(
    link: &mut Link,
    status: &'static str,
    partition: &PartitionKey,
    hash: &[u8; 32],
) -> Result<Option<MemoryId>, StoreError> {
    let sql = format!(
        "SELECT id FROM memories WHERE org = $1 AND agent = $2 AND user_id = $3 AND content_hash = $4 AND status = '{status}' LIMIT 1"
    );
    let row = link
        .row(in_partition(composed(sql), partition).bind(*hash))
        .await?;
    let id = row
        .map(|row| Columns::of(&row, "memory").id())
        .transpose()?;
    Ok(id.map(MemoryId::from_bytes))
}

pub(in crate::store::postgres) async fn slot_mates(
    link: &mut Link,
    partition: &PartitionKey,
    slot: &[u8; 16],
    most: usize,
) -> Result<Vec<Memory>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM {FROM} WHERE m.org = $1 AND m.agent = $2 AND m.user_id = $3 AND m.slot = $4
         AND m.status IN ('active', 'superseded') ORDER BY m.valid_from DESC, m.id DESC LIMIT $5"
    );
    let mates = in_partition(composed(sql), partition)
        .bind(*slot)
        .bind(limit(most));
    read(&link.rows(mates).await?)
}

/// A memory was written once more: a use of the one that is there.
pub(in crate::store::postgres) async fn written_again(
    tx: &mut Tx,
    partition: &PartitionKey,
    id: MemoryId,
    at: Timestamp,
) -> Result<(), StoreError> {
    let sql = "UPDATE memories SET retrieval_count = least(retrieval_count + 1, 4294967295), updated_at = greatest(updated_at, $5),
                      retrieved_at = greatest(retrieved_at, $5)
               WHERE org = $1 AND agent = $2 AND user_id = $3 AND id = $4";
    let update = in_partition(sqlx::query(sql), partition)
        .bind(memory_uuid(id))
        .bind(micros(at));
    tx.execute(update).await?;
    changed(tx, partition, id);
    Ok(())
}
