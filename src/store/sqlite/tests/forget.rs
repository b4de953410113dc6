//! What of a forgotten text stays in the file.

use super::{Files, bytes, memory, new_org, new_partition, secret, time};
use crate::store::{ChangeFeed, MemoryStore};

fn contains(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}

#[tokio::test]
async fn no_byte_of_a_forgotten_text_stays_in_the_file_or_its_log() {
    let files = Files::new();
    let store = files.open();
    let partition = new_partition(&*store).await;
    let written = secret(&partition);
    store
        .commit_all(vec![written.clone(), memory(&partition, "kept text")])
        .await
        .unwrap();
    let before = bytes(&files);
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
    let after = bytes(&files);
    assert!(contains(&after, "kept text"));
    for text in secrets {
        assert!(!contains(&after, text), "{text}");
    }
}

#[tokio::test]
async fn the_log_is_emptied_while_the_store_is_open() {
    let files = Files::new();
    let store = files.open();
    let partition = new_partition(&*store).await;
    let written = secret(&partition);
    store.commit_all(vec![written.clone()]).await.unwrap();
    store
        .forget_memory(&[partition], written.id, time(1))
        .await
        .unwrap();
    // The upkeep after one group is over when a write of the next group is answered.
    new_org(&*store).await;
    assert!(!contains(&bytes(&files), "xylophone"));
}

#[tokio::test]
async fn a_reader_delays_the_emptying_of_the_log_until_it_is_done() {
    let files = Files::new();
    let store = files.open();
    let partition = new_partition(&*store).await;
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
    new_org(&*store).await;
    assert!(
        contains(&bytes(&files), "xylophone"),
        "the reader still sees the old snapshot"
    );
    reader.execute_batch("COMMIT").unwrap();
    store.poll().await.unwrap();
    new_org(&*store).await;
    new_org(&*store).await;
    assert!(!contains(&bytes(&files), "xylophone"));
}
