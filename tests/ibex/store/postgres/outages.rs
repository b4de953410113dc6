//! A server that hangs, stops, is full or takes no writes: every call ends in time, with a text that says why, and the store goes on by
//! itself when the server does.

use std::time::Duration;

use sqlx::{Connection, Executor, PgConnection};
use tokio::net::TcpListener;
use tokio::time::Instant;

use ibex::config::PostgresConfig;
use ibex::store::postgres::{PostgresStore, migrate};
use ibex::store::{ChangeFeed, IdentityStore, MemoryStore, SessionStore, StoreError};

use super::databases::{Postgres, config, connect};
use crate::store::fixtures::sessions::key;
use crate::store::fixtures::{Engine, memory, new_org, new_partition};
use crate::support::services::OwnPostgres;

/// Times that a test can wait for.
fn impatient(url: &str) -> PostgresConfig {
    PostgresConfig {
        connect_timeout_ms: 500,
        acquire_timeout_ms: 500,
        statement_timeout_ms: 500,
        fence_timeout_ms: 50,
        ..config(url)
    }
}

/// Longer than any call may take with these times, and shorter than waiting twice.
const BOUND: Duration = Duration::from_millis(1_900);

async fn unavailable<T: std::fmt::Debug>(
    call: impl Future<Output = Result<T, StoreError>>,
) -> String {
    let began = Instant::now();
    let answer = call.await;
    let took = began.elapsed();
    assert!(took < BOUND, "{took:?}");
    match answer {
        Err(StoreError::Unavailable(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_accepts_and_never_answers_holds_nobody_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let accepting = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((connection, _)) = silent.accept().await {
            held.push(connection);
        }
    });
    let config = impatient(&format!("postgres://u@127.0.0.1:{port}/d"));
    let began = Instant::now();
    let opened = PostgresStore::connect(&config).await.unwrap_err();
    assert!(began.elapsed() < BOUND);
    assert_eq!(
        opened.to_string(),
        "postgres.url: its server does not answer in time"
    );
    let migrated = migrate(&config).await.unwrap_err();
    assert_eq!(migrated.to_string(), opened.to_string());
    accepting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_under_a_running_store_holds_nobody_up() {
    let server = OwnPostgres::start();
    let config = impatient(server.url());
    migrate(&config).await.unwrap();
    let store = connect(&config).await;
    let own = new_partition(&*store).await;
    let scope = std::slice::from_ref(&own);
    server.pause();
    let call = async |n: usize| {
        match n % 6 {
            0 => unavailable(store.commit_all(vec![memory(&own, "tea")])).await,
            1 => unavailable(store.memory(scope, memory(&own, "x").id)).await,
            2 => unavailable(store.revision()).await,
            3 => unavailable(store.knows_session(&key(&own, "s"))).await,
            4 => unavailable(store.orgs()).await,
            _ => unavailable(store.forget_fence(scope)).await,
        };
    };
    // More calls than connections, twice: places in the pool are not used up.
    for _ in 0..2 {
        futures_util::future::join_all((0..60).map(call)).await;
    }
    let began = Instant::now();
    unavailable(store.forget_fence(scope)).await;
    assert!(
        began.elapsed() < Duration::from_millis(400),
        "a fence has less time"
    );
    server.resume();
    recovered(&*store).await;
    store.commit_all(vec![memory(&own, "tea")]).await.unwrap();
    assert_eq!(store.count_memories(&own).await.unwrap(), 1);
}

/// Waits until reads, fences and writes work.
async fn recovered(store: &dyn Engine) {
    let began = Instant::now();
    loop {
        let works = store.ping().await.is_ok() && store.forget_fence(&[]).await.is_ok();
        if works && store.orgs().await.is_ok() {
            return;
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "it does not recover"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_goes_on_by_itself_after_its_server_was_restarted() {
    let server = OwnPostgres::start();
    let config = impatient(server.url());
    migrate(&config).await.unwrap();
    let store = connect(&config).await;
    let own = new_partition(&*store).await;
    // Several connections that will all be dead.
    futures_util::future::join_all((0..20).map(|_| store.orgs())).await;
    server.restart();
    // Reads are asked again over a new connection, and so is the beginning of a write.
    assert_eq!(store.orgs().await.unwrap().len(), 1);
    store.commit_all(vec![memory(&own, "tea")]).await.unwrap();
    assert_eq!(store.count_memories(&own).await.unwrap(), 1);
    server.stop();
    for _ in 0..3 {
        unavailable(store.orgs()).await;
        unavailable(store.commit_all(vec![memory(&own, "milk")])).await;
        unavailable(store.forget_fence(std::slice::from_ref(&own))).await;
    }
    server.restart();
    recovered(&*store).await;
    store.commit_all(vec![memory(&own, "milk")]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_and_the_next_one_works_when_there_is_room() {
    let server = OwnPostgres::start();
    let config = config(server.url());
    migrate(&config).await.unwrap();
    let store = connect(&config).await;
    let own = new_partition(&*store).await;
    let big = || {
        let text: String = (0..60_000).map(|n| format!("{n} ")).collect();
        memory(&own, &text)
    };
    server.fill();
    let mut refused = None;
    for _ in 0..20 {
        if let Err(error) = store.commit_all(vec![big()]).await {
            refused = Some(error);
            break;
        }
        let held = store.partition_memories(&own, None, 1).await.unwrap();
        store
            .forget_memory(
                std::slice::from_ref(&own),
                held[0].id,
                crate::store::fixtures::time(1),
            )
            .await
            .unwrap();
    }
    let refused = refused.expect("the disk was full");
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
    store.orgs().await.expect("reads go on");
    server.make_space();
    recovered(&*store).await;
    store.commit_all(vec![memory(&own, "tea")]).await.unwrap();
}

#[tokio::test]
async fn a_database_that_takes_no_writes_is_said_to_be_read_only() {
    let database = Postgres::new();
    let mut raw = database.raw().await;
    let row = sqlx::query("SELECT current_database()::text")
        .fetch_one(&mut raw)
        .await
        .unwrap();
    let name: String = sqlx::Row::get(&row, 0);
    let set = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
    raw.execute(sqlx::AssertSqlSafe(set)).await.unwrap();
    let store = database.connect().await;
    for _ in 0..2 {
        let org = ibex::store::Org {
            id: ibex::ids::OrgId::new(),
            name: "secret name".to_owned(),
            status: ibex::store::OrgStatus::Active,
            created_at: crate::store::fixtures::time(0),
        };
        assert_eq!(
            unavailable(store.create_org(org)).await,
            "the database is read-only"
        );
    }
    assert_eq!(unavailable(store.ping()).await, "the database is read-only");
    assert!(store.orgs().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_waits_too_long_for_another_ends_and_takes_no_connection_along() {
    let database = Postgres::new();
    let store = connect(&PostgresConfig {
        max_connections: 4,
        ..impatient(&database.config().url.unwrap())
    })
    .await;
    let own = new_partition(&*store).await;
    let mut other = database.raw().await;
    other
        .execute("BEGIN; LOCK TABLE ibex.memories IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let why = unavailable(store.commit_all(vec![memory(&own, "tea")])).await;
    assert_eq!(why, "the statement took too long");
    // Callers that go away in the middle of a statement.
    for _ in 0..20 {
        let write = store.commit_all(vec![memory(&own, "tea")]);
        tokio::time::timeout(Duration::from_millis(20), write)
            .await
            .unwrap_err();
        let read = store.count_memories(&own);
        tokio::time::timeout(Duration::from_millis(5), read)
            .await
            .unwrap_err();
    }
    other.execute("ROLLBACK").await.unwrap();
    recovered(&*store).await;
    store.commit_all(vec![memory(&own, "tea")]).await.unwrap();
    assert_eq!(
        store.count_memories(&own).await.unwrap(),
        1,
        "what was broken off is not there"
    );
}

#[tokio::test]
async fn connections_that_an_administrator_ends_are_replaced() {
    let database = Postgres::new();
    let store = database.connect().await;
    new_org(&*store).await;
    let mut raw: PgConnection = database.raw().await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    raw.execute(end).await.unwrap();
    assert_eq!(store.orgs().await.unwrap().len(), 1);
    new_org(&*store).await;
    raw.close().await.unwrap();
}

#[tokio::test]
async fn a_server_that_gives_no_connections_is_left_alone_until_it_does() {
    let server = OwnPostgres::start();
    let config = impatient(server.url());
    migrate(&config).await.unwrap();
    let store = connect(&config).await;
    let org = new_org(&*store).await;
    server.pause();
    // Those that are open are used up, and whoever opens another one waits in vain.
    let asked = (0..80).map(|_| unavailable(store.org(org)));
    futures_util::future::join_all(asked).await;
    while unavailable(store.org(org)).await != "the database has not answered for a while" {}
    server.resume();
    let back = crate::support::soon("an answer", async {
        while store.org(org).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
    back.await;
}
