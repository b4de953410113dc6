//! Forget fences, and memories by their ids.

use std::collections::HashSet;

use ibex::ids::MemoryId;
use ibex::memory::{Memory, PartitionKey, Status};
use ibex::store::StoreError;

use super::Backend;
use crate::store::fixtures::{Engine, insert, memory, new_partition, of_user, time};

async fn stored(store: &dyn Engine, partition: &PartitionKey, content: &str) -> Memory {
    let written = memory(partition, content);
    insert(store, written.clone()).await;
    written
}

/// Forgets a memory and answers the revision of that.
async fn forget(store: &dyn Engine, memory: &Memory) -> i64 {
    let forgotten = store
        .forget_memory(std::slice::from_ref(&memory.partition), memory.id, time(1))
        .await
        .unwrap();
    assert_eq!(forgotten.as_ref(), Some(&memory.partition));
    store.revision().await.unwrap()
}

async fn fence(store: &dyn Engine, partition: &PartitionKey) -> i64 {
    let partition = std::slice::from_ref(partition);
    store.forget_fence(partition).await.unwrap()
}

pub(crate) async fn a_fence_is_the_revision_of_the_last_forgetting_of_its_partition(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let shared = new_partition(&*store).await;
    let (ann, bob) = (of_user(&shared, "ann"), of_user(&shared, "bob"));
    let elsewhere = new_partition(&*store).await;
    let (first, second) = (
        stored(&*store, &ann, "tea").await,
        stored(&*store, &ann, "coffee").await,
    );
    let third = stored(&*store, &shared, "milk").await;
    assert_eq!(fence(&*store, &ann).await, 0, "writing raises none");
    let at_first = forget(&*store, &first).await;
    assert_eq!(fence(&*store, &ann).await, at_first);
    for other in [&shared, &bob, &elsewhere] {
        assert_eq!(fence(&*store, other).await, 0, "{other:?}");
    }
    let at_second = forget(&*store, &second).await;
    assert!(at_second > at_first);
    assert_eq!(fence(&*store, &ann).await, at_second);
    let at_third = forget(&*store, &third).await;
    let both = [shared.clone(), ann.clone()];
    assert_eq!(
        store.forget_fence(&both).await.unwrap(),
        at_third,
        "the newest"
    );
    assert_eq!(fence(&*store, &ann).await, at_second);
    assert_eq!(store.forget_fence(&[]).await.unwrap(), 0);
    // Nothing was forgotten: the fence stays.
    let again = store.forget_memory(&both, first.id, time(2)).await;
    assert_eq!(again.unwrap(), None);
    stored(&*store, &ann, "water").await;
    assert_eq!(fence(&*store, &ann).await, at_second);
}

pub(crate) async fn another_handle_sees_a_forgetting_at_once(backend: &dyn Backend) {
    let (server, other) = (backend.open().await, backend.open().await);
    let own = new_partition(&*other).await;
    for content in ["tea", "coffee", "milk"] {
        let written = stored(&*other, &own, content).await;
        let before = fence(&*server, &own).await;
        assert_eq!(
            fence(&*server, &own).await,
            before,
            "asked twice, as it is kept"
        );
        let revision = forget(&*other, &written).await;
        assert!(revision > before);
        assert_eq!(fence(&*server, &own).await, revision);
    }
}

pub(crate) async fn a_fence_is_told_while_the_write_lock_is_held(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let revision = forget(&*store, &stored(&*store, &own, "tea").await).await;
    let writer = backend.raise_fences(999).await;
    assert_eq!(fence(&*store, &own).await, revision, "not committed");
    writer.commit().await;
    assert_eq!(fence(&*store, &own).await, 999);
}

pub(crate) async fn fences_outlive_the_process_and_a_closed_store_tells_none(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let revision = forget(&*store, &stored(&*store, &own, "tea").await).await;
    store.close().await.unwrap();
    let closed = store
        .forget_fence(std::slice::from_ref(&own))
        .await
        .unwrap_err();
    assert!(matches!(closed, StoreError::Unavailable(_)));
    assert_eq!(fence(&*backend.open().await, &own).await, revision);
}

pub(crate) async fn more_partitions_than_are_kept_are_all_told(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let revision = forget(&*store, &stored(&*store, &own, "tea").await).await;
    let mut many: Vec<_> = (0..5_000)
        .map(|n| of_user(&own, &format!("user-{n}")))
        .collect();
    many.push(own.clone());
    assert_eq!(store.forget_fence(&many).await.unwrap(), revision);
    assert_eq!(store.forget_fence(&many).await.unwrap(), revision);
    assert_eq!(fence(&*store, &many[0]).await, 0);
}

pub(crate) async fn memories_by_id_are_those_of_the_partitions_that_are_not_forgotten(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let shared = new_partition(&*store).await;
    let (ann, bob) = (of_user(&shared, "ann"), of_user(&shared, "bob"));
    let (all, own, foreign, gone) = (
        stored(&*store, &shared, "tea").await,
        stored(&*store, &ann, "coffee").await,
        stored(&*store, &bob, "milk").await,
        stored(&*store, &ann, "water").await,
    );
    let old = Memory {
        status: Status::Superseded,
        ..memory(&ann, "cocoa")
    };
    insert(&*store, old.clone()).await;
    forget(&*store, &gone).await;
    let ids = [all.id, own.id, foreign.id, gone.id, old.id, MemoryId::new()];
    let found = store
        .memories_by_id(&[shared, ann.clone()], &ids)
        .await
        .unwrap();
    let contents: HashSet<&str> = found.iter().map(|m| &*m.content).collect();
    assert_eq!(contents, HashSet::from(["tea", "coffee", "cocoa"]));
    assert_eq!(found.len(), 3);
    let read = store
        .memory(std::slice::from_ref(&ann), own.id)
        .await
        .unwrap()
        .unwrap();
    let same = found.iter().find(|m| m.id == own.id).unwrap();
    assert_eq!(format!("{same:?}"), format!("{read:?}"), "read whole");
    assert!(store.memories_by_id(&[ann], &[]).await.unwrap().is_empty());
    assert!(store.memories_by_id(&[], &ids).await.unwrap().is_empty());
}
