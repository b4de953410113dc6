//! Files of earlier schemas.

use rusqlite::params;

use super::{Files, new_agent, new_org, of_user, time};
use crate::ids::{AgentId, MemoryId, OrgId};
use crate::memory::PartitionKey;
use crate::store::sqlite::rows::micros;
use crate::store::testing::sessions::{key, view};
use crate::store::{
    ChangeFeed, DirectiveStore, IdentityStore, MemoryStore, OrgStatus, SessionStore,
};

/// A file as version 1 left it: an agent with an active directive, a memory, and two tombstones.
fn first_version(files: &Files, org: OrgId, agent: AgentId, memory: MemoryId) {
    std::fs::create_dir(files.folder.path().join("data")).unwrap();
    let raw = files.raw();
    raw.execute_batch(include_str!("../migrations/0001_initial.sql"))
        .unwrap();
    raw.pragma_update(None, "user_version", 1).unwrap();
    let (org, agent, at) = (org.as_bytes(), agent.as_bytes(), micros(time(0)));
    raw.execute(
        "INSERT INTO orgs VALUES (?1, 'Org', 'active', ?2)",
        params![org, at],
    )
    .unwrap();
    raw.execute(
        "INSERT INTO agents VALUES (?2, ?1, 'Agent', 'active', ?3)",
        params![org, agent, at],
    )
    .unwrap();
    raw.execute(
        "INSERT INTO directives VALUES (?1, ?2, 1, 'Be kind.', 'system_first', ?4, ?3)",
        params![org, agent, at, [1_u8; 32]],
    )
    .unwrap();
    raw.execute(
        "INSERT INTO directive_activations (org, agent, version) VALUES (?1, ?2, 1)",
        params![org, agent],
    )
    .unwrap();
    raw.execute(
        "INSERT INTO changes (revision, kind, ref) VALUES (40, 'org', ?1)",
        params![org],
    )
    .unwrap();
    let rows = [
        (memory, "active", 3, ""),
        (MemoryId::new(), "forgotten", 8, "ann"),
        (MemoryId::new(), "forgotten", 5, "ann"),
    ];
    for (id, status, revision, user) in rows {
        raw.execute(
            "INSERT INTO memories (id, org, agent, user, content, labels, confidence, valid_from, source_kind, pinned, status, revision,
                content_hash, retrieval_count, votes_useful, votes_not_useful, created_at, updated_at, tokens_o200k, tokens_cl100k,
                tokens_claude, tokens_unknown)
             VALUES (?1, ?2, ?3, ?7, 'tea', '[]', 1.0, ?4, '', FALSE, ?5, ?6, ?8, 0, 0, 0, ?4, ?4, 0, 0, 0, 0)",
            params![id.as_bytes(), org, agent, at, status, revision, user, [2_u8; 32]],
        )
        .unwrap();
    }
}

#[tokio::test]
async fn a_file_of_the_first_version_keeps_its_rows() {
    let files = Files::new();
    let (org, agent, memory) = (OrgId::new(), AgentId::new(), MemoryId::new());
    first_version(&files, org, agent, memory);
    let store = files.open();
    let own = PartitionKey {
        org,
        agent,
        user: None,
    };
    let ann = of_user(&own, "ann");
    assert_eq!(store.orgs().await.unwrap()[0].status, OrgStatus::Active);
    let directive = store.active_directive(org, agent).await.unwrap().unwrap();
    assert_eq!(
        (&*directive.content, directive.revoked_at),
        ("Be kind.", None)
    );
    let kept = store
        .partition_memories(&own, None, usize::MAX)
        .await
        .unwrap();
    assert_eq!(
        (kept.len(), kept[0].id, &*kept[0].content),
        (1, memory, "tea")
    );
    assert_eq!(store.revision().await.unwrap(), 40);
    assert_eq!(
        store
            .forget_fence(std::slice::from_ref(&own))
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        store.forget_fence(&[own.clone(), ann]).await.unwrap(),
        8,
        "the newest tombstone"
    );
    // What is new works on it.
    let session = key(&own, "s");
    let state = store.put_working_state(&session, "{}".to_owned(), time(1));
    state.await.unwrap();
    store
        .revoke_directive(org, agent, 1, time(2))
        .await
        .unwrap();
    store.close().await.unwrap();
    let store = files.open();
    assert!(view(&*store, &session).await.is_some());
    let org = new_org(&*store).await;
    new_agent(&*store, org).await;
}
