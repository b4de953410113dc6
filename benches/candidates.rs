//! What a cold search in the database costs and finds: a million memories of a thousand agents of very different sizes in one PostgreSQL.
//!
//! Both the store's candidates and the branch that ranks them are asked, one question at a time, by the vector, by words, and by both.
//! Recall is what is found of the ten that an exact search finds, where any as good as the tenth counts: for candidates by vector the
//! exact search compares every vector as it is stored, and for everything else it is this process's own over all memories of the agent.
//! Pages and statements are warm, but for what the store remembers of an agent.
//!
//! `IBEX_BENCH_POSTGRES_URL` names a database for this alone, of a superuser; it is filled at the first run and used again by later ones.
//! `IBEX_BENCH_ROWS` sets how many memories, and the sizes of the agents with it. A million take 5 GB of disk.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark harness"
)]

mod facts;
mod tenants;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ibex::auth::{Scope, operator_principal};
use ibex::config::{ContextConfig, MemoryConfig, PostgresConfig, SearchIn};
use ibex::ids::MemoryId;
use ibex::memory::embedder::{Embedder, StaticMiniLm};
use ibex::memory::search::{
    ColdBranch, Hit, Index, IndexSettings, Partition, Query, Staged, lexemes, search_partitions,
};
use ibex::memory::{Memory, PartitionKey};
use ibex::seams::{Clock, SystemClock};
use ibex::store::MemoryStore;
use ibex::store::postgres::{Candidates, PostgresStore};
use ibex::tasks::Tasks;
use tokio::runtime::Builder;
use tokio::time::Instant;

use tenants::{CLASSES, Tenants};

/// The binary's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const URL: &str = "IBEX_BENCH_POSTGRES_URL";
/// Questions to each class of agents.
const QUESTIONS: usize = 200;
/// What recall is about.
const BEST: usize = 10;
/// Candidates of each kind that the branch asks for, and hits that a request asks it for.
const CANDIDATES: usize = 128;
const HITS: usize = 50;
/// Places of an exact search that are looked at for such as are as good as the tenth.
const PLACES: usize = 2_000;
/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// Scores that differ by less are the same.
const SAME: f32 = 1e-5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Vector,
    Words,
    Both,
}

const KINDS: [(By, &str); 3] = [
    (By::Vector, "vector"),
    (By::Words, "words"),
    (By::Both, "both"),
];

fn main() {
    let Some(url) = variable(URL) else {
        println!("candidates: SKIPPED, nothing was measured: {URL} names no database");
        return;
    };
    let config = PostgresConfig {
        url: Some(url),
        search: SearchIn::Database,
        ..PostgresConfig::default()
    };
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(measure(&config));
}

async fn measure(config: &PostgresConfig) {
    let rows = variable("IBEX_BENCH_ROWS").map_or(1_000_000, |rows| rows.parse().unwrap());
    let (embedder, tenants) = (StaticMiniLm::new(), Tenants::of(rows));
    tenants.fill(config, &embedder).await;
    println!(
        "{rows} memories, {QUESTIONS} questions to each class of agents; the branch's limit is {} ms",
        ContextConfig::default().cold_timeout_ms
    );
    println!(
        "memories of an agent  by      candidates, ms: p50     p95     p99     max  recall   branch, ms: p50     p95     p99     max  recall"
    );
    for (number, class) in CLASSES.iter().enumerate() {
        let bench = Bench::open(config).await;
        let agents = tenants.asked(number);
        let each = QUESTIONS.div_ceil(agents.len());
        let mut asked = Vec::with_capacity(QUESTIONS);
        for (agent, rows) in &agents {
            let key = tenants.key(*agent);
            let known = bench.known(&key).await;
            assert_eq!(known.memories.len(), rows.len(), "memories of one agent");
            let step = (rows.len() / each).max(1);
            let chosen = rows.iter().step_by(step).cycle().take(each);
            asked.extend(chosen.map(|row| known.ask(tenants.fact(*row).question, &embedder)));
        }
        for (by, name) in KINDS {
            // Once for the pages; then a store that knows no agent yet, with statements that are prepared.
            bench.candidates(&asked, by).await;
            let bench = Bench::open(config).await;
            bench.prepare(&tenants.key(0), &asked).await;
            let candidates = spread(bench.candidates(&asked, by).await);
            let branch = spread(bench.branch(&asked, by).await);
            println!(
                "{:<21} {name:<22} {candidates}                {branch}",
                class.name
            );
        }
    }
}

