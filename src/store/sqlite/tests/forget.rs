use std::sync::Arc;

use serde_json::value::RawValue;

use super::{Files, memory, new_partition, of_user, time};
use crate::memory::{Memory, PartitionKey, Source, Status};
use crate::store::{ChangeFeed, InsertOutcome, ListFilter, MemoryStore};

/// A text that fills overflow pages, so that erasing it must clean pages that become free.
fn long_text() -> String {
    "xylophone ".repeat(2_000)
}

fn secret(partition: &PartitionKey) -> Memory {
    Memory {
        source: Source {
            kind: "kindsecret".to_owned(),
            session: Some("sessionsecret".to_owned()),
            turn: Some(1),
        },
        metadata: Some(Arc::from(
            RawValue::from_string(r#"{"k":"metasecret"}"#.to_owned()).unwrap(),
        )),
        ..memory(partition, &long_text())
    }
}

fn contains(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}

#[tokio::test]
async fn a_forgotten_memory_is_found_by_no_read() {
    let files = Files::new();
    let store = files.open();
    let own = of_user(&new_partition(&store).await, "ann");
    let written = secret(&own);
    store.insert_memories(vec![written.clone()]).await.unwrap();
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
        .memory_by_hash(&own, written.content_hash)
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
    let outcomes = store.insert_memories(vec![secret(&own)]).await.unwrap();
    assert!(
        matches!(outcomes[0], InsertOutcome::Inserted { .. }),
        "a tombstone is no duplicate"
    );
}

#[tokio::test]
async fn a_tombstone_keeps_identity_hash_and_revision_only() {
    let files = Files::new();
    let store = files.open();
    let own = new_partition(&store).await;
    let written = secret(&own);
    store.insert_memories(vec![written.clone()]).await.unwrap();
    let scope = [own];
    store
        .forget_memory(&scope, written.id, time(7))
        .await
        .unwrap();
    let status = Some(Status::Forgotten);
    let filter = ListFilter {
        limit: 1,
        status,
        ..ListFilter::default()
    };
    let tombstone = store
        .list_memories(&scope, filter)
        .await
        .unwrap()
        .memories
        .remove(0);
    assert_eq!((tombstone.id, tombstone.updated_at), (written.id, time(7)));
    assert_eq!(tombstone.content_hash, written.content_hash);
    assert_eq!(tombstone.revision, store.revision().await.unwrap());
    assert_eq!((&*tombstone.content, tombstone.labels.len()), ("", 0));
    assert!(tombstone.metadata.is_none() && tombstone.embedding.is_none());
    assert_eq!(
        tombstone.source,
        Source {
            kind: String::new(),
            session: None,
            turn: None
        }
    );
}

#[tokio::test]
async fn no_byte_of_a_forgotten_text_stays_in_the_file_or_its_log() {
    let files = Files::new();
    let store = files.open();
    let partition = new_partition(&store).await;
    let written = secret(&partition);
    store
        .insert_memories(vec![written.clone(), memory(&partition, "kept text")])
        .await
        .unwrap();
    let before = files.bytes();
    let secrets = ["xylophone", "kindsecret", "sessionsecret", "metasecret"];
    assert!(
        secrets.iter().all(|text| contains(&before, text)),
        "the texts were stored to begin with"
    );
    store
        .forget_memory(&[partition], written.id, time(1))
        .await
        .unwrap();
    store.close().await.unwrap();
    let after = files.bytes();
    assert!(contains(&after, "kept text"));
    for text in secrets {
        assert!(!contains(&after, text), "{text}");
    }
}

#[tokio::test]
async fn the_log_is_emptied_while_the_store_is_open() {
    let files = Files::new();
    let store = files.open();
    let partition = new_partition(&store).await;
    let written = secret(&partition);
    store.insert_memories(vec![written.clone()]).await.unwrap();
    store
        .forget_memory(&[partition], written.id, time(1))
        .await
        .unwrap();
    // The upkeep after one group is over when a write of the next group is answered.
    super::new_org(&store).await;
    assert!(!contains(&files.bytes(), "xylophone"));
}

#[tokio::test]
async fn a_reader_delays_the_emptying_of_the_log_until_it_is_done() {
    let files = Files::new();
    let store = files.open();
    let partition = new_partition(&store).await;
    let written = secret(&partition);
    store.insert_memories(vec![written.clone()]).await.unwrap();
    let reader = files.raw();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM memories")
        .unwrap();
    store
        .forget_memory(&[partition], written.id, time(1))
        .await
        .unwrap();
    // The upkeep after one group is over when a write of the next group is answered.
    super::new_org(&store).await;
    assert!(
        contains(&files.bytes(), "xylophone"),
        "the reader still sees the old snapshot"
    );
    reader.execute_batch("COMMIT").unwrap();
    store.poll().await.unwrap();
    super::new_org(&store).await;
    super::new_org(&store).await;
    assert!(!contains(&files.bytes(), "xylophone"));
}
