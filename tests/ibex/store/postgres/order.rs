//! The order of the feed among writers that know nothing of each other, and the fence that an answer cannot outlive.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor};
use tokio::time::Instant;

use ibex::config::PostgresConfig;
use ibex::ids::MemoryId;
use ibex::memory::{Memory, PartitionKey, Status};
use ibex::store::{
    ChangeFeed, ChangeKind, Committed, Edit, Edited, IdentityStore, MemoryStore, OrgStatus,
    RefineryStore, SessionStore, StoreError,
};

use super::databases::{Postgres, connect};
use crate::store::fixtures::sessions::{key, open, record, settled, view};
use crate::store::fixtures::{Engine, insert, memory, new_agent, new_org, new_partition, time};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_follows_the_feed_misses_no_change_of_many_writers() {
    let database = Postgres::new();
    let handles = [database.connect().await, database.connect().await];
    let mut partitions = Vec::new();
    for _ in 0..6 {
        partitions.push(new_partition(&*handles[0]).await);
    }
    let from = handles[0].revision().await.unwrap();
    let writers = (0..240_usize).map(|n| {
        let (store, partition) = (
            Arc::clone(&handles[n % 2]),
            partitions[n % partitions.len()].clone(),
        );
        async move {
            // Some writes have several changes, and some are refused in the middle.
            let rows = (0..=n % 3)
                .map(|row| memory(&partition, &format!("{n} {row}")))
                .collect();
            let ids = committed(&*store, rows).await;
            if n % 5 == 0 {
                store
                    .create_org(store.org(partition.org).await.unwrap().unwrap())
                    .await
                    .unwrap_err();
            }
            ids
        }
    });
    let follower = async {
        let (mut seen, mut cursor) = (Vec::new(), from);
        while seen.len() < 480 {
            let changes = handles[1].changes_after(cursor, 7).await.unwrap();
            cursor = changes.last().map_or(cursor, |last| last.revision);
            seen.extend(changes);
        }
        seen
    };
    let (written, seen) = tokio::join!(futures_util::future::join_all(writers), follower);
    let revisions: Vec<i64> = seen.iter().map(|change| change.revision).collect();
    assert_eq!(
        revisions,
        (from + 1..=from + 480).collect::<Vec<_>>(),
        "in order, none left out"
    );
    let told: HashSet<MemoryId> = seen
        .iter()
        .map(|change| {
            let ChangeKind::Memory(_, id) = &change.kind else {
                panic!("{change:?}")
            };
            *id
        })
        .collect();
    assert_eq!(told, written.into_iter().flatten().collect());
    for partition in &partitions {
        for row in handles[0]
            .partition_memories(partition, None, 1_000)
            .await
            .unwrap()
        {
            let entry = &seen[usize::try_from(row.revision - from - 1).unwrap()];
            assert_eq!(entry.kind, ChangeKind::Memory(partition.clone(), row.id));
        }
    }
}

