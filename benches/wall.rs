//! How long a whole context assembly takes as the agent's memories grow, and how far it goes past the retrieval wall once they are too
//! many: on idle cores, and beside as many spinning threads as there are cores. Then the search alone: wherever in it the deadline falls,
//! how late does it give up?
//!
//! `IBEX_BENCH_ROWS` sets the most memories; a million, the default, takes 4 GB.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark harness"
)]

mod notes;
mod questions;

use std::fs;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ibex::app::{App, Seams};
use ibex::auth::{Principal, operator_principal};
use ibex::config::Config;
use ibex::ids::{AgentId, MemoryId, OrgId};
use ibex::memory::embedder::{Embedder, StaticMiniLm};
use ibex::memory::search::{
    ColdBranch, HotSet, Index, IndexSettings, Partition, Query, search_partitions,
};
use ibex::memory::{Memory, PartitionKey};
use ibex::openai::ChatRequest;
use ibex::providers::ModelProfile;
use ibex::request::context::assemble::View;
use ibex::request::context::plan::{ContextPlan, Outcome};
use ibex::request::context::{Subject, run};
use ibex::request::resolution::directive::Lookup;
use ibex::seams::{Clock, SystemClock, SystemEntropy};
use ibex::session::Lane;
use ibex::store::keys::ServerKeys;
use ibex::store::sqlite::SqliteStore;
use ibex::store::{
    Agent, AgentStatus, IdentityStore, ListFilter, ListPage, MemoryStore, Org, OrgStatus,
    StoreError,
};
use ibex::tasks::Tasks;
use jiff::Timestamp;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use notes::note;
use questions::question;

/// The binary's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ASSEMBLIES: usize = 200;
/// More than anything here takes: a bound for what would otherwise run on.
const PATIENCE: Duration = Duration::from_secs(600);

