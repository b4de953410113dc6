//! What one recall costs: embedding a question, and searching one agent's memories as they grow to a million.
//!
//! Criterion tells the mean. The table after it tells the spread over many questions, the CPU time of one search, which other work on the
//! machine changes less, and how that compares with merely reading as many bytes as the vectors have: nothing that looks at every vector
//! can be faster. `IBEX_BENCH_ROWS` sets the most memories.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark harness"
)]

mod notes;
mod questions;

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

use notes::note;
use questions::question;

/// The binary's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Searches of the table for each size, each with a question of its own: enough for the system's clock of CPU time, which ticks slowly.
const SEARCHES: [usize; 4] = [5_000, 2_000, 500, 200];

fn search(criterion: &mut Criterion) {
    let embedder = StaticMiniLm::new();
    let now: Timestamp = "2026-01-15T12:00:00Z".parse().unwrap();
    let question = question(17);
    criterion.bench_function("embed a question", |bench| {
        bench.iter(|| embedder.embed_one(black_box(&question)))
    });
    let mut table = Vec::new();
    let mut group = criterion.benchmark_group("search");
    let sizes = SIZES.into_iter().zip(SEARCHES);
    for (size, count) in sizes.filter(|(size, _)| *size <= most_memories()) {
        let partitions = [partition(size, &embedder, now)];
        let query = query(17, &embedder);
        group.bench_function(BenchmarkId::from_parameter(size), |bench| {
            bench.iter(|| find(&partitions, black_box(&query), now));
        });
        table.push(row(&partitions, (size, count), &embedder, now));
    }
    group.finish();
    println!(
        "memories  search, ms: least     p50     p99     max     cpu   bare read, ms: least     cpu   ratio of cpu"
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

/// One line of the table.
fn row(
    partitions: &[Arc<Partition>],
    (size, count): (usize, usize),
    embedder: &StaticMiniLm,
    now: Timestamp,
) -> String {
    let queries: Vec<Query> = (0..count)
        .map(|i| query(i * 7_919 % size, embedder))
        .collect();
    let (searches, cpu) = timed(queries.iter(), |query| {
        black_box(find(partitions, query, now));
    });
    let dimensions = embedder.embed_one("a").len();
    let vectors = vec![1u64; size * dimensions / size_of::<u64>()];
    let (reads, read_cpu) = timed(queries.iter(), |_| {
        black_box(sum(black_box(&vectors)));
    });
    let [least, median, late, most] = searches;
    let [least_read, ..] = reads;
    format!(
        "{size:>8}             {least:>7.3} {median:>7.3} {late:>7.3} {most:>7.3} {cpu:>7.3}                   {least_read:>7.3} {read_cpu:>7.3}    {:.2}",
        cpu / read_cpu
    )
}

/// The least, the median, the 99th percentile and the greatest time of `work`, and the CPU time of one, all in milliseconds.
fn timed<T>(items: impl ExactSizeIterator<Item = T>, mut work: impl FnMut(T)) -> ([f64; 4], f64) {
    let (count, before) = (items.len(), cpu_ms());
    let times = items.map(|item| {
        let began = Instant::now();
        work(item);
        ms(began.elapsed())
    });
    let times: Vec<f64> = times.collect();
    (spread(times), (cpu_ms() - before) / count as f64)
}

/// What the threads of this process have spent, those that are over included.
fn cpu_ms() -> f64 {
    const TICKS_PER_MS: f64 = 0.1;
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name may contain anything, but it ends at the last bracket.
    let (_, fields) = text.rsplit_once(')').unwrap();
    let fields = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = fields.map(|field| field.parse::<f64>().unwrap()).sum();
    ticks / TICKS_PER_MS
}

/// Reads everything, as fast as memory gives it.
fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}

fn spread(mut times: Vec<f64>) -> [f64; 4] {
    times.sort_unstable_by(f64::total_cmp);
    [0, 50, 99, 100].map(|percent| {
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
