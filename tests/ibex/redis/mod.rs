//! What replicas share over Redis, against a real one.

mod session;
mod directives;
mod hot;
mod proxy;

use ibex::config::RedisConfig;
use ibex::store::shared::redis::Redis;
use ibex::tasks::Tasks;
use ibex::telemetry::RedisFigures;

use crate::support::services::{fresh_prefix, redis_url};

/// Time enough for a busy machine: what the tests are about is never that it was too short.
const PATIENCE_MS: u64 = 30_000;

/// A Redis as one replica has it.
pub(crate) fn replica_at(url: &str, prefix: &str) -> Redis {
    let config = RedisConfig {
        urls: vec![url.to_owned()],
        prefix: prefix.to_owned(),
        timeout_ms: PATIENCE_MS,
        connect_timeout_ms: PATIENCE_MS,
        ..RedisConfig::default()
    };
    Redis::new(&config, RedisFigures::default(), Tasks::new()).unwrap()
}

/// Two replicas on the shared Redis, and a way to look behind them.
async fn two_replicas() -> ([Redis; 2], Raw) {
    let prefix = fresh_prefix();
    let replicas = [0, 1].map(|_| replica_at(redis_url(), &prefix));
    (replicas, Raw::at(redis_url()).await)
}

/// A plain connection.
struct Raw(redis::aio::MultiplexedConnection);

impl Raw {
    async fn at(url: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        Self(client.get_multiplexed_async_connection().await.unwrap())
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&[u8]]) -> T {
        let mut cmd = redis::Cmd::new();
        cmd.arg(words);
        cmd.query_async(&mut self.0).await.unwrap()
    }

    /// Milliseconds that a key lives; negative for one without an end, or none.
    async fn left(&mut self, key: &str) -> i64 {
        self.ask(&[b"PTTL", key.as_bytes()]).await
    }

    async fn exists(&mut self, key: &str) -> bool {
        self.ask(&[b"EXISTS", key.as_bytes()]).await
    }

    async fn let_live(&mut self, key: &str, ms: u32) {
        let ms = ms.to_string();
        let _: i64 = self.ask(&[b"PEXPIRE", key.as_bytes(), ms.as_bytes()]).await;
    }
}
