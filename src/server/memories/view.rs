//! How memories are shown: one view for every route, with what a search adds.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::ids::{MemoryId, UserId};
use crate::memory::search::standing;
use crate::memory::{Category, Label, Memory, Source, Status};
use crate::request::context::plan::Components;

/// A memory as clients see it.
#[derive(Serialize)]
pub(super) struct MemoryView<'a> {
    pub(super) id: MemoryId,
    pub(super) status: Status,
    pub(super) category: Category,
    pub(super) labels: &'a [Label],
    pub(super) content: &'a str,
    pub(super) confidence: f32,
    pub(super) user_id: Option<&'a UserId>,
    pub(super) valid_from: Timestamp,
    pub(super) valid_until: Option<Timestamp>,
    pub(super) observed_at: Option<Timestamp>,
    pub(super) source: &'a Source,
    pub(super) metadata: Option<&'a RawValue>,
    pub(super) pinned: bool,
    pub(super) retrieval_count: u32,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
}

impl<'a> MemoryView<'a> {
    pub(super) fn of(memory: &'a Memory) -> Self {
        Self {
            id: memory.id,
            status: memory.status,
            category: memory.category(),
            labels: &memory.labels,
            content: &memory.content,
            confidence: memory.confidence,
            user_id: memory.partition.user.as_ref(),
            valid_from: memory.valid_from,
            valid_until: memory.valid_until,
            observed_at: memory.observed_at,
            source: &memory.source,
            metadata: memory.metadata.as_deref(),
            pinned: memory.pinned,
            retrieval_count: memory.retrieval_count,
            created_at: memory.created_at,
            updated_at: memory.updated_at,
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
    pub(super) memories: Vec<MemoryView<'a>>,
    pub(super) has_more: bool,
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
