//! What a million memories cost in memory and in time: of one agent, and of 100,000 agents with ten each. They are read from a real store,
//! as a server reads them; what the process takes is read from the system.
//!
//! `IBEX_BENCH_ROWS` sets how many memories; filling the store with two million takes some minutes and 5 GB of disk.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark harness"
)]

mod notes;
mod questions;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ibex::auth::{Scope, operator_principal};
use ibex::config::{MemoryConfig, StoreConfig};
use ibex::ids::{AgentId, MemoryId, OrgId};
use ibex::memory::embedder::{Embedder, StaticMiniLm};
use ibex::memory::search::{Index, IndexSettings, Query, SearchError};
use ibex::memory::{Memory, PartitionKey};
use ibex::seams::{Clock, SystemClock};
use ibex::store::sqlite::SqliteStore;
use ibex::store::{
    Agent, AgentStatus, CaptureScope, IdentityStore, MemoryStore, Org, OrgStatus, RefineryStore,
};
use ibex::tasks::Tasks;
use ibex::telemetry::IndexFigures;
use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use notes::note;
use questions::question;

/// The binary's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Memories of a small agent.
const FEW: usize = 10;
/// Rows of one write, and agents created at once.
const BATCH: usize = 1_000;
/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// What a request gives retrieval.
const WALL: Duration = Duration::from_millis(40);

/// The argument of a process that measures one thing: what it takes of the machine is then what that thing takes.
const PART: &str = "--part";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    if let [_, flag, part, path] = arguments.as_slice()
        && flag == PART
    {
        runtime.block_on(measure(part, Path::new(path)));
        return;
    }
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("ibex.db");
    runtime.block_on(fill(&path));
    for part in ["one", "many", "budget"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let ended = command.args([PART, part]).arg(&path).status().unwrap();
        assert!(ended.success(), "{part}");
    }
}

async fn fill(path: &Path) {
    let rows = most_memories();
    let bench = Bench::open(path).await;
    let large = bench.agents(1).await;
    bench.fill(&large, rows).await;
    let small = bench.agents(rows / FEW).await;
    bench.fill(&small, rows).await;
    bench.store.close().await.unwrap();
    let megabytes = fs::metadata(path).unwrap().len() >> 20;
    println!("the store holds 2 x {rows} memories in {megabytes} MiB");
}

async fn measure(part: &str, path: &Path) {
    let rows = most_memories();
    let bench = Bench::open(path).await;
    // The oldest is the one with all the memories.
    let agents = bench.store.agents(bench.org).await.unwrap();
    let keys: Vec<PartitionKey> = agents
        .into_iter()
        .map(|agent| bench.key(agent.id))
        .collect();
    let (large, small) = keys.split_first().unwrap();
    match part {
        "one" => bench.one_agent(large, small, rows).await,
        "many" => bench.many_agents(small, 1 << 40).await,
        // Room for fewer than half.
        _ => bench.many_agents(small, rows * 300).await,
    }
}

struct Bench {
    store: Arc<SqliteStore>,
    embedder: StaticMiniLm,
    org: OrgId,
}

impl Bench {
    /// Opens the store with its one organisation.
    async fn open(path: &Path) -> Self {
        let config = StoreConfig::default();
        let store = Arc::new(SqliteStore::open(path, &config).unwrap());
        let known = store.orgs().await.unwrap().pop();
        let org = known.as_ref().map_or_else(OrgId::new, |org| org.id);
        if known.is_none() {
            let row = Org {
                id: org,
                name: "bench".to_owned(),
                status: OrgStatus::Active,
                created_at: SystemClock.now(),
            };
            store.create_org(row).await.unwrap();
        }
        Self {
            store,
            embedder: StaticMiniLm::new(),
            org,
        }
    }

    fn key(&self, agent: AgentId) -> PartitionKey {
        PartitionKey {
            org: self.org,
            agent,
            user: None,
        }
    }

