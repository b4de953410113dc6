//! What another process writes to the same file reaches the running service: awaited as a condition, bounded by patience.

use std::future::Future;

use http::StatusCode;
use ibex::auth::{Permissions, operator_principal};
use ibex::config::StoreConfig;
use ibex::ids::MemoryId;
use ibex::memory::{Memory, PartitionKey};
use ibex::seams::{Clock, SystemClock};
use ibex::store::sqlite::SqliteStore;
use ibex::store::{
    AgentStatus, ChangeFeed, DirectiveMode, DirectiveStore, IdentityStore, MemoryStore,
    NewDirective, OrgStatus, RefineryStore,
};
use serde_json::json;

use super::{create, search};
use crate::support::{Overrides, TestApp, patient, soon};

/// A service, and the store as another process has it open.
async fn pair() -> (TestApp, SqliteStore) {
    pair_that_polls(5).await
}

async fn pair_that_polls(interval_ms: u64) -> (TestApp, SqliteStore) {
    let edit = |config: &mut ibex::config::Config| {
        patient(config);
        config.store.poll_interval_ms = interval_ms;
    };
    let app = TestApp::with("http://127.0.0.1:9/v1", edit, Overrides::default()).await;
    let other = SqliteStore::open(&app.app.config.store.path, &StoreConfig::default()).unwrap();
    (app, other)
}

