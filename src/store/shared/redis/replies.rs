//! Answers of keyed chat requests, for every replica. One that is damaged, or that this key's owner did not tag, counts as not there: the
//! request then goes to the provider, and nothing of it is kept.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::keys::Key;
use super::wire::{Reader, Writer};
use super::{Redis, Script};
use crate::session::{SessionSecret, Tagger};
use crate::store::shared::CacheError;
use crate::store::shared::replies::{
    COMPLETED, Claimed, Fingerprint, Owner, PENDING, Replies, Reply, ReplyKey,
};
use crate::telemetry::RedisCall;

/// The version of what is written: part of every tag.
const LAYOUT: u32 = 1;
const CLAIM: u8 = 0;
const ANSWER: u8 = 1;
/// Bytes of a tag.
const TAG: usize = 16;

/// The answers in Redis.
#[derive(Debug)]
pub struct RedisReplies {
    redis: Redis,
    tagger: Tagger,
    script: Script,
}

impl RedisReplies {
    /// Those in `redis`, tagged under `secret`.
    #[must_use]
    pub fn new(redis: Redis, secret: &SessionSecret) -> Self {
        Self {
            redis,
            tagger: secret.tagger("keyed answer").of(&LAYOUT.to_be_bytes()),
            script: Script::new(include_str!("replies.lua")),
        }
    }

    async fn run(
        &self,
        key: &Key,
        (what, claim): (&str, Vec<u8>),
        kept: Duration,
        answer: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, CacheError> {
        let kept = u64::try_from(kept.as_millis()).unwrap_or(u64::MAX);
        let answer = self.redis.script(
            RedisCall::Idempotency,
            &self.script,
            std::slice::from_ref(key),
            (what, claim, kept, answer),
        );
        answer
            .await
            .map_err(|outage| CacheError::Unavailable(outage.to_string()))
    }

    fn key(&self, key: &ReplyKey) -> Key {
        self.redis.keys().chat_idempotency(key.org, &key.hash)
    }

    fn read(&self, key: &Key, asked: &Fingerprint, held: Vec<u8>) -> Option<Claimed> {
        let mut reader = Reader::new(held.into());
        let kind = reader.byte()?;
        if kind == CLAIM {
            let _owner = reader.take(size_of::<Owner>())?;
            let same = reader.take(asked.len())? == asked[..];
            return Some(if same {
                Claimed::InProgress
            } else {
                Claimed::Reused
            });
        }
        let tag = reader.take(TAG)?;
        let body = reader.rest();
        if tag != self.tag(key, &body)[..] {
            return None;
        }
        let mut reader = Reader::new(body);
        if reader.take(asked.len())? != asked[..] {
            return Some(Claimed::Reused);
        }
        reply(&mut reader).map(Claimed::Done)
    }

    fn tag(&self, key: &Key, body: &[u8]) -> [u8; TAG] {
        self.tagger.clone().of(key.as_str().as_bytes()).tag(body)
    }
}

/// What stands for a claim; its beginning tells whose it is.
fn claim(owner: &Owner, asked: &[u8]) -> Vec<u8> {
    [&[CLAIM][..], owner, asked].concat()
}

fn reply(reader: &mut Reader) -> Option<Reply> {
    let status = u16::try_from(reader.number()?).ok()?;
    let mut text = || String::from_utf8(reader.bytes()?.to_vec()).ok();
    let (content_type, coding) = (text()?, text()?);
    Some(Reply {
        status,
        content_type,
        content_encoding: Some(coding).filter(|coding| !coding.is_empty()),
        body: reader.rest(),
    })
}

fn written(asked: &Fingerprint, reply: &Reply) -> Vec<u8> {
    let mut out = Writer::with_room(reply.body.len() + 128);
    out.raw(asked);
    out.number(reply.status);
    out.bytes(reply.content_type.as_bytes());
    let coding = reply.content_encoding.as_deref().unwrap_or_default();
    out.bytes(coding.as_bytes());
    out.raw(&reply.body);
    out.finish()
}

#[async_trait]
impl Replies for RedisReplies {
    async fn claim(
        &self,
        key: &ReplyKey,
        asked: &Fingerprint,
        owner: &Owner,
    ) -> Result<Claimed, CacheError> {
        let key = self.key(key);
        let own = claim(owner, asked);
        let held = self.run(&key, ("claim", own), PENDING, Vec::new()).await?;
        match held {
            None => Ok(Claimed::Yours),
            Some(held) => self.read(&key, asked, held).ok_or_else(damaged),
        }
    }

    async fn complete(
        &self,
        key: &ReplyKey,
        asked: &Fingerprint,
        owner: &Owner,
        reply: Reply,
    ) -> Result<(), CacheError> {
        let key = self.key(key);
        let body = Bytes::from(written(asked, &reply));
        let answer = [&[ANSWER][..], &self.tag(&key, &body), &body].concat();
        let own = claim(owner, &[]);
        let ended = self.run(&key, ("complete", own), COMPLETED, answer);
        ended.await.map(drop)
    }

    async fn release(&self, key: &ReplyKey, owner: &Owner) -> Result<(), CacheError> {
        let key = self.key(key);
        let own = claim(owner, &[]);
        let ended = self.run(&key, ("release", own), PENDING, Vec::new());
        ended.await.map(drop)
    }
}

fn damaged() -> CacheError {
    CacheError::Unavailable("a kept answer is damaged".to_owned())
}
