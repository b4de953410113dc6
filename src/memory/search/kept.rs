//! A memory as the index keeps it: what a hit hands on, without the vector (its bytes are a column) and in half the space. Only a hit
//! becomes a [`Memory`] again. Times are those of the store, to the microsecond.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::value::RawValue;

use crate::ids::MemoryId;
use crate::memory::{Label, Memory, PartitionKey, Source, Status};
use crate::tokens::TokenCounts;

use super::columns::Row;
use super::standing::Merits;

/// No time.
const NEVER: i64 = i64::MIN;
/// The end of what has none.
pub(super) const OPEN: i64 = i64::MAX;

/// An active memory, but for its partition, vector and validity, which the columns hold.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) id: MemoryId,
    /// Shared with every hit.
    pub(super) content: Arc<str>,
    pub(super) revision: i64,
    pub(super) pinned: bool,
    text_revision: i64,
    content_hash: [u8; 32],
    observed_at: i64,
    created_at: i64,
    updated_at: i64,
    confidence: f32,
    retrieval_count: u32,
    votes_useful: u32,
    votes_not_useful: u32,
    tokens: TokenCounts,
    /// The primary label; the others are details.
    label: Option<Label>,
    details: Option<Box<Details>>,
}

/// What most memories have none of.
#[derive(Debug, PartialEq)]
struct Details {
    source: Source,
    more_labels: Box<[Label]>,
    metadata: Option<Box<str>>,
    supersedes: Box<[MemoryId]>,
}

impl Kept {
    pub(super) fn new(memory: Memory) -> Self {
        let mut labels = memory.labels.into_iter();
        let label = labels.next();
        let details = Details {
            source: memory.source,
            more_labels: labels.collect(),
            metadata: memory.metadata.map(|json| json.get().into()),
            supersedes: memory.supersedes,
        };
        Self {
            id: memory.id,
            content: memory.content,
            revision: memory.revision,
            pinned: memory.pinned,
            text_revision: memory.text_revision,
            content_hash: memory.content_hash,
            observed_at: memory.observed_at.map_or(NEVER, Timestamp::as_microsecond),
            created_at: memory.created_at.as_microsecond(),
            updated_at: memory.updated_at.as_microsecond(),
            confidence: memory.confidence,
            retrieval_count: memory.retrieval_count,
            votes_useful: memory.votes_useful,
            votes_not_useful: memory.votes_not_useful,
            tokens: memory.tokens,
            label,
            details: (!details.are_usual()).then(|| Box::new(details)),
        }
    }

    /// The memory again; without its vector.
    pub(super) fn restore(&self, row: &Row, partition: &PartitionKey) -> Arc<Memory> {
        let details = self.details.as_deref();
        let more = details.map_or(&[][..], |details| &details.more_labels);
        Arc::new(Memory {
            id: self.id,
            partition: partition.clone(),
            content: Arc::clone(&self.content),
            labels: self.label.into_iter().chain(more.iter().copied()).collect(),
            confidence: self.confidence,
            valid_from: time(row.from),
            valid_until: (row.until != OPEN).then(|| time(row.until)),
            observed_at: (self.observed_at != NEVER).then(|| time(self.observed_at)),
            source: details.map_or_else(Source::default, |details| details.source.clone()),
            metadata: details.and_then(Details::metadata),
            pinned: self.pinned,
            status: Status::Active,
            revision: self.revision,
            text_revision: self.text_revision,
            supersedes: details.map_or_else(Box::default, |details| details.supersedes.clone()),
            content_hash: self.content_hash,
            retrieval_count: self.retrieval_count,
            votes_useful: self.votes_useful,
            votes_not_useful: self.votes_not_useful,
            created_at: time(self.created_at),
            updated_at: time(self.updated_at),
            embedding: None,
            tokens: self.tokens,
        })
    }

    /// Whether `memory` says the same, in the same place of the same dialogue: what is analysed has not changed.
    pub(super) fn reads_like(&self, memory: &Memory) -> bool {
        let same_source = match self.details.as_deref() {
            Some(details) => details.source == memory.source,
            None => memory.source == Source::default(),
        };
        same_source && *self.content == *memory.content
    }

    /// It was handed on once more.
    pub(super) fn count_use(&mut self) {
        self.retrieval_count = self.retrieval_count.saturating_add(1);
    }

    /// Where it came from, when that is not the usual.
    pub(super) fn source(&self) -> Option<&Source> {
        self.details.as_deref().map(|details| &details.source)
    }

    /// What its standing depends on.
    pub(super) fn merits(&self, row: &Row) -> Merits {
        let more = self.details.iter().flat_map(|d| &*d.more_labels);
        Merits {
            half_life_days: Merits::half_life(self.label.iter().chain(more)),
            valid_from: row.from.div_euclid(1_000_000),
            votes_useful: self.votes_useful,
            votes_not_useful: self.votes_not_useful,
            confidence: self.confidence,
            retrieval_count: self.retrieval_count,
        }
    }

    /// What it owns outside the column.
    pub(super) fn heap_bytes(&self) -> usize {
        self.content.len() + self.details_bytes()
    }

    /// What it owns besides its text.
    pub(super) fn details_bytes(&self) -> usize {
        self.details.as_deref().map_or(0, Details::bytes)
    }
}

impl Details {
    fn are_usual(&self) -> bool {
        self.more_labels.is_empty()
            && self.metadata.is_none()
            && self.supersedes.is_empty()
            && self.source == Source::default()
    }

    fn metadata(&self) -> Option<Arc<RawValue>> {
        let text = self.metadata.as_deref()?.to_owned();
        // It was JSON when it came in.
        RawValue::from_string(text).ok().map(Arc::from)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.source.kind.capacity()
            + self.source.session.as_ref().map_or(0, String::capacity)
            + size_of_val(&*self.more_labels)
            + size_of_val(&*self.supersedes)
            + self.metadata.as_ref().map_or(0, |json| json.len())
    }
}

fn time(micros: i64) -> Timestamp {
    // Every one was a timestamp before.
    Timestamp::from_microsecond(micros).unwrap_or_default()
}
