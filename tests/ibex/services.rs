//! The engines that other tests stand on: what they promise about databases, stopping, pausing and filling.

use std::time::Duration;

use sqlx::{Connection, Executor, PgConnection};

use crate::support::services::{
    OwnPostgres, OwnRedis, fresh_database, fresh_prefix, migrated_database, postgres_url, redis_url,
};

async fn connected(url: &str) -> Result<PgConnection, sqlx::Error> {
    PgConnection::connect(url).await
}

async fn redis(url: &str) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    let client = redis::Client::open(url)?;
    client.get_multiplexed_async_connection().await
}

async fn ask<T: redis::FromRedisValue>(
    connection: &mut redis::aio::MultiplexedConnection,
    words: &[&str],
) -> redis::RedisResult<T> {
    let mut command = redis::Cmd::new();
    command.arg(words);
    command.query_async(connection).await
}

async fn one(connection: &mut PgConnection, query: &'static str) -> i64 {
    let row = sqlx::query_scalar(query).fetch_one(connection);
    row.await.unwrap()
}

#[tokio::test]
async fn a_fresh_database_is_empty_and_goes_away_when_it_is_dropped() {
    let (own, other) = (fresh_database(), fresh_database());
    let mut connection = connected(own.url()).await.unwrap();
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
    assert_eq!(one(&mut connection, tables).await, 0);
    connection.execute("CREATE TABLE t (n int)").await.unwrap();
    let mut elsewhere = connected(other.url()).await.unwrap();
    assert_eq!(one(&mut elsewhere, tables).await, 0);
    let url = own.url().to_owned();
    drop(own);
    connection.ping().await.unwrap_err();
    connected(&url).await.unwrap_err();
}

#[tokio::test]
async fn the_user_of_the_tests_is_bound_by_row_level_security() {
    let mut server = connected(postgres_url()).await.unwrap();
    let exempt =
        "SELECT count(*) FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls)";
    assert_eq!(one(&mut server, exempt).await, 0);
}

#[tokio::test]
async fn a_schema_is_made_once_and_copied_from_then_on() {
    let schema = async |url: String| {
        let mut connection = connected(&url).await.unwrap();
        let made = "CREATE TABLE t (n bigint); INSERT INTO t VALUES (1)";
        connection.execute(made).await.unwrap();
        connection.close().await.unwrap();
    };
    let unused = async |_: String| panic!("the schema is there already");
    for database in [
        migrated_database("one table", schema),
        migrated_database("one table", unused),
    ] {
        let mut connection = connected(database.url()).await.unwrap();
        assert_eq!(one(&mut connection, "SELECT count(*) FROM t").await, 1);
        connection.execute("DELETE FROM t").await.unwrap();
    }
}

#[tokio::test]
async fn keys_of_one_prefix_are_nobody_elses() {
    let (own, other) = (fresh_prefix(), fresh_prefix());
    assert_ne!(own, other);
    let mut connection = redis(redis_url()).await.unwrap();
    let set: String = ask(&mut connection, &["SET", &own, "1"]).await.unwrap();
    assert_eq!(set, "OK");
    let found: Option<i64> = ask(&mut connection, &["GET", &other]).await.unwrap();
    assert_eq!(found, None);
}

#[tokio::test]
async fn a_postgres_that_was_stopped_comes_back_with_what_was_committed() {
    let engine = OwnPostgres::start();
    let mut connection = connected(engine.url()).await.unwrap();
    let made = "CREATE TABLE t (n bigint); INSERT INTO t VALUES (7)";
    connection.execute(made).await.unwrap();
    engine.stop();
    connection.ping().await.unwrap_err();
    let refused = tokio::net::TcpStream::connect(("127.0.0.1", engine.port()));
    refused.await.unwrap_err();
    engine.restart();
    let mut connection = connected(engine.url()).await.unwrap();
    assert_eq!(one(&mut connection, "SELECT n FROM t").await, 7);
}

#[tokio::test]
async fn a_redis_that_was_stopped_comes_back_empty() {
    let engine = OwnRedis::start();
    let mut connection = redis(engine.url()).await.unwrap();
    let set = ask::<String>(&mut connection, &["SET", "k", "v"]);
    set.await.unwrap();
    engine.stop();
    redis(engine.url()).await.unwrap_err();
    engine.restart();
    let mut connection = redis(engine.url()).await.unwrap();
    assert_eq!(ask(&mut connection, &["DBSIZE"]).await, Ok(0));
}

#[tokio::test]
async fn a_paused_engine_answers_nothing_until_it_is_resumed() {
    let (postgres, cache) = (OwnPostgres::start(), OwnRedis::start());
    let mut connection = connected(postgres.url()).await.unwrap();
    let mut cached = redis(cache.url()).await.unwrap();
    cached.set_response_timeout(Duration::from_secs(60));
    postgres.pause();
    cache.pause();
    {
        let mut ping = std::pin::pin!(ask::<String>(&mut cached, &["PING"]));
        let mut row = std::pin::pin!(one(&mut connection, "SELECT 1::bigint"));
        let a_while = Duration::from_millis(50);
        let unanswered = tokio::time::timeout(a_while, &mut ping).await;
        assert!(unanswered.is_err(), "{unanswered:?}");
        let unanswered = tokio::time::timeout(a_while, &mut row).await;
        assert!(unanswered.is_err(), "{unanswered:?}");
        postgres.resume();
        cache.resume();
        ping.await.unwrap();
        assert_eq!(row.await, 1);
    }
    // One that is paused can be stopped all the same.
    postgres.pause();
    cache.pause();
    postgres.stop();
    cache.stop();
}

#[tokio::test]
async fn a_full_engine_refuses_writes_until_there_is_space() {
    let (postgres, cache) = (OwnPostgres::start(), OwnRedis::start());
    let mut connection = connected(postgres.url()).await.unwrap();
    connection.execute("CREATE TABLE t (n text)").await.unwrap();
    let much = "INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 3000)";
    postgres.fill();
    connection.execute(much).await.unwrap_err();
    assert_eq!(one(&mut connection, "SELECT count(*) FROM t").await, 0);
    postgres.make_space();
    connection.execute(much).await.unwrap();
    let mut cached = redis(cache.url()).await.unwrap();
    let set = ["SET", "k", "v"];
    cache.fill();
    ask::<String>(&mut cached, &set).await.unwrap_err();
    ask::<String>(&mut cached, &["PING"]).await.unwrap();
    cache.make_space();
    ask::<String>(&mut cached, &set).await.unwrap();
}