/// Asks again until it holds.
async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    soon(what, async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn memories_of_another_process_come_and_go() {
    let (app, other) = pair().await;
    let client = app.client();
    // The partition is loaded: what comes now can only come by the feed.
    let id = create(&client, &json!({"content": "The ferry leaves at noon."})).await;
    assert_eq!(search(&client, "ferry").await, std::slice::from_ref(&id));
    let partition = PartitionKey {
        org: app.org,
        agent: app.agent,
        user: None,
    };
    let mut written = other
        .memory(std::slice::from_ref(&partition), id.parse().unwrap())
        .await
        .unwrap()
        .unwrap();
    written.id = MemoryId::new();
    written.content = "The ferry is painted green.".into();
    written.content_hash = ibex::memory::write::content_hash(&written.content);
    let new = written.id;
    other.commit(vec![written].into()).await.unwrap();
    let green = new.to_string();
    until("the other's memory is found", async || {
        search(&client, "ferry painted green")
            .await
            .contains(&green)
    })
    .await;
    other
        .forget_memory(&[partition], id.parse().unwrap(), SystemClock.now())
        .await
        .unwrap()
        .unwrap();
    until("the forgotten one is gone", async || {
        search(&client, "ferry").await == [green.clone()]
    })
    .await;
    until("from the hot set too", async || {
        let hot = client.get("/v1/memories/hot").await.json()["results"].take();
        super::ids(&hot) == [green.clone()]
    })
    .await;
}

#[tokio::test]
async fn a_large_import_by_another_process_is_taken_in_whole() {
    const IMPORTED: usize = 2_300;
    let (app, other) = pair().await;
    let client = app.client();
    let id = create(&client, &json!({"content": "The ferry leaves at noon."})).await;
    assert_eq!(search(&client, "ferry").await, std::slice::from_ref(&id));
    let partition = PartitionKey {
        org: app.org,
        agent: app.agent,
        user: None,
    };
    let own = std::slice::from_ref(&partition);
    let first = other
        .memory(own, id.parse().unwrap())
        .await
        .unwrap()
        .unwrap();
    let rows: Vec<Memory> = (0..IMPORTED)
        .map(|i| {
            let content = format!("Parcel {i} waits on the quay.");
            Memory {
                id: MemoryId::new(),
                content_hash: ibex::memory::write::content_hash(&content),
                content: content.into(),
                ..first.clone()
            }
        })
        .collect();
    other.commit(rows.clone().into()).await.unwrap();
    // Forgotten before the service hears of it, and after.
    for row in rows.iter().step_by(500) {
        let forgotten = other.forget_memory(own, row.id, SystemClock.now()).await;
        forgotten.unwrap().unwrap();
    }
    let newest = other.revision().await.unwrap();
    until("the feed", async || app.app.applied() >= newest).await;
    let who = operator_principal(&*app.store, app.org, app.agent, None).await;
    assert_eq!(app.app.index.rows(who.unwrap().scope()), 1 + IMPORTED - 5);
    let found = search(&client, "parcel 1234").await;
    assert_eq!(found.first(), Some(&rows[1_234].id.to_string()));
    assert!(
        !search(&client, "parcel 1500")
            .await
            .contains(&rows[1_500].id.to_string())
    );
}

#[tokio::test]
async fn a_directive_promoted_by_another_process_is_used() {
    let (app, other) = pair().await;
    let client = app.client();
    client
        .post(
            "/v1/directives",
            &json!({"content": "Old orders.", "promote": true}),
        )
        .await;
    let chat = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]});
    let shown = async || {
        client.post("/v1/context/preview", &chat).await.json()["messages"][0]["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(shown().await.contains("Old orders."));
    let new = NewDirective {
        org: app.org,
        agent: app.agent,
        content: "New orders.".into(),
        mode: DirectiveMode::SystemFirst,
        created_at: SystemClock.now(),
    };
    let version = other.add_directive(new).await.unwrap().version;
    other
        .promote_directive(app.org, app.agent, version)
        .await
        .unwrap();
    until("the new directive is in force", async || {
        shown().await.contains("New orders.")
    })
    .await;
    other.rollback_directive(app.org, app.agent).await.unwrap();
    until("the old one is back", async || {
        shown().await.contains("Old orders.")
    })
    .await;
}

#[tokio::test]
async fn a_revocation_or_suspension_by_another_process_shuts_the_door() {
    let (app, other) = pair().await;
    let token = app.mint(app.org, None, None, Permissions::all()).await;
    let client = app.client_with(&token, Some(app.agent));
    let status = async || client.get("/v1/memories").await.status;
    assert_eq!(status().await, StatusCode::OK);
    other
        .set_agent_status(app.org, app.agent, AgentStatus::Paused)
        .await
        .unwrap();
    until("the agent is paused", async || {
        status().await == StatusCode::FORBIDDEN
    })
    .await;
    other
        .set_agent_status(app.org, app.agent, AgentStatus::Active)
        .await
        .unwrap();
    until("the agent is active", async || {
        status().await == StatusCode::OK
    })
    .await;
    other
        .set_org_status(app.org, OrgStatus::Suspended)
        .await
        .unwrap();
    until("the organisation is suspended", async || {
        client.get("/v1/memories").await.code() == "ORG_SUSPENDED"
    })
    .await;
    other
        .set_org_status(app.org, OrgStatus::Active)
        .await
        .unwrap();
    until("the organisation is back", async || {
        status().await == StatusCode::OK
    })
    .await;
    let newest = other
        .tokens(app.org)
        .await
        .unwrap()
        .into_iter()
        .map(|t| t.id)
        .find(|id| token.contains(&id.to_string()))
        .unwrap();
    other.revoke_token(newest, SystemClock.now()).await.unwrap();
    until("the token is revoked", async || {
        status().await == StatusCode::UNAUTHORIZED
    })
    .await;
    assert_eq!(
        app.client().get("/v1/memories").await.status,
        StatusCode::OK,
        "only that one"
    );
}

#[tokio::test]
async fn a_change_that_is_announced_does_not_wait_for_the_next_poll() {
    let (app, other) = pair_that_polls(3_600_000).await;
    let first = other.revision().await.unwrap();
    app.app.read_changes();
    until("the feed", async || app.app.applied() >= first).await;
    for status in [OrgStatus::Suspended, OrgStatus::Active] {
        other.set_org_status(app.org, status).await.unwrap();
        let newest = other.revision().await.unwrap();
        assert!(app.app.applied() < newest, "the poll is an hour away");
        app.app.read_changes();
        until("the feed", async || app.app.applied() >= newest).await;
    }
}
