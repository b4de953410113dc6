//! Validated credentials and looked-up agents, kept for a while.
//!
//! Every map is bounded, and refusals live in maps of their own: a flood of bad tokens cannot push a good one out. An entry is served only
//! before its instant, so nothing here has to run for an entry to end.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::time::Instant;

use crate::ids::{AgentId, OrgId, TokenId};
use crate::store::{AgentStatus, CaptureScope};

use super::TokenClaims;
use super::pat::Digest;

/// Refusals are kept in this number at most (contract, section 2.1: the filter of rejected tokens).
const REFUSED_ENTRIES: u64 = 10_000;
/// How long a refusal is repeated without asking again: enough to break a retry loop, too short to matter to anybody waiting.
const REFUSED_TTL: Duration = Duration::from_secs(5);

/// The state of a map when a read of the store began; see [`Shelf::insert`].
#[derive(Debug, Clone, Copy)]
struct Ticket(u64);

#[derive(Debug, Clone)]
struct Kept<V> {
    value: V,
    until: Instant,
}

/// A bounded map whose entries end at an instant and whose removals win against reads of the store that began before them.
struct Shelf<K, V> {
    entries: Cache<K, Kept<V>>,
    removals: AtomicU64,
}

impl<K, V> Shelf<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    fn new(capacity: u64) -> Self {
        // Least recently used: frequency-based admission would keep a new token out of a full map for long.
        let entries = Cache::builder()
            .max_capacity(capacity)
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Self {
            entries,
            removals: AtomicU64::new(0),
        }
    }

    fn get(&self, key: &K, now: Instant) -> Option<V> {
        self.entries
            .get(key)
            .filter(|kept| now < kept.until)
            .map(|kept| kept.value)
    }

    /// Taken before the store is read.
    fn ticket(&self) -> Ticket {
        Ticket(self.removals.load(Ordering::SeqCst))
    }

    /// Keeps what was read under `ticket`, unless something was removed since: the read may be older than the change.
    fn insert(&self, ticket: Ticket, key: K, value: V, until: Instant)
    where
        K: Copy,
    {
        self.entries.insert(key, Kept { value, until });
        // Either this sees the removal's count, or the removal's sweep sees the entry.
        if self.removals.load(Ordering::SeqCst) != ticket.0 {
            self.entries.invalidate(&key);
        }
    }

    fn remove_if(&self, doomed: impl Fn(&K, &V) -> bool) {
        self.removals.fetch_add(1, Ordering::SeqCst);
        for (key, kept) in &self.entries {
            if doomed(&key, &kept.value) {
                self.entries.invalidate(&*key);
            }
        }
    }
}

/// A verdict on a credential that is worth repeating.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::auth) enum Refusal {
    /// Unknown, expired, revoked or malformed.
    Invalid,
    /// Valid, but its organisation is suspended.
    OrgSuspended,
}

/// Tickets of both maps of a cache.
#[derive(Debug, Clone, Copy)]
pub(in crate::auth) struct Tickets {
    good: Ticket,
    bad: Ticket,
}

/// Verdicts by the credential's full digest.
pub(in crate::auth) struct TokenCache {
    good: Shelf<Digest, Arc<TokenClaims>>,
    bad: Shelf<Digest, Refusal>,
    ttl: Duration,
}

impl TokenCache {
    pub(in crate::auth) fn new(entries: u64, ttl: Duration) -> Self {
        Self {
            good: Shelf::new(entries),
            bad: Shelf::new(REFUSED_ENTRIES),
            ttl,
        }
    }

    /// The kept verdict. `wall` is asked only for credentials that end.
    pub(in crate::auth) fn get(
        &self,
        digest: &Digest,
        wall: impl FnOnce() -> Timestamp,
    ) -> Option<Result<Arc<TokenClaims>, Refusal>> {
        let now = Instant::now();
        if let Some(claims) = self.good.get(digest, now) {
            // The instant already accounts for the expiry; this also holds when the wall clock was set in between.
            let live = claims.expires_at.is_none_or(|end| wall() < end);
            return live.then_some(Ok(claims));
        }
        self.bad.get(digest, now).map(Err)
    }

    pub(in crate::auth) fn tickets(&self) -> Tickets {
        Tickets {
            good: self.good.ticket(),
            bad: self.bad.ticket(),
        }
    }

    pub(in crate::auth) fn keep(
        &self,
        tickets: Tickets,
        digest: Digest,
        claims: Arc<TokenClaims>,
        wall: Timestamp,
    ) {
        let left = claims.expires_at.map_or(self.ttl, |end| {
            Duration::try_from(end.duration_since(wall)).unwrap_or_default()
        });
        let ttl = left.min(self.ttl);
        if !ttl.is_zero() {
            self.good
                .insert(tickets.good, digest, claims, Instant::now() + ttl);
        }
    }