fn main() {
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let most = most_memories();
    let smaller = [1_000, 10_000, 100_000];
    let sizes = smaller.into_iter().filter(|size| *size < most);
    println!(
        "{ASSEMBLIES} assemblies each, in milliseconds; past the wall: those that the cold search was too late for\n"
    );
    println!(
        "memories  cores    p50     p99     max    cpu    cold ok/late   hot ok/late   past the wall: p50  p99  max"
    );
    let load = Load::start();
    let past = timers(&runtime);
    load.stop();
    println!("{:>74}busy:    {past}", "a mere timer of 40 ms, ");
    for size in sizes.chain([most]) {
        let bench = runtime.block_on(Bench::new(size));
        println!("{size:>8}  idle  {}", bench.assemblies(&runtime, true));
        let load = Load::start();
        println!("{size:>8}  busy  {}", bench.assemblies(&runtime, false));
        load.stop();
        if size == most {
            println!("\n{}", bench.search_past_its_deadline());
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark has no configuration"
)]
fn most_memories() -> usize {
    std::env::var("IBEX_BENCH_ROWS").map_or(1_000_000, |rows| rows.parse().unwrap())
}

/// An application over the memories of one agent.
struct Bench {
    app: App,
    who: Principal,
    size: usize,
    /// The same memories once more, to be searched on this thread.
    partition: Arc<Partition>,
    embedder: StaticMiniLm,
    _folder: TempDir,
}

impl Bench {
    async fn new(size: usize) -> Self {
        let folder = TempDir::new().unwrap();
        let mut config = Config::default();
        config.store.path = folder.path().join("ibex.db");
        let store = Arc::new(SqliteStore::open(&config.store.path, &config.store).unwrap());
        let keys =
            ServerKeys::load_or_create(&config.store.path, &config.keys, &SystemEntropy).unwrap();
        let key = agent(&store).await;
        let who = operator_principal(&*store, key.org, key.agent, None)
            .await
            .unwrap();
        let embedder = StaticMiniLm::new();
        let memories = memories(&key, size, &embedder);
        let partition = Arc::new(Partition::new(key, embedder.model().into(), 0));
        for memory in &memories {
            partition.upsert(Arc::new(memory.clone()));
        }
        let index = Arc::new(Index::new(
            Arc::new(Notes(Mutex::new(memories))),
            Arc::new(SystemClock),
            Tasks::new(),
            IndexSettings::new(embedder.model(), &config.memory),
        ));
        let mut seams = Seams::over(store, keys);
        seams.hot = Some(Arc::new(HotSet::new(index.clone())));
        seams.cold = Some(index.clone());
        let app = App::build(config, seams).unwrap();
        app.counter.warm();
        let nothing = Query::new("", None, embedder.model().into());
        index
            .cold(who.scope(), &nothing, 1, Instant::now() + PATIENCE)
            .await
            .unwrap();
        Self {
            app,
            who,
            size,
            partition,
            embedder,
            _folder: folder,
        }
    }

    /// Assemblies one after the other, as a task of the runtime like a request's. Beside other work of the process their CPU time cannot be told.
    fn assemblies(&self, runtime: &Runtime, idle: bool) -> String {
        let (app, who, size) = (self.app.clone(), self.who.clone(), self.size);
        let (done, result) = oneshot::channel();
        let cpu = cpu_seconds();
        runtime.block_on(async {
            self.app.tasks.spawn(async move {
                let mut samples = Vec::with_capacity(ASSEMBLIES);
                for i in 0..ASSEMBLIES {
                    samples.push(assemble(&app, &who, &question(i * 7_919 % size)).await);
                }
                // The receiver is gone only when the bench itself has stopped.
                drop(done.send(samples));
            });
            let samples = result.await.unwrap();
            let cpu = (cpu_seconds() - cpu) * 1_000.0 / ASSEMBLIES as f64;
            summary(
                &samples,
                idle.then_some(cpu),
                self.app.config.context.deadline_ms as f64,
            )
        })
    }

    /// Searches with deadlines spread evenly over a whole search, a few times each. The least of a few is the search's own doing; more is the
    /// machine's.
    fn search_past_its_deadline(&self) -> String {
        const DEADLINES: u32 = 100;
        const TIMES: usize = 5;
        let question = question(self.size / 3);
        let vector = self.embedder.embed_one(&question);
        let query = Query::new(&question, Some(&vector), self.embedder.model().into());
        let search = |limit: Duration| {
            let began = Instant::now();
            let partitions = std::slice::from_ref(&self.partition);
            let found = search_partitions(partitions, &query, SystemClock.now(), 50, began + limit);
            (found.is_err(), began.elapsed())
        };
        let least = |limit| {
            (0..TIMES)
                .map(|_| search(limit))
                .min_by_key(|(_, took)| *took)
                .unwrap()
        };
        let (_, whole) = least(PATIENCE);
        let late: Vec<(Duration, Duration)> = (1..DEADLINES)
            .map(|step| whole * step / DEADLINES)
            .filter_map(|limit| {
                let (gave_up, took) = least(limit);
                gave_up.then(|| (took.saturating_sub(limit), limit))
            })
            .collect();
        let times: Vec<f64> = late.iter().map(|(over, _)| ms(*over)).collect();
        let (_, worst) = late.iter().max().copied().unwrap_or_default();
        format!(
            "one search of {} memories: {:.2} ms; past a deadline within it: {}, the latest after {:.2} ms",
            self.size,
            ms(whole),
            spread(times),
            ms(worst)
        )
    }
}

/// How late the machine wakes a task whose time has come: what no assembly can be better than.
fn timers(runtime: &Runtime) -> String {
    const TIMERS: usize = 100;
    let wait = Duration::from_millis(40);
    let (done, result) = oneshot::channel();
    let tasks = Tasks::new();
    runtime.block_on(async {
        tasks.spawn(async move {
            let mut past = Vec::with_capacity(TIMERS);
            for _ in 0..TIMERS {
                let end = Instant::now() + wait;
                sleep_until(end).await;
                past.push(ms(end.elapsed()));
            }
            drop(done.send(past));
        });
        spread(result.await.unwrap())
    })
}

/// Creates an organisation and an agent; its agent-wide memories are what is searched.
async fn agent(store: &SqliteStore) -> PartitionKey {
    let (org, agent, created_at) = (OrgId::new(), AgentId::new(), SystemClock.now());
    let name = "bench".to_owned();
    store
        .create_org(Org {
            id: org,
            name: name.clone(),
            status: OrgStatus::Active,
            created_at,
        })
        .await
        .unwrap();
    store
        .create_agent(Agent {
            id: agent,
            org,
            name,
            status: AgentStatus::Active,
            capture: ibex::store::CaptureScope::Off,
            created_at,
        })
        .await
        .unwrap();
    PartitionKey {
        org,
        agent,
        user: None,
    }
}

fn memories(key: &PartitionKey, size: usize, embedder: &StaticMiniLm) -> Vec<Memory> {
    let now = SystemClock.now();
    let counter = ibex::tokens::Counter::new([7; 32], 1);
    // They are all about as long.
    let tokens = counter.counts(&note(key, size / 2, embedder, now).content);
    (0..size)
        .map(|i| Memory {
            tokens,
            ..note(key, i, embedder, now)
        })
        .collect()
}

/// One assembly.
struct Sample {
    ms: f64,
    plan: ContextPlan,
}

impl Sample {
    fn outcome(&self, branch: &str) -> Outcome {
        self.plan
            .branches
            .get(branch)
            .map_or(Outcome::Skipped, |b| b.outcome)
    }
}

async fn assemble(app: &App, who: &Principal, question: &str) -> Sample {
    let body = format!(
        r#"{{"model": "gpt-4o", "messages": [{{"role": "user", "content": "{question}"}}]}}"#
    );
    let chat = ChatRequest::parse(Bytes::from(body), 10).unwrap();
    let subject = Subject {
        who,
        chat: &chat,
        profile: ModelProfile::of("gpt-4o", None, 32_768),
        lane: &Lane::new("openai", "gpt-4o"),
        rules: &app.rules.load_full(),
    };
    let began = Instant::now();
    let assembled = run(app, &subject, &Lookup::AtHand(None), &View::default()).await;
    Sample {
        ms: ms(began.elapsed()),
        plan: assembled.plan,
    }
}

fn summary(samples: &[Sample], cpu: Option<f64>, wall: f64) -> String {
    let cpu = cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.2}"));
    let count = |branch, outcome| {
        samples
            .iter()
            .filter(|s| s.outcome(branch) == outcome)
            .count()
    };
    let fates = |branch| {
        format!(
            "{:>4}/{:<4}",
            count(branch, Outcome::Ok),
            count(branch, Outcome::Timeout)
        )
    };
    let past = samples
        .iter()
        .filter(|sample| sample.outcome("cold") == Outcome::Timeout)
        .map(|sample| sample.ms - wall)
        .collect();
    let all = samples.iter().map(|sample| sample.ms).collect();
    format!(
        "{}  {cpu:>6}  {:>12}  {:>12}    {}",
        spread(all),
        fates("cold"),
        fates("hot"),
        spread(past)
    )
}

