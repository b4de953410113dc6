//! Sessions in a file.

use super::{Files, bytes, new_org, new_partition, time};
use crate::store::testing::sessions::{key, opened, record, settle};
use crate::store::{SessionStore, StoreError};

#[tokio::test]
async fn no_byte_of_a_deleted_working_state_stays_in_the_file_or_its_log() {
    let files = Files::new();
    let store = files.open();
    let session = key(&new_partition(&*store).await, "s");
    let json = format!(r#"{{"note":"{}"}}"#, "xylophone ".repeat(2_000));
    let state = store.put_working_state(&session, json, time(1));
    state.await.unwrap();
    let holds = |text: &str| memchr::memmem::find(&bytes(&files), text.as_bytes()).is_some();
    assert!(holds("xylophone"), "it was stored to begin with");
    assert_eq!(store.delete_sessions(time(2), 1).await.unwrap(), 1);
    // The upkeep after one group is over when a write of the next group is answered.
    new_org(&*store).await;
    assert!(!holds("xylophone"));
}

#[tokio::test]
async fn a_damaged_turn_is_reported() {
    let files = Files::new();
    let store = files.open();
    let lane = opened(&*store).await;
    record(&*store, &[settle(&lane, 1, 2)]).await;
    let raw = files.raw();
    raw.execute_batch(
        "PRAGMA ignore_check_constraints = TRUE; UPDATE session_turns SET memories = x'01'",
    )
    .unwrap();
    assert!(matches!(
        store.session_lane(&lane).await,
        Err(StoreError::Damaged("session turn"))
    ));
}
