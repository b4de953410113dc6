//! The directive branch: the active version of the agent's directive, from a cache that the change feed keeps true.
//!
//! A load is a background task, one per agent at a time: a request waits for it no longer than its slice allows, and what it loads is kept
//! for the next one whoever has given up.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::auth::Scope;
use crate::ids::{AgentId, OrgId};
use crate::memory::search::BranchError;
use crate::store::shared::redis::directives::{SharedDirective, SharedDirectives};
use crate::store::{ChangeFeed, DirectiveStore, DirectiveVersion, StoreError};
use crate::tasks::Tasks;

/// The active directive of an agent, if it has one.
pub type Active = Option<Arc<DirectiveVersion>>;

/// Where a request's directive stands.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// Known without waiting.
    AtHand(Active),
    /// To be loaded inside the branch's slice.
    ToLoad,
}

/// Answers for the directive; behind a trait so that tests can make it slow or fail.
#[async_trait]
pub trait DirectiveBranch: Send + Sync + Debug {
    /// The active directive, when no waiting is needed.
    fn at_hand(&self, scope: &Scope) -> Option<Active>;

    /// Versions that were revoked, as far as is known without waiting.
    fn revoked(&self, scope: &Scope) -> Arc<[u32]>;

    /// Loads it.
    async fn load(&self, scope: &Scope) -> Result<Active, BranchError>;
}

/// Directives are read again after this time even if no change was seen (contract, section 4).
const TTL: Duration = Duration::from_secs(60);
/// An older value is served while it is read again, but not beyond this age: then requests wait for the store.
const STALE: Duration = Duration::from_secs(120);
/// Agents whose directive is kept.
const ENTRIES: u64 = 20_000;

/// What other replicas have read, and the feed that dates it.
#[derive(Clone)]
pub struct Others {
    /// The directives.
    pub shared: Arc<SharedDirectives>,
    /// The store's changes.
    pub feed: Arc<dyn ChangeFeed>,
}

impl Debug for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Others").finish_non_exhaustive()
    }
}

type Key = (OrgId, AgentId);
type Loaded = Option<Result<Active, StoreError>>;

/// A directive as it was read.
#[derive(Debug, Clone)]
struct Kept {
    active: Active,
    read_at: Instant,
}

/// A load under way.
#[derive(Debug)]
struct Flight {
    generation: u64,
    result: watch::Receiver<Loaded>,
}

/// What changes together: a load is joined, and its result kept, only while no invalidation has come since it began.
#[derive(Debug, Default)]
struct Loads {
    /// Counts invalidations.
    generation: u64,
    flights: HashMap<Key, Flight>,
}

/// The store's directives behind a cache.
#[derive(Clone)]
pub struct CachedDirectives {
    store: Arc<dyn DirectiveStore>,
    tasks: Tasks,
    cache: Cache<Key, Kept, foldhash::fast::RandomState>,
    /// Revoked versions by agent. Revoking is for good, so an invalidation does not forget them.
    revoked: Cache<Key, Arc<[u32]>, foldhash::fast::RandomState>,
    loads: Arc<Mutex<Loads>>,
    others: Option<Others>,
    /// The revision at which an agent's directive was last seen to change: what was read before it is not taken from others.
    changed: Cache<Key, i64, foldhash::fast::RandomState>,
}

impl Debug for CachedDirectives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedDirectives")
            .field("entries", &self.cache.entry_count())
            .finish_non_exhaustive()
    }
}

impl CachedDirectives {
    /// An empty cache over `store`, whose loads run in `tasks`.
    #[must_use]
    pub fn new(store: Arc<dyn DirectiveStore>, tasks: Tasks) -> Self {
        let cache = Cache::builder()
            .max_capacity(ENTRIES)
            .time_to_live(STALE)
            .build_with_hasher(foldhash::fast::RandomState::default());
        let revoked = Cache::builder()
            .max_capacity(ENTRIES)
            .build_with_hasher(foldhash::fast::RandomState::default());
        Self {
            store,
            tasks,
            cache,
            revoked,
            loads: Arc::default(),
            others: None,
            changed: Cache::builder()
                .max_capacity(ENTRIES)
                .build_with_hasher(foldhash::fast::RandomState::default()),
        }
    }

    /// With what other replicas have read, for when the store is away.
    #[must_use]
    pub fn with(mut self, others: Others) -> Self {
        self.others = Some(others);
        self
    }

    /// Forgets what is known of an agent: its active version has changed, at `revision` if that is known already.
    pub fn invalidate(&self, org: OrgId, agent: AgentId, revision: Option<i64>) {
        let mut loads = self.loads.lock();
        loads.generation += 1;
        self.cache.invalidate(&(org, agent));
        if self.others.is_some() {
            // Until the feed tells the revision, nothing that others have read is new enough.
            let revision = revision.unwrap_or(i64::MAX);
            self.changed.insert((org, agent), revision);
        }
    }

