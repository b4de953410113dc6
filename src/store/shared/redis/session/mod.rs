//! Frozen sessions that replicas share: one hash a lane, changed by one script a call.
//!
//! The answers are those of the process's own cache, whichever replica asks: everything is put if absent, and whoever comes second gets what
//! the first one put, byte for byte. A call that is made twice, because nobody knows whether the first one arrived, does what once does: each
//! bears a token, and what bears one's own token is one's own.
//!
//! ```text
//! lua/     lane (what a lane is), put (open, restore, settle), rotate, note (checked, sent, damaged)
//! codec    frozen text as values whose names follow from their content
//! look     what a lane says: numbers, hashes, names
//! seen     values that this process knows by their names
//! ```
//!
//! A request costs one round trip to read its lane, one more where it meets text that this process has not seen yet, and one more where turns
//! have to be found by their anchors. Frozen text is users' text: it is in Redis, and never in an error or a log.
//!
//! What Redis loses is rendered again from the store. A failover may also lose the newest writes of a lane that is otherwise there: Redis
//! answers before its replicas have what it was given, and waiting for them is a setting of the deployment.

mod codec;
mod look;
mod seen;
#[cfg(test)]
mod tests;
mod writes;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use redis::Pipeline;
use uuid::Uuid;

use super::keys::Key;
use super::{Outage, Redis, Script};
use crate::config::SessionConfig;
use crate::session::{Anchor, LaneKey, Opening, Outcome, SessionSecret, Tagger, Turn};
use crate::store::shared::{BlockFate, CacheError, Held, Sent, SessionCache};
use crate::telemetry::RedisCall;

use codec::{Codec, LAYOUT, Name};
use look::{Look, Maker, Unread, Values, Whole};
use seen::Seen;

/// How often a lane is looked at again because it changed meanwhile.
const LOOKS: usize = 8;

/// What a script or a command is given besides the key.
type Args = Vec<Vec<u8>>;

/// The cache of every replica that uses this Redis and has this session key.
pub struct RedisSessions {
    redis: Redis,
    tagger: Tagger,
    seen: Seen,
    /// In milliseconds.
    idle: u64,
    /// Tells this process's calls from those of others.
    process: Uuid,
    calls: AtomicU64,
    scripts: Scripts,
}

struct Scripts {
    put: Script,
    rotate: Script,
    note: Script,
}

macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(
            include_str!("lua/lane.lua"),
            include_str!(concat!("lua/", $name, ".lua"))
        ))
    };
}

impl fmt::Debug for RedisSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSessions")
            .field("redis", &self.redis)
            .finish_non_exhaustive()
    }
}

/// Why values could not be had.
#[derive(Debug)]
enum Miss {
    /// One is not there any more: the lane has changed since it was looked at.
    Gone,
    /// One is not what its name says.
    Damaged,
    /// There is no answer.
    Cache(CacheError),
}

impl RedisSessions {
    /// The cache in `redis`. Values are tagged under `secret`, which every replica has to have. `settings` bound what this process keeps of
    /// the values that it has seen.
    #[must_use]
    pub fn new(redis: Redis, settings: &SessionConfig, secret: &SessionSecret) -> Self {
        Self {
            redis,
            tagger: secret.tagger("frozen session"),
            seen: Seen::new(settings),
            // A key that lives for no time at all would be gone in the middle of a script, and come back without an end.
            idle: settings.idle_s.saturating_mul(1_000).max(1_000),
            process: Uuid::new_v4(),
            calls: AtomicU64::new(0),
            scripts: Scripts {
                put: script!("put"),
                rotate: script!("rotate"),
                note: script!("note"),
            },
        }
    }

