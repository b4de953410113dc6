//! Vectors of another model, and what lacks one.

use std::sync::Arc;

use ibex::ids::MemoryId;
use ibex::memory::{Embedding, Memory, PartitionKey, Status};
use ibex::store::{ChangeKind, NewEmbedding};

use super::Backend;
use crate::store::fixtures::{Engine, insert, memory, new_partition, of_user, time};

const OLD: &str = "old/2";
const NEW: &str = "new/3";

fn embedding(model: &str) -> Option<Embedding> {
    Some(Embedding {
        model: model.into(),
        vector: Arc::new([1.0, 0.0]),
    })
}

async fn stored(store: &dyn Engine, partition: &PartitionKey, text: &str, model: &str) -> Memory {
    let mut memory = memory(partition, text);
    memory.embedding = embedding(model);
    insert(store, memory.clone()).await;
    memory
}

fn new(memory: &Memory) -> NewEmbedding {
    NewEmbedding {
        id: memory.id,
        content_hash: memory.content_hash,
        embedding: embedding(NEW).unwrap(),
    }
}

async fn lacking(
    store: &dyn Engine,
    partition: &PartitionKey,
    after: Option<MemoryId>,
    limit: usize,
) -> Vec<MemoryId> {
    let found = store.unembedded(partition, NEW, after, limit).await;
    found.unwrap().iter().map(|memory| memory.id).collect()
}

pub(crate) async fn what_lacks_a_vector_is_found_page_by_page(backend: &dyn Backend) {
    let store = backend.open().await;
    let shared = new_partition(&*store).await;
    let anns = of_user(&shared, "ann");
    let mut ids = Vec::new();
    for text in ["one", "two", "three"] {
        ids.push(stored(&*store, &shared, text, OLD).await.id);
    }
    ids.sort();
    stored(&*store, &shared, "done", NEW).await;
    let mut none = memory(&anns, "none");
    none.embedding = None;
    insert(&*store, none.clone()).await;
    let mut held = memory(&anns, "held for review");
    held.status = Status::Quarantined;
    insert(&*store, held).await;
    let mut partitions = store.unembedded_partitions(NEW).await.unwrap();
    partitions.sort();
    let mut expected = vec![(shared.clone(), 3), (anns.clone(), 1)];
    expected.sort();
    assert_eq!(partitions, expected);
    assert_eq!(lacking(&*store, &shared, None, 2).await, ids[..2]);
    assert_eq!(lacking(&*store, &shared, Some(ids[1]), 2).await, ids[2..]);
    assert_eq!(lacking(&*store, &anns, None, 2).await, [none.id]);
}

pub(crate) async fn a_new_vector_changes_nothing_else_and_is_in_the_feed(backend: &dyn Backend) {
    let store = backend.open().await;
    let partition = new_partition(&*store).await;
    let (kept, forgotten, changed) = (
        stored(&*store, &partition, "kept", OLD).await,
        stored(&*store, &partition, "forgotten", OLD).await,
        stored(&*store, &partition, "changed", OLD).await,
    );
    let own = std::slice::from_ref(&partition);
    store
        .forget_memory(own, forgotten.id, time(5))
        .await
        .unwrap();
    let (before, revision) = (
        store.memory(own, kept.id).await.unwrap().unwrap(),
        store.revision().await.unwrap(),
    );
    let other_text = NewEmbedding {
        content_hash: [7; 32],
        ..new(&changed)
    };
    let vectors = vec![new(&kept), new(&forgotten), other_text];
    let replaced = store.set_embeddings(&partition, vectors).await.unwrap();
    assert_eq!(replaced, 1, "neither a tombstone nor another text");
    let after = store.memory(own, kept.id).await.unwrap().unwrap();
    assert_eq!(after.embedding, embedding(NEW));
    assert_eq!(after.updated_at, before.updated_at);
    assert_eq!(after.content, before.content);
    let changes = store.changes_after(revision, 10).await.unwrap();
    let kinds: Vec<&ChangeKind> = changes.iter().map(|change| &change.kind).collect();
    assert_eq!(kinds, [&ChangeKind::Memory(partition.clone(), kept.id)]);
    assert_eq!(after.revision, changes[0].revision);
    // Another partition's vectors are not set.
    let elsewhere = of_user(&partition, "ann");
    let replaced = store.set_embeddings(&elsewhere, vec![new(&changed)]).await;
    assert_eq!(replaced.unwrap(), 0);
}

pub(crate) async fn a_vector_without_numbers_says_that_there_is_none_to_be_had(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let partition = new_partition(&*store).await;
    let none = Embedding {
        model: NEW.into(),
        vector: [].into(),
    };
    let written = Memory {
        embedding: Some(none.clone()),
        ..memory(&partition, "!?")
    };
    insert(&*store, written.clone()).await;
    let later = stored(&*store, &partition, "...", OLD).await;
    let own = std::slice::from_ref(&partition);
    let set = NewEmbedding {
        embedding: none.clone(),
        ..new(&later)
    };
    let replaced = store.set_embeddings(&partition, vec![set]).await.unwrap();
    assert_eq!(replaced, 1);
    for id in [written.id, later.id] {
        let read = store.memory(own, id).await.unwrap().unwrap();
        assert_eq!(read.embedding, Some(none.clone()));
    }
    assert!(lacking(&*store, &partition, None, 5).await.is_empty());
}
