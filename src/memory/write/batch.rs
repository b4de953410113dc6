//! The members of a write on their way through the stages.

use std::sync::Arc;

use crate::memory::{Memory, PartitionKey};
use crate::store::{Draft, Effect, Verdict};

use super::{Redaction, Similar, WriteError, WriteOutcome, Written};

/// A memory on its way, with what the stages found out about it.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) memory: Memory,
    pub(super) slot: Option<[u8; 16]>,
    pub(super) redactions: Vec<Redaction>,
    pub(super) similar: Vec<Similar>,
    pub(super) verdicts: Vec<Verdict>,
    /// Why it is quarantined.
    pub(super) review: Option<String>,
    /// Nobody said since when it holds: it holds since it arrived.
    pub(super) undated: bool,
}

impl Candidate {
    pub(super) fn new(memory: Memory) -> Self {
        Self {
            memory,
            slot: None,
            redactions: Vec::new(),
            similar: Vec::new(),
            verdicts: Vec::new(),
            review: None,
            undated: false,
        }
    }

    /// What the store is asked to keep.
    pub(super) fn draft(&self) -> Draft {
        Draft {
            memory: self.memory.clone(),
            slot: self.slot,
            verdicts: self.verdicts.clone(),
            review: self.review.clone(),
        }
    }

    /// What is told of it once `memory` is stored.
    pub(super) fn written(&self, memory: Memory) -> Written {
        let undecided = self.verdicts.iter().filter_map(|verdict| {
            matches!(verdict.effect, Effect::Escalate { .. }).then_some(verdict.existing)
        });
        Written {
            memory,
            redactions: self.redactions.clone(),
            similar: self.similar.clone(),
            undecided: undecided.collect(),
        }
    }
}

/// One member on its way.
#[derive(Debug)]
pub(super) enum Member {
    /// Still going: what the last stage made of it.
    Going(Box<Candidate>),
    /// Says what the earlier member at this place says, and shares its end.
    Repeats(usize),
    /// Stored.
    Stored(Arc<Written>),
    /// Out.
    Refused(WriteError),
}

/// A memory that is there and is to be changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    /// The revision that it was read at.
    pub(super) read_at: i64,
    /// Whether its text changes.
    pub(super) forgets: bool,
}

/// The members of one write, in the client's order.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) partition: PartitionKey,
    pub(super) members: Vec<Member>,
    /// Set when the one member is a memory that is there.
    pub(super) change: Option<Change>,
    /// Other memories that the write changed.
    pub(super) changed: Vec<crate::ids::MemoryId>,
}

impl Batch {
    pub(super) fn new(partition: PartitionKey, size: usize) -> Self {
        Self {
            partition,
            members: Vec::with_capacity(size),
            change: None,
            changed: Vec::new(),
        }
    }

    /// A memory that is there, to be changed.
    pub(super) fn of_change(candidate: Candidate, change: Change) -> Self {
        Self {
            partition: candidate.memory.partition.clone(),
            members: vec![Member::Going(Box::new(candidate))],
            change: Some(change),
            changed: Vec::new(),
        }
    }

    /// The members that are still going.
    pub(super) fn going(&mut self) -> impl Iterator<Item = &mut Candidate> {
        self.members.iter_mut().filter_map(|member| match member {
            Member::Going(candidate) => Some(&mut **candidate),
            Member::Stored(_) | Member::Repeats(_) | Member::Refused(_) => None,
        })
    }

    /// Gives every member that is still going its end.
    pub(super) fn settle(&mut self, mut end: impl FnMut(&Candidate) -> Member) {
        for member in &mut self.members {
            if let Member::Going(candidate) = member {
                *member = end(candidate);
            }
        }
    }

    /// Refuses every member that is still going.
    pub(super) fn refuse(&mut self, error: &WriteError) {
        self.settle(|_| Member::Refused(error.clone()));
    }

    pub(super) fn finish(self) -> Vec<WriteOutcome> {
        let mut ends: Vec<WriteOutcome> = Vec::with_capacity(self.members.len());
        for member in self.members {
            let end = match member {
                Member::Stored(written) => Ok(written),
                Member::Refused(error) => Err(error),
                Member::Repeats(earlier) => match ends.get(earlier) {
                    Some(Ok(written)) => Err(WriteError::Duplicate(written.memory.id)),
                    Some(Err(error)) => Err(error.clone()),
                    None => Err(WriteError::StoreUnavailable),
                },
                // Persist leaves nothing going: it stores or refuses.
                Member::Going(_) => Err(WriteError::StoreUnavailable),
            };
            ends.push(end);
        }
        ends
    }
}
