//! What a request pays for its frozen session in Redis: the calls of one turn, each alone, for conversations of several lengths.
//!
//! A conversation opens with a directive and a snapshot, and every fourth turn got a block. It is asked by the replica that put all of it,
//! by one that has seen none of it, and by a client that sends a window of its last turns. `IBEX_BENCH_REDIS_URL` says where Redis is.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a benchmark harness"
)]

use std::sync::Arc;
use std::time::Duration;

use ibex::config::{RedisConfig, SessionConfig};
use ibex::ids::{AgentId, MemoryId, OrgId};
use ibex::session::{
    Anchor, Block, ChainHash, Element, Elements, Enveloped, Lane, LaneKey, Opening, OpeningParts,
    Outcome, SessionKey, SessionSecret, Text, Turn,
};
use ibex::store::shared::redis::Redis;
use ibex::store::shared::redis::session::RedisSessions;
use ibex::store::shared::{Sent, SessionCache};
use ibex::tasks::Tasks;
use ibex::telemetry::RedisFigures;
use ibex::tokens::{Family, Tally};
use tokio::runtime::Builder;
use tokio::time::Instant;

/// The binary's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Calls of each kind.
const CALLS: usize = 2_000;
/// Bytes of the directive and of a memory, and memories of a snapshot and of a block.
const DIRECTIVE: usize = 2_000;
const MEMORY: usize = 200;
const SNAPSHOT: u32 = 30;
const RECALLED: u32 = 6;

fn main() {
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for turns in [1, 20, 100] {
            measure(turns).await;
        }
    });
}

fn replica() -> RedisSessions {
    let url = std::env::var("IBEX_BENCH_REDIS_URL");
    let config = RedisConfig {
        urls: vec![url.unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned())],
        prefix: "bench".to_owned(),
        ..RedisConfig::default()
    };
    let redis = Redis::new(&config, RedisFigures::default(), Tasks::new()).unwrap();
    RedisSessions::new(
        redis,
        &SessionConfig::default(),
        &SessionSecret::new(&[1; 32]),
    )
}

fn enveloped(first: u32, count: u32) -> Enveloped {
    let cost = Tally::given(Family::O200kBase, 50);
    let element = |n: u32| {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&n.to_be_bytes());
        Arc::new(Element {
            id: MemoryId::from_bytes(id),
            json: vec![b'a' + (n % 26) as u8; MEMORY].into(),
            cost,
        })
    };
    let elements: Vec<_> = (first..first + count).map(element).collect();
    let elements = Arc::new(Elements::new(&elements).unwrap());
    Enveloped::new(
        "<ibex_recall nonce=1234567890123456789012>",
        elements,
        "</ibex_recall>",
        cost,
    )
}

fn opening(owner: &Arc<SessionKey>) -> Arc<Opening> {
    Arc::new(Opening::new(OpeningParts {
        nonce: SessionSecret::new(&[1; 32]).nonce(owner, 1),
        owner: Arc::clone(owner),
        epoch: 1,
        nonce_epoch: 1,
        directive: Some(1),
        head: Text::new(vec![b'd'; DIRECTIVE]),
        line: vec![b'l'; 100].into(),
        snapshot: Some(enveloped(0, SNAPSHOT)),
        cost: Tally::given(Family::O200kBase, 500),
        reason: None,
    }))
}

/// Turn `n` of a conversation, or of a window that begins elsewhere.
fn turn(n: usize, window: u8) -> Turn {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(n as u64).to_be_bytes());
    let anchor = Anchor::from_bytes(bytes);
    bytes[15] = window;
    Turn {
        message: 2 * n,
        chain: ChainHash::from_bytes(bytes),
        anchor,
    }
}

fn outcome(owner: &Arc<SessionKey>, n: usize) -> Outcome {
    if !n.is_multiple_of(4) {
        return Outcome::Nothing;
    }
    let recall = enveloped(1_000 * (n as u32 + 1), RECALLED);
    let block = Block::new(Arc::clone(owner), 1, Some(recall), None);
    Outcome::Block(Arc::new(block.unwrap()))
}

/// The time that one call of every hundred, and the middle one, takes at most.
struct Times(Vec<Duration>);

impl Times {
    fn print(mut self, what: &str) {
        self.0.sort_unstable();
        let at = |percent: usize| self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)];
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        println!(
            "  {what:<34} p50 {:6.0} us   p99 {:6.0} us",
            us(at(50)),
            us(at(99))
        );
    }
}

async fn measure(turns: usize) {
    println!("{turns} turns");
    let cache = replica();
    let session = AgentId::new().to_string();
    let owner = Arc::new(SessionKey {
        org: OrgId::new(),
        agent: AgentId::new(),
        user: None,
        id: session.parse().unwrap(),
    });
    let key = LaneKey {
        session: SessionKey::clone(&owner),
        lane: Lane::new("openai", "gpt-4o"),
    };
    let settled = (0..turns).map(|n| (turn(n, 0), outcome(&owner, n)));
    let opened = cache.open(&key, opening(&owner), settled.collect()).await;
    opened.unwrap();
    let asked: Vec<Turn> = (0..=turns).map(|n| turn(n, 0)).collect();
    let (mut read, mut first, mut settle, mut sent) = (vec![], vec![], vec![], vec![]);
    let note = Sent {
        messages: 2 * turns,
        link: asked[0].chain,
        client_prefix: asked[0].chain,
        sent: asked[0].chain,
        epoch: 1,
        recorded: true,
    };
    for n in 0..CALLS {
        let began = Instant::now();
        cache.read(&key, &asked).await.unwrap().unwrap();
        read.push(began.elapsed());
        cache.forget_texts();
        let began = Instant::now();
        cache.read(&key, &asked).await.unwrap().unwrap();
        first.push(began.elapsed());
        let offered = vec![(turn(10_000 + n, 0), outcome(&owner, 0))];
        let began = Instant::now();
        cache.settle(&key, 1, offered).await.unwrap();
        settle.push(began.elapsed());
        let began = Instant::now();
        cache.sent(&key, note).await.unwrap();
        sent.push(began.elapsed());
    }
    Times(read).print("read");
    Times(first).print("read, text not seen before");
    Times(settle).print("settle a block");
    Times(sent).print("sent");
    let (mut read, mut settle) = (vec![], vec![]);
    for n in 0..40 {
        let window: Vec<Turn> = (1..=turns + 1).map(|t| turn(t, n + 1)).collect();
        let began = Instant::now();
        cache.read(&key, &window).await.unwrap().unwrap();
        read.push(began.elapsed());
        let offered = window.iter().zip(1..);
        let offered = offered.map(|(turn, t)| (*turn, outcome(&owner, t)));
        let offered = offered.collect();
        let began = Instant::now();
        cache.settle(&key, 1, offered).await.unwrap();
        settle.push(began.elapsed());
    }
    Times(read).print("read, a window that slides");
    Times(settle).print("settle, a window that slides");
}
