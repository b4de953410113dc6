//! Races: two requests of one session at once send the same bytes, whichever of them comes first and whatever each of them sees.
//!
//! Two replicas share a store and a session cache, and nothing else: no single flight stands between them. Each finds other memories and
//! another directive, so that whatever is not put if absent differs. They share the cache of one process, or each has its own end of a
//! Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use http::HeaderMap;
use ibex::app::{App, Seams};
use ibex::auth::{Principal, Scope, operator_principal};
use ibex::config::{Config, RedisConfig};
use ibex::ids::{AgentId, OrgId};
use ibex::memory::search::{BranchError, ColdBranch, Hit, HotBranch, Query};
use ibex::memory::{Memory, PartitionKey};
use ibex::openai::ChatRequest;
use ibex::providers::ModelProfile;
use ibex::request::context::Subject;
use ibex::request::context::assemble::View;
use ibex::request::context::sticky::{self, Envelope};
use ibex::request::resolution::resolve;
use ibex::seams::{Clock, SystemClock, SystemEntropy};
use ibex::session::{Lane, LaneKey, Opening, Outcome, SessionSecret, Turn};
use ibex::store::keys::ServerKeys;
use ibex::store::shared::redis::Redis;
use ibex::store::shared::redis::session::RedisSessions;
use ibex::store::shared::{BlockFate, CacheError, Held, InProcess, Sent, SessionCache};
use ibex::store::sqlite::SqliteStore;
use ibex::store::{Agent, AgentStatus, CaptureScope, IdentityStore, Org, OrgStatus};
use ibex::tasks::Tasks;
use ibex::telemetry::RedisFigures;
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::context::fakes::{Act, FakeDirective, FakeEmbedder, directive, hit, memory};
use crate::support::services::{fresh_prefix, redis_url};
use crate::support::{parsed, patient};

/// Each session is opened by two requests at once, and so is each of its turns.
const SESSIONS: usize = 2_500;
/// Over Redis, where every step waits for the network, and so for everybody.
const SESSIONS_OVER_REDIS: usize = 500;
const TURNS: usize = 4;

/// Most times that an operation lets others go first, before it and again behind it.
const MOST_YIELDS: u64 = 4;

/// A cache between whose operations anything may happen.
#[derive(Debug)]
struct Jostling {
    cache: Arc<dyn SessionCache>,
    random: Mutex<u64>,
}

impl Jostling {
    fn around_a(cache: Arc<dyn SessionCache>) -> Arc<Self> {
        Arc::new(Self {
            cache,
            random: Mutex::new(0),
        })
    }

    fn seed(&self, seed: usize) {
        *self.random.lock() = seed as u64;
    }

    /// SplitMix64.
    fn next(&self) -> u64 {
        let mut state = self.random.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    async fn jostle(&self) {
        for _ in 0..self.next() % (MOST_YIELDS + 1) {
            yield_now().await;
        }
    }

    async fn around<T>(&self, operation: impl Future<Output = T>) -> T {
        self.jostle().await;
        let answer = operation.await;
        self.jostle().await;
        answer
    }
}

#[async_trait]
impl SessionCache for Jostling {
    fn is_shared(&self) -> bool {
        self.cache.is_shared()
    }

    async fn read(&self, key: &LaneKey, turns: &[Turn]) -> Result<Option<Held>, CacheError> {
        self.around(self.cache.read(key, turns)).await
    }

