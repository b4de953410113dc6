//! Answers of keyed chat requests, so that a repeated one is not sent to the provider again (contract, section 14).
//!
//! A key is claimed, and then either completed with the answer or released. A claim whose process died is free again after a while.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use moka::Expiry;
use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::CacheError;
use crate::ids::OrgId;

/// How long a claim holds.
pub const PENDING: Duration = Duration::from_secs(540);
/// How long an answer is kept.
pub const COMPLETED: Duration = Duration::from_secs(86_400);
/// Bytes of answers that one process keeps; the oldest go first.
const MOST_BYTES: u64 = 64 << 20;

/// A client's key in its scope, hashed: the same key of another organisation, agent or user is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplyKey {
    /// The tenant.
    pub org: OrgId,
    /// A keyed hash of scope and key.
    pub hash: [u8; 32],
}

/// What a request is told from another by: a keyed hash of its body.
pub type Fingerprint = [u8; 32];

/// Who holds a claim.
pub type Owner = [u8; 16];

/// An answer as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The media type.
    pub content_type: String,
    /// The coding of the body, if it has one.
    pub content_encoding: Option<String>,
    /// The body.
    pub body: Bytes,
}

/// How a key stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// It was free, and is the caller's now.
    Yours,
    /// A request with this body is under way.
    InProgress,
    /// The answer to this body.
    Done(Reply),
    /// It was used for another body.
    Reused,
}

/// Keyed answers.
#[async_trait]
pub trait Replies: Send + Sync + fmt::Debug {
    /// Claims a key for `owner`.
    async fn claim(
        &self,
        key: &ReplyKey,
        asked: &Fingerprint,
        owner: &Owner,
    ) -> Result<Claimed, CacheError>;
    /// Puts the answer in the claim's place, if `owner` still holds it.
    async fn complete(
        &self,
        key: &ReplyKey,
        asked: &Fingerprint,
        owner: &Owner,
        reply: Reply,
    ) -> Result<(), CacheError>;
    /// Gives the claim back, if `owner` still holds it.
    async fn release(&self, key: &ReplyKey, owner: &Owner) -> Result<(), CacheError>;
}

#[derive(Debug, Clone)]
enum State {
    Pending(Owner),
    Done(Reply),
}

#[derive(Debug, Clone)]
struct Entry {
    asked: Fingerprint,
    state: State,
    until: Instant,
}

/// The answers of one process.
#[derive(Clone)]
pub struct OwnReplies {
    entries: Cache<ReplyKey, Entry>,
    /// Held for each change: looking and putting are one step.
    changing: Arc<Mutex<()>>,
}

impl fmt::Debug for OwnReplies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnReplies")
            .field("entries", &self.entries.entry_count())
            .finish_non_exhaustive()
    }
}

/// What an entry weighs besides its body.
const ENTRY_BYTES: u32 = 256;

/// An entry leaves when its time is over.
struct AtItsEnd;

impl Expiry<ReplyKey, Entry> for AtItsEnd {
    fn expire_after_create(
        &self,
        _: &ReplyKey,
        entry: &Entry,
        _: std::time::Instant,
    ) -> Option<Duration> {
        Some(entry.until.saturating_duration_since(Instant::now()))
    }

    fn expire_after_update(
        &self,
        key: &ReplyKey,
        entry: &Entry,
        now: std::time::Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        self.expire_after_create(key, entry, now)
    }
}

impl Default for OwnReplies {
    fn default() -> Self {
        let weight = |_: &ReplyKey, entry: &Entry| match &entry.state {
            State::Pending(_) => ENTRY_BYTES,
            State::Done(reply) => u32::try_from(reply.body.len())
                .unwrap_or(u32::MAX)
                .saturating_add(ENTRY_BYTES),
        };
        Self {
            entries: Cache::builder()
                .max_capacity(MOST_BYTES)
                .weigher(weight)
                .expire_after(AtItsEnd)
                .build(),
            changing: Arc::default(),
        }
    }
}

impl OwnReplies {
    fn live(&self, key: &ReplyKey) -> Option<Entry> {
        let entry = self.entries.get(key)?;
        (Instant::now() < entry.until).then_some(entry)
    }

