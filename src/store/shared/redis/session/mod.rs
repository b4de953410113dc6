//! Frozen sessions that replicas share: one hash a lane, changed by one script a call.
//!
//! The answers are those of the process's own cache, whichever replica asks: everything is put if absent, and whoever comes second gets what
//! the first one put, byte for byte. A call that is made twice, because nobody knows whether the first one arrived, does what once does: each
//! bears a token, and what bears one's own token is one's own.
//!
//! ```text
//! lua/     lane (what a lane is), read, put (open, restore, settle), rotate, note (checked, sent, damaged)
//! codec    frozen text as tagged bytes        reply    answers, read
//! ```
//!
//! Nothing is kept in the process: an answer is what Redis holds at that moment. Frozen text is users' text; it is in Redis, and never in an
//! error or a log. What Redis loses is rendered again from the store. A failover may also lose the newest writes of a lane that is otherwise
//! there; only replication that waits (`min-replicas-to-write`, a managed Redis that does) keeps them.

mod codec;
mod reply;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use foldhash::fast::RandomState;
use redis::Value;
use uuid::Uuid;

use super::keys::Key;
use super::{Outage, Redis, Script};
use crate::config::SessionConfig;
use crate::ids::MemoryId;
use crate::session::{LaneKey, Opening, Outcome, SessionSecret, Tagger, Turn};
use crate::store::shared::matching::{MOST_CANDIDATES, MOST_TURNS};
use crate::store::shared::{BlockFate, CacheError, Held, Sent, SessionCache};
use crate::telemetry::RedisCall;

use codec::{BlockName, Codec, LAYOUT};
use reply::{Maker, Put, Unread, Whole};

/// How often a rotation that rewrites blocks looks at the lane again because a turn was settled meanwhile.
const LOOKS: usize = 8;

/// What a script is given besides the key.
type Args = Vec<Vec<u8>>;

/// The cache of every replica that uses this Redis and has this session key.
pub struct RedisSessions {
    redis: Redis,
    tagger: Tagger,
    /// In milliseconds.
    idle: u64,
    /// Tells this process's calls from those of others.
    process: Uuid,
    calls: AtomicU64,
    scripts: Scripts,
}