    /// Forgets everything.
    pub fn invalidate_all(&self) {
        let mut loads = self.loads.lock();
        loads.generation += 1;
        self.cache.invalidate_all();
    }

    /// The load of `key` that is under way, or a new one.
    fn loading(&self, key: Key) -> watch::Receiver<Loaded> {
        let mut loads = self.loads.lock();
        let generation = loads.generation;
        if let Some(flight) = loads.flights.get(&key)
            && flight.generation == generation
        {
            return flight.result.clone();
        }
        let (tell, result) = watch::channel(None);
        let flight = Flight {
            generation,
            result: result.clone(),
        };
        loads.flights.insert(key, flight);
        drop(loads);
        let landing = Landing {
            directives: self.clone(),
            key,
            generation,
        };
        self.tasks.spawn(async move {
            let loaded = landing.load().await;
            drop(landing);
            tell.send_replace(Some(loaded));
        });
        result
    }
}

/// A load's own end: its flight is taken off the list whatever becomes of it.
struct Landing {
    directives: CachedDirectives,
    key: Key,
    generation: u64,
}

impl Landing {
    async fn load(&self) -> Result<Active, StoreError> {
        let read_at = Instant::now();
        let (active, revoked) = match self.stored().await {
            Ok(read) => read,
            Err(error) => self.read_by_others().await.ok_or(error)?,
        };
        let loads = self.directives.loads.lock();
        let is_newest = loads.generation == self.generation;
        // A load that an invalidation has overtaken is not kept, but whoever waits for it has to know of every version revoked by then.
        let known = self.directives.revoked.get(&self.key);
        if is_newest || known.is_none_or(|known| known.len() < revoked.len()) {
            self.directives.revoked.insert(self.key, revoked);
        }
        if is_newest {
            let kept = Kept {
                active: active.clone(),
                read_at,
            };
            self.directives.cache.insert(self.key, kept);
        }
        Ok(active)
    }
}

impl Landing {
    /// What the store holds; told to the other replicas.
    async fn stored(&self) -> Result<(Active, Arc<[u32]>), StoreError> {
        let (org, agent) = self.key;
        let CachedDirectives { store, others, .. } = &self.directives;
        let Some(Others { shared, feed }) = others else {
            let active = store.active_directive(org, agent).await?.map(Arc::new);
            return Ok((active, store.revoked_directives(org, agent).await?.into()));
        };
        let revision = feed.revision().await?;
        let active = store.active_directive(org, agent).await?;
        let read = SharedDirective {
            active,
            revoked: store.revoked_directives(org, agent).await?,
            revision,
        };
        // Best effort: it serves when the store does not.
        shared.put(org, agent, &read).await.ok();
        Ok((read.active.map(Arc::new), read.revoked.into()))
    }

    /// What another replica has read not too long ago, and not before the last change that is known here.
    async fn read_by_others(&self) -> Option<(Active, Arc<[u32]>)> {
        let (org, agent) = self.key;
        let others = self.directives.others.as_ref()?;
        let read = others.shared.get(org, agent).await.ok()??.read;
        let least = self.directives.changed.get(&self.key).unwrap_or(0);
        let known = self.directives.revoked.get(&self.key).unwrap_or_default();
        let revoked = |version: u32| known.contains(&version);
        let usable = read.revision >= least
            && read
                .active
                .as_ref()
                .is_none_or(|active| !revoked(active.version));
        usable.then(|| (read.active.map(Arc::new), read.revoked.into()))
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut loads = self.directives.loads.lock();
        let own = |flight: &Flight| flight.generation == self.generation;
        if loads.flights.get(&self.key).is_some_and(own) {
            loads.flights.remove(&self.key);
        }
    }
}

#[async_trait]
impl DirectiveBranch for CachedDirectives {
    fn at_hand(&self, scope: &Scope) -> Option<Active> {
        let key = (scope.org(), scope.agent());
        let kept = self.cache.get(&key)?;
        let age = kept.read_at.elapsed();
        if age >= STALE {
            return None;
        }
        if age >= TTL {
            // Nobody waits for this load: it is there for the requests that follow.
            drop(self.loading(key));
        }
        Some(kept.active)
    }

    fn revoked(&self, scope: &Scope) -> Arc<[u32]> {
        let known = self.revoked.get(&(scope.org(), scope.agent()));
        known.unwrap_or_default()
    }

    async fn load(&self, scope: &Scope) -> Result<Active, BranchError> {
        let mut result = self.loading((scope.org(), scope.agent()));
        let loaded = result.wait_for(Option::is_some).await;
        match loaded.as_deref() {
            Ok(Some(loaded)) => Ok(loaded.clone()?),
            // The load was lost: its task panicked, or the process ends.
            Ok(None) | Err(_) => Err(BranchError::Interrupted),
        }
    }
}

#[cfg(test)]
mod tests;
