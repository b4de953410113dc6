//! Lanes, turns and blocks to put, and two replicas with one key to look behind.

use std::sync::Arc;

use bytes::Bytes;
use ibex::config::SessionConfig;
use ibex::ids::{AgentId, MemoryId, OrgId};
use ibex::session::{
    Anchor, Block, ChainHash, Element, Elements, Enveloped, Lane, LaneKey, Opening, OpeningParts,
    Outcome, RotationReason, SessionKey, SessionSecret, StateDelta, Text, Turn,
};
use ibex::store::shared::redis::Redis;
use ibex::store::shared::redis::session::RedisSessions;
use ibex::store::shared::{Held, Sent, SessionCache};
use ibex::tokens::{Family, Tally};

use super::super::{Raw, replica_at, two_replicas};

pub(super) fn key(id: &str) -> LaneKey {
    LaneKey {
        session: SessionKey {
            org: OrgId::from_bytes([1; 16]),
            agent: AgentId::from_bytes([2; 16]),
            user: None,
            id: id.parse().unwrap(),
        },
        lane: Lane::new("openai", "gpt-4o"),
    }
}

pub(super) fn secret() -> SessionSecret {
    SessionSecret::new(&[1; 32])
}

pub(super) fn id(n: u8) -> MemoryId {
    MemoryId::from_bytes([n; 16])
}

fn tokens(n: u32) -> Tally {
    Tally::given(Family::O200kBase, n)
}

/// These memories in one envelope.
fn enveloped(memories: &[u8]) -> Enveloped {
    let element = |n: &u8| {
        Arc::new(Element {
            id: id(*n),
            json: format!("Memory {n} \\u00e9\\n").into(),
            cost: tokens(u32::from(*n)),
        })
    };
    let elements: Vec<_> = memories.iter().map(element).collect();
    let elements = Arc::new(Elements::new(&elements).unwrap());
    Enveloped::new("<m>", elements, "</m>", tokens(2))
}

pub(super) fn opening(
    key: &LaneKey,
    epoch: u32,
    nonce_epoch: u32,
    snapshot: &[u8],
) -> Arc<Opening> {
    let owner = Arc::new(key.session.clone());
    Arc::new(Opening::new(OpeningParts {
        nonce: secret().nonce(&owner, nonce_epoch),
        owner,
        epoch,
        nonce_epoch,
        directive: Some(3),
        head: Text::new("head \\n"),
        line: Bytes::from_static(b"line"),
        snapshot: (!snapshot.is_empty()).then(|| enveloped(snapshot)),
        cost: tokens(9),
        reason: (epoch > 1).then_some(RotationReason::Forget),
    }))
}

/// A block of these memories, known at a revision, with a change of the working state where `state` says so.
pub(super) fn block_at(key: &LaneKey, memories: &[u8], state: bool, revision: i64) -> Outcome {
    let owner = Arc::new(key.session.clone());
    let state = state.then(|| StateDelta {
        json: Bytes::from_static(b"state"),
        from: 0,
        to: 1,
        cost: tokens(5),
    });
    let recall = (!memories.is_empty()).then(|| enveloped(memories));
    match Block::new(owner, 1, recall, state) {
        Some(block) => Outcome::Block(Arc::new(block.known_at(revision))),
        None => Outcome::Nothing,
    }
}

pub(super) fn block(key: &LaneKey, memories: &[u8]) -> Outcome {
    block_at(key, memories, false, 0)
}

/// The turn `chain` whose message and predecessor are `anchor`.
pub(super) fn turn(chain: u8, anchor: u8) -> Turn {
    Turn {
        message: usize::from(chain) * 2,
        chain: ChainHash::from_bytes([chain; 16]),
        anchor: Anchor::from_bytes([anchor; 16]),
    }
}

pub(super) fn sent(n: u8) -> Sent {
    Sent {
        messages: usize::from(n) * 1_000,
        link: ChainHash::from_bytes([n; 16]),
        client_prefix: ChainHash::from_bytes([2; 16]),
        sent: ChainHash::from_bytes([3; 16]),
        epoch: u32::from(n),
        recorded: n % 2 == 0,
    }
}

/// Two replicas, and what lies behind them.
pub(super) struct Pair {
    pub(super) replicas: [RedisSessions; 2],
    pub(super) raw: Raw,
    redis: Redis,
}

pub(super) fn sessions(redis: &Redis) -> RedisSessions {
    RedisSessions::new(redis.clone(), &SessionConfig::default(), &secret())
}

impl Pair {
    pub(super) async fn new() -> Self {
        let (replicas, raw) = two_replicas().await;
        let redis = replicas[0].clone();
        Self {
            replicas: replicas.map(|redis| sessions(&redis)),
            raw,
            redis,
        }
    }

    pub(super) async fn at(url: &str) -> Self {
        let replicas = [0, 1].map(|_| replica_at(url, "ibex"));
        Self {
            redis: replicas[0].clone(),
            replicas: replicas.map(|redis| sessions(&redis)),
            raw: Raw::at(url).await,
        }
    }

    /// A replica that has seen nothing yet.
    pub(super) fn fresh(&self) -> RedisSessions {
        sessions(&self.redis)
    }

    /// One with another session key.
    pub(super) fn foreign(&self) -> RedisSessions {
        let secret = SessionSecret::new(&[9; 32]);
        RedisSessions::new(self.redis.clone(), &SessionConfig::default(), &secret)
    }

    /// The name of a lane in Redis.
    pub(super) fn name(&self, key: &LaneKey) -> String {
        self.redis.keys().lane(key, "frozen").as_str().to_owned()
    }

    pub(super) async fn left(&mut self, key: &LaneKey) -> i64 {
        let name = self.name(key);
        self.raw.left(&name).await
    }
}

pub(super) async fn held(cache: &dyn SessionCache, key: &LaneKey, turns: &[Turn]) -> Held {
    cache.read(key, turns).await.unwrap().expect("a lane")
}