    /// What no other call has.
    fn token(&self) -> Vec<u8> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        [&self.process.as_bytes()[..], &call.to_be_bytes()].concat()
    }

    fn key(&self, lane: &LaneKey) -> Key {
        self.redis.keys().lane(lane, "frozen")
    }

    fn codec(&self, lane: &LaneKey) -> Codec {
        Codec::new(&self.tagger, lane)
    }

    /// Runs a script, which answers with a word and what belongs to it.
    async fn run<T: redis::FromRedisValue>(
        &self,
        script: &Script,
        lane: &LaneKey,
        args: Args,
    ) -> Result<T, CacheError> {
        let all = [text(self.idle), text(LAYOUT)].into_iter().chain(args);
        let (all, keys): (Args, _) = (all.collect(), [self.key(lane)]);
        let call = RedisCall::SessionWrite;
        let answer = self.redis.script(call, script, &keys, all).await;
        answer.map_err(unavailable)
    }

    /// What the lane says of `turns`, and of the turns with these anchors. It is a use of the lane.
    async fn look(
        &self,
        lane: &LaneKey,
        turns: &[Turn],
        anchors: &[Anchor],
    ) -> Result<Option<Look>, CacheError> {
        let (key, mut asked) = (self.key(lane), Pipeline::new());
        asked
            .cmd("HMGET")
            .arg(&key)
            .arg(look::fields(turns, anchors));
        asked.cmd("PEXPIRE").arg(&key).arg(self.idle);
        let answer = self.redis.pipeline(RedisCall::SessionRead, &asked).await;
        let (values, _): (Vec<Option<Vec<u8>>>, i64) = answer.map_err(unavailable)?;
        match Look::read(values, turns, anchors) {
            Ok(look) => Ok(look),
            Err((Unread::Damaged, maker)) => {
                self.drop_damaged(lane, maker).await?;
                Ok(None)
            }
            Err((Unread::Newer, _)) => Err(unread(Unread::Newer)),
        }
    }

    /// Region A and blocks by their names.
    async fn values(
        &self,
        lane: &LaneKey,
        opening: Option<Name>,
        blocks: impl IntoIterator<Item = Name>,
    ) -> Result<Values, Miss> {
        let codec = self.codec(lane);
        let mut values = Values {
            opening: opening.and_then(|name| self.seen.opening(&codec, &name)),
            ..Values::default()
        };
        let opening = opening.filter(|_| values.opening.is_none());
        let mut unknown = Vec::new();
        for name in blocks {
            match self.seen.block(&codec, &name) {
                Some(block) => drop(values.blocks.insert(name, block)),
                None => unknown.push(name),
            }
        }
        if opening.is_none() && unknown.is_empty() {
            return Ok(values);
        }
        let names: Vec<Name> = opening.into_iter().chain(unknown).collect();
        let fields: Args = names.iter().map(|n| [b"b", &n[..]].concat()).collect();
        let asked = redis::cmd("HMGET").arg(self.key(lane)).arg(fields).take();
        let found = self.redis.run(RedisCall::SessionRead, &asked).await;
        let found: Vec<Option<Vec<u8>>> = found.map_err(|o| Miss::Cache(unavailable(o)))?;
        for (name, value) in names.into_iter().zip(found) {
            let value = value.ok_or(Miss::Gone)?;
            if opening == Some(name) {
                let read = codec.read_opening(&name, value.into());
                let opening = Arc::new(read.ok_or(Miss::Damaged)?);
                self.seen.keep_opening(&codec, name, &opening);
                values.opening = Some(opening);
            } else {
                let block = codec.read_block(&name, value.into());
                let block = Arc::new(block.ok_or(Miss::Damaged)?);
                self.seen.keep_block(&codec, name, &block);
                values.blocks.insert(name, block);
            }
        }
        Ok(values)
    }

    /// All of the lane. It is no use of it.
    async fn whole(&self, lane: &LaneKey) -> Result<(Whole, Values), CacheError> {
        let asked = redis::cmd("HGETALL").arg(self.key(lane)).take();
        let answer = self.redis.run(RedisCall::SessionRead, &asked).await;
        let codec = self.codec(lane);
        let (whole, maker) = match Whole::read(answer.map_err(unavailable)?) {
            Ok(whole) => {
                let maker = whole.maker.clone();
                (whole, maker)
            }
            Err((Unread::Damaged, maker)) => return Err(self.damaged(lane, maker).await),
            Err((Unread::Newer, _)) => return Err(unread(Unread::Newer)),
        };
        let mut values = Values::default();
        for (name, value) in &whole.blocks {
            let seen = self.seen.block(&codec, name);
            let read = || codec.read_block(name, value.clone()).map(Arc::new);
            let Some(block) = seen.or_else(read) else {
                return Err(self.damaged(lane, maker).await);
            };
            values.blocks.insert(*name, block);
        }
        Ok((whole, values))
    }

    /// Takes a damaged lane away, unless it is another one by now. The store renders it again.
    async fn drop_damaged(&self, lane: &LaneKey, maker: Maker) -> Result<(), CacheError> {
        tracing::error!("a frozen session in Redis is damaged, or not ours; it is dropped");
        let args = vec![b"damaged".to_vec(), maker];
        let answer = self.run::<String>(&self.scripts.note, lane, args);
        answer.await.map(drop)
    }

    /// The same for a call that cannot go on without it.
    async fn damaged(&self, lane: &LaneKey, maker: Maker) -> CacheError {
        match self.drop_damaged(lane, maker).await {
            Ok(()) => unread(Unread::Damaged),
            Err(error) => error,
        }
    }
}

