//! Directives: append-only versions, one of them active, and those that are out of use for good.

use sha2::{Digest, Sha256};

use ibex::ids::{AgentId, OrgId};
use ibex::store::{ChangeKind, DirectiveMode, NewDirective, StoreError};

use super::Backend;
use crate::store::fixtures::{Engine, new_agent, new_org, time};

async fn add(
    store: &dyn Engine,
    org: OrgId,
    agent: AgentId,
    content: &str,
) -> Result<u32, StoreError> {
    let new = NewDirective {
        org,
        agent,
        content: content.into(),
        mode: DirectiveMode::UserPrepend,
        created_at: time(1),
    };
    store
        .add_directive(new)
        .await
        .map(|directive| directive.version)
}

async fn active(store: &dyn Engine, org: OrgId, agent: AgentId) -> Option<u32> {
    store
        .active_directive(org, agent)
        .await
        .unwrap()
        .map(|directive| directive.version)
}

pub(crate) async fn versions_count_up_per_agent_and_wait_for_promotion(backend: &dyn Backend) {
    let store = backend.open().await;
    let org = new_org(&*store).await;
    let (agent, other) = (new_agent(&*store, org).await, new_agent(&*store, org).await);
    assert_eq!(add(&*store, org, agent, "one").await.unwrap(), 1);
    assert_eq!(add(&*store, org, agent, "two").await.unwrap(), 2);
    assert_eq!(add(&*store, org, other, "else").await.unwrap(), 1);
    assert_eq!(active(&*store, org, agent).await, None);
    let promoted = store.promote_directive(org, agent, 1).await.unwrap();
    assert!(promoted.active);
    assert_eq!(
        (&*promoted.content, promoted.mode),
        ("one", DirectiveMode::UserPrepend)
    );
    assert_eq!(
        promoted.content_hash,
        <[u8; 32]>::from(Sha256::digest("one"))
    );
    let versions = store.directive_versions(org, agent).await.unwrap();
    assert_eq!(
        versions
            .iter()
            .map(|v| (v.version, v.active))
            .collect::<Vec<_>>(),
        [(2, false), (1, true)]
    );
    assert_eq!(active(&*store, org, other).await, None);
}

pub(crate) async fn rollback_returns_to_what_was_active_before(backend: &dyn Backend) {
    let store = backend.open().await;
    let org = new_org(&*store).await;
    let agent = new_agent(&*store, org).await;
    for text in ["one", "two", "three"] {
        add(&*store, org, agent, text).await.unwrap();
    }
    for version in [1, 3, 3, 2] {
        store.promote_directive(org, agent, version).await.unwrap();
    }
    assert_eq!(
        store.rollback_directive(org, agent).await.unwrap().version,
        3
    );
    assert_eq!(
        store.rollback_directive(org, agent).await.unwrap().version,
        1,
        "a repeated promotion counts once"
    );
    assert!(matches!(
        store.rollback_directive(org, agent).await,
        Err(StoreError::Missing(_))
    ));
    assert_eq!(
        active(&*store, org, agent).await,
        Some(1),
        "a refused rollback changes nothing"
    );
    assert_eq!(store.directive_versions(org, agent).await.unwrap().len(), 3);
}