    fn put(&self, key: &ReplyKey, asked: Fingerprint, state: State) {
        let kept = match state {
            State::Pending(_) => PENDING,
            State::Done(_) => COMPLETED,
        };
        let until = Instant::now() + kept;
        self.entries.insert(
            *key,
            Entry {
                asked,
                state,
                until,
            },
        );
    }

    fn held_by(&self, key: &ReplyKey, owner: &Owner) -> Option<Entry> {
        self.live(key)
            .filter(|entry| matches!(&entry.state, State::Pending(held) if held == owner))
    }
}

#[async_trait]
impl Replies for OwnReplies {
    async fn claim(
        &self,
        key: &ReplyKey,
        asked: &Fingerprint,
        owner: &Owner,
    ) -> Result<Claimed, CacheError> {
        let _changing = self.changing.lock();
        let Some(entry) = self.live(key) else {
            self.put(key, *asked, State::Pending(*owner));
            return Ok(Claimed::Yours);
        };
        Ok(match entry.state {
            _ if entry.asked != *asked => Claimed::Reused,
            State::Pending(_) => Claimed::InProgress,
            State::Done(reply) => Claimed::Done(reply),
        })
    }

    async fn complete(
        &self,
        key: &ReplyKey,
        asked: &Fingerprint,
        owner: &Owner,
        reply: Reply,
    ) -> Result<(), CacheError> {
        let _changing = self.changing.lock();
        if self.held_by(key, owner).is_some() {
            self.put(key, *asked, State::Done(reply));
        }
        Ok(())
    }

    async fn release(&self, key: &ReplyKey, owner: &Owner) -> Result<(), CacheError> {
        let _changing = self.changing.lock();
        if self.held_by(key, owner).is_some() {
            self.entries.invalidate(key);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::time::advance;

    use super::{COMPLETED, Claimed, OwnReplies, PENDING, Replies, Reply, ReplyKey};
    use crate::ids::OrgId;

    fn key(hash: u8) -> ReplyKey {
        ReplyKey {
            org: OrgId::from_bytes([1; 16]),
            hash: [hash; 32],
        }
    }

    fn reply() -> Reply {
        Reply {
            status: 200,
            content_type: "application/json".to_owned(),
            content_encoding: None,
            body: Bytes::from_static(b"{}"),
        }
    }

    const ASKED: [u8; 32] = [1; 32];
    const FIRST: [u8; 16] = [1; 16];
    const SECOND: [u8; 16] = [2; 16];

    async fn claim(replies: &OwnReplies, owner: &[u8; 16]) -> Claimed {
        replies.claim(&key(1), &ASKED, owner).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_one_requests_until_it_is_over() {
        let replies = OwnReplies::default();
        assert_eq!(claim(&replies, &FIRST).await, Claimed::Yours);
        assert_eq!(claim(&replies, &SECOND).await, Claimed::InProgress);
        let other = replies.claim(&key(1), &[2; 32], &SECOND).await.unwrap();
        assert_eq!(other, Claimed::Reused);
        let elsewhere = replies.claim(&key(2), &[2; 32], &SECOND).await.unwrap();
        assert_eq!(elsewhere, Claimed::Yours);
        // Not the holder's to end.
        replies
            .complete(&key(1), &ASKED, &SECOND, reply())
            .await
            .unwrap();
        replies.release(&key(1), &SECOND).await.unwrap();
        assert_eq!(claim(&replies, &SECOND).await, Claimed::InProgress);
        replies
            .complete(&key(1), &ASKED, &FIRST, reply())
            .await
            .unwrap();
        assert_eq!(claim(&replies, &SECOND).await, Claimed::Done(reply()));
        advance(COMPLETED).await;
        assert_eq!(claim(&replies, &SECOND).await, Claimed::Yours);
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_is_given_back_or_forgotten_is_free() {
        let replies = OwnReplies::default();
        claim(&replies, &FIRST).await;
        replies.release(&key(1), &FIRST).await.unwrap();
        assert_eq!(claim(&replies, &SECOND).await, Claimed::Yours);
        advance(PENDING).await;
        assert_eq!(claim(&replies, &FIRST).await, Claimed::Yours);
        // What the former holder says comes too late.
        replies
            .complete(&key(1), &ASKED, &SECOND, reply())
            .await
            .unwrap();
        assert_eq!(claim(&replies, &SECOND).await, Claimed::InProgress);
    }
}