/// A question to an agent, with what an exact search finds.
struct Asked {
    key: PartitionKey,
    scope: Scope,
    text: String,
    vector: Vec<f32>,
    model: Arc<str>,
    /// By the vectors as they are stored.
    nearest: Found,
    /// By this process's own search.
    exact: [Found; 3],
}

/// The ten best, and all that are as good as the tenth.
struct Found {
    ids: HashSet<MemoryId>,
    wanted: usize,
}

impl Found {
    /// Of hits in their order.
    fn of(hits: &[Hit]) -> Self {
        let score = |hit: &Hit| [hit.similarity, hit.lexical, hit.coverage];
        let wanted = hits.len().min(BEST);
        let last = hits.get(wanted.saturating_sub(1)).map(score);
        let as_good = |hit: &&Hit| {
            let pairs = score(hit).into_iter().zip(last.unwrap_or_default());
            pairs
                .into_iter()
                .all(|(one, other)| (one - other).abs() < SAME)
        };
        let (best, rest) = hits.split_at(wanted);
        let all = best.iter().chain(rest.iter().filter(as_good));
        let ids = all.map(|hit| hit.memory.id).collect();
        Self { ids, wanted }
    }

    /// Of all memories by their cosines.
    fn nearest(memories: &[Arc<Memory>], asked: &[f32]) -> Self {
        let cosine = |memory: &Arc<Memory>| {
            let held = memory.embedding.as_ref().unwrap();
            let dot: f32 = held.vector.iter().zip(asked).map(|(a, b)| a * b).sum();
            (dot, memory.id)
        };
        let mut cosines: Vec<(f32, MemoryId)> = memories.iter().map(cosine).collect();
        cosines.sort_unstable_by(|(a, _), (b, _)| b.total_cmp(a));
        let wanted = cosines.len().min(BEST);
        let last = cosines
            .get(wanted.saturating_sub(1))
            .map_or(0.0, |(cosine, _)| *cosine);
        let all = cosines
            .into_iter()
            .take_while(|(cosine, _)| *cosine > last - SAME);
        Self {
            ids: all.map(|(_, id)| id).collect(),
            wanted,
        }
    }

    /// Nothing when there is nothing to find.
    fn recall(&self, found: impl Iterator<Item = MemoryId>) -> Option<f64> {
        let met = found.filter(|id| self.ids.contains(id)).count();
        (self.wanted > 0).then(|| met.min(self.wanted) as f64 / self.wanted as f64)
    }
}

impl Asked {
    fn query(&self, by: By) -> Query {
        let text = if by == By::Vector { "" } else { &self.text };
        let vector = (by != By::Words).then_some(&*self.vector);
        Query::new(text, vector, Arc::clone(&self.model))
    }

    fn exact(&self, by: By) -> &Found {
        let [vector, words, both] = &self.exact;
        match by {
            By::Vector => vector,
            By::Words => words,
            By::Both => both,
        }
    }
}

/// All that an agent has, in this process.
struct Known {
    key: PartitionKey,
    scope: Scope,
    memories: Vec<Arc<Memory>>,
    partition: [Arc<Partition>; 1],
    now: jiff::Timestamp,
}

impl Known {
    fn ask(&self, text: String, embedder: &StaticMiniLm) -> Asked {
        let vector = embedder.embed_one(&text);
        let nothing = || Found {
            ids: HashSet::new(),
            wanted: 0,
        };
        let mut asked = Asked {
            key: self.key.clone(),
            scope: self.scope.clone(),
            text,
            nearest: Found::nearest(&self.memories, &vector),
            vector,
            model: embedder.model().into(),
            exact: [nothing(), nothing(), nothing()],
        };
        asked.exact = KINDS.map(|(by, _)| {
            let until = Instant::now() + PATIENCE;
            let query = asked.query(by);
            Found::of(&search_partitions(&self.partition, &query, self.now, PLACES, until).unwrap())
        });
        asked
    }
}

