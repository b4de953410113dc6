//! Changes of memories that are there: text, fields, status, votes.

use jiff::Timestamp;

use super::{drafts, relations};
use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey, Status};
use crate::store::postgres::links::Link;
use crate::store::postgres::memories::{self, in_partition};
use crate::store::postgres::rows::{Columns, memory_uuid, micros};
use crate::store::postgres::tx::{Mark, Means, Tx};
use crate::store::{ChangeKind, Edit, StoreError};

/// Nothing when the memory changed meanwhile, or is gone.
pub(super) async fn edit(tx: &mut Tx, edit: &Edit) -> Result<Option<drafts::Outcome>, StoreError> {
    let draft = &edit.draft;
    let memory = &draft.memory;
    let partition = &memory.partition;
    let held = memories::held_in(tx, partition, memory.id).await?;
    let Some(held) = held.filter(|held| held.revision == edit.read_at) else {
        return Ok(None);
    };
    if memory.status == Status::Active
        && let Some(existing) = drafts::duplicate(tx, memory).await?
    {
        return Ok(Some(drafts::Outcome::Duplicate { existing }));
    }
    let judged = drafts::judge(tx, draft).await?;
    let means = Means {
        forgets: edit.forgets,
        rewrites: edit.forgets,
    };
    let mark = tx.changed_so(ChangeKind::Memory(partition.clone(), memory.id), means);
    if edit.forgets {
        memories::bury(tx, &held, memory.updated_at).await?;
        // What it was to others it was by its old text.
        relations::forget(tx, partition, memory.id).await?;
    }
    // A block that names what a memory replaced is rendered again to the same bytes as long as its text is the same.
    let supersedes = if edit.forgets || held.status == Status::Quarantined {
        judged.supersedes.clone().into()
    } else {
        held.supersedes.clone()
    };
    let row = Memory {
        text_revision: held.text_revision,
        supersedes,
        ..memory.clone()
    };
    memories::update_row(tx, &row, draft).await?;
    drafts::note(tx, memory, &judged).await?;
    Ok(Some(judged.written(mark)))
}

/// The memory as it is then, but for its revision.
pub(super) async fn vote(
    tx: &mut Tx,
    partitions: &[PartitionKey],
    id: MemoryId,
    (useful, at): (bool, Timestamp),
) -> Result<Option<(Memory, Mark)>, StoreError> {
    let held = memories::held_in_any(tx, partitions, id).await?;
    let Some(held) = held.filter(|held| held.status == Status::Active) else {
        return Ok(None);
    };
    let sql = "UPDATE memories SET votes_useful = least(votes_useful + $5, 4294967295),
                      votes_not_useful = least(votes_not_useful + $6, 4294967295), updated_at = greatest(updated_at, $7)
               WHERE org = $1 AND agent = $2 AND user_id = $3 AND id = $4";
    let update = in_partition(sqlx::query(sql), &held.partition)
        .bind(memory_uuid(id))
        .bind(i64::from(useful))
        .bind(i64::from(!useful))
        .bind(micros(at));
    tx.execute(update).await?;
    let mark = memories::changed(tx, &held.partition, id);
    let voted = memories::held_in(tx, &held.partition, id).await?;
    Ok(voted.map(|memory| (memory, mark)))
}

pub(super) async fn review(
    link: &mut Link,
    partition: &PartitionKey,
    id: MemoryId,
) -> Result<Option<String>, StoreError> {
    let sql = "SELECT review FROM memories WHERE org = $1 AND agent = $2 AND user_id = $3 AND id = $4 AND status = 'quarantined'";
    let row = link
        .row(in_partition(sqlx::query(sql), partition).bind(memory_uuid(id)))
        .await?;
    row.map_or(Ok(None), |row| Columns::of(&row, "memory").optional_text())
}
