//! How memories are shown: one view for every route, with what a search adds.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::auth::{Permissions, Principal};
use crate::ids::{EscalationId, MemoryId, UserId};
use crate::memory::search::standing;
use crate::memory::write::{Redaction, Written};
use crate::memory::{Category, Label, Memory, Source, Status};
use crate::request::context::plan::Components;
use crate::store::{DeadLetter, Decider, Escalation, ListPage, Relation, StoredRelation};

/// A memory as clients see it.
#[derive(Serialize)]
pub(in crate::server) struct MemoryView<'a> {
    pub(super) id: MemoryId,
    pub(super) status: Status,
    pub(super) category: Category,
    pub(super) labels: &'a [Label],
    /// Not for those who may write and not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<&'a str>,
    pub(super) confidence: f32,
    pub(super) user_id: Option<&'a UserId>,
    pub(super) valid_from: Timestamp,
    pub(super) valid_until: Option<Timestamp>,
    pub(super) observed_at: Option<Timestamp>,
    pub(super) source: &'a Source,
    pub(super) metadata: Option<&'a RawValue>,
    pub(super) pinned: bool,
    pub(super) retrieval_count: u32,
    pub(super) feedback: Votes,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) supersedes: &'a [MemoryId],
    pub(super) revision: i64,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
}

impl<'a> MemoryView<'a> {
    pub(in crate::server) fn of(memory: &'a Memory) -> Self {
        Self {
            id: memory.id,
            status: memory.status,
            category: memory.category(),
            labels: &memory.labels,
            content: Some(&memory.content),
            confidence: memory.confidence,
            user_id: memory.partition.user.as_ref(),
            valid_from: memory.valid_from,
            valid_until: memory.valid_until,
            observed_at: memory.observed_at,
            source: &memory.source,
            metadata: memory.metadata.as_deref(),
            pinned: memory.pinned,
            retrieval_count: memory.retrieval_count,
            feedback: Votes {
                useful: memory.votes_useful,
                not_useful: memory.votes_not_useful,
            },
            supersedes: &memory.supersedes,
            revision: memory.revision,
            created_at: memory.created_at,
            updated_at: memory.updated_at,
        }
    }
}

impl MemoryView<'_> {
    /// The same for `who`: somebody who may change a memory without reading it is not told what it says.
    pub(super) fn for_principal(self, who: &Principal) -> Self {
        if who.may(Permissions::MEMORY_READ) {
            return self;
        }
        Self {
            content: None,
            metadata: None,
            ..self
        }
    }
}

/// How a memory was voted on.
#[derive(Serialize)]
pub(super) struct Votes {
    useful: u32,
    not_useful: u32,
}

/// A memory that was written, with what was noticed about it.
#[derive(Serialize)]
pub(super) struct WrittenView<'a> {
    #[serde(flatten)]
    memory: MemoryView<'a>,
    #[serde(flatten)]
    noticed: Noticed<'a>,
}

/// What the refinery noticed about a memory that was written.
#[derive(Serialize)]
pub(super) struct Noticed<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    redactions: &'a [Redaction],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    similar_memories: Vec<SimilarView>,
    /// Memories that it may contradict: somebody has to decide.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    undecided: &'a [MemoryId],
}

#[derive(Serialize)]
struct SimilarView {
    id: MemoryId,
    similarity: f32,
}

impl<'a> WrittenView<'a> {
    pub(super) fn of(written: &'a Written) -> Self {
        Self {
            memory: MemoryView::of(&written.memory),
            noticed: Noticed::of(written),
        }
    }

    /// The same for `who`, as [`MemoryView::for_principal`].
    pub(super) fn for_principal(self, who: &Principal) -> Self {
        Self {
            memory: self.memory.for_principal(who),
            ..self
        }
    }
}

impl<'a> Noticed<'a> {
    pub(super) fn of(written: &'a Written) -> Self {
        let similar = written.similar.iter().map(|similar| SimilarView {
            id: similar.id(),
            similarity: similar.similarity,
        });
        Self {
            redactions: &written.redactions,
            similar_memories: similar.collect(),
            undecided: &written.undecided,
        }
    }
}

