//! The change feed: one entry a write, in order, for every process.

use ibex::ids::TokenId;
use ibex::store::{
    AgentStatus, Change, ChangeKind, Committed, DirectiveMode, NewDirective, OrgStatus, StoredToken,
};

use super::Backend;
use crate::store::fixtures::{memory, new_agent, new_org, new_partition, of_user, time, token};

/// The changes of `kinds` when they are the newest ones, the last of them at `newest`.
fn numbered(newest: i64, kinds: Vec<ChangeKind>) -> Vec<Change> {
    let first = newest + 1 - i64::try_from(kinds.len()).unwrap();
    kinds
        .into_iter()
        .zip(first..)
        .map(|(kind, revision)| Change { revision, kind })
        .collect()
}

pub(crate) async fn writes_of_identities_have_one_entry_each(backend: &dyn Backend) {
    let store = backend.open().await;
    assert_eq!(store.revision().await.unwrap(), 0);
    assert!(store.changes_after(0, 10).await.unwrap().is_empty());
    let org = new_org(&*store).await;
    let agent = new_agent(&*store, org).await;
    store.set_org_status(org, OrgStatus::Active).await.unwrap();
    store
        .set_agent_status(org, agent, AgentStatus::Active)
        .await
        .unwrap();
    let id = TokenId::new();
    store
        .create_token(StoredToken {
            id,
            ..token(org, None)
        })
        .await
        .unwrap();
    store.revoke_token(id, time(1)).await.unwrap();
    let (org, agent, token) = (
        ChangeKind::Org(org),
        ChangeKind::Agent(org, agent),
        ChangeKind::Token(id),
    );
    let expected = vec![org.clone(), agent.clone(), org, agent, token.clone(), token];
    let expected = numbered(6, expected);
    assert_eq!(store.changes_after(0, 100).await.unwrap(), expected);
    assert_eq!(store.changes_after(3, 2).await.unwrap(), expected[3..5]);
    assert_eq!(store.revision().await.unwrap(), 6);
}

pub(crate) async fn writes_of_directives_and_memories_have_one_entry_each(backend: &dyn Backend) {
    let store = backend.open().await;
    let partition = of_user(&new_partition(&*store).await, "ann");
    let (org, agent) = (partition.org, partition.agent);
    let mode = DirectiveMode::SystemFirst;
    let new = NewDirective {
        org,
        agent,
        content: "x".into(),
        mode,
        created_at: time(0),
    };
    store.add_directive(new).await.unwrap();
    store.promote_directive(org, agent, 1).await.unwrap();
    let stored = memory(&partition, "tea");
    let batch = vec![stored.clone(), memory(&partition, "tea")];
    let outcomes = store.commit_all(batch).await.unwrap();
    assert!(matches!(
        outcomes[0],
        Committed::Inserted { revision: 5, .. }
    ));
    store
        .forget_memory(std::slice::from_ref(&partition), stored.id, time(1))
        .await
        .unwrap();
    let directive = ChangeKind::Directive(org, agent);
    let changed = ChangeKind::Memory(partition, stored.id);
    let expected = vec![
        directive.clone(),
        directive,
        changed.clone(),
        changed.clone(),
        changed,
    ];
    assert_eq!(
        store.changes_after(2, 100).await.unwrap(),
        numbered(7, expected)
    );
}

pub(crate) async fn a_refused_write_leaves_no_entry(backend: &dyn Backend) {
    let store = backend.open().await;
    let org = new_org(&*store).await;
    let taken = store.org(org).await.unwrap().unwrap();
    store.create_org(taken).await.unwrap_err();
    store
        .set_org_status(ibex::ids::OrgId::new(), OrgStatus::Active)
        .await
        .unwrap_err();
    assert_eq!(store.revision().await.unwrap(), 1);
    new_org(&*store).await;
    assert_eq!(store.revision().await.unwrap(), 2);
}

pub(crate) async fn another_handle_hears_of_a_write_once(backend: &dyn Backend) {
    let (server, cli) = (backend.open().await, backend.open().await);
    assert!(!server.poll().await.unwrap());
    let partition = new_partition(&*cli).await;
    assert!(server.poll().await.unwrap());
    assert!(!server.poll().await.unwrap());
    let known = server.revision().await.unwrap();
    let stored = memory(&partition, "tea");
    cli.commit_all(vec![stored.clone()]).await.unwrap();
    assert!(server.poll().await.unwrap());
    let kind = ChangeKind::Memory(partition, stored.id);
    assert_eq!(
        server.changes_after(known, 10).await.unwrap(),
        [Change {
            revision: known + 1,
            kind
        }]
    );
    new_org(&*server).await;
    assert!(server.poll().await.unwrap(), "own writes count too");
}

pub(crate) async fn a_reader_that_fell_behind_the_feed_is_told_to_start_anew(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    new_org(&*store).await;
    new_org(&*store).await;
    // As if very many writes had happened: the next one is the 250,000th, at which old entries are removed.
    backend.skip_to_revision(249_999).await;
    let org = new_org(&*store).await;
    let last = Change {
        revision: 250_000,
        kind: ChangeKind::Org(org),
    };
    let anew = [Change {
        revision: 250_000,
        kind: ChangeKind::Everything,
    }];
    assert_eq!(store.changes_after(0, 10).await.unwrap(), anew);
    assert_eq!(store.changes_after(249_998, 10).await.unwrap(), anew);
    assert_eq!(store.changes_after(249_999, 10).await.unwrap(), [last]);
    assert!(store.changes_after(250_000, 10).await.unwrap().is_empty());
    assert_eq!(
        store.changes_after(250_001, 10).await.unwrap(),
        anew,
        "ahead of the store"
    );
}
