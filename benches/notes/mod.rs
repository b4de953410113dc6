//! Notes that differ in their words and numbers.

use ibex::ids::MemoryId;
use ibex::memory::embedder::{Embedder, StaticMiniLm};
use ibex::memory::{Category, Embedding, Label, Memory, PartitionKey, Source, Status};
use ibex::tokens::TokenCounts;
use jiff::Timestamp;

const WORDS: [&str; 16] = [
    "warehouse",
    "carrier",
    "invoice",
    "delivery",
    "customer",
    "project",
    "deadline",
    "meeting",
    "harbour",
    "window",
    "garden",
    "bicycle",
    "recipe",
    "doctor",
    "teacher",
    "river",
];

/// The note of number `i`, without token counts.
pub(crate) fn note(
    key: &PartitionKey,
    i: usize,
    embedder: &StaticMiniLm,
    now: Timestamp,
) -> Memory {
    let word = |at: usize| WORDS.get(at % WORDS.len()).copied().unwrap_or_default();
    let content = format!(
        "Note {i:05}: the {} of {} {i} is kept at shelf {} near the {}.",
        word(i),
        word(i / 16),
        i * 7 % 997,
        word(i / 256)
    );
    let vector = embedder.embed_one(&content);
    Memory {
        id: MemoryId::new(),
        partition: key.clone(),
        content: content.into(),
        labels: vec![Label {
            label: Category::Factual,
            confidence: 1.0,
        }],
        confidence: 0.8,
        valid_from: now,
        valid_until: None,
        observed_at: None,
        source: Source::default(),
        metadata: None,
        pinned: false,
        status: Status::Active,
        revision: 1,
        text_revision: 0,
        supersedes: Box::default(),
        content_hash: content_hash(i),
        retrieval_count: 0,
        votes_useful: 0,
        votes_not_useful: 0,
        created_at: now,
        updated_at: now,
        embedding: Some(Embedding {
            model: embedder.model().into(),
            vector: vector.into(),
        }),
        tokens: TokenCounts::default(),
    }
}

/// Stands for the digest of a content: only its being distinct matters.
fn content_hash(i: usize) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.iter_mut()
        .zip(i.to_le_bytes())
        .for_each(|(slot, byte)| *slot = byte);
    hash
}
