//! One memory against those that it may concern: pure.

use std::sync::Arc;

use jiff::Timestamp;

use crate::memory::claims::{Claim, Parsed, Verdict as Ruled, decide_parsed};
use crate::memory::{Memory, Status};
use crate::store::{Decider, Effect, Relation, Verdict};

/// A memory that is compared.
#[derive(Debug, Clone)]
pub(super) struct Mate {
    pub(super) memory: Arc<Memory>,
    /// Where it stands in the same write; nothing for a stored one.
    pub(super) place: Option<usize>,
}

/// A pair that the rules cannot judge.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) memory: Arc<Memory>,
    pub(super) guess: Relation,
}

/// What comes of all comparisons.
#[derive(Debug)]
pub(super) enum Ruling {
    /// This one says it already.
    Said(Mate),
    /// It is a memory of its own.
    Stands {
        verdicts: Vec<Verdict>,
        /// When its validity ends because a newer one arrived before it.
        ends: Option<Timestamp>,
        open: Vec<Question>,
    },
}

pub(super) fn judge(new: &Memory, read: &Parsed<'_>, mates: &[Mate]) -> Ruling {
    let (mut verdicts, mut open) = (Vec::new(), Vec::new());
    let mut ends: Option<Timestamp> = None;
    for mate in mates {
        let memory = &mate.memory;
        let is_history = memory.status != Status::Active;
        let mut rule = |effect| {
            verdicts.push(Verdict {
                existing: memory.id,
                judged: memory.text_revision,
                effect,
            });
        };
        let by = Decider::Rule;
        match decide_parsed(read, &Parsed::new(claim(memory))) {
            Ruled::SupersededBy { close_at } => {
                ends = Some(ends.map_or(close_at, |end| end.min(close_at)));
                rule(Effect::Precedes { by });
            }
            // History that arrives once more.
            Ruled::Restatement if is_history => {
                let then = memory.valid_from..memory.valid_until.unwrap_or(memory.valid_from);
                if then.contains(&new.valid_from) {
                    return Ruling::Said(mate.clone());
                }
            }
            // What is over cannot be said already, replaced or contradicted.
            _ if is_history => {}
            Ruled::None => {}
            Ruled::Restatement => {
                if new.repeats((memory.valid_from, memory.valid_until), memory.created_at) {
                    return Ruling::Said(mate.clone());
                }
            }
            Ruled::Supersedes { close_at } => rule(Effect::Retire { at: close_at, by }),
            Ruled::Overlap => rule(Effect::Relate {
                relation: Relation::Overlap,
                by,
            }),
            Ruled::Specializes => rule(Effect::Relate {
                relation: Relation::Specializes,
                by,
            }),
            Ruled::Escalate { relation_guess } => open.push(Question {
                memory: Arc::clone(memory),
                guess: relation_guess,
            }),
        }
    }
    Ruling::Stands {
        verdicts,
        ends: ends.filter(|end| new.valid_until.is_none_or(|until| *end < until)),
        open,
    }
}

/// A memory that was replaced ended because another one began: for the rules it is open, as it was when it was said.
pub(super) fn claim(memory: &Memory) -> Claim<'_> {
    Claim {
        text: &memory.content,
        speaker: None,
        valid_from: memory.valid_from,
        valid_until: memory
            .valid_until
            .filter(|_| memory.status == Status::Active),
    }
}
