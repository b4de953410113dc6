//! Loads that outlive who asked for them, are shared, and never bring back what was invalidated.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{Active, CachedDirectives, DirectiveBranch, STALE, TTL};
use crate::auth::Scope;
use crate::ids::{AgentId, OrgId};
use crate::seams::{Clock, SystemClock};
use crate::store::{DirectiveMode, DirectiveStore, DirectiveVersion, NewDirective, StoreError};
use crate::tasks::Tasks;

/// A store that reads at once and answers when it is let go.
struct Slow {
    version: Mutex<u32>,
    reads: Mutex<usize>,
    go: Semaphore,
}

impl Slow {
    fn set(&self, version: u32) {
        *self.version.lock() = version;
    }

    fn reads(&self) -> usize {
        *self.reads.lock()
    }
}

#[async_trait]
impl DirectiveStore for Slow {
    async fn active_directive(
        &self,
        org: OrgId,
        agent: AgentId,
    ) -> Result<Option<DirectiveVersion>, StoreError> {
        let version = *self.version.lock();
        *self.reads.lock() += 1;
        self.go.acquire().await.unwrap().forget();
        if version == 0 {
            return Err(StoreError::Unavailable("out of order".to_owned()));
        }
        Ok(Some(DirectiveVersion {
            org,
            agent,
            version,
            content: "Be brief.".into(),
            mode: DirectiveMode::SystemFirst,
            content_hash: [0; 32],
            active: true,
            created_at: SystemClock.now(),
            revoked_at: None,
        }))
    }

    async fn directive_versions(
        &self,
        _: OrgId,
        _: AgentId,
    ) -> Result<Vec<DirectiveVersion>, StoreError> {
        Ok(Vec::new())
    }

    async fn add_directive(&self, _: NewDirective) -> Result<DirectiveVersion, StoreError> {
        Err(StoreError::Missing("directive"))
    }

    async fn promote_directive(
        &self,
        _: OrgId,
        _: AgentId,
        _: u32,
    ) -> Result<DirectiveVersion, StoreError> {
        Err(StoreError::Missing("directive"))
    }

    async fn directive_version(
        &self,
        _: OrgId,
        _: AgentId,
        _: u32,
    ) -> Result<Option<DirectiveVersion>, StoreError> {
        Ok(None)
    }

    async fn revoke_directive(
        &self,
        _: OrgId,
        _: AgentId,
        _: u32,
        _: jiff::Timestamp,
    ) -> Result<DirectiveVersion, StoreError> {
        Err(StoreError::Missing("directive"))
    }

    async fn revoked_directives(&self, _: OrgId, _: AgentId) -> Result<Vec<u32>, StoreError> {
        Ok(Vec::new())
    }

    async fn rollback_directive(
        &self,
        _: OrgId,
        _: AgentId,
    ) -> Result<DirectiveVersion, StoreError> {
        Err(StoreError::Missing("directive"))
    }
}

fn slow() -> (Arc<Slow>, CachedDirectives, Scope) {
    let store = Arc::new(Slow {
        version: Mutex::new(1),
        reads: Mutex::new(0),
        go: Semaphore::new(0),
    });
    let directives = CachedDirectives::new(store.clone(), Tasks::new());
    (
        store,
        directives,
        Scope::for_test(OrgId::new(), AgentId::new(), None),
    )
}

fn version(active: &Active) -> u32 {
    active.as_ref().map_or(0, |v| v.version)
}

/// The version at hand; every task that can go on has done so.
async fn at_hand(directives: &CachedDirectives, scope: &Scope) -> Option<u32> {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    directives.at_hand(scope).map(|active| version(&active))
}

const SLICE: Duration = Duration::from_millis(5);

#[tokio::test(start_paused = true)]
async fn a_load_outlives_the_requests_that_gave_up_and_they_share_it() {
    let (store, directives, scope) = slow();
    for _ in 0..3 {
        let waited = tokio::time::timeout(SLICE, directives.load(&scope)).await;
        assert!(waited.is_err());
    }
    assert_eq!(store.reads(), 1, "one load for all three");
    assert_eq!(at_hand(&directives, &scope).await, None);
    store.go.add_permits(1);
    assert_eq!(at_hand(&directives, &scope).await, Some(1));
    assert!(directives.loads.lock().flights.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_read_before_an_invalidation_is_neither_kept_nor_joined() {
    let (store, directives, scope) = slow();
    let waited = tokio::time::timeout(SLICE, directives.load(&scope)).await;
    assert!(waited.is_err());
    store.set(2);
    directives.invalidate(scope.org(), scope.agent(), None);
    let waited = tokio::time::timeout(SLICE, directives.load(&scope)).await;
    assert!(waited.is_err());
    assert_eq!(store.reads(), 2);
    store.go.add_permits(1);
    assert_eq!(
        at_hand(&directives, &scope).await,
        None,
        "the older load ended first"
    );
    store.go.add_permits(1);
    assert_eq!(at_hand(&directives, &scope).await, Some(2));
    directives.invalidate_all();
    assert_eq!(at_hand(&directives, &scope).await, None);
}

#[tokio::test(start_paused = true)]
async fn an_expired_value_is_served_while_it_is_read_again() {
    let (store, directives, scope) = slow();
    store.go.add_permits(1);
    assert_eq!(
        directives.load(&scope).await.map(|a| version(&a)).unwrap(),
        1
    );
    store.set(2);
    tokio::time::advance(TTL - Duration::from_secs(1)).await;
    assert_eq!(at_hand(&directives, &scope).await, Some(1));
    assert_eq!(store.reads(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(at_hand(&directives, &scope).await, Some(1));
    assert_eq!(at_hand(&directives, &scope).await, Some(1));
    assert_eq!(store.reads(), 2, "one refresh");
    store.go.add_permits(1);
    assert_eq!(at_hand(&directives, &scope).await, Some(2));
    tokio::time::advance(STALE).await;
    assert_eq!(
        at_hand(&directives, &scope).await,
        None,
        "too old to be served"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_and_the_next_request_tries_again() {
    let (store, directives, scope) = slow();
    store.set(0);
    store.go.add_permits(2);
    assert!(directives.load(&scope).await.is_err());
    store.set(3);
    assert_eq!(
        directives.load(&scope).await.map(|a| version(&a)).unwrap(),
        3
    );
}