    async fn restore(
        &self,
        key: &LaneKey,
        opening: Arc<Opening>,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(), CacheError> {
        self.around(self.cache.restore(key, opening, turns)).await
    }

    async fn open(
        &self,
        key: &LaneKey,
        opening: Arc<Opening>,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(Arc<Opening>, Vec<Outcome>), CacheError> {
        self.around(self.cache.open(key, opening, turns)).await
    }

    async fn settle(
        &self,
        key: &LaneKey,
        nonce_epoch: u32,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<Vec<Outcome>, CacheError> {
        self.around(self.cache.settle(key, nonce_epoch, turns))
            .await
    }

    async fn rotate(
        &self,
        key: &LaneKey,
        from: u32,
        opening: Arc<Opening>,
        blocks: BlockFate,
    ) -> Result<Arc<Opening>, CacheError> {
        self.around(self.cache.rotate(key, from, opening, blocks))
            .await
    }

    async fn turns(&self, key: &LaneKey) -> Result<Vec<(Turn, Outcome)>, CacheError> {
        self.around(self.cache.turns(key)).await
    }

    async fn checked(&self, key: &LaneKey, revision: i64, turns: usize) -> Result<(), CacheError> {
        self.around(self.cache.checked(key, revision, turns)).await
    }

    async fn sent(&self, key: &LaneKey, sent: Sent) -> Result<(), CacheError> {
        self.around(self.cache.sent(key, sent)).await
    }
}

/// What a replica sees: something to open with, and something else at each turn. It lets others go first before it answers.
struct Sight {
    standing: Arc<Memory>,
    turns: Vec<Hit>,
    turn: AtomicUsize,
    asked: AtomicUsize,
}

impl Sight {
    fn new(partition: &PartitionKey, name: &str) -> Arc<Self> {
        let found = |what: String| hit(memory(partition.clone(), &what));
        let turns = (0..TURNS).map(|turn| found(format!("At turn {turn} {name} was there.")));
        Arc::new(Self {
            standing: found(format!("The house belongs to {name}.")).memory,
            turns: turns.collect(),
            turn: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
        })
    }

    /// How often it was asked.
    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    async fn look(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        yield_now().await;
    }
}

#[async_trait]
impl HotBranch for Sight {
    async fn hot(
        &self,
        _: &Scope,
        _: &Query,
        _: usize,
        _: Instant,
    ) -> Result<Vec<Hit>, BranchError> {
        self.look().await;
        Ok(Vec::new())
    }

    async fn standing(
        &self,
        _: &Scope,
        _: usize,
        _: Instant,
    ) -> Result<Vec<Arc<Memory>>, BranchError> {
        self.look().await;
        Ok(vec![self.standing.clone()])
    }
}

#[async_trait]
impl ColdBranch for Sight {
    async fn cold(
        &self,
        _: &Scope,
        _: &Query,
        _: usize,
        _: Instant,
    ) -> Result<Vec<Hit>, BranchError> {
        self.look().await;
        Ok(vec![self.turns[self.turn.load(Ordering::Relaxed)].clone()])
    }
}

/// Who the replicas see.
const NAMES: [&str; 2] = ["Ada", "Berta"];

/// One process of two.
struct Replica {
    app: App,
    hot: Arc<Sight>,
    cold: Arc<Sight>,
}

/// What a request became.
#[derive(Debug, PartialEq, Eq)]
struct Bytewise {
    body: Bytes,
    epoch: u32,
    prefix: String,
}

struct Bench {
    caches: [Arc<Jostling>; 2],
    replicas: [Replica; 2],
    who: Principal,
    _folder: TempDir,
}

impl Bench {
    async fn in_process() -> Self {
        let cache = InProcess::new(&Config::default().session);
        let cache = Jostling::around_a(Arc::new(cache));
        Self::new([cache.clone(), cache]).await
    }

    async fn over_redis() -> Self {
        let prefix = fresh_prefix();
        let session_key = SessionSecret::new(&[7; 32]);
        let own_end = || {
            let config = RedisConfig {
                urls: vec![redis_url().to_owned()],
                prefix: prefix.clone(),
                timeout_ms: 30_000,
                ..RedisConfig::default()
            };
            let redis = Redis::new(&config, RedisFigures::default(), Tasks::new()).unwrap();
            let settings = Config::default().session;
            Jostling::around_a(Arc::new(RedisSessions::new(redis, &settings, &session_key)))
        };
        Self::new([own_end(), own_end()]).await
    }

    async fn new(caches: [Arc<Jostling>; 2]) -> Self {
        let folder = TempDir::new().unwrap();
        let mut config = Config::default();
        patient(&mut config);
        config.store.path = folder.path().join("ibex.db");
        let store = Arc::new(SqliteStore::open(&config.store.path, &config.store).unwrap());
        let keys =
            ServerKeys::load_or_create(&config.store.path, &config.keys, &SystemEntropy).unwrap();
        let who = somebody(&store).await;
        let partition = PartitionKey::for_write(who.scope());
        let replicas = [0, 1].map(|n| {
            let name = NAMES[n];
            let (hot, cold) = (Sight::new(&partition, name), Sight::new(&partition, name));
            let mut seams = Seams::over(store.clone(), keys.clone());
            let text = format!("Speak as if {name} listened.");
            seams.directives = Some(FakeDirective::at_hand(directive(&text)));
            seams.hot = Some(hot.clone());
            seams.cold = Some(cold.clone());
            seams.embedder = Some(Arc::new(FakeEmbedder(Act::Answer)));
            seams.sessions = Some(caches[n].clone());
            let app = App::build(config.clone(), seams).unwrap();
            Replica { app, hot, cold }
        });
        Self {
            caches,
            replicas,
            who,
            _folder: folder,
        }
    }

    /// The request as this replica would hand it over.
    async fn sent(&self, replica: &Replica, session: usize, chat: &ChatRequest) -> Bytewise {
        let profile = ModelProfile::of("gpt-4o", None, 32_768);
        let lane = Lane::new("openai", "gpt-4o");
        let subject = Subject {
            who: &self.who,
            chat,
            profile,
            lane: &lane,
            rules: &replica.app.rules.load_full(),
        };
        let mut headers = HeaderMap::new();
        let name = format!("session-{session}");
        headers.insert("x-ibex-session-id", name.parse().unwrap());
        let app = &replica.app;
        let resolved = resolve(app, &self.who, chat, &headers);
        let mut frozen = sticky::run(app, &subject, &resolved, &View::default(), true).await;
        let envelope = Envelope {
            chat,
            profile,
            chain: &resolved.chain,
        };
        let edits = frozen.seal(app, &envelope, true).await;
        let account = frozen.plan.session.unwrap();
        assert_eq!(frozen.plan.level.as_str(), "L0", "{:?}", frozen.plan.reason);
        Bytewise {
            body: edits.into_body(chat.body()).to_bytes(),
            epoch: account.epoch,
            prefix: account.prefix_sha256,
        }
    }

    /// Each session's turns take another course.
    fn seed(&self, session: usize, turn: usize) {
        for (n, cache) in self.caches.iter().enumerate() {
            cache.seed((session * TURNS + turn) * 2 + n);
        }
    }

    fn turn_is(&self, turn: usize) {
        for replica in &self.replicas {
            replica.cold.turn.store(turn, Ordering::Relaxed);
        }
    }
}

async fn somebody(store: &SqliteStore) -> Principal {
    let (org, agent) = (OrgId::new(), AgentId::new());
    let (name, created_at) = ("test".to_owned(), SystemClock.now());
    let row = Org {
        id: org,
        name: name.clone(),
        status: OrgStatus::Active,
        created_at,
    };
    store.create_org(row).await.unwrap();
    let row = Agent {
        id: agent,
        org,
        name,
        status: AgentStatus::Active,
        capture: CaptureScope::Off,
        created_at,
    };
    store.create_agent(row).await.unwrap();
    operator_principal(store, org, agent, None).await.unwrap()
}

/// The conversation at a turn.
fn conversation(turn: usize) -> ChatRequest {
    let mut messages = vec![json!({"role": "system", "content": "Help in the house."})];
    for number in 0..=turn {
        messages
            .push(json!({"role": "user", "content": format!("Who was there at turn {number}?")}));
        messages.push(json!({"role": "assistant", "content": "She was."}));
    }
    messages.pop();
    parsed(json!({"model": "gpt-4o", "messages": messages}).to_string())
}

/// Whose text stands in a body: of these, exactly one does.
fn seen(body: &str, texts: [String; 2]) -> usize {
    let found = texts.map(|text| body.matches(&text).count());
    match found {
        [1, 0] => 0,
        [0, 1] => 1,
        _ => panic!("one of both, and once: {found:?} in {body}"),
    }
}

#[tokio::test]
async fn two_requests_of_a_session_agree_on_its_bytes_in_ten_thousand_interleavings() {
    agree(&Bench::in_process().await, SESSIONS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_requests_of_a_session_agree_on_its_bytes_over_redis() {
    agree(&Bench::over_redis().await, SESSIONS_OVER_REDIS).await;
}

/// Has so many sessions opened, and each of their turns settled, by both replicas at once.
async fn agree(bench: &Bench, sessions: usize) {
    let chats: Vec<ChatRequest> = (0..TURNS).map(conversation).collect();
    let [ada, berta] = &bench.replicas;
    let mut won = [[0; 2]; 3];
    for session in 0..sessions {
        for (turn, chat) in chats.iter().enumerate() {
            bench.turn_is(turn);
            bench.seed(session, turn);
            let (one, other) = tokio::join!(
                bench.sent(ada, session, chat),
                bench.sent(berta, session, chat)
            );
            assert_eq!(one, other, "session {session}, turn {turn}");
            assert_eq!(one.epoch, 1);
            let body = std::str::from_utf8(&one.body).unwrap();
            let opened = [
                NAMES.map(|n| format!("Speak as if {n} listened.")),
                NAMES.map(|n| format!("The house belongs to {n}.")),
            ];
            let [directive, snapshot] = opened.map(|texts| seen(body, texts));
            assert_eq!(directive, snapshot, "an opening is one replica's");
            won[0][snapshot] += usize::from(turn == 0);
            let block = seen(
                body,
                NAMES.map(|n| format!("At turn {turn} {n} was there.")),
            );
            won[1][block] += usize::from(turn == 0);
            won[2][block] += usize::from(turn > 0);
        }
    }
    // Either replica was first often enough, with the opening, with the first block, and with later ones.
    let often = won.iter().flatten().all(|times| *times > sessions / 10);
    assert!(often, "{won:?}");
}

#[tokio::test]
async fn within_a_replica_the_second_request_does_not_ask_again() {
    let bench = Bench::in_process().await;
    let [replica, _] = &bench.replicas;
    let sights = [&replica.hot, &replica.cold];
    for session in 0..50 {
        for turn in 0..TURNS {
            bench.turn_is(turn);
            bench.seed(session, turn);
            let chat = conversation(turn);
            let before = sights.map(|s| s.asked());
            let (one, other) = tokio::join!(
                bench.sent(replica, session, &chat),
                bench.sent(replica, session, &chat)
            );
            assert_eq!(one, other);
            let asked = [0, 1].map(|i| sights[i].asked() - before[i]);
            // For the turn both branches, and for what the session opens with the hot one.
            let once = [1 + usize::from(turn == 0), 1];
            assert_eq!(asked, once, "session {session}, turn {turn}");
        }
    }
}
