//! Two replicas with one key to look behind.

use ibex::config::SessionConfig;
use ibex::session::{LaneKey, SessionSecret};
use ibex::store::shared::redis::Redis;
use ibex::store::shared::redis::session::RedisSessions;

use super::super::{Raw, replica_at, two_replicas};
use crate::store::fixtures::lanes::secret;

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
