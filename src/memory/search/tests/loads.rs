//! Loads: page by page, taking turns, and never in the way of a request.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use crate::auth::Scope;
use crate::ids::AgentId;
use crate::memory::search::{IndexSettings, SearchError, search_partitions};
use crate::memory::{Memory, PartitionKey};

use super::{
    Shelf, contents, far, index, index_with, key, memory, now, partition, scope, settings, words,
};

fn agent(n: u8) -> PartitionKey {
    PartitionKey {
        agent: AgentId::from_bytes([n; 16]),
        ..key(None)
    }
}

fn of(key: &PartitionKey) -> Scope {
    Scope::for_test(key.org, key.agent, None)
}

/// More than one page.
const LARGE: usize = 1_300;

#[tokio::test]
async fn many_cold_partitions_are_read_few_at_a_time() {
    let keys: Vec<PartitionKey> = (0..100).map(agent).collect();
    let store = Shelf::new(keys.iter().map(|key| memory(key, "tea")).collect(), 1_000);
    let settings = IndexSettings {
        loads: 3,
        ..settings()
    };
    let index = index_with(&store, settings);
    let (scopes, query) = (keys.iter().map(of), words("tea"));
    let scopes: Vec<Scope> = scopes.collect();
    let searches = scopes.iter().map(|s| index.search(s, &query, 5, far()));
    for found in futures_util::future::join_all(searches).await {
        assert_eq!(contents(&found.unwrap()), ["tea"]);
    }
    assert_eq!(store.loads.load(Ordering::Relaxed), 100);
    assert!((1..=3).contains(&store.most.load(Ordering::Relaxed)));
}

#[tokio::test]
async fn a_small_partition_does_not_wait_for_a_large_one() {
    let (large, small) = (agent(1), agent(2));
    let rows = (0..LARGE).map(|i| memory(&large, &format!("tea {i}")));
    let store = Shelf::new(rows.chain([memory(&small, "tea")]).collect(), 1_000);
    let index = index(&store, 10_000);
    let (one, other, query) = (of(&large), of(&small), words("tea"));
    let (a, b) = tokio::join!(
        index.search(&one, &query, 2_000, far()),
        index.search(&other, &query, 5, far())
    );
    assert_eq!((a.unwrap().len(), b.unwrap().len()), (LARGE, 1));
    let reads: Vec<bool> = store.reads.lock().iter().map(|key| *key == large).collect();
    assert_eq!(reads, [true, false, true, true]);
}

#[tokio::test]
async fn changes_between_two_pages_are_not_lost() {
    let key = key(None);
    let mut rows: Vec<Memory> = (0..LARGE)
        .map(|i| memory(&key, &format!("tea {i}")))
        .collect();
    rows.sort_unstable_by_key(|row| row.id);
    let store = Shelf::new(rows.clone(), 1);
    let index = index(&store, 10_000);
    let (first, last) = (rows[0].clone(), rows[LARGE - 1].clone());
    let gone = [rows[1].id, rows[LARGE - 2].id];
    let newer = |row: Memory, content: &str| Memory {
        content: content.into(),
        revision: 2,
        ..row
    };
    let (scope, query) = (scope(None), words("tea"));
    let (found, ()) = tokio::join!(index.search(&scope, &query, 2_000, far()), async {
        while store.loads.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        // The store answers with what it held when it was asked: the pages to come do not know of these.
        gone.iter().for_each(|id| index.remove(&key, *id));
        index.upsert(newer(first, "red wine"));
        index.upsert(newer(last, "white wine"));
        store.permits.add_permits(100);
    });
    let found = found.unwrap();
    assert_eq!(found.len(), LARGE - 4);
    assert!(found.iter().all(|hit| !gone.contains(&hit.memory.id)));
    let wines = index.search(&scope, &words("wine"), 5, far()).await;
    assert_eq!(wines.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_costs_its_own_partition_the_branch_limit() {
    let store = Shelf::new(vec![memory(&agent(1), "tea")], 0);
    let index = index(&store, 100);
    let began = Instant::now();
    let limit = Duration::from_millis(40);
    let found = index
        .search(&of(&agent(1)), &words("tea"), 5, began + limit)
        .await;
    assert!(matches!(found, Err(SearchError::Deadline)));
    assert!(began.elapsed() < limit + Duration::from_millis(2));
    assert_eq!(index.rows(&of(&agent(1))), 0, "it is still being loaded");
}

#[tokio::test]
async fn a_dropped_load_ends_when_nobody_waits_for_it() {
    let key = key(None);
    let rows = (0..LARGE).map(|i| memory(&key, &format!("tea {i}")));
    let store = Shelf::new(rows.collect(), 0);
    let index = index(&store, 100);
    index.warm(&key);
    while store.loads.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    index.invalidate(&key);
    store.permits.add_permits(100);
    while index.slots.is_busy() {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.loads.load(Ordering::Relaxed), 1);
    assert_eq!(index.bytes(), 0);
}

#[test]
fn a_search_waits_for_no_lock_beyond_its_deadline() {
    let key = key(None);
    let partition = partition(&key, [memory(&key, "tea")]);
    let (locked, is_locked) = mpsc::channel();
    let (done, is_done) = mpsc::channel::<()>();
    let writing = Arc::clone(&partition);
    let writer = thread::spawn(move || {
        writing.write(|_| {
            locked.send(()).unwrap();
            // Until the search has given up.
            assert!(is_done.recv().is_err());
        });
    });
    is_locked.recv().unwrap();
    let soon = Instant::now() + Duration::from_millis(5);
    let found = search_partitions(&[partition], &words("tea"), now(), 5, soon);
    assert!(matches!(found, Err(SearchError::Deadline)));
    drop(done);
    writer.join().unwrap();
}