pub(crate) async fn unknown_versions_and_foreign_agents_are_refused(backend: &dyn Backend) {
    let store = backend.open().await;
    let (org, foreign) = (new_org(&*store).await, new_org(&*store).await);
    let agent = new_agent(&*store, org).await;
    add(&*store, org, agent, "one").await.unwrap();
    store.promote_directive(org, agent, 1).await.unwrap();
    assert!(matches!(
        store.promote_directive(org, agent, 2).await,
        Err(StoreError::Missing("directive version"))
    ));
    assert!(matches!(
        store.promote_directive(foreign, agent, 1).await,
        Err(StoreError::Missing("directive version"))
    ));
    assert!(matches!(
        add(&*store, foreign, agent, "x").await,
        Err(StoreError::Missing("agent"))
    ));
    assert_eq!(active(&*store, foreign, agent).await, None);
    assert!(
        store
            .directive_versions(foreign, agent)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(matches!(
        store.rollback_directive(org, agent).await,
        Err(StoreError::Missing(_))
    ));
}

pub(crate) async fn the_active_version_survives_a_restart(backend: &dyn Backend) {
    let store = backend.open().await;
    let org = new_org(&*store).await;
    let agent = new_agent(&*store, org).await;
    add(&*store, org, agent, "one").await.unwrap();
    store.promote_directive(org, agent, 1).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(active(&*backend.open().await, org, agent).await, Some(1));
}

pub(crate) async fn a_revoked_version_is_out_of_use_for_good(backend: &dyn Backend) {
    let store = backend.open().await;
    let org = new_org(&*store).await;
    let (agent, other) = (new_agent(&*store, org).await, new_agent(&*store, org).await);
    for agent in [agent, other] {
        for text in ["one", "two", "three"] {
            add(&*store, org, agent, text).await.unwrap();
        }
    }
    for version in [1, 2] {
        store.promote_directive(org, agent, version).await.unwrap();
        store.promote_directive(org, other, version).await.unwrap();
    }
    let before = store.revision().await.unwrap();
    let revoked = store
        .revoke_directive(org, agent, 2, time(5))
        .await
        .unwrap();
    assert_eq!(
        (revoked.version, revoked.active, revoked.revoked_at),
        (2, false, Some(time(5)))
    );
    let changes = store.changes_after(before, 10).await.unwrap();
    let kinds: Vec<_> = changes.into_iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ChangeKind::Directive(org, agent)]);
    assert_eq!(active(&*store, org, agent).await, Some(1));
    assert!(matches!(
        store.promote_directive(org, agent, 2).await,
        Err(StoreError::Revoked("directive version"))
    ));
    assert_eq!(active(&*store, org, agent).await, Some(1));
    store
        .revoke_directive(org, agent, 3, time(6))
        .await
        .unwrap();
    let again = store
        .revoke_directive(org, agent, 2, time(7))
        .await
        .unwrap();
    assert_eq!(again.revoked_at, Some(time(5)), "the first time stays");
    assert_eq!(store.revoked_directives(org, agent).await.unwrap(), [2, 3]);
    assert!(matches!(
        store.rollback_directive(org, agent).await,
        Err(StoreError::Missing(_))
    ));
    // Another agent's versions of the same numbers are untouched.
    assert_eq!(active(&*store, org, other).await, Some(2));
    assert!(
        store
            .revoked_directives(org, other)
            .await
            .unwrap()
            .is_empty()
    );
}

pub(crate) async fn an_agent_without_a_version_left_gets_a_new_one(backend: &dyn Backend) {
    let store = backend.open().await;
    let org = new_org(&*store).await;
    let agent = new_agent(&*store, org).await;
    add(&*store, org, agent, "one").await.unwrap();
    store.promote_directive(org, agent, 1).await.unwrap();
    store
        .revoke_directive(org, agent, 1, time(5))
        .await
        .unwrap();
    assert_eq!(active(&*store, org, agent).await, None);
    store.close().await.unwrap();
    let store = backend.open().await;
    assert_eq!(store.revoked_directives(org, agent).await.unwrap(), [1]);
    assert_eq!(add(&*store, org, agent, "two").await.unwrap(), 2);
    store.promote_directive(org, agent, 2).await.unwrap();
    assert_eq!(active(&*store, org, agent).await, Some(2));
}

pub(crate) async fn a_rollback_after_a_revocation_never_stays_where_it_is(backend: &dyn Backend) {
    let store = backend.open().await;
    let org = new_org(&*store).await;
    let agent = new_agent(&*store, org).await;
    for text in ["one", "two", "three"] {
        add(&*store, org, agent, text).await.unwrap();
    }
    for version in [3, 1, 2, 1, 2, 1] {
        store.promote_directive(org, agent, version).await.unwrap();
    }
    store
        .revoke_directive(org, agent, 2, time(5))
        .await
        .unwrap();
    assert_eq!(active(&*store, org, agent).await, Some(1));
    assert_eq!(
        store.rollback_directive(org, agent).await.unwrap().version,
        3
    );
}

pub(crate) async fn one_version_is_read_and_revoked_by_its_own_agent_only(backend: &dyn Backend) {
    let store = backend.open().await;
    let (org, foreign) = (new_org(&*store).await, new_org(&*store).await);
    let (agent, other) = (new_agent(&*store, org).await, new_agent(&*store, org).await);
    add(&*store, org, agent, "one").await.unwrap();
    add(&*store, org, agent, "two").await.unwrap();
    store.promote_directive(org, agent, 2).await.unwrap();
    let read = async |org, agent, version| {
        let found = store.directive_version(org, agent, version).await.unwrap();
        found.map(|d| (d.content.to_string(), d.active))
    };
    assert_eq!(read(org, agent, 1).await, Some(("one".to_owned(), false)));
    assert_eq!(read(org, agent, 2).await, Some(("two".to_owned(), true)));
    for (org, agent, version) in [(org, agent, 3), (org, other, 1), (foreign, agent, 1)] {
        assert_eq!(read(org, agent, version).await, None);
        assert!(matches!(
            store.revoke_directive(org, agent, version, time(5)).await,
            Err(StoreError::Missing("directive version"))
        ));
    }
    assert!(
        store
            .revoked_directives(org, agent)
            .await
            .unwrap()
            .is_empty()
    );
}
