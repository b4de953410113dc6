//! Keyed writes: done once, told again, and free after their time.

use ibex::ids::MemoryId;
use ibex::memory::{Memory, PartitionKey};
use ibex::store::{
    Draft, LedgerEntry, LedgerKey, LedgerMember, LedgerOutcome, LedgerRow, Refined, StoreError,
};

use super::Backend;
use crate::store::fixtures::{Engine, insert, memory, new_agent, new_partition, time};

fn key(own: &PartitionKey, key: &str) -> LedgerKey {
    LedgerKey {
        org: own.org,
        agent: own.agent,
        key: key.parse().unwrap(),
    }
}

/// A keyed write at a time, under which earlier ones count from second 0.
fn keyed(key: &LedgerKey, second: i64, rows: &[&Memory], members: &[LedgerMember]) -> Refined {
    Refined {
        rows: rows.iter().map(|row| Draft::from((*row).clone())).collect(),
        ledger: Some(LedgerEntry {
            key: key.clone(),
            asked: [u8::try_from(second).unwrap(); 32],
            members: members.to_vec(),
            at: time(second),
            since: time(0),
        }),
    }
}

fn one(key: &LedgerKey, second: i64, row: &Memory) -> Refined {
    keyed(key, second, &[row], &[LedgerMember::Row(0)])
}

fn stored(second: u8, id: MemoryId) -> LedgerRow {
    LedgerRow {
        asked: [second; 32],
        outcomes: vec![LedgerOutcome::Stored(id)],
    }
}

async fn told(store: &dyn Engine, key: &LedgerKey, since: i64) -> Option<LedgerRow> {
    store.ledger_row(key, time(since)).await.unwrap()
}

pub(crate) async fn a_keyed_write_leaves_an_outcome_for_each_member(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let there = memory(&own, "tea");
    insert(&*store, there.clone()).await;
    let (new, again) = (memory(&own, "coffee"), memory(&own, "tea"));
    let key = key(&own, "k1");
    assert_eq!(told(&*store, &key, 0).await, None);
    let members = [
        LedgerMember::Row(1),
        LedgerMember::Known(LedgerOutcome::Invalid),
        LedgerMember::Row(0),
        LedgerMember::Repeats(0),
        LedgerMember::Repeats(1),
        LedgerMember::Known(LedgerOutcome::Duplicate(there.id)),
    ];
    let write = keyed(&key, 5, &[&new, &again], &members);
    store.commit(write).await.unwrap();
    let expected = LedgerRow {
        asked: [5; 32],
        outcomes: vec![
            LedgerOutcome::Duplicate(there.id),
            LedgerOutcome::Invalid,
            LedgerOutcome::Stored(new.id),
            LedgerOutcome::Duplicate(new.id),
            LedgerOutcome::Duplicate(there.id),
            LedgerOutcome::Duplicate(there.id),
        ],
    };
    assert_eq!(told(&*store, &key, 5).await, Some(expected.clone()));
    store.close().await.unwrap();
    let store = backend.open().await;
    assert_eq!(told(&*store, &key, 0).await, Some(expected));
    assert_eq!(told(&*store, &key, 6).await, None, "its time is over");
}

pub(crate) async fn a_used_key_refuses_the_whole_write(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let (first, second) = (memory(&own, "tea"), memory(&own, "coffee"));
    let used = key(&own, "k1");
    store.commit(one(&used, 5, &first)).await.unwrap();
    let before = store.revision().await.unwrap();
    assert!(matches!(
        store.commit(one(&used, 6, &second)).await,
        Err(StoreError::Conflict("idempotency key"))
    ));
    assert_eq!(store.revision().await.unwrap(), before);
    assert_eq!(store.count_memories(&own).await.unwrap(), 1);
    assert_eq!(told(&*store, &used, 0).await, Some(stored(5, first.id)));
    // Another agent's key of the same name is another key, and so is another one of the agent.
    let sibling = PartitionKey {
        agent: new_agent(&*store, own.org).await,
        ..own.clone()
    };
    let theirs = memory(&sibling, "tea");
    let name = key(&sibling, "k1");
    store.commit(one(&name, 6, &theirs)).await.unwrap();
    let other = key(&own, "K1");
    store.commit(one(&other, 6, &second)).await.unwrap();
    assert_eq!(told(&*store, &used, 0).await, Some(stored(5, first.id)));
    assert_eq!(told(&*store, &name, 0).await, Some(stored(6, theirs.id)));
    assert_eq!(told(&*store, &other, 0).await, Some(stored(6, second.id)));
}

pub(crate) async fn of_two_writes_with_one_key_at_once_one_is_done(backend: &dyn Backend) {
    let handles = [backend.open().await, backend.open().await];
    let own = new_partition(&*handles[0]).await;
    let key = key(&own, "k1");
    let writes = (0..20).map(|n| {
        let row = memory(&own, &format!("fact {n}"));
        let write = one(&key, 5, &row);
        let store = &handles[n % 2];
        async move { (row.id, store.commit(write).await) }
    });
    let outcomes = futures_util::future::join_all(writes).await;
    let done: Vec<_> = outcomes.iter().filter(|(_, o)| o.is_ok()).collect();
    assert_eq!(done.len(), 1);
    let refused = |o: &Result<_, StoreError>| matches!(o, Err(StoreError::Conflict(_)));
    assert_eq!(outcomes.iter().filter(|(_, o)| refused(o)).count(), 19);
    assert_eq!(handles[1].count_memories(&own).await.unwrap(), 1);
    let expected = Some(stored(5, done[0].0));
    assert_eq!(told(&*handles[1], &key, 0).await, expected);
}

pub(crate) async fn a_key_is_free_again_after_its_time(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let (first, second) = (memory(&own, "tea"), memory(&own, "coffee"));
    let key = key(&own, "k1");
    store.commit(one(&key, 5, &first)).await.unwrap();
    let mut later = one(&key, 50, &second);
    later.ledger.as_mut().unwrap().since = time(6);
    store.commit(later).await.unwrap();
    assert_eq!(told(&*store, &key, 0).await, Some(stored(50, second.id)));
}

pub(crate) async fn a_member_without_a_row_fails_the_write(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let key = key(&own, "k1");
    let row = memory(&own, "tea");
    let write = keyed(&key, 5, &[&row], &[LedgerMember::Row(1)]);
    assert!(matches!(
        store.commit(write).await,
        Err(StoreError::Missing("row"))
    ));
    assert_eq!(store.count_memories(&own).await.unwrap(), 0);
    assert_eq!(told(&*store, &key, 0).await, None);
}

pub(crate) async fn old_keys_are_deleted(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    for second in 1..=4 {
        let row = memory(&own, &format!("fact {second}"));
        let key = key(&own, &format!("k{second}"));
        store.commit(one(&key, second, &row)).await.unwrap();
    }
    assert_eq!(store.prune_ledger(time(1), 10).await.unwrap(), 0);
    assert_eq!(store.prune_ledger(time(4), 2).await.unwrap(), 2);
    assert_eq!(store.prune_ledger(time(4), 2).await.unwrap(), 1);
    assert_eq!(store.prune_ledger(time(4), 2).await.unwrap(), 0);
    assert_eq!(backend.rows("ledger").await, 1);
    assert!(told(&*store, &key(&own, "k4"), 0).await.is_some());
}