    async fn agents(&self, count: usize) -> Vec<PartitionKey> {
        let mut keys = Vec::with_capacity(count);
        while keys.len() < count {
            let some = (keys.len()..count).take(BATCH);
            let created = some.map(async |_| {
                let row = Agent {
                    id: AgentId::new(),
                    org: self.org,
                    name: "bench".to_owned(),
                    status: AgentStatus::Active,
                    capture: CaptureScope::Off,
                    created_at: SystemClock.now(),
                };
                let agent = row.id;
                self.store.create_agent(row).await.unwrap();
                self.key(agent)
            });
            keys.extend(join_all(created).await);
        }
        keys
    }

    /// Writes `rows` memories, as many to each partition.
    async fn fill(&self, keys: &[PartitionKey], rows: usize) {
        let each = rows.div_ceil(keys.len());
        let now = SystemClock.now();
        for start in (0..rows).step_by(BATCH) {
            let batch = (start..rows.min(start + BATCH)).map(|i| {
                let key = keys.get(i / each).unwrap();
                note(key, i, &self.embedder, now)
            });
            let batch: Vec<Memory> = batch.collect();
            self.store.commit(batch.into()).await.unwrap();
        }
    }

    fn index(&self, bytes: usize) -> (Arc<Index>, IndexFigures) {
        let settings = IndexSettings {
            bytes,
            ..IndexSettings::new(self.embedder.model(), &MemoryConfig::default())
        };
        let figures = settings.figures.clone();
        let clock = Arc::new(SystemClock);
        let index = Index::new(self.store.clone(), clock, Tasks::new(), settings);
        (Arc::new(index), figures)
    }

    async fn scope(&self, key: &PartitionKey) -> Scope {
        let who = operator_principal(&*self.store, key.org, key.agent, None).await;
        who.unwrap().scope().clone()
    }

    fn query(&self, i: usize) -> Query {
        let question = question(i);
        let vector = self.embedder.embed_one(&question);
        Query::new(&question, Some(&vector), self.embedder.model().into())
    }

    /// Loads the agent with all the memories; meanwhile others are asked for the first time, and it is asked in vain.
    async fn one_agent(&self, large: &PartitionKey, small: &[PartitionKey], rows: usize) {
        let (index, _) = self.index(1 << 40);
        let scope = self.scope(large).await;
        let (before, began) = (resident(), Instant::now());
        let whole = async {
            let query = self.query(0);
            index
                .search(&scope, &query, 50, began + PATIENCE)
                .await
                .unwrap();
            began.elapsed()
        };
        let beside = async {
            let (mut cold, mut in_vain, mut missed) = (Vec::new(), Vec::new(), 0);
            for (i, key) in small.iter().take(200).enumerate() {
                let (other, query) = (self.scope(key).await, self.query(i * FEW));
                let asked = Instant::now();
                let found = index.search(&other, &query, 50, asked + WALL).await;
                missed += usize::from(found.is_err());
                cold.push(ms(asked.elapsed()));
                let asked = Instant::now();
                let found = index.search(&scope, &query, 50, asked + WALL).await;
                if matches!(found, Err(SearchError::Deadline)) {
                    in_vain.push(ms(asked.elapsed()) - ms(WALL));
                }
                sleep(Duration::from_millis(1)).await;
            }
            (cold, in_vain, missed)
        };
        let (took, (cold, in_vain, missed)) = tokio::join!(whole, beside);
        println!("\none agent with {rows} memories");
        println!("  loaded in {:.1} s", took.as_secs_f64());
        println!("  meanwhile, in ms:                       p50     p99     max");
        println!(
            "  another agent, asked for the first time {}; too late {missed} of {}",
            spread(&cold),
            cold.len()
        );
        println!(
            "  this agent, past the wall               {}; {} times",
            spread(&in_vain),
            in_vain.len()
        );
        size(&index, before, rows, "memory");
        let mut searches = Vec::new();
        for i in 0..200 {
            let query = self.query(i * 7_919 % rows);
            let asked = Instant::now();
            index
                .search(&scope, &query, 50, asked + PATIENCE)
                .await
                .unwrap();
            searches.push(ms(asked.elapsed()));
        }
        println!(
            "  a search, in ms                         {}",
            spread(&searches)
        );
        self.forget_most(&index, large, rows).await;
    }