/// Milliseconds of each question, with what was found of the best.
type Times = Vec<(f64, Option<f64>)>;

struct Bench {
    store: Arc<PostgresStore>,
    staged: Staged,
}

impl Bench {
    async fn open(config: &PostgresConfig) -> Self {
        let store = Arc::new(PostgresStore::connect(config).await.unwrap());
        let settings = IndexSettings::new(StaticMiniLm::new().model(), &MemoryConfig::default());
        let clock = Arc::new(SystemClock);
        let index = Arc::new(Index::new(store.clone(), clock, Tasks::new(), settings));
        let staged = Staged::new(index, store.clone(), config);
        Self { store, staged }
    }

    async fn known(&self, key: &PartitionKey) -> Known {
        let (mut memories, mut after) = (Vec::new(), None);
        loop {
            let page = self
                .store
                .partition_memories(key, after, 1_000)
                .await
                .unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            memories.extend(page.into_iter().map(Arc::new));
        }
        let model = StaticMiniLm::new().model().into();
        let partition = Arc::new(Partition::new(key.clone(), model, 50));
        memories
            .iter()
            .for_each(|memory| partition.upsert(Arc::clone(memory)));
        let who = operator_principal(&*self.store, key.org, key.agent, None).await;
        Known {
            key: key.clone(),
            scope: who.unwrap().scope().clone(),
            memories,
            partition: [partition],
            now: SystemClock.now(),
        }
    }

    /// Asks one agent so often at once that every connection has met every statement.
    async fn prepare(&self, key: &PartitionKey, asked: &[Asked]) {
        for _ in 0..8 {
            let many = asked
                .iter()
                .take(16)
                .map(|one| self.search(key, one, By::Both));
            join_all(many).await;
        }
    }

    async fn search(&self, key: &PartitionKey, asked: &Asked, by: By) -> Vec<Memory> {
        let words = if by == By::Vector {
            Vec::new()
        } else {
            lexemes(&asked.text)
        };
        let wanted = Candidates {
            vector: (by != By::Words).then_some((&*asked.model, &*asked.vector)),
            words: &words,
            limit: CANDIDATES,
            now: SystemClock.now(),
        };
        self.store.search_candidates(key, wanted).await.unwrap()
    }

    async fn candidates(&self, asked: &[Asked], by: By) -> Times {
        let mut times = Vec::with_capacity(asked.len());
        for one in asked {
            let began = Instant::now();
            let found = self.search(&one.key, one, by).await;
            let took = ms(began.elapsed());
            let best = if by == By::Vector {
                &one.nearest
            } else {
                one.exact(by)
            };
            times.push((took, best.recall(found.iter().map(|memory| memory.id))));
        }
        times
    }

    async fn branch(&self, asked: &[Asked], by: By) -> Times {
        let mut times = Vec::with_capacity(asked.len());
        for one in asked {
            let query = one.query(by);
            let began = Instant::now();
            let found = self
                .staged
                .cold(&one.scope, &query, HITS, began + PATIENCE)
                .await;
            let took = ms(began.elapsed());
            let ids = found
                .unwrap()
                .into_iter()
                .take(BEST)
                .map(|hit| hit.memory.id);
            times.push((took, one.exact(by).recall(ids)));
        }
        times
    }
}

/// Median, 95th and 99th percentile and maximum, and the mean of the recall.
fn spread(times: Times) -> String {
    let (mut took, recall): (Vec<f64>, Vec<Option<f64>>) = times.into_iter().unzip();
    took.sort_unstable_by(f64::total_cmp);
    let at = |percent: usize| took.get(took.len().saturating_sub(1) * percent / 100);
    let places = [50, 95, 99, 100].map(|percent| format!("{:>7.2}", at(percent).unwrap()));
    let recall: Vec<f64> = recall.into_iter().flatten().collect();
    let mean = recall.iter().sum::<f64>() / recall.len() as f64;
    format!("{}  {mean:.4}", places.join(" "))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark has no configuration"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
