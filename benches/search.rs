//! What one recall costs: embedding a question and searching partitions of growing size.

#![expect(clippy::unwrap_used, reason = "a benchmark harness")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use ibex::ids::{AgentId, MemoryId, OrgId};
use ibex::memory::embedder::{Embedder, StaticMiniLm};
use ibex::memory::search::{Partition, Query, search_partitions};
use ibex::memory::{Category, Embedding, Label, Memory, PartitionKey, Source, Status};
use jiff::Timestamp;
use tokio::time::Instant;

const WORDS: [&str; 12] = [
    "warehouse",
    "carrier",
    "invoice",
    "customer",
    "deadline",
    "meeting",
    "harbour",
    "garden",
    "bicycle",
    "recipe",
    "teacher",
    "river",
];
const QUESTION: &str = "Where is note 00017 kept, and near which window?";

fn note(key: &PartitionKey, i: usize, embedder: &StaticMiniLm, now: Timestamp) -> Memory {
    let word = |at: usize| WORDS.get(at % WORDS.len()).copied().unwrap_or_default();
    let content = format!(
        "Note {i:05}: the {} of {} {i} is kept at shelf {} near the {}.",
        word(i),
        word(i / 12),
        i * 7 % 997,
        word(i / 144)
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
        content_hash: [0; 32],
        retrieval_count: 0,
        votes_useful: 0,
        votes_not_useful: 0,
        created_at: now,
        updated_at: now,
        embedding: Some(Embedding {
            model: embedder.model().into(),
            vector: vector.into(),
        }),
        tokens: ibex::tokens::TokenCounts::default(),
    }
}

fn search(criterion: &mut Criterion) {
    let embedder = StaticMiniLm::new();
    let now: Timestamp = "2026-01-15T12:00:00Z".parse().unwrap();
    criterion.bench_function("embed a question", |bench| {
        bench.iter(|| embedder.embed_one(black_box(QUESTION)))
    });
    let vector = embedder.embed_one(QUESTION);
    let query = Query::new(QUESTION, Some(&vector), embedder.model().into());
    let mut group = criterion.benchmark_group("search");
    for memories in [1_000, 10_000, 100_000] {
        let key = PartitionKey {
            org: OrgId::new(),
            agent: AgentId::new(),
            user: None,
        };
        let partition = Arc::new(Partition::new(key.clone(), embedder.model().into(), 50));
        (0..memories).for_each(|i| partition.upsert(Arc::new(note(&key, i, &embedder, now))));
        let partitions = [partition];
        group.bench_function(BenchmarkId::from_parameter(memories), |bench| {
            bench.iter(|| {
                search_partitions(
                    &partitions,
                    black_box(&query),
                    now,
                    50,
                    Instant::now() + Duration::from_secs(60),
                )
                .unwrap()
            });
        });
    }
}

criterion_group!(benches, search);
criterion_main!(benches);
