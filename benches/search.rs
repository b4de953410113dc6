//! What one recall costs: embedding a question and searching partitions of growing size.

#![expect(clippy::unwrap_used, reason = "a benchmark harness")]

mod notes;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use ibex::ids::{AgentId, OrgId};
use ibex::memory::PartitionKey;
use ibex::memory::embedder::{Embedder, StaticMiniLm};
use ibex::memory::search::{Partition, Query, search_partitions};
use jiff::Timestamp;
use tokio::time::Instant;

use notes::{note, question};

fn search(criterion: &mut Criterion) {
    let embedder = StaticMiniLm::new();
    let now: Timestamp = "2026-01-15T12:00:00Z".parse().unwrap();
    let question = question(17);
    criterion.bench_function("embed a question", |bench| {
        bench.iter(|| embedder.embed_one(black_box(&question)))
    });
    let vector = embedder.embed_one(&question);
    let query = Query::new(&question, Some(&vector), embedder.model().into());
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
