//! What one recall costs: embedding a question, and searching one agent's memories as they grow to a million.
//!
//! Criterion tells the mean; the table after it the spread over many questions, and how a search compares with merely reading as many
//! bytes as the vectors have, in the same run: what nothing that looks at every vector can be faster than. `IBEX_BENCH_ROWS` sets the most
//! memories.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark harness"
)]

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

/// The binary's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Searches of the table, each with a question of its own.
const SEARCHES: usize = 200;

fn search(criterion: &mut Criterion) {
    let embedder = StaticMiniLm::new();
    let now: Timestamp = "2026-01-15T12:00:00Z".parse().unwrap();
    let question = question(17);
    criterion.bench_function("embed a question", |bench| {
        bench.iter(|| embedder.embed_one(black_box(&question)))
    });
    let mut table = Vec::new();
    let mut group = criterion.benchmark_group("search");
    for size in SIZES.into_iter().filter(|size| *size <= most_memories()) {
        let partitions = [partition(size, &embedder, now)];
        let query = query(17, &embedder);
        group.bench_function(BenchmarkId::from_parameter(size), |bench| {
            bench.iter(|| find(&partitions, black_box(&query), now));
        });
        table.push(row(&partitions, size, &embedder, now));
    }
    group.finish();
    println!(
        "memories   search, ms:  p50     p99     max    bare read, ms:  p50    p99    max   ratio of the medians"
    );
    table.iter().for_each(|row| println!("{row}"));
}

fn partition(size: usize, embedder: &StaticMiniLm, now: Timestamp) -> Arc<Partition> {
    let key = PartitionKey {
        org: OrgId::new(),
        agent: AgentId::new(),
        user: None,
    };
    let partition = Arc::new(Partition::new(key.clone(), embedder.model().into(), 50));
    (0..size).for_each(|i| partition.upsert(Arc::new(note(&key, i, embedder, now))));
    partition
}

fn query(i: usize, embedder: &StaticMiniLm) -> Query {
    let question = question(i);
    let vector = embedder.embed_one(&question);
    Query::new(&question, Some(&vector), embedder.model().into())
}

fn find(partitions: &[Arc<Partition>], query: &Query, now: Timestamp) -> usize {
    let patience = Instant::now() + Duration::from_secs(60);
    search_partitions(partitions, query, now, 50, patience)
        .unwrap()
        .len()
}

/// One line of the table: searches and bare reads of the same bytes by turns, so that both meet the same machine.
fn row(
    partitions: &[Arc<Partition>],
    size: usize,
    embedder: &StaticMiniLm,
    now: Timestamp,
) -> String {
    let dimensions = embedder.embed_one("a").len();
    let vectors = vec![1u64; size * dimensions / size_of::<u64>()];
    let (mut searches, mut reads) = (Vec::new(), Vec::new());
    for i in 0..SEARCHES {
        let query = query(i * 7_919 % size, embedder);
        let began = Instant::now();
        black_box(find(partitions, &query, now));
        searches.push(ms(began.elapsed()));
        let began = Instant::now();
        black_box(sum(black_box(&vectors)));
        reads.push(ms(began.elapsed()));
    }
    let (searches, reads) = (spread(searches), spread(reads));
    let [search, ..] = searches;
    let [read, ..] = reads;
    let show = |times: [f64; 3]| times.map(|time| format!("{time:>7.3}")).join(" ");
    format!(
        "{size:>8}           {}             {}   {:.2}",
        show(searches),
        show(reads),
        search / read
    )
}

/// Reads everything, as fast as memory gives it.
fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}

/// Median, 99th percentile and maximum.
fn spread(mut times: Vec<f64>) -> [f64; 3] {
    times.sort_unstable_by(f64::total_cmp);
    [50, 99, 100].map(|percent| {
        let at = times.len().saturating_sub(1) * percent / 100;
        times.get(at).copied().unwrap()
    })
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark has no configuration"
)]
fn most_memories() -> usize {
    std::env::var("IBEX_BENCH_ROWS").map_or(1_000_000, |rows| rows.parse().unwrap())
}

criterion_group!(benches, search);
criterion_main!(benches);
