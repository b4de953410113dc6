//! What memories are to each other, and who said so.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{EscalationId, MemoryId};
use crate::memory::PartitionKey;
use crate::store::types::stored_enum;

stored_enum!(
    /// What a newer memory is to an older one.
    Relation {
        /// It replaces it going forward.
        Supersedes = "supersedes",
        /// It asserts the opposite, and nobody can say which is right.
        Contradiction = "contradiction",
        /// Both say much the same.
        Overlap = "overlap",
        /// It says the same more closely.
        Specializes = "specializes",
    }
);

stored_enum!(
    /// Who decided.
    Decider {
        /// A rule on the two texts and their times.
        Rule = "rule",
        /// The configured model.
        Model = "model",
        /// A person who was asked.
        Person = "person",
    }
);

stored_enum!(
    /// Where an escalation stands.
    EscalationStatus {
        /// Nobody has decided yet.
        Pending = "pending",
        /// Somebody said what the two are to each other.
        Resolved = "resolved",
        /// Somebody said that they are nothing to each other, or one of them is gone.
        Dismissed = "dismissed",
    }
);

/// What a write decided about the memory it writes and one that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The one that is there.
    pub existing: MemoryId,
    /// Its text as it was judged, by its text revision: a decision about another text is void.
    pub judged: i64,
    /// What follows.
    pub effect: Effect,
}

/// What follows from a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The existing one ends where the new one begins.
    Retire {
        /// That moment.
        at: Timestamp,
        /// Who decided.
        by: Decider,
    },
    /// The existing one had replaced the new one before that arrived.
    Precedes {
        /// Who decided.
        by: Decider,
    },
    /// Both stay.
    Relate {
        /// As what.
        relation: Relation,
        /// Who decided.
        by: Decider,
    },
    /// Both stay until somebody decides.
    Escalate {
        /// What it looks like.
        guess: Relation,
    },
}

/// A stored relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRelation {
    /// The memory that has the relation.
    pub source: MemoryId,
    /// To this one.
    pub target: MemoryId,
    /// Which.
    pub relation: Relation,
    /// Who decided.
    pub by: Decider,
    /// When.
    pub at: Timestamp,
}

/// A pair that somebody has to judge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Escalation {
    /// Identity.
    pub id: EscalationId,
    /// The partition of both.
    pub partition: PartitionKey,
    /// The newer memory.
    pub newer: MemoryId,
    /// The older one.
    pub older: MemoryId,
    /// What it looks like.
    pub guess: Relation,
    /// Where it stands.
    pub status: EscalationStatus,
    /// When it was noticed.
    pub created_at: Timestamp,
}

/// What became of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// It took effect.
    Settled,
    /// Somebody had decided already.
    Over,
    /// One of the memories is not what it was: the question is void.
    Void,
}
