//! Hot sets of partitions as replicas have chosen them, so that a replica that does not hold a partition can answer from its best members
//! while the store is away.
//!
//! What a hot set looks like inside is its writer's affair: here it is bytes with a version. It holds memories, so whoever takes one out of
//! circulation has to call [`SharedHotSets::outdate`] after the commit and before it tells anybody that it is done; and whoever uses one
//! holds its revision against the partition's fence, like everything else that is sent.

use std::time::Duration;

use bytes::Bytes;

use super::newest::Newest;
use super::{Outage, Redis};
use crate::memory::PartitionKey;
use crate::session::SessionSecret;
use crate::telemetry::RedisCall;

/// What was put so long ago is not used.
pub const KEPT: Duration = Duration::from_secs(3_600);
/// A hot set that takes more is not put: a value of this size is a few milliseconds of everybody's Redis.
pub const MOST_BYTES: usize = 2 << 20;

/// A hot set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedHotSet {
    /// The store's revision that the memories in it are known at.
    pub revision: i64,
    /// The time since it was put, by the clock of Redis.
    pub age: Duration,
    /// Its inside.
    pub bytes: Bytes,
}

/// The hot sets that replicas share.
#[derive(Debug)]
pub struct SharedHotSets(Newest);

impl SharedHotSets {
    /// Those in `redis`, tagged under `secret`. `version` is the one of their insides: a set of another version is not there.
    #[must_use]
    pub fn new(redis: Redis, secret: &SessionSecret, version: u32) -> Self {
        let tagger = secret.tagger("hot set").of(&version.to_be_bytes());
        Self(Newest::new(redis, tagger, RedisCall::Hot, KEPT))
    }

    /// What was put last, not longer than [`KEPT`] ago.
    ///
    /// # Errors
    /// When Redis has no answer.
    pub async fn get(&self, partition: &PartitionKey) -> Result<Option<SharedHotSet>, Outage> {
        let key = self.0.redis().keys().hot(partition);
        let kept = self.0.get(&key).await?;
        Ok(kept.map(|kept| SharedHotSet {
            revision: kept.revision,
            age: kept.age,
            bytes: kept.body,
        }))
    }

    /// Puts a hot set whose memories are known at `revision`, unless something newer is there. Answers whether it did.
    ///
    /// # Errors
    /// When Redis has no answer.
    pub async fn put(
        &self,
        partition: &PartitionKey,
        revision: i64,
        bytes: &[u8],
    ) -> Result<bool, Outage> {
        if bytes.len() > MOST_BYTES {
            return Ok(false);
        }
        let key = self.0.redis().keys().hot(partition);
        self.0.put(&key, revision, bytes).await
    }

    /// Takes away what was known before `revision`: a memory left the partition with it.
    ///
    /// # Errors
    /// When Redis has no answer.
    pub async fn outdate(&self, partition: &PartitionKey, revision: i64) -> Result<(), Outage> {
        let key = self.0.redis().keys().hot(partition);
        self.0.outdate(&key, revision).await
    }
}
