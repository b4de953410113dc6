//! Stage 6, conflict: takes memories with what is alike, yields them with what they mean for others.
//!
//! Rules on words and times come first (`memory/claims`); what they cannot tell is asked of the configured model, and what that cannot tell
//! either waits for a person. Nothing but a rule that is certain, a model's answer or a person retires a memory, and a model that fails
//! changes nothing. What happened is not replaced by what happened next: episodic memories take no part.

mod questions;
mod rules;

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use jiff::SignedDuration;

use crate::app::App;
use crate::memory::claims::{Parsed, Slot, SlotKey};
use crate::memory::{Category, Memory, Status};
use crate::store::StoreError;

use super::exact_dedup::bump;
use super::{Batch, Candidate, Member, WriteError};

use rules::{Mate, Ruling, claim, judge};

/// Memories that say something about the same, newest first, that one write is compared with.
const MOST_MATES: usize = 16;

/// Places of a batch's earlier members by what they are about.
type Earlier = HashMap<[u8; 16], Vec<usize>, RandomState>;

pub(super) async fn stage(app: &App, batch: &mut Batch) {
    let mut earlier = Earlier::default();
    for place in 0..batch.members.len() {
        let Some(Member::Going(candidate)) = batch.members.get(place) else {
            continue;
        };
        if !takes_part(&candidate.memory) {
            continue;
        }
        let slot = Parsed::new(claim(&candidate.memory))
            .slot
            .as_ref()
            .map(Slot::base_key);
        let mates = match mates(app, batch, candidate, slot, &earlier).await {
            Ok(mates) => mates,
            Err(error) => {
                tracing::warn!("conflict: {error}");
                put(batch, place, Member::Refused(WriteError::StoreUnavailable));
                continue;
            }
        };
        let Some(Member::Going(candidate)) = batch.members.get_mut(place) else {
            continue;
        };
        after_its_mates(candidate, &mates);
        let memory = &candidate.memory;
        let ruling = judge(memory, &Parsed::new(claim(memory)), &mates);
        if let Some(SlotKey(slot)) = slot {
            earlier.entry(slot).or_default().push(place);
        }
        settle(app, batch, (place, slot), ruling).await;
    }
}

/// Whether a memory is a statement that another one can replace.
pub(super) fn takes_part(memory: &Memory) -> bool {
    memory.status != Status::Quarantined && memory.category() != Category::Episodic
}

/// What a statement is about, without its qualifiers: a general statement and a qualified one have to meet.
pub(super) fn slot_of(memory: &Memory) -> Option<SlotKey> {
    let slot = Parsed::new(claim(memory)).slot;
    slot.as_ref()
        .filter(|_| takes_part(memory))
        .map(Slot::base_key)
}

/// What one memory is compared with: what is about the same, what is alike, and what the same write says before it.
async fn mates(
    app: &App,
    batch: &Batch,
    candidate: &Candidate,
    slot: Option<SlotKey>,
    earlier: &Earlier,
) -> Result<Vec<Mate>, StoreError> {
    let mut mates: Vec<Mate> = Vec::new();
    let own = candidate.memory.id;
    let mut add = |memory: Arc<Memory>, place: Option<usize>| {
        let known = memory.id == own || mates.iter().any(|mate| mate.memory.id == memory.id);
        if !known && takes_part(&memory) {
            mates.push(Mate { memory, place });
        }
    };
    if let Some(SlotKey(slot)) = slot {
        let stored = app.store.slot_mates(&batch.partition, slot, MOST_MATES);
        for memory in stored.await? {
            add(Arc::new(memory), None);
        }
        for place in earlier.get(&slot).into_iter().flatten() {
            if let Some(Member::Going(candidate)) = batch.members.get(*place) {
                add(Arc::new(candidate.memory.clone()), Some(*place));
            }
        }
    }
    for similar in &candidate.similar {
        add(Arc::clone(&similar.memory), None);
    }
    Ok(mates)
}

/// Two undated statements that arrived in the same microsecond: the one whose turn came later was said later.
fn after_its_mates(candidate: &mut Candidate, mates: &[Mate]) {
    if !candidate.undated {
        return;
    }
    let memory = &mut candidate.memory;
    while mates
        .iter()
        .any(|mate| mate.memory.valid_from == memory.valid_from)
    {
        memory.valid_from += SignedDuration::from_micros(1);
    }
    memory.created_at = memory.created_at.max(memory.valid_from);
    memory.updated_at = memory.updated_at.max(memory.valid_from);
}

/// Gives the member what was ruled; what the rules left open is asked of the model.
async fn settle(
    app: &App,
    batch: &mut Batch,
    (place, slot): (usize, Option<SlotKey>),
    ruling: Ruling,
) {
    let (mut verdicts, ends, open) = match ruling {
        Ruling::Said(mate) => {
            let end = match mate.place {
                Some(earlier) => Member::Repeats(earlier),
                None => {
                    if batch.change.is_none() {
                        bump(app, &batch.partition, mate.memory.id);
                    }
                    Member::Refused(WriteError::Duplicate(mate.memory.id))
                }
            };
            return put(batch, place, end);
        }
        Ruling::Stands {
            verdicts,
            ends,
            open,
        } => (verdicts, ends, open),
    };
    let Some(Member::Going(candidate)) = batch.members.get_mut(place) else {
        return;
    };
    verdicts.extend(questions::answered(app, &candidate.memory, open).await);
    for verdict in &verdicts {
        app.metrics.memory_conflict(verdict.effect);
    }
    candidate.slot = slot.map(|SlotKey(slot)| slot);
    candidate.verdicts = verdicts;
    if let Some(end) = ends {
        candidate.memory.valid_until = Some(end);
        if end <= candidate.memory.updated_at {
            candidate.memory.status = Status::Superseded;
        }
    }
}

fn put(batch: &mut Batch, place: usize, end: Member) {
    if let Some(member) = batch.members.get_mut(place) {
        *member = end;
    }
}
