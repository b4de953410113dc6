//! Versions of a session's working state.

use ibex::store::StoredState;

use super::Backend;
use crate::store::fixtures::sessions::{key, open, record, settled, view};
use crate::store::fixtures::{new_partition, time};

pub(crate) async fn versions_count_from_one_in_each_session_and_are_kept(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let (first, second) = (key(&own, "a"), key(&own, "b"));
    let put = async |session, json: &str, second| {
        let put = store.put_working_state(session, json.to_owned(), time(second));
        put.await.unwrap()
    };
    let state = |version, json: &str, second| StoredState {
        version,
        json: json.to_owned(),
        turn: 0,
        at: time(second),
    };
    assert_eq!(store.working_state(&first, None).await.unwrap(), None);
    assert_eq!(
        put(&first, r#"{"n":1}"#, 1).await,
        state(1, r#"{"n":1}"#, 1)
    );
    assert_eq!(
        put(&first, r#"{"n":2}"#, 2).await,
        state(2, r#"{"n":2}"#, 2)
    );
    assert_eq!(put(&second, "{}", 3).await, state(1, "{}", 3));
    store.close().await.unwrap();
    let store = backend.open().await;
    let read = async |session, version| store.working_state(session, version).await.unwrap();
    assert_eq!(read(&first, None).await, Some(state(2, r#"{"n":2}"#, 2)));
    assert_eq!(read(&first, Some(1)).await, Some(state(1, r#"{"n":1}"#, 1)));
    assert_eq!(read(&first, Some(3)).await, None);
    assert_eq!(read(&second, Some(2)).await, None);
}

pub(crate) async fn a_state_creates_its_session_and_an_opening_finds_it(backend: &dyn Backend) {
    let store = backend.open().await;
    let session = key(&new_partition(&*store).await, "s");
    let put = store.put_working_state(&session, "{}".to_owned(), time(1));
    put.await.unwrap();
    let seen = view(&*store, &session).await.unwrap();
    assert_eq!((seen.created_at, seen.used_at), (time(1), time(1)));
    assert_eq!((seen.turns, seen.lanes.len()), (0, 0));
    record(&*store, &[open(&session, 2)]).await;
    let seen = view(&*store, &session).await.unwrap();
    assert_eq!((seen.created_at, seen.used_at), (time(1), time(2)));
    assert_eq!(seen.lanes.len(), 1);
}

pub(crate) async fn a_state_notes_how_many_turns_were_settled(backend: &dyn Backend) {
    let store = backend.open().await;
    let session = key(&new_partition(&*store).await, "s");
    record(&*store, &[open(&session, 1)]).await;
    record(&*store, &settled(&session, 2)).await;
    let put = store.put_working_state(&session, "{}".to_owned(), time(9));
    assert_eq!(put.await.unwrap().turn, 2);
}
