use std::sync::Arc;

use serde_json::value::RawValue;

use super::{Files, memory, new_partition, of_user, time};
use crate::memory::{Memory, PartitionKey, Source};
use crate::store::{ChangeFeed, Committed, MemoryStore};

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
            id: crate::ids::MemoryId::new(),
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

#[tokio::test]
async fn a_tombstone_keeps_identity_hash_and_revision_only() {
    let files = Files::new();
    let store = files.open();
    let own = new_partition(&store).await;
    let written = secret(&own);
    store.commit_all(vec![written.clone()]).await.unwrap();
    let scope = [own];
    store
        .forget_memory(&scope, written.id, time(7))
        .await
        .unwrap();
    let raw = files.raw();
    let erased: bool = raw
        .query_row(
            "SELECT status = 'forgotten' AND updated_at = ?2 AND content_hash = ?3 AND content = '' AND labels = '[]'
                    AND metadata IS NULL AND embedding IS NULL AND slot IS NULL AND review IS NULL AND source_kind = ''
                    AND source_session IS NULL AND source_turn IS NULL AND revision = ?4 FROM memories WHERE id = ?1",
            rusqlite::params![
                written.id.as_bytes(),
                time(7).as_microsecond(),
                written.content_hash,
                store.revision().await.unwrap()
            ],
            |row| row.get(0),
        )
        .unwrap();
    assert!(erased);
}

#[tokio::test]
async fn no_byte_of_a_forgotten_text_stays_in_the_file_or_its_log() {
    let files = Files::new();
    let store = files.open();
    let partition = new_partition(&store).await;
    let written = secret(&partition);
    store
        .commit_all(vec![written.clone(), memory(&partition, "kept text")])
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
    store.commit_all(vec![written.clone()]).await.unwrap();
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
    store.commit_all(vec![written.clone()]).await.unwrap();
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