struct Scripts {
    read: Script,
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

/// Turns as the scripts take them.
struct Offered {
    args: Args,
    turns: Vec<(Option<BlockName>, Outcome)>,
}

impl RedisSessions {
    /// The cache in `redis`. Values bear tags under `secret`, which every replica has to have.
    #[must_use]
    pub fn new(redis: Redis, settings: &SessionConfig, secret: &SessionSecret) -> Self {
        Self {
            redis,
            tagger: secret.tagger("frozen session"),
            // A key that lives for no time at all would be gone in the middle of a script, and come back without an end.
            idle: settings.idle_s.saturating_mul(1_000).max(1_000),
            process: Uuid::new_v4(),
            calls: AtomicU64::new(0),
            scripts: Scripts {
                read: script!("read"),
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

    async fn run(
        &self,
        call: RedisCall,
        script: &Script,
        lane: &LaneKey,
        args: Args,
    ) -> Result<Value, CacheError> {
        let all = [text(self.idle), text(LAYOUT)].into_iter().chain(args);
        let all: Args = all.collect();
        let keys = [self.key(lane)];
        let answer = self.redis.script(call, script, &keys, all).await;
        answer.map_err(unavailable)
    }

    async fn write(&self, script: &Script, lane: &LaneKey, args: Args) -> Result<Put, CacheError> {
        let call = RedisCall::SessionWrite;
        let answer = self.run(call, script, lane, args).await?;
        reply::put(answer).map_err(unread)
    }

    /// Takes a damaged lane away, unless it is another one by now. The store renders it again.
    async fn drop_damaged(&self, lane: &LaneKey, maker: Maker) -> Result<(), CacheError> {
        tracing::error!("a frozen session in Redis is damaged, or not ours; it is dropped");
        let (script, call) = (&self.scripts.note, RedisCall::SessionWrite);
        let args = vec![b"damaged".to_vec(), maker];
        self.run(call, script, lane, args).await.map(drop)
    }

    async fn put(
        &self,
        lane: &LaneKey,
        mode: &str,
        (nonce_epoch, opening): (u32, Option<&Opening>),
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(Put, Vec<(Option<BlockName>, Outcome)>), CacheError> {
        let codec = self.codec(lane);
        let mut args = vec![
            self.token(),
            mode.into(),
            text(nonce_epoch),
            opening.map(|o| codec.opening(o)).unwrap_or_default(),
            text(opening.map_or(0, |o| o.epoch)),
            text(MOST_TURNS),
        ];
        let offered = offer(&codec, turns);
        args.extend(offered.args);
        let put = self.write(&self.scripts.put, lane, args).await?;
        Ok((put, offered.turns))
    }

    async fn whole(&self, lane: &LaneKey) -> Result<Whole, CacheError> {
        let cmd = redis::cmd("HGETALL").arg(self.key(lane)).take();
        let answer = self.redis.run(RedisCall::SessionRead, &cmd).await;
        let codec = self.codec(lane);
        match Whole::read(answer.map_err(unavailable)?, &codec) {
            Ok(whole) => Ok(whole),
            Err((reason, maker)) => {
                if reason == Unread::Damaged {
                    self.drop_damaged(lane, maker).await?;
                }
                Err(unread(reason))
            }
        }
    }

    /// The arguments of `rotate.lua` that say which blocks are written anew.
    async fn swaps(&self, lane: &LaneKey, gone: &[MemoryId]) -> Result<Args, CacheError> {
        let whole = self.whole(lane).await?;
        let codec = self.codec(lane);
        let (mut swaps, mut blocks) = (Args::new(), Args::new());
        for (name, outcome) in whole.blocks.iter() {
            let slim = outcome.without(gone);
            if slim == *outcome {
                continue;
            }
            swaps.push(name.to_vec());
            match slim.block() {
                None => swaps.push(Vec::new()),
                Some(block) => {
                    let (name, value) = codec.block(block);
                    swaps.push(name.to_vec());
                    blocks.extend([name.to_vec(), value]);
                }
            }
        }
        let mut args = vec![whole.maker, whole.settled, text(swaps.len() / 2)];
        args.extend(swaps);
        args.extend(blocks);
        Ok(args)
    }
}

#[async_trait]
impl SessionCache for RedisSessions {
    async fn read(&self, key: &LaneKey, turns: &[Turn]) -> Result<Option<Held>, CacheError> {
        let mut args = vec![text(MOST_CANDIDATES), text(turns.len())];
        args.extend(turns.iter().map(|turn| turn.chain.as_bytes().to_vec()));
        args.extend(turns.iter().map(|turn| turn.anchor.as_bytes().to_vec()));
        let (script, call) = (&self.scripts.read, RedisCall::SessionRead);
        let answer = self.run(call, script, key, args).await?;
        match reply::held(answer, &self.codec(key), turns) {
            Ok(held) => Ok(held),
            Err((Unread::Damaged, maker)) => {
                self.drop_damaged(key, maker).await?;
                Ok(None)
            }
            Err((Unread::Newer, _)) => Err(unread(Unread::Newer)),
        }
    }

    async fn restore(
        &self,
        key: &LaneKey,
        opening: Arc<Opening>,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(), CacheError> {
        let opened = (opening.nonce_epoch, Some(&*opening));
        self.put(key, "restore", opened, turns).await.map(drop)
    }

    async fn open(
        &self,
        key: &LaneKey,
        opening: Arc<Opening>,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(Arc<Opening>, Vec<Outcome>), CacheError> {
        let opened = (opening.nonce_epoch, Some(&*opening));
        let (put, offered) = self.put(key, "open", opened, turns).await?;
        let mut items = done(put)?;
        let codec = self.codec(key);
        let held = reply::opening(&mut items, &codec, &opening).map_err(unread)?;
        let winners = reply::winners(items, &codec, &offered);
        Ok((held, winners.ok_or_else(|| unread(Unread::Damaged))?))
    }

    async fn settle(
        &self,
        key: &LaneKey,
        nonce_epoch: u32,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<Vec<Outcome>, CacheError> {
        let (put, offered) = self.put(key, "settle", (nonce_epoch, None), turns).await?;
        let mut items = done(put)?;
        // No Region A was offered, so none comes back.
        drop(items.bytes());
        let winners = reply::winners(items, &self.codec(key), &offered);
        winners.ok_or_else(|| unread(Unread::Damaged))
    }

    async fn rotate(
        &self,
        key: &LaneKey,
        from: u32,
        opening: Arc<Opening>,
        blocks: BlockFate,
    ) -> Result<Arc<Opening>, CacheError> {
        let codec = self.codec(key);
        let (token, tagged) = (self.token(), codec.opening(&opening));
        for _ in 0..LOOKS {
            let (fate, swaps) = match &blocks {
                BlockFate::Keep => ("keep", Args::new()),
                BlockFate::Drop => ("drop", Args::new()),
                BlockFate::Without(gone) => ("swap", self.swaps(key, gone).await?),
            };
            let mut args = vec![
                token.clone(),
                text(from),
                tagged.clone(),
                text(opening.epoch),
                text(opening.nonce_epoch),
                fate.into(),
            ];
            args.extend(swaps);
            match self.write(&self.scripts.rotate, key, args).await? {
                Put::Done(mut items) => {
                    return reply::opening(&mut items, &codec, &opening).map_err(unread);
                }
                Put::Rotated => return Err(CacheError::Rotated),
                Put::Again => {}
            }
        }
        Err(CacheError::Unavailable("the lane is contended".to_owned()))
    }

    async fn turns(&self, key: &LaneKey) -> Result<Vec<(Turn, Outcome)>, CacheError> {
        let whole = self.whole(key).await?;
        match whole.turns() {
            Some(turns) => Ok(turns),
            None => {
                self.drop_damaged(key, whole.maker).await?;
                Err(unread(Unread::Damaged))
            }
        }
    }

    async fn checked(&self, key: &LaneKey, revision: i64, turns: usize) -> Result<(), CacheError> {
        let args = vec![b"checked".to_vec(), text(revision), text(turns)];
        let (script, call) = (&self.scripts.note, RedisCall::SessionWrite);
        self.run(call, script, key, args).await.map(drop)
    }

    async fn sent(&self, key: &LaneKey, sent: Sent) -> Result<(), CacheError> {
        let args = vec![b"sent".to_vec(), codec::sent(&sent)];
        let (script, call) = (&self.scripts.note, RedisCall::SessionWrite);
        self.run(call, script, key, args).await.map(drop)
    }
}

/// Turns as `put.lua` takes them, each block once.
fn offer(codec: &Codec, turns: Vec<(Turn, Outcome)>) -> Offered {
    let mut args = vec![text(turns.len())];
    let (mut blocks, mut seen) = (Args::new(), HashSet::<BlockName, RandomState>::default());
    let mut offered = Vec::with_capacity(turns.len());
    for (turn, outcome) in turns {
        let block = outcome.block().map(|block| (codec.block(block), block.as_of()));
        let message = u32::try_from(turn.message).unwrap_or(u32::MAX);
        args.push(turn.chain.as_bytes().to_vec());
        args.push([&message.to_be_bytes()[..], turn.anchor.as_bytes()].concat());
        let Some(((name, value), as_of)) = block else {
            args.extend([Vec::new(), Vec::new()]);
            offered.push((None, outcome));
            continue;
        };
        args.extend([name.to_vec(), text(as_of)]);
        if seen.insert(name) {
            blocks.extend([name.to_vec(), value]);
        }
        offered.push((Some(name), outcome));
    }
    args.extend(blocks);
    Offered {
        args,
        turns: offered,
    }
}

fn text(value: impl ToString) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn done(put: Put) -> Result<reply::Items, CacheError> {
    match put {
        Put::Done(items) => Ok(items),
        Put::Rotated | Put::Again => Err(CacheError::Rotated),
    }
}

fn unavailable(outage: Outage) -> CacheError {
    CacheError::Unavailable(outage.to_string())
}

fn unread(reason: Unread) -> CacheError {
    let why = match reason {
        Unread::Newer => "a newer version of ibex has the lane",
        Unread::Damaged => "the lane is damaged",
    };
    CacheError::Unavailable(why.to_owned())
}
