//! What keeping memories costs: many in batches, and one durable write beside the bare `fdatasync` that it cannot do without.
//!
//! Both are taken in the same run, in turns and in files of the same folder, because disks differ and so do their moments. The memories
//! are ready with their vectors; what analysing them costs is measured where it is done. `IBEX_BENCH_FOLDER` sets the folder: the system's
//! temporary one may lie in memory, where nothing is durable.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark harness"
)]

mod notes;

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use ibex::config::StoreConfig;
use ibex::ids::{AgentId, OrgId};
use ibex::memory::embedder::StaticMiniLm;
use ibex::memory::{Memory, PartitionKey};
use ibex::seams::{Clock, SystemClock};
use ibex::store::sqlite::SqliteStore;
use ibex::store::{Agent, AgentStatus, CaptureScope, IdentityStore, Org, OrgStatus, RefineryStore};
use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio::time::Instant;

use notes::note;

/// The binary's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Memories of one batch.
const BATCH: usize = 200;
const BATCHES: usize = 100;
/// Pairs of a single write and a bare `fdatasync`.
const SINGLE: usize = 500;
/// What the bare one makes durable: a page of a file.
const PAGE: [u8; 4_096] = [7; 4_096];

fn main() {
    let folder = std::env::var_os("IBEX_BENCH_FOLDER");
    let folder = folder.map_or_else(TempDir::new, TempDir::new_in).unwrap();
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(measure(&folder));
}

async fn measure(folder: &TempDir) {
    let store = SqliteStore::open(&folder.path().join("ibex.db"), &StoreConfig::default()).unwrap();
    let store = Arc::new(store);
    let key = partition(&store).await;
    let embedder = StaticMiniLm::new();
    let now = SystemClock.now();
    let mut made = 0;
    let mut some = |count: usize| {
        let start = made;
        made += count;
        let notes = (start..made).map(|i| note(&key, i, &embedder, now));
        notes.collect::<Vec<Memory>>()
    };

    let mut in_batches = Duration::ZERO;
    for _ in 0..BATCHES {
        let batch = some(BATCH);
        let began = Instant::now();
        store.commit(batch.into()).await.unwrap();
        in_batches += began.elapsed();
    }
    let rows = BATCHES * BATCH;
    let rate = Duration::from_secs(1).as_nanos() * rows as u128 / in_batches.as_nanos();
    println!("{rows} memories in batches of {BATCH}: {rate} a second");

    let mut bare = File::create(folder.path().join("bare")).unwrap();
    let (mut bares, mut writes) = (Vec::new(), Vec::new());
    for _ in 0..SINGLE {
        let began = Instant::now();
        bare.write_all(&PAGE).unwrap();
        bare.sync_data().unwrap();
        bares.push(began.elapsed());
        let one = some(1);
        let began = Instant::now();
        store.commit(one.into()).await.unwrap();
        writes.push(began.elapsed());
    }
    let (bare, write) = (spread(bares), spread(writes));
    println!(
        "a bare fdatasync of a page, ms:  p50 {:.3}  p99 {:.3}",
        bare.0, bare.1
    );
    println!(
        "one durable memory, ms:          p50 {:.3}  p99 {:.3}",
        write.0, write.1
    );
    println!("ratio at p50: {:.2}", write.0 / bare.0);
    store.close().await.unwrap();
}

/// The median and the 99th percentile, in milliseconds.
fn spread(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let at = |percent: usize| {
        let time = times.get(times.len() * percent / 100).unwrap();
        time.as_secs_f64() * 1e3
    };
    (at(50), at(99))
}

async fn partition(store: &SqliteStore) -> PartitionKey {
    let org = Org {
        id: OrgId::new(),
        name: "bench".to_owned(),
        status: OrgStatus::Active,
        created_at: SystemClock.now(),
    };
    let agent = Agent {
        id: AgentId::new(),
        org: org.id,
        name: "bench".to_owned(),
        status: AgentStatus::Active,
        capture: CaptureScope::Off,
        created_at: SystemClock.now(),
    };
    let key = PartitionKey {
        org: org.id,
        agent: agent.id,
        user: None,
    };
    store.create_org(org).await.unwrap();
    store.create_agent(agent).await.unwrap();
    key
}
