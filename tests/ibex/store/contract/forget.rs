//! What is left of a memory that was forgotten.

use ibex::ids::MemoryId;
use ibex::memory::{Memory, PartitionKey};
use ibex::store::Committed;

use super::Backend;
use crate::store::fixtures::{new_partition, of_user, secret, time};

pub(crate) async fn a_forgotten_memory_is_found_by_no_read(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = of_user(&new_partition(&*store).await, "ann");
    let written = secret(&own);
    store.commit_all(vec![written.clone()]).await.unwrap();
    let both = [
        PartitionKey {
            user: None,
            ..own.clone()
        },
        own.clone(),
    ];
    let forgotten = store
        .forget_memory(&both, written.id, time(7))
        .await
        .unwrap();
    assert_eq!(forgotten, Some(own.clone()));
    let again = store
        .forget_memory(&both, written.id, time(8))
        .await
        .unwrap();
    assert_eq!(again, None, "it is gone already");
    assert!(store.memory(&both, written.id).await.unwrap().is_none());
    let found = store
        .duplicate_of(&Memory {
            id: MemoryId::new(),
            ..written.clone()
        })
        .await
        .unwrap();
    assert_eq!(found, None);
    assert!(
        store
            .partition_memories(&own, None, usize::MAX)
            .await
            .unwrap()
            .is_empty()
    );
    let outcomes = store.commit_all(vec![secret(&own)]).await.unwrap();
    assert!(
        matches!(outcomes[0], Committed::Inserted { .. }),
        "a tombstone is no duplicate"
    );
}

pub(crate) async fn a_tombstone_keeps_identity_hash_and_revision_only(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let written = secret(&own);
    store.commit_all(vec![written.clone()]).await.unwrap();
    let scope = [own];
    store
        .forget_memory(&scope, written.id, time(7))
        .await
        .unwrap();
    let revision = store.revision().await.unwrap();
    let erased = backend.is_tombstone(&written, time(7), revision).await;
    assert!(erased);
}