/// Median, 99th percentile and maximum.
fn spread(mut times: Vec<f64>) -> String {
    times.sort_unstable_by(f64::total_cmp);
    let at = |percent: usize| times.get(times.len().saturating_sub(1) * percent / 100);
    [at(50), at(99), at(100)]
        .map(|time| time.map_or_else(|| "      -".to_owned(), |time| format!("{time:>7.3}")))
        .join(" ")
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// What all threads of the process have spent; 0 where the system does not tell.
fn cpu_seconds() -> f64 {
    let spent = |task: fs::DirEntry| -> Option<f64> {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    let tasks = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    tasks.filter_map(spent).sum::<f64>() / 1e9
}

/// One spinning thread for each core.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().unwrap().get();
        let end = Instant::now() + PATIENCE;
        let spin = |stop: Arc<AtomicBool>| {
            move || {
                while !stop.load(Ordering::Relaxed) && Instant::now() < end {
                    spin_loop();
                }
            }
        };
        let threads = (0..cores)
            .map(|_| thread::spawn(spin(stop.clone())))
            .collect();
        Self { stop, threads }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    }
}

/// A store that holds the memories of one partition and gives them away once: the index keeps them.
struct Notes(Mutex<Vec<Memory>>);

const READ_ONLY: StoreError = StoreError::Missing("memory");

#[async_trait]
impl MemoryStore for Notes {
    async fn duplicate_of(&self, _: &Memory) -> Result<Option<MemoryId>, StoreError> {
        Err(READ_ONLY)
    }

    async fn memory(&self, _: &[PartitionKey], _: MemoryId) -> Result<Option<Memory>, StoreError> {
        Err(READ_ONLY)
    }

    async fn list_memories(
        &self,
        _: &[PartitionKey],
        _: ListFilter,
    ) -> Result<ListPage, StoreError> {
        Err(READ_ONLY)
    }

    async fn partition_memories(
        &self,
        _: &PartitionKey,
        _: Option<MemoryId>,
        limit: usize,
    ) -> Result<Vec<Memory>, StoreError> {
        let mut notes = self.0.lock();
        let rest = notes.len().saturating_sub(limit);
        Ok(notes.split_off(rest))
    }

    async fn forget_memory(
        &self,
        _: &[PartitionKey],
        _: MemoryId,
        _: Timestamp,
    ) -> Result<Option<PartitionKey>, StoreError> {
        Err(READ_ONLY)
    }

    async fn bump_retrieved(
        &self,
        _: &[PartitionKey],
        _: Vec<MemoryId>,
        _: Timestamp,
    ) -> Result<(), StoreError> {
        Err(READ_ONLY)
    }

    async fn memories_by_id(
        &self,
        _: &[PartitionKey],
        _: &[MemoryId],
    ) -> Result<Vec<Memory>, StoreError> {
        Err(READ_ONLY)
    }

    async fn forget_fence(&self, _: &[PartitionKey]) -> Result<i64, StoreError> {
        Err(READ_ONLY)
    }

    async fn count_memories(&self, _: &PartitionKey) -> Result<u64, StoreError> {
        Err(READ_ONLY)
    }
}