    pub(in crate::auth) fn refuse(&self, tickets: Tickets, digest: Digest, refusal: Refusal) {
        let ttl = REFUSED_TTL.min(self.ttl);
        if !ttl.is_zero() {
            self.bad
                .insert(tickets.bad, digest, refusal, Instant::now() + ttl);
        }
    }

    pub(in crate::auth) fn remove_token(&self, token: TokenId) {
        self.good.remove_if(|_, claims| claims.token == token);
        self.bad.remove_if(|_, _| true);
    }

    pub(in crate::auth) fn remove_org(&self, org: OrgId) {
        self.good.remove_if(|_, claims| claims.org == org);
        self.bad.remove_if(|_, _| true);
    }

    pub(in crate::auth) fn clear(&self) {
        self.good.remove_if(|_, _| true);
        self.bad.remove_if(|_, _| true);
    }
}

type AgentKey = (OrgId, AgentId);

/// An agent's status, and what of its conversations becomes memory.
pub(in crate::auth) type AgentStanding = (AgentStatus, CaptureScope);

/// The standing of agents, and which agents an organisation does not have.
pub(in crate::auth) struct AgentCache {
    known: Shelf<AgentKey, AgentStanding>,
    unknown: Shelf<AgentKey, ()>,
    ttl: Duration,
}

impl AgentCache {
    pub(in crate::auth) fn new(entries: u64, ttl: Duration) -> Self {
        Self {
            known: Shelf::new(entries),
            unknown: Shelf::new(REFUSED_ENTRIES),
            ttl,
        }
    }

    /// The agent's status, or that there is no such agent in the organisation.
    pub(in crate::auth) fn get(&self, key: AgentKey) -> Option<Option<AgentStanding>> {
        let now = Instant::now();
        self.known
            .get(&key, now)
            .map(Some)
            .or_else(|| self.unknown.get(&key, now).map(|()| None))
    }

    pub(in crate::auth) fn tickets(&self) -> Tickets {
        Tickets {
            good: self.known.ticket(),
            bad: self.unknown.ticket(),
        }
    }

    pub(in crate::auth) fn keep(
        &self,
        tickets: Tickets,
        key: AgentKey,
        status: Option<AgentStanding>,
    ) {
        if self.ttl.is_zero() {
            return;
        }
        match status {
            Some(status) => self
                .known
                .insert(tickets.good, key, status, Instant::now() + self.ttl),
            None => self.unknown.insert(
                tickets.bad,
                key,
                (),
                Instant::now() + REFUSED_TTL.min(self.ttl),
            ),
        }
    }

    pub(in crate::auth) fn remove(&self, agent: AgentKey) {
        self.known.remove_if(|key, _| *key == agent);
        self.unknown.remove_if(|key, ()| *key == agent);
    }

    pub(in crate::auth) fn clear(&self) {
        self.known.remove_if(|_, _| true);
        self.unknown.remove_if(|_, ()| true);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{AgentCache, Refusal, TokenCache};
    use crate::auth::testing::start;
    use crate::auth::{Permissions, TokenClaims};
    use crate::ids::{AgentId, OrgId, TokenId};
    use crate::store::{AgentStatus, CaptureScope};

    const DIGEST: [u8; 32] = [1; 32];

    fn claims() -> Arc<TokenClaims> {
        let (token, org, permissions) = (TokenId::new(), OrgId::new(), Permissions::NONE);
        Arc::new(TokenClaims {
            token,
            org,
            agent: None,
            user: None,
            permissions,
            expires_at: None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_older_than_a_removal_is_not_kept() {
        let cache = TokenCache::new(10, Duration::from_secs(30));
        let (before, claims) = (cache.tickets(), claims());
        cache.remove_token(TokenId::new());
        cache.keep(before, DIGEST, Arc::clone(&claims), start());
        assert_eq!(cache.get(&DIGEST, start), None);
        cache.refuse(before, DIGEST, Refusal::Invalid);
        assert_eq!(cache.get(&DIGEST, start), None);

        cache.keep(cache.tickets(), DIGEST, Arc::clone(&claims), start());
        assert_eq!(cache.get(&DIGEST, start), Some(Ok(claims)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_read_before_its_change_is_not_kept() {
        let cache = AgentCache::new(10, Duration::from_secs(30));
        let key = (OrgId::new(), AgentId::new());
        for status in [Some((AgentStatus::Active, CaptureScope::User)), None] {
            let before = cache.tickets();
            cache.remove(key);
            cache.keep(before, key, status);
            assert_eq!(cache.get(key), None);
            cache.keep(cache.tickets(), key, status);
            assert_eq!(cache.get(key), Some(status));
            cache.clear();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_lifetime_nothing_is_kept() {
        let cache = TokenCache::new(10, Duration::ZERO);
        cache.keep(cache.tickets(), DIGEST, claims(), start());
        cache.refuse(cache.tickets(), DIGEST, Refusal::Invalid);
        assert_eq!(cache.get(&DIGEST, start), None);
    }
}
