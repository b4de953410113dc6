//! The same text twice in one partition.

use std::collections::HashSet;
use std::sync::Arc;

use ibex::memory::{Memory, PartitionKey, Status};
use ibex::store::Committed;

use super::Backend;
use crate::store::fixtures::{insert, memory, new_agent, new_partition, of_user, time};

pub(crate) async fn a_duplicate_bumps_the_first_row_also_inside_one_batch(backend: &dyn Backend) {
    let store = backend.open().await;
    let partition = new_partition(&*store).await;
    let first = memory(&partition, "tea");
    let again = Memory {
        created_at: time(8),
        ..memory(&partition, "tea")
    };
    let outcomes = store
        .commit_all(vec![first.clone(), memory(&partition, "milk"), again])
        .await
        .unwrap();
    assert!(matches!(
        outcomes[..2],
        [Committed::Inserted { .. }, Committed::Inserted { .. }]
    ));
    assert_eq!(outcomes[2], Committed::Duplicate { existing: first.id });
    assert_eq!(
        insert(&*store, memory(&partition, "tea")).await,
        Committed::Duplicate { existing: first.id }
    );
    let read = store
        .memory(std::slice::from_ref(&partition), first.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (read.retrieval_count, read.created_at, read.updated_at),
        (2, time(0), time(8))
    );
    assert_eq!(store.count_memories(&partition).await.unwrap(), 2);
}

pub(crate) async fn only_active_rows_of_the_same_partition_are_duplicates(backend: &dyn Backend) {
    let store = backend.open().await;
    let shared = new_partition(&*store).await;
    let sibling = PartitionKey {
        agent: new_agent(&*store, shared.org).await,
        ..shared.clone()
    };
    for partition in [
        &shared,
        &of_user(&shared, "ann"),
        &of_user(&shared, "bob"),
        &sibling,
    ] {
        assert!(matches!(
            insert(&*store, memory(partition, "tea")).await,
            Committed::Inserted { .. }
        ));
    }
    let held = Memory {
        status: Status::Quarantined,
        ..memory(&shared, "spam")
    };
    insert(&*store, held.clone()).await;
    assert!(matches!(
        insert(&*store, memory(&shared, "spam")).await,
        Committed::Inserted { .. }
    ));
    assert!(
        matches!(insert(&*store, held).await, Committed::Duplicate { .. }),
        "an active row has the text by now"
    );
}

pub(crate) async fn forty_identical_inserts_at_once_store_one_row(backend: &dyn Backend) {
    let handles = [backend.open().await, backend.open().await];
    let partition = new_partition(&*handles[0]).await;
    let writes = (0..40).map(|i| {
        let (store, memory) = (Arc::clone(&handles[i % 2]), memory(&partition, "tea"));
        async move { insert(&*store, memory).await }
    });
    let outcomes = futures_util::future::join_all(writes).await;
    let existing: HashSet<_> = outcomes
        .iter()
        .filter_map(|o| {
            if let Committed::Duplicate { existing } = o {
                Some(*existing)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(
        outcomes
            .iter()
            .filter(|o| matches!(o, Committed::Inserted { .. }))
            .count(),
        1
    );
    let rows = handles[1]
        .partition_memories(&partition, None, usize::MAX)
        .await
        .unwrap();
    assert_eq!(rows.iter().map(|m| m.id).collect::<HashSet<_>>(), existing);
    assert_eq!(rows[0].retrieval_count, 39);
}
