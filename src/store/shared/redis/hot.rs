//! Hot sets of partitions as replicas have chosen them, so that a replica that does not hold a partition has its best members.
//!
//! A hot set is a list of identifiers, not of memories: nothing that a client wrote is here, and nothing that was forgotten can be.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::newest::Newest;
use super::{Outage, Redis};
use crate::ids::MemoryId;
use crate::memory::PartitionKey;
use crate::memory::search::StandingIds;
use crate::session::SessionSecret;
use crate::telemetry::RedisCall;

/// What was put so long ago is not used.
pub const KEPT: Duration = Duration::from_secs(3_600);
/// Identifiers in a hot set.
pub const MOST: usize = 4_096;

/// The hot sets that replicas share.
#[derive(Debug)]
pub struct SharedHotSets(Newest);

impl SharedHotSets {
    /// Those in `redis`, tagged under `secret`.
    #[must_use]
    pub fn new(redis: Redis, secret: &SessionSecret) -> Self {
        let tagger = secret.tagger("hot set");
        Self(Newest::new(redis, tagger, RedisCall::Hot, KEPT))
    }

    /// What was put last, not longer than [`KEPT`] ago.
    ///
    /// # Errors
    /// When Redis has no answer.
    pub async fn get(&self, partition: &PartitionKey) -> Result<Option<Vec<MemoryId>>, Outage> {
        let key = self.0.redis().keys().hot(partition);
        let kept = self.0.get(&key).await?;
        Ok(kept.map(|kept| {
            let ids = kept.body.as_chunks::<16>().0;
            ids.iter().map(|id| MemoryId::from_bytes(*id)).collect()
        }))
    }

    /// Puts the first of `ids` as they were chosen at a time, unless what was chosen later is there. Answers whether it did.
    ///
    /// # Errors
    /// When Redis has no answer.
    pub async fn put(
        &self,
        partition: &PartitionKey,
        ids: &[MemoryId],
        at: Timestamp,
    ) -> Result<bool, Outage> {
        let key = self.0.redis().keys().hot(partition);
        let ids = ids.iter().take(MOST);
        let body: Vec<u8> = ids.flat_map(|id| *id.as_bytes()).collect();
        self.0.put(&key, at.as_microsecond(), &body).await
    }
}

#[async_trait]
impl StandingIds for SharedHotSets {
    async fn told(&self, partition: &PartitionKey) -> Option<Vec<MemoryId>> {
        // An outage is counted and told where the call is made.
        self.get(partition).await.ok().flatten()
    }

    async fn tell(&self, partition: &PartitionKey, ids: Vec<MemoryId>, at: Timestamp) {
        if let Err(outage) = self.put(partition, &ids, at).await {
            tracing::debug!("a hot set is not told: {outage}");
        }
    }
}
