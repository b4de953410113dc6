//! The directive branch: the active version of the agent's directive, from a cache that the change feed keeps true.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use moka::sync::Cache;

use crate::auth::Scope;
use crate::ids::{AgentId, OrgId};
use crate::memory::search::BranchError;
use crate::store::{DirectiveVersion, Store};

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

    /// Loads it.
    async fn load(&self, scope: &Scope) -> Result<Active, BranchError>;
}

/// Directives are read again after this time even if no change was seen (contract, section 4).
const TTL: Duration = Duration::from_secs(60);
/// Agents whose directive is kept.
const ENTRIES: u64 = 20_000;

/// The store's directives behind a cache.
pub struct CachedDirectives {
    store: Arc<dyn Store>,
    cache: Cache<(OrgId, AgentId), Active, foldhash::fast::RandomState>,
    /// Counts invalidations: what was read before one is not kept after it.
    generation: AtomicU64,
}

impl Debug for CachedDirectives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CachedDirectives")
            .field("entries", &self.cache.entry_count())
            .finish_non_exhaustive()
    }
}

impl CachedDirectives {
    /// An empty cache over `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        let cache = Cache::builder()
            .max_capacity(ENTRIES)
            .time_to_live(TTL)
            .build_with_hasher(foldhash::fast::RandomState::default());
        Self {
            store,
            cache,
            generation: AtomicU64::new(0),
        }
    }

    /// Forgets what is known of an agent: its active version has changed.
    pub fn invalidate(&self, org: OrgId, agent: AgentId) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.cache.invalidate(&(org, agent));
    }

    /// Forgets everything.
    pub fn invalidate_all(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.cache.invalidate_all();
    }
}

#[async_trait]
impl DirectiveBranch for CachedDirectives {
    fn at_hand(&self, scope: &Scope) -> Option<Active> {
        self.cache.get(&(scope.org(), scope.agent()))
    }

    async fn load(&self, scope: &Scope) -> Result<Active, BranchError> {
        let (org, agent) = (scope.org(), scope.agent());
        let before = self.generation.load(Ordering::SeqCst);
        let active = self.store.active_directive(org, agent).await?.map(Arc::new);
        self.cache.insert((org, agent), active.clone());
        if self.generation.load(Ordering::SeqCst) != before {
            self.cache.invalidate(&(org, agent));
        }
        Ok(active)
    }
}