async fn committed(store: &dyn Engine, rows: Vec<Memory>) -> Vec<MemoryId> {
    let ids = rows.iter().map(|row| row.id).collect();
    store.commit_all(rows).await.unwrap();
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_is_not_committed_yet_keeps_later_revisions_from_being_seen() {
    let database = Postgres::new();
    let store = database.connect().await;
    let first = new_org(&*store).await;
    // Another process is between drawing its revision and its commit.
    let mut raw = database.raw().await;
    raw.execute("SET search_path = ibex; BEGIN").await.unwrap();
    let draw = format!(
        "SELECT append_changes('{first}', '{{org}}', '{{NULL}}', '{{NULL}}', ARRAY['{first}'::uuid], '{{f}}', '{{f}}')"
    );
    raw.execute(AssertSqlSafe(draw)).await.unwrap();
    let ours = store.set_org_status(first, OrgStatus::Suspended);
    let theirs = async {
        // Ours waits for the feed by then: it cannot be seen, and theirs is not there either.
        waiting(&mut database.raw().await).await;
        assert_eq!(store.revision().await.unwrap(), 1);
        assert_eq!(store.changes_after(1, 10).await.unwrap(), []);
        raw.execute("COMMIT").await.unwrap();
    };
    let (ours, ()) = tokio::join!(ours, theirs);
    ours.unwrap();
    assert_eq!(store.changes_after(1, 10).await.unwrap().len(), 2);
}

/// Returns once a connection of this database waits for a lock.
async fn waiting(raw: &mut sqlx::PgConnection) {
    let sql = "SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted AND a.datname = current_database()";
    while sqlx::query(sql)
        .fetch_optional(&mut *raw)
        .await
        .unwrap()
        .is_none()
    {}
}

#[tokio::test]
async fn what_takes_a_memory_away_returns_when_no_older_answer_can_be_in_use() {
    let database = Postgres::new();
    let patience = Duration::from_millis(400);
    let store = connect(&PostgresConfig {
        fence_timeout_ms: 400,
        ..database.config()
    })
    .await;
    let own = new_partition(&*store).await;
    let scope = std::slice::from_ref(&own);
    let (tea, coffee) = (memory(&own, "tea"), memory(&own, "coffee"));
    let began = Instant::now();
    committed(&*store, vec![tea.clone(), coffee.clone()]).await;
    assert!(began.elapsed() < patience, "a write takes nothing away");
    let began = Instant::now();
    store
        .forget_memory(scope, tea.id, time(1))
        .await
        .unwrap()
        .unwrap();
    assert!(began.elapsed() >= patience);
    let began = Instant::now();
    assert_eq!(
        store.forget_memory(scope, tea.id, time(1)).await.unwrap(),
        None
    );
    assert!(began.elapsed() < patience, "it was gone before");
    for (text, forgets, status) in [
        ("milk", true, Status::Active),
        ("milk", false, Status::Quarantined),
    ] {
        let held = store.memory(scope, coffee.id).await.unwrap().unwrap();
        let edit = Edit {
            draft: Memory {
                content: text.into(),
                content_hash: [u8::from(forgets); 32],
                status,
                ..held.clone()
            }
            .into(),
            read_at: held.revision,
            forgets,
        };
        let began = Instant::now();
        let edited = store.edit(edit).await.unwrap();
        assert!(
            matches!(edited, Edited::Done(Committed::Inserted { .. })),
            "{edited:?}"
        );
        assert!(began.elapsed() >= patience);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_about_fences_that_would_be_late_is_an_error() {
    let database = Postgres::new();
    let store = connect(&PostgresConfig {
        fence_timeout_ms: 50,
        ..database.config()
    })
    .await;
    let own = new_partition(&*store).await;
    let scope = std::slice::from_ref(&own);
    let mut raw = database.raw().await;
    raw.execute("BEGIN; LOCK TABLE ibex.forget_fences IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    for _ in 0..20 {
        let began = Instant::now();
        let late = store.forget_fence(scope).await.unwrap_err();
        assert_eq!(
            late.to_string(),
            "the store is unavailable: the database does not answer"
        );
        assert!(began.elapsed() < Duration::from_millis(1_000));
    }
    raw.execute("ROLLBACK").await.unwrap();
    // Connections whose caller went away are of use again.
    let mut answer = store.forget_fence(scope).await;
    let began = Instant::now();
    while answer.is_err() && began.elapsed() < Duration::from_secs(10) {
        answer = store.forget_fence(scope).await;
    }
    assert_eq!(answer.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_record_the_same_sessions_in_opposite_orders() {
    let database = Postgres::new();
    let handles = [database.connect().await, database.connect().await];
    let (one, other) = (
        new_partition(&*handles[0]).await,
        new_partition(&*handles[0]).await,
    );
    let keys: Vec<_> = (0..10)
        .flat_map(|n| [key(&one, &format!("s{n}")), key(&other, &format!("s{n}"))])
        .collect();
    let batch = |backwards: bool| {
        let mut records: Vec<_> = keys
            .iter()
            .map(|key| [vec![open(key, 1)], settled(key, 3)].concat())
            .collect();
        if backwards {
            records.reverse();
        }
        records.concat()
    };
    let (forwards, backwards) = (batch(false), batch(true));
    for _ in 0..10 {
        let (first, second) = tokio::join!(
            record(&*handles[0], &forwards),
            record(&*handles[1], &backwards)
        );
        let ((), ()) = (first, second);
    }
    for key in &keys {
        assert_eq!(view(&*handles[0], key).await.unwrap().turns, 3);
    }
}

#[tokio::test]
async fn a_run_that_died_is_told_to_the_next_and_one_that_lives_is_not() {
    let database = Postgres::new();
    let (first, second) = (database.connect().await, database.connect().await);
    assert!(first.begin_run().await.unwrap());
    assert!(second.begin_run().await.unwrap(), "the first one lives");
    second.end_run().await.unwrap();
    assert!(
        second.begin_run().await.unwrap(),
        "it ended, and begins again"
    );
    second.end_run().await.unwrap();
    // As if nobody had heard of the first one for a minute.
    let mut raw = database.raw().await;
    let silence = "UPDATE ibex.session_runs SET seen_at = seen_at - 61000000";
    raw.execute(silence).await.unwrap();
    assert!(!second.begin_run().await.unwrap());
    second.end_run().await.unwrap();
    first.end_run().await.unwrap();
    assert!(second.begin_run().await.unwrap(), "nobody is left");
}

#[tokio::test]
async fn a_process_that_begins_right_after_a_crash_is_told_for_a_day() {
    let database = Postgres::new();
    let (first, second) = (database.connect().await, database.connect().await);
    assert!(first.begin_run().await.unwrap());
    drop(first);
    let mut raw = database.raw().await;
    let held = "SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                WHERE l.locktype = 'advisory' AND d.datname = current_database()";
    while sqlx::query(held)
        .fetch_optional(&mut raw)
        .await
        .unwrap()
        .is_some()
    {}
    for _ in 0..2 {
        assert!(!second.begin_run().await.unwrap());
        second.end_run().await.unwrap();
    }
    let day = "UPDATE ibex.session_runs SET seen_at = seen_at - 86400000000";
    raw.execute(day).await.unwrap();
    assert!(
        second.begin_run().await.unwrap(),
        "after a day it is not told any more"
    );
}

#[tokio::test]
async fn a_write_of_two_organisations_is_refused() {
    let database = Postgres::new();
    let store = database.connect().await;
    let (one, other) = (new_partition(&*store).await, new_partition(&*store).await);
    let refused = store
        .commit_all(vec![memory(&one, "tea"), memory(&other, "tea")])
        .await;
    assert!(
        matches!(refused, Err(StoreError::Refused(_))),
        "{refused:?}"
    );
    assert_eq!(store.commit_all(Vec::new()).await.unwrap(), []);
    let sibling = PartitionKey {
        agent: new_agent(&*store, one.org).await,
        ..one.clone()
    };
    store
        .commit_all(vec![memory(&one, "tea"), memory(&sibling, "tea")])
        .await
        .unwrap();
    insert(&*store, memory(&one, "milk")).await;
    assert_eq!(store.count_memories(&one).await.unwrap(), 2);
}