#[async_trait]
impl SessionCache for RedisSessions {
    fn is_shared(&self) -> bool {
        true
    }

    fn forget_texts(&self) {
        self.seen.forget();
    }

    async fn read(&self, key: &LaneKey, turns: &[Turn]) -> Result<Option<Held>, CacheError> {
        let mut before: Option<Look> = None;
        let mut anchors = Vec::new();
        for _ in 0..LOOKS {
            let Some(look) = self.look(key, turns, &anchors).await? else {
                return Ok(None);
            };
            let wanted = look.wanted(turns);
            if !wanted.is_empty() {
                // All of it once more, with them: only what is read at once goes together.
                anchors.extend(wanted);
                continue;
            }
            match self.values(key, look.opening, look.blocks()).await {
                Ok(values) => {
                    let held = look.held(turns, &values);
                    return held.map(Some).ok_or_else(|| unread(Unread::Damaged));
                }
                // A lane that has not changed meanwhile lacks what it should have.
                Err(Miss::Gone) if before.as_ref() != Some(&look) => before = Some(look),
                Err(Miss::Gone | Miss::Damaged) => {
                    self.drop_damaged(key, look.maker).await?;
                    return Ok(None);
                }
                Err(Miss::Cache(error)) => return Err(error),
            }
        }
        Err(contended())
    }

    async fn restore(
        &self,
        key: &LaneKey,
        opening: Arc<Opening>,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(), CacheError> {
        let nonce_epoch = opening.nonce_epoch;
        let put = self.put(key, "restore", (nonce_epoch, Some(&opening)), turns);
        put.await.map(drop)
    }

    async fn open(
        &self,
        key: &LaneKey,
        opening: Arc<Opening>,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(Arc<Opening>, Vec<Outcome>), CacheError> {
        let nonce_epoch = opening.nonce_epoch;
        let put = self.put(key, "open", (nonce_epoch, Some(&opening)), turns);
        let (held, settled) = put.await?;
        Ok((held.unwrap_or(opening), settled))
    }

    async fn settle(
        &self,
        key: &LaneKey,
        nonce_epoch: u32,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<Vec<Outcome>, CacheError> {
        let put = self.put(key, "settle", (nonce_epoch, None), turns);
        let (_, settled) = put.await?;
        Ok(settled)
    }

    async fn rotate(
        &self,
        key: &LaneKey,
        from: u32,
        opening: Arc<Opening>,
        blocks: BlockFate,
    ) -> Result<Arc<Opening>, CacheError> {
        self.replace(key, from, opening, &blocks).await
    }

    async fn turns(&self, key: &LaneKey) -> Result<Vec<(Turn, Outcome)>, CacheError> {
        let (whole, values) = self.whole(key).await?;
        match whole.turns(&values) {
            Some(turns) => Ok(turns),
            None => Err(self.damaged(key, whole.maker).await),
        }
    }

    async fn checked(&self, key: &LaneKey, revision: i64, turns: usize) -> Result<(), CacheError> {
        let args = vec![b"checked".to_vec(), text(revision), text(turns)];
        let answer = self.run::<String>(&self.scripts.note, key, args);
        answer.await.map(drop)
    }

    async fn sent(&self, key: &LaneKey, sent: Sent) -> Result<(), CacheError> {
        let args = vec![b"sent".to_vec(), codec::sent(&sent)];
        let answer = self.run::<String>(&self.scripts.note, key, args);
        answer.await.map(drop)
    }
}

fn text(value: impl fmt::Display) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn unavailable(outage: Outage) -> CacheError {
    CacheError::Unavailable(outage.to_string())
}

fn contended() -> CacheError {
    CacheError::Unavailable("the lane changes all the time".to_owned())
}

fn unread(reason: Unread) -> CacheError {
    let why = match reason {
        Unread::Newer => "a newer version of ibex has the lane",
        Unread::Damaged => "the lane is damaged",
    };
    CacheError::Unavailable(why.to_owned())
}
