//! Values of which the newest counts: what one replica has read from the store at some revision, for others to use while the store is away.
//!
//! A value bears a tag under the server's session key, so nobody who can write to Redis alone can put one there. One that cannot be read,
//! because it is damaged or of another version of the program, is not there.

use std::time::Duration;

use bytes::Bytes;
use redis::Pipeline;

use super::keys::Key;
use super::{Outage, Redis, Script};
use crate::session::Tagger;
use crate::telemetry::RedisCall;

/// Bytes of a revision and of a tag.
const REVISION: usize = 8;
const TAG: usize = 16;

/// Values of one kind.
#[derive(Debug)]
pub(super) struct Newest {
    redis: Redis,
    tagger: Tagger,
    script: Script,
    call: RedisCall,
    kept: Duration,
}

/// A value, as it was kept.
#[derive(Debug)]
pub(super) struct Kept {
    /// The store's revision that it was read at.
    pub(super) revision: i64,
    /// The time since it was put.
    pub(super) age: Duration,
    pub(super) body: Bytes,
}

impl Newest {
    /// Values that are kept for so long and tagged by `tagger`.
    pub(super) fn new(redis: Redis, tagger: Tagger, call: RedisCall, kept: Duration) -> Self {
        Self {
            redis,
            tagger,
            script: Script::new(include_str!("newest.lua")),
            call,
            kept,
        }
    }

    pub(super) fn redis(&self) -> &Redis {
        &self.redis
    }

    fn tag(&self, key: &Key, revision: i64, body: &[u8]) -> [u8; TAG] {
        let tagger = self.tagger.clone().of(key.as_str().as_bytes());
        tagger.of(&revision.to_be_bytes()).tag(body)
    }

    /// Puts what was read at `revision`, unless something newer is there. Answers whether it did.
    pub(super) async fn put(&self, key: &Key, revision: i64, body: &[u8]) -> Result<bool, Outage> {
        let tag = self.tag(key, revision, body);
        let value = [&revision.to_be_bytes()[..], &tag, body].concat();
        self.write(key, value).await
    }

    /// Takes away what was read before `revision`, and keeps it away.
    pub(super) async fn outdate(&self, key: &Key, revision: i64) -> Result<(), Outage> {
        let marker = revision.to_be_bytes().to_vec();
        self.write(key, marker).await.map(drop)
    }

    async fn write(&self, key: &Key, value: Vec<u8>) -> Result<bool, Outage> {
        let kept = u64::try_from(self.kept.as_millis()).unwrap_or(u64::MAX);
        let (keys, args) = (std::slice::from_ref(key), (kept, value));
        self.redis.script(self.call, &self.script, keys, args).await
    }

    /// What is there.
    pub(super) async fn get(&self, key: &Key) -> Result<Option<Kept>, Outage> {
        let mut both = Pipeline::new();
        both.cmd("GET").arg(key).cmd("PTTL").arg(key);
        let both = self.redis.pipeline(self.call, &both).await;
        let (value, left): (Option<Vec<u8>>, i64) = both?;
        let left = Duration::from_millis(left.try_into().unwrap_or(0));
        let age = self.kept.saturating_sub(left);
        Ok(value.and_then(|value| self.read(key, value.into(), age)))
    }

    fn read(&self, key: &Key, mut value: Bytes, age: Duration) -> Option<Kept> {
        if value.len() < REVISION + TAG {
            return None;
        }
        let body = value.split_off(REVISION + TAG);
        let (revision, tag) = value.split_first_chunk::<REVISION>()?;
        let revision = i64::from_be_bytes(*revision);
        (*tag == self.tag(key, revision, &body)).then_some(Kept {
            revision,
            age,
            body,
        })
    }
}
