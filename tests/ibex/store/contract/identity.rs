//! Organisations, agents and tokens.

use ibex::ids::{AgentId, OrgId, TokenId};
use ibex::store::{Agent, AgentStatus, CaptureScope, ChangeKind, Org, OrgStatus, StoreError};

use super::Backend;
use crate::store::fixtures::{new_agent, new_org, time, token};

pub(crate) async fn organisations_are_kept_and_listed_oldest_first(backend: &dyn Backend) {
    let store = backend.open().await;
    for (name, at) in [("second", 2), ("first", 1)] {
        let org = Org {
            id: OrgId::new(),
            name: name.to_owned(),
            status: OrgStatus::Active,
            created_at: time(at),
        };
        store.create_org(org.clone()).await.unwrap();
        assert!(matches!(
            store.create_org(org).await,
            Err(StoreError::Conflict("organisation"))
        ));
    }
    let orgs = store.orgs().await.unwrap();
    assert_eq!(
        orgs.iter().map(|o| o.name.as_str()).collect::<Vec<_>>(),
        ["first", "second"]
    );
    store
        .set_org_status(orgs[0].id, OrgStatus::Suspended)
        .await
        .unwrap();
    let read = store.org(orgs[0].id).await.unwrap().unwrap();
    assert_eq!(
        (read.status, read.created_at),
        (OrgStatus::Suspended, time(1))
    );
    assert_eq!(
        store.org(orgs[1].id).await.unwrap().unwrap().status,
        OrgStatus::Active
    );
    assert!(store.org(OrgId::new()).await.unwrap().is_none());
    assert!(matches!(
        store.set_org_status(OrgId::new(), OrgStatus::Active).await,
        Err(StoreError::Missing("organisation"))
    ));
}

pub(crate) async fn an_agent_is_invisible_to_another_organisation(backend: &dyn Backend) {
    let store = backend.open().await;
    let (own, foreign) = (new_org(&*store).await, new_org(&*store).await);
    let id = new_agent(&*store, own).await;
    assert!(store.agent(foreign, id).await.unwrap().is_none());
    assert!(store.agents(foreign).await.unwrap().is_empty());
    assert!(matches!(
        store
            .set_agent_status(foreign, id, AgentStatus::Archived)
            .await,
        Err(StoreError::Missing("agent"))
    ));
    store
        .set_agent_status(own, id, AgentStatus::Paused)
        .await
        .unwrap();
    assert_eq!(
        store.agent(own, id).await.unwrap().unwrap().status,
        AgentStatus::Paused
    );
    assert_eq!(store.agents(own).await.unwrap().len(), 1);
    let homeless = Agent {
        id: AgentId::new(),
        org: OrgId::new(),
        name: String::new(),
        status: AgentStatus::Active,
        capture: CaptureScope::Off,
        created_at: time(0),
    };
    assert!(matches!(
        store.create_agent(homeless).await,
        Err(StoreError::Missing("organisation"))
    ));
}

pub(crate) async fn what_an_agent_captures_is_kept_and_told(backend: &dyn Backend) {
    let store = backend.open().await;
    let (own, foreign) = (new_org(&*store).await, new_org(&*store).await);
    let id = new_agent(&*store, own).await;
    let capture = async || store.agent(own, id).await.unwrap().unwrap().capture;
    assert_eq!(capture().await, CaptureScope::Off);
    let before = store.revision().await.unwrap();
    for scope in [CaptureScope::User, CaptureScope::Agent] {
        store.set_agent_capture(own, id, scope).await.unwrap();
        assert_eq!(capture().await, scope);
    }
    assert!(matches!(
        store
            .set_agent_capture(foreign, id, CaptureScope::Off)
            .await,
        Err(StoreError::Missing("agent"))
    ));
    assert_eq!(capture().await, CaptureScope::Agent);
    let changes = store.changes_after(before, 10).await.unwrap();
    let kinds: Vec<_> = changes.into_iter().map(|change| change.kind).collect();
    let told = ChangeKind::Agent(own, id);
    assert_eq!(kinds, [told.clone(), told]);
}

pub(crate) async fn tokens_come_back_whole_and_keep_their_first_revocation(backend: &dyn Backend) {
    let store = backend.open().await;
    let org = new_org(&*store).await;
    let agent = new_agent(&*store, org).await;
    let stored = token(org, Some(agent));
    store.create_token(stored.clone()).await.unwrap();
    let read = store.token(stored.id).await.unwrap().unwrap();
    assert_eq!(format!("{read:?}"), format!("{stored:?}"));
    assert!(matches!(
        store.create_token(stored.clone()).await,
        Err(StoreError::Conflict("token"))
    ));
    store.revoke_token(stored.id, time(5)).await.unwrap();
    store.revoke_token(stored.id, time(6)).await.unwrap();
    let listed = store.tokens(org).await.unwrap();
    assert_eq!(
        listed.iter().map(|t| t.revoked_at).collect::<Vec<_>>(),
        [Some(time(5))]
    );
    assert!(
        store
            .tokens(new_org(&*store).await)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(matches!(
        store.revoke_token(TokenId::new(), time(5)).await,
        Err(StoreError::Missing("token"))
    ));
}

pub(crate) async fn a_token_cannot_be_bound_to_another_organisations_agent(backend: &dyn Backend) {
    let store = backend.open().await;
    let (own, foreign) = (new_org(&*store).await, new_org(&*store).await);
    let agent = new_agent(&*store, foreign).await;
    assert!(matches!(
        store.create_token(token(own, Some(agent))).await,
        Err(StoreError::Missing("agent"))
    ));
    assert!(matches!(
        store.create_token(token(OrgId::new(), None)).await,
        Err(StoreError::Missing("organisation"))
    ));
    store.create_token(token(own, None)).await.unwrap();
}
