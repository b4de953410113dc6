//! What is acknowledged, and what a closed store answers.

use std::collections::HashSet;
use std::sync::Arc;

use ibex::store::StoreError;

use super::Backend;
use crate::store::fixtures::{memory, new_partition};

pub(crate) async fn every_acknowledged_write_of_a_crowd_is_there_after_a_restart(
    backend: &dyn Backend,
) {
    let handles = [backend.open().await, backend.open().await];
    let partition = new_partition(&*handles[0]).await;
    let writes = (0..400).map(|i| {
        let (store, memory) = (
            Arc::clone(&handles[i % 2]),
            memory(&partition, &format!("fact {i}")),
        );
        async move {
            let id = memory.id;
            store.commit_all(vec![memory]).await.unwrap();
            id
        }
    });
    let acknowledged: HashSet<_> = futures_util::future::join_all(writes)
        .await
        .into_iter()
        .collect();
    for store in &handles {
        store.close().await.unwrap();
    }
    let stored = backend
        .open()
        .await
        .partition_memories(&partition, None, usize::MAX)
        .await
        .unwrap();
    assert_eq!(
        stored.iter().map(|m| m.id).collect::<HashSet<_>>(),
        acknowledged
    );
    let revisions: HashSet<_> = stored.iter().map(|m| m.revision).collect();
    assert_eq!(
        revisions,
        (3..403).collect(),
        "each write has a revision of its own, none is left out"
    );
}

pub(crate) async fn a_closed_store_refuses_everything(backend: &dyn Backend) {
    let store = backend.open().await;
    let partition = new_partition(&*store).await;
    store.close().await.unwrap();
    store.close().await.unwrap();
    let closed =
        |error: StoreError| assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let written = store.commit_all(vec![memory(&partition, "tea")]).await;
    closed(written.unwrap_err());
    closed(store.orgs().await.unwrap_err());
    closed(store.poll().await.unwrap_err());
    closed(store.ping().await.unwrap_err());
    let others = backend.open().await;
    assert_eq!(others.count_memories(&partition).await.unwrap(), 0);
}