/// One memory with what it is to others.
#[derive(Serialize)]
pub(super) struct Whole<'a> {
    #[serde(flatten)]
    memory: MemoryView<'a>,
    relations: Vec<RelationView>,
}

#[derive(Serialize)]
struct RelationView {
    relation: Relation,
    source: MemoryId,
    target: MemoryId,
    decided_by: Decider,
    at: Timestamp,
}

impl<'a> Whole<'a> {
    pub(super) fn of(memory: &'a Memory, relations: &[StoredRelation]) -> Self {
        let relations = relations.iter().map(|r| RelationView {
            relation: r.relation,
            source: r.source,
            target: r.target,
            decided_by: r.by,
            at: r.at,
        });
        Self {
            memory: MemoryView::of(memory),
            relations: relations.collect(),
        }
    }
}

/// A memory that waits for review, and why.
#[derive(Serialize)]
pub(super) struct HeldView<'a> {
    #[serde(flatten)]
    pub(super) memory: MemoryView<'a>,
    pub(super) review: Option<&'a RawValue>,
}

/// A turn from which nothing could be captured.
#[derive(Serialize)]
pub(super) struct LetterView<'a> {
    user_id: Option<&'a UserId>,
    session_id: &'a str,
    turn: u32,
    reason: &'a str,
    attempts: u32,
    at: Timestamp,
}

impl<'a> LetterView<'a> {
    pub(super) fn of(letter: &'a DeadLetter) -> Self {
        Self {
            user_id: letter.partition.user.as_ref(),
            session_id: letter.session.as_str(),
            turn: letter.turn,
            reason: &letter.reason,
            attempts: letter.attempts,
            at: letter.at,
        }
    }
}

/// A pair that waits for a decision.
#[derive(Serialize)]
pub(super) struct EscalationView<'a> {
    id: EscalationId,
    guess: Relation,
    newer: MemoryView<'a>,
    older: MemoryView<'a>,
    created_at: Timestamp,
}

impl<'a> EscalationView<'a> {
    pub(super) fn of(escalation: &Escalation, newer: &'a Memory, older: &'a Memory) -> Self {
        Self {
            id: escalation.id,
            guess: escalation.guess,
            newer: MemoryView::of(newer),
            older: MemoryView::of(older),
            created_at: escalation.created_at,
        }
    }
}

/// An answer with results in order.
#[derive(Serialize)]
pub(super) struct Results<T> {
    pub(super) results: Vec<T>,
}

/// A page of a list.
#[derive(Serialize)]
pub(super) struct Page<'a> {
    memories: Vec<MemoryView<'a>>,
    has_more: bool,
}

impl<'a> Page<'a> {
    pub(super) fn of(page: &'a ListPage) -> Self {
        Self {
            memories: page.memories.iter().map(MemoryView::of).collect(),
            has_more: page.has_more,
        }
    }
}

/// One result: the memory, why it stands where it stands.
#[derive(Serialize)]
pub(super) struct Found<'a> {
    pub(super) rank: usize,
    /// Cosine of query and content; the hot set has no query.
    pub(super) similarity: Option<f32>,
    pub(super) score: f32,
    pub(super) components: Components,
    #[serde(flatten)]
    pub(super) memory: MemoryView<'a>,
}

impl<'a> Found<'a> {
    /// A member of the hot set, which stands as if it answered any query in full.
    pub(super) fn hot(rank: usize, memory: &'a Memory, now: Timestamp) -> Self {
        let components = Components {
            relevance: 1.0,
            recency: standing::recency(memory, now),
            usefulness: standing::usefulness(memory),
            confidence: memory.confidence,
            frequency: standing::frequency(memory),
        };
        Self {
            rank,
            similarity: None,
            score: standing::standing(memory, now),
            components,
            memory: MemoryView::of(memory),
        }
    }
}
