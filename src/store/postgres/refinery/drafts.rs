//! A draft becomes a row: duplicates are found, what it replaces ends, relations and open questions are noted.

use super::{escalations, relations};
use crate::ids::MemoryId;
use crate::memory::{Memory, Status};
use crate::store::postgres::memories;
use crate::store::postgres::tx::{Mark, Revisions, Tx};
use crate::store::{Committed, Decider, Draft, Effect, Relation, StoreError, Verdict};

/// What became of a row, before its revision is known.
pub(super) enum Outcome {
    /// Written, with the mark of its change.
    Written {
        mark: Mark,
        supersedes: Vec<MemoryId>,
        changed: Vec<MemoryId>,
    },
    /// An active row of the partition says the same.
    Duplicate { existing: MemoryId },
}

impl Outcome {
    pub(super) fn committed(self, revisions: Revisions) -> Committed {
        match self {
            Self::Written {
                mark,
                supersedes,
                changed,
            } => Committed::Inserted {
                revision: revisions.of(mark),
                supersedes,
                changed,
            },
            Self::Duplicate { existing } => Committed::Duplicate { existing },
        }
    }
}

/// The organisation's lock is held from the look to the insert, so no other process can store the same text in between. A text that is
/// new is not looked for.
pub(super) async fn insert(
    tx: &mut Tx,
    draft: &Draft,
    is_new: bool,
) -> Result<Outcome, StoreError> {
    let memory = &draft.memory;
    let existing = match memory.status {
        _ if is_new => None,
        Status::Active => duplicate(tx, memory).await?,
        Status::Quarantined => {
            memories::held_back(&mut tx.link, &memory.partition, &memory.content_hash).await?
        }
        Status::Superseded | Status::Forgotten => None,
    };
    if let Some(existing) = existing {
        memories::written_again(tx, &memory.partition, existing, memory.created_at).await?;
        return Ok(Outcome::Duplicate { existing });
    }
    let judged = judge(tx, draft).await?;
    let mark = memories::changed(tx, &memory.partition, memory.id);
    let row = Memory {
        supersedes: judged.supersedes.clone().into(),
        ..memory.clone()
    };
    memories::insert_row(tx, &row, draft).await?;
    note(tx, memory, &judged).await?;
    Ok(judged.written(mark))
}

/// The active memory that `memory` would only repeat. One with the same text for another time makes room: a text is active once.
pub(super) async fn duplicate(
    tx: &mut Tx,
    memory: &Memory,
) -> Result<Option<MemoryId>, StoreError> {
    let Some(same) = memories::same_text(&mut tx.link, memory).await? else {
        return Ok(None);
    };
    if same.is_repeated_by(memory) {
        return Ok(Some(same.id));
    }
    relations::shelve(tx, memory, same.id).await?;
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
    pub(super) fn written(self, mark: Mark) -> Outcome {
        Outcome::Written {
            mark,
            supersedes: self.supersedes,
            changed: self.changed,
        }
    }
}

/// Carries out what a draft means for others. A verdict about a text that is not there any more is void.
pub(super) async fn judge(tx: &mut Tx, draft: &Draft) -> Result<Judged, StoreError> {
    let memory = &draft.memory;
    let mut judged = Judged::default();
    for verdict in &draft.verdicts {
        let Verdict {
            existing, effect, ..
        } = *verdict;
        if let Effect::Retire { at, by } = effect {
            if relations::retire(tx, memory, verdict, at).await? {
                judged.supersedes.push(existing);
                judged.changed.push(existing);
                let edge = (memory.id, existing, Relation::Supersedes, by);
                judged.edges.push(edge);
            }
            continue;
        }
        if !relations::stands(tx, memory, verdict).await? {
            continue;
        }
        match effect {
            Effect::Retire { .. } => {}
            Effect::Precedes { by } => {
                let edge = (existing, memory.id, Relation::Supersedes, by);
                judged.edges.push(edge);
            }
            Effect::Relate { relation, by } => {
                judged.edges.push((memory.id, existing, relation, by))
            }
            Effect::Escalate { guess } => judged.open.push((existing, guess)),
        }
    }
    Ok(judged)
}

/// Notes relations and open questions once the row is there.
pub(super) async fn note(tx: &mut Tx, memory: &Memory, judged: &Judged) -> Result<(), StoreError> {
    let (partition, at) = (&memory.partition, memory.updated_at);
    for (source, target, relation, by) in &judged.edges {
        relations::insert(tx, partition, (*source, *target), (*relation, *by), at).await?;
    }
    for (older, guess) in &judged.open {
        escalations::insert(tx, partition, (memory.id, *older), *guess, at).await?;
    }
    Ok(())
}