    /// Removes more than half of the rows, and asks while the dead are cleared away.
    async fn forget_most(&self, index: &Index, key: &PartitionKey, rows: usize) {
        let (full, scope, query) = (index.bytes(), self.scope(key).await, self.query(17));
        let (mut removals, mut after) = (Vec::new(), None);
        while removals.len() <= rows / 2 {
            let page = self.store.partition_memories(key, after, BATCH).await;
            let ids: Vec<MemoryId> = page.unwrap().iter().map(|memory| memory.id).collect();
            after = ids.last().copied();
            for id in ids {
                let began = Instant::now();
                index.remove(key, id);
                removals.push(ms(began.elapsed()));
            }
        }
        let (began, mut late, mut all) = (Instant::now(), 0, 0);
        while index.bytes() > full * 3 / 4 {
            let found = index
                .search(&scope, &query, 50, Instant::now() + WALL)
                .await;
            late += usize::from(found.is_err());
            all += 1;
        }
        println!(
            "  one removal of {:>7}, in ms           {}",
            removals.len(),
            spread(&removals)
        );
        println!(
            "  the dead cleared away in {:.2} s, {late} of {all} searches too late meanwhile",
            began.elapsed().as_secs_f64()
        );
        println!("  holds {} MiB then", index.bytes() >> 20);
    }

    /// Asks every agent once, one after the other.
    async fn many_agents(&self, keys: &[PartitionKey], budget: usize) {
        let (index, figures) = self.index(budget);
        let mut scopes = Vec::with_capacity(keys.len());
        for key in keys {
            scopes.push(self.scope(key).await);
        }
        let query = self.query(17);
        let (before, began) = (resident(), Instant::now());
        let mut asked = Vec::with_capacity(keys.len());
        for scope in &scopes {
            let began = Instant::now();
            index
                .search(scope, &query, 50, began + PATIENCE)
                .await
                .unwrap();
            asked.push(ms(began.elapsed()));
        }
        println!(
            "\n{} agents with {FEW} memories, each asked once; budget {} MiB",
            keys.len(),
            budget >> 20
        );
        println!("  all asked in {:.1} s", began.elapsed().as_secs_f64());
        println!(
            "  one, asked for the first time, in ms    {}",
            spread(&asked)
        );
        let held = usize::try_from(figures.partitions.get()).unwrap();
        println!("  {held} held, {} evicted", figures.evictions.get());
        size(&index, before, held, "agent");
    }
}

fn size(index: &Index, before: usize, count: usize, what: &str) {
    let (counted, resident) = (index.bytes(), resident().saturating_sub(before));
    println!(
        "  counted {} MiB, {} bytes a {what}; the process has grown by {} MiB, {} bytes a {what}",
        counted >> 20,
        counted / count,
        resident >> 20,
        resident / count
    );
}

/// What the process takes of the machine's memory, in bytes.
fn resident() -> usize {
    const PAGE: usize = 4_096;
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    let pages = text.split_whitespace().nth(1).unwrap();
    pages.parse::<usize>().unwrap() * PAGE
}

/// Median, 99th percentile and maximum.
fn spread(times: &[f64]) -> String {
    let mut times = times.to_vec();
    times.sort_unstable_by(f64::total_cmp);
    let at = |percent: usize| times.get(times.len().saturating_sub(1) * percent / 100);
    [at(50), at(99), at(100)]
        .map(|time| time.map_or_else(|| "      -".to_owned(), |time| format!("{time:>7.3}")))
        .join(" ")
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
