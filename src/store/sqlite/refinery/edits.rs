//! Changes of memories that are there: text, fields, status, votes.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::{drafts, relations, row_of};
use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey, Status};
use crate::store::sqlite::error::constraint;
use crate::store::sqlite::rows::user_column;
use crate::store::sqlite::{fences, memories};
use crate::store::{Committed, Edit, Edited, StoreError};

pub(super) fn edit(conn: &Connection, edit: &Edit) -> Result<Edited, StoreError> {
    let draft = &edit.draft;
    let memory = &draft.memory;
    let partition = &memory.partition;
    let held = memories::held(conn, std::slice::from_ref(partition), memory.id)?;
    let Some(held) = held.filter(|held| held.revision == edit.read_at) else {
        return Ok(Edited::Stale);
    };
    if memory.status == Status::Active
        && let Some(existing) = drafts::duplicate(conn, memory)?
    {
        return Ok(Edited::Done(Committed::Duplicate { existing }));
    }
    let judged = drafts::judge(conn, draft)?;
    let revision = relations::changed(conn, partition, memory.id)?;
    if edit.forgets {
        memories::bury(conn, &held, memory.updated_at)?;
        // What it was to others it was by its old text.
        relations::forget(conn, partition, memory.id)?;
        fences::raise(conn, partition, revision)?;
    }
    // A block that names what a memory replaced is rendered again to the same bytes as long as its text is the same.
    let supersedes = if edit.forgets || held.status == Status::Quarantined {
        judged.supersedes.clone().into()
    } else {
        held.supersedes.clone()
    };
    let row = Memory {
        revision,
        text_revision: if edit.forgets {
            revision
        } else {
            held.text_revision
        },
        supersedes,
        ..memory.clone()
    };
    memories::update_row(conn, &row, draft).map_err(|e| constraint(e, "memory", "agent"))?;
    drafts::note(conn, memory, &judged)?;
    Ok(Edited::Done(judged.committed(revision)))
}

pub(super) fn vote(
    conn: &Connection,
    partitions: &[PartitionKey],
    id: MemoryId,
    (useful, at): (bool, Timestamp),
) -> Result<Option<Memory>, StoreError> {
    let Some(held) =
        memories::held(conn, partitions, id)?.filter(|held| held.status == Status::Active)
    else {
        return Ok(None);
    };
    let sql = if useful {
        "UPDATE memories SET votes_useful = min(votes_useful + 1, 4294967295), updated_at = max(updated_at, ?5)
         WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4"
    } else {
        "UPDATE memories SET votes_not_useful = min(votes_not_useful + 1, 4294967295), updated_at = max(updated_at, ?5)
         WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4"
    };
    let (org, agent, user, row) = row_of(&held);
    let at = crate::store::sqlite::rows::micros(at);
    conn.prepare_cached(sql)?
        .execute(params![org, agent, user, row, at])?;
    relations::changed(conn, &held.partition, id)?;
    memories::held(conn, std::slice::from_ref(&held.partition), id)
}

pub(super) fn review(
    conn: &Connection,
    partition: &PartitionKey,
    id: MemoryId,
) -> Result<Option<String>, StoreError> {
    let sql = "SELECT review FROM memories WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4 AND status = 'quarantined'";
    let PartitionKey { org, agent, user } = partition;
    let user = user_column(user.as_ref());
    let values = params![org.as_bytes(), agent.as_bytes(), user, id.as_bytes()];
    let found: Option<Option<String>> = conn
        .prepare_cached(sql)?
        .query_row(values, |row| row.get(0))
        .optional()?;
    Ok(found.flatten())
}
