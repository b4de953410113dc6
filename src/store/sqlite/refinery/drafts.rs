//! A draft becomes a row: duplicates are found, what it replaces ends, relations and open questions are noted.

use rusqlite::Connection;

use super::{escalations, relations};
use crate::ids::MemoryId;
use crate::memory::{Memory, Status};
use crate::store::sqlite::error::constraint;
use crate::store::sqlite::{feed, memories};
use crate::store::{ChangeKind, Committed, Decider, Draft, Effect, Relation, StoreError, Verdict};

/// The write lock is held from the look to the insert, so no other process can store the same text in between.
pub(super) fn insert(conn: &Connection, draft: &Draft) -> Result<Committed, StoreError> {
    let memory = &draft.memory;
    let existing = match memory.status {
        Status::Active => duplicate(conn, memory)?,
        Status::Quarantined => memories::held_back(conn, &memory.partition, &memory.content_hash)?,
        Status::Superseded | Status::Forgotten => None,
    };
    if let Some(existing) = existing {
        memories::written_again(conn, &memory.partition, existing, memory.created_at)?;
        return Ok(Committed::Duplicate { existing });
    }
    let judged = judge(conn, draft)?;
    let kind = ChangeKind::Memory(memory.partition.clone(), memory.id);
    let revision = feed::append(conn, &kind)?;
    let row = Memory {
        supersedes: judged.supersedes.clone().into(),
        ..memory.clone()
    };
    memories::insert_row(conn, &row, draft, revision)
        .map_err(|e| constraint(e, "memory", "agent"))?;
    note(conn, memory, &judged)?;
    Ok(judged.committed(revision))
}

/// The active memory that `memory` would only repeat. One with the same text for another time makes room: a text is active once.
pub(super) fn duplicate(
    conn: &Connection,
    memory: &Memory,
) -> Result<Option<MemoryId>, StoreError> {
    let Some(same) = memories::same_text(conn, memory)? else {
        return Ok(None);
    };
    if same.is_repeated_by(memory) {
        return Ok(Some(same.id));
    }
    relations::shelve(conn, memory, same.id)?;
    Ok(None)
}

/// What was left of a draft's verdicts when it was their turn.
#[derive(Default)]
pub(super) struct Judged {
    pub(super) supersedes: Vec<MemoryId>,
    changed: Vec<MemoryId>,
    /// Edges: source, target, relation, who.
    edges: Vec<(MemoryId, MemoryId, Relation, Decider)>,
    open: Vec<(MemoryId, Relation)>,
}

impl Judged {
    pub(super) fn committed(self, revision: i64) -> Committed {
        Committed::Inserted {
            revision,
            supersedes: self.supersedes,
            changed: self.changed,
        }
    }
}

/// Carries out what a draft means for others. A verdict about a text that is not there any more is void.
pub(super) fn judge(conn: &Connection, draft: &Draft) -> Result<Judged, StoreError> {
    let memory = &draft.memory;
    let mut judged = Judged::default();
    for verdict in &draft.verdicts {
        let Verdict {
            existing, effect, ..
        } = *verdict;
        match effect {
            Effect::Retire { at, by } => {
                if relations::retire(conn, memory, verdict, at)? {
                    judged.supersedes.push(existing);
                    judged.changed.push(existing);
                    let edge = (memory.id, existing, Relation::Supersedes, by);
                    judged.edges.push(edge);
                }
            }
            Effect::Precedes { by } => {
                if relations::stands(conn, memory, verdict)? {
                    let edge = (existing, memory.id, Relation::Supersedes, by);
                    judged.edges.push(edge);
                }
            }
            Effect::Relate { relation, by } => {
                if relations::stands(conn, memory, verdict)? {
                    judged.edges.push((memory.id, existing, relation, by));
                }
            }
            Effect::Escalate { guess } => {
                if relations::stands(conn, memory, verdict)? {
                    judged.open.push((existing, guess));
                }
            }
        }
    }
    Ok(judged)
}

/// Notes relations and open questions once the row is there.
pub(super) fn note(conn: &Connection, memory: &Memory, judged: &Judged) -> Result<(), StoreError> {
    let (partition, at) = (&memory.partition, memory.updated_at);
    for (source, target, relation, by) in &judged.edges {
        relations::insert(conn, partition, (*source, *target), (*relation, *by), at)?;
    }
    for (older, guess) in &judged.open {
        escalations::insert(conn, partition, (memory.id, *older), *guess, at)?;
    }
    Ok(())
}
