//! The file, its settings and its locks.

use std::os::unix::fs::PermissionsExt;

use super::{Files, memory, new_org, new_partition};
use crate::config::StoreConfig;
use crate::store::sqlite::{OpenError, SqliteStore};
use crate::store::{ChangeFeed, IdentityStore, MemoryStore, StoreError};

#[tokio::test]
async fn folder_and_files_are_closed_to_others() {
    let files = Files::new();
    let store = files.open();
    new_org(&*store).await;
    let mode = |name: &str| {
        std::fs::metadata(files.folder.path().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode("data"), 0o700);
    for name in ["data/ibex.db", "data/ibex.db-wal", "data/ibex.db-shm"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let files = Files::new();
    files.open().close().await.unwrap();
    files
        .raw()
        .pragma_update(None, "user_version", 999)
        .unwrap();
    let error = SqliteStore::open(&files.path(), &StoreConfig::default()).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::NewerSchema {
                found: 999,
                known: 4
            }
        ),
        "{error}"
    );
    let version: i64 = files
        .raw()
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 999);
}
#[test]
fn files_of_other_programs_are_refused() {
    let files = Files::new();
    std::fs::create_dir(files.folder.path().join("data")).unwrap();
    files
        .raw()
        .execute_batch("CREATE TABLE bookmarks (url TEXT)")
        .unwrap();
    assert!(matches!(
        SqliteStore::open(&files.path(), &StoreConfig::default()),
        Err(OpenError::Foreign)
    ));
    std::fs::write(
        files.path(),
        "not a database, but long enough to be looked at".repeat(50),
    )
    .unwrap();
    let error = SqliteStore::open(&files.path(), &StoreConfig::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the store is unavailable: the file is damaged or not a database"
    );
}
#[test]
fn processes_that_start_together_create_one_schema() {
    let files = Files::new();
    let barrier = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        let open = || {
            barrier.wait();
            SqliteStore::open(&files.path(), &StoreConfig::default()).map(drop)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_write_of_a_group_takes_no_other_with_it() {
    let files = Files::new();
    let store = files.open();
    let partition = new_partition(&*store).await;
    // The first job holds the thread until the others have queued up behind it, so that those share a group.
    let (release, held) = std::sync::mpsc::channel::<()>();
    let blocker = store.write(move |_| held.recv().map_err(|_| StoreError::Missing("release")));
    let good = |i: usize| store.commit_all(vec![memory(&partition, &format!("fact {i}"))]);
    let taken = store.org(partition.org).await.unwrap().unwrap();
    let release = async move { release.send(()).unwrap() };
    let (blocked, first, failed, last, ()) =
        tokio::join!(blocker, good(1), store.create_org(taken), good(2), release);
    blocked.unwrap();
    first.unwrap();
    last.unwrap();
    assert!(matches!(failed, Err(StoreError::Conflict("organisation"))));
    assert_eq!(store.count_memories(&partition).await.unwrap(), 2);
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_the_next_one_works_when_there_is_room() {
    let files = Files::new();
    let store = files.open();
    let partition = new_partition(&*store).await;
    store
        .write(|conn| Ok(conn.pragma_update_and_check(None, "max_page_count", 1, |_| Ok(()))?))
        .await
        .unwrap();
    let big = memory(&partition, &"large ".repeat(10_000));
    let error = store.commit_all(vec![big.clone()]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the store is unavailable: the disk is full"
    );
    assert_eq!(
        store.count_memories(&partition).await.unwrap(),
        0,
        "reads go on"
    );
    store.ping().await.unwrap();
    store
        .write(|conn| {
            Ok(conn.pragma_update_and_check(None, "max_page_count", 1_000_000, |_| Ok(()))?)
        })
        .await
        .unwrap();
    store.commit_all(vec![big]).await.unwrap();
}

#[tokio::test]
async fn a_read_only_database_refuses_writes_without_stopping_the_writer() {
    let files = Files::new();
    let store = files.open();
    let partition = new_partition(&*store).await;
    store
        .write(|conn| Ok(conn.pragma_update(None, "query_only", true)?))
        .await
        .unwrap();
    for _ in 0..2 {
        let error = store
            .commit_all(vec![memory(&partition, "tea")])
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the store is unavailable: the database is read-only"
        );
    }
    store
        .bump_retrieved(
            std::slice::from_ref(&partition),
            vec![crate::ids::MemoryId::new()],
            super::time(0),
        )
        .await
        .unwrap();
    assert_eq!(store.count_memories(&partition).await.unwrap(), 0);
    store.ping().await.unwrap();
}

#[tokio::test]
async fn a_lock_held_by_another_process_times_out_with_a_clear_text() {
    let files = Files::new();
    let settings = StoreConfig {
        busy_timeout_ms: 1,
        ..StoreConfig::default()
    };
    let store = SqliteStore::open(&files.path(), &settings).unwrap();
    let other = files.raw();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let org = crate::store::Org {
        id: crate::ids::OrgId::new(),
        name: "secret name".to_owned(),
        status: crate::store::OrgStatus::Active,
        created_at: super::time(0),
    };
    let error = store.create_org(org.clone()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the store is unavailable: another process holds the lock"
    );
    other.execute_batch("ROLLBACK").unwrap();
    store.create_org(org).await.unwrap();
}

#[tokio::test]
async fn a_damaged_row_is_reported_without_its_contents() {
    let files = Files::new();
    let store = files.open();
    let partition = new_partition(&*store).await;
    let stored = memory(&partition, "tea");
    store.commit_all(vec![stored.clone()]).await.unwrap();
    files
        .raw()
        .execute("UPDATE memories SET embedding = x'010203'", [])
        .unwrap();
    assert!(matches!(
        store.memory(&[partition], stored.id).await,
        Err(StoreError::Damaged("memory"))
    ));
}

#[tokio::test]
async fn a_closed_store_refuses_everything() {
    let files = Files::new();
    let store = files.open();
    let partition = new_partition(&*store).await;
    store.close().await.unwrap();
    store.close().await.unwrap();
    let closed = |error: StoreError| {
        assert_eq!(
            error.to_string(),
            "the store is unavailable: the store is closed"
        )
    };
    closed(
        store
            .commit_all(vec![memory(&partition, "tea")])
            .await
            .unwrap_err(),
    );
    closed(store.orgs().await.unwrap_err());
    closed(store.poll().await.unwrap_err());
    store.ping().await.unwrap_err();
    assert!(
        !files.folder.path().join("data/ibex.db-wal").exists(),
        "the last connection took the log along"
    );
}
