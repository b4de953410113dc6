//! What is out, what then happens to requests, what is seen of it, and that all of it comes back without a restart.

use http::StatusCode;
use serde_json::json;
use sqlx::{Connection, Executor, PgConnection};

use super::fleet::{CHAT, Engines, Fleet, PATIENT, question, says, until};
use crate::support::services::{Database, OwnPostgres, OwnRedis, fresh_database, redis_url};
use crate::support::{Answer, Client};

const KEY: &str = "The spare key hangs in the shed.";
const ASKED: &str = "Where is the spare key?";

/// Calls fail soon, and a replica looks again often.
const QUICK: &[(&str, &str)] = &[
    ("IBEX_REDIS__TIMEOUT_MS", "500"),
    ("IBEX_REDIS__CONNECT_TIMEOUT_MS", "500"),
    ("IBEX_POSTGRES__CONNECT_TIMEOUT_MS", "500"),
    ("IBEX_POSTGRES__ACQUIRE_TIMEOUT_MS", "500"),
    ("IBEX_POSTGRES__STATEMENT_TIMEOUT_MS", "2000"),
];

/// Two replicas over a Redis of the test's own.
async fn with_redis(redis: &OwnRedis, more: &[(&'static str, &'static str)]) -> (Fleet, Database) {
    let database = fresh_database();
    let engines = Engines {
        postgres: database.url().to_owned(),
        redis: redis.url().to_owned(),
    };
    (Fleet::over(&engines, 2, &settings(more)).await, database)
}

/// Two replicas over a PostgreSQL of the test's own.
async fn with_postgres(postgres: &OwnPostgres) -> Fleet {
    let engines = Engines {
        postgres: postgres.url().to_owned(),
        redis: redis_url().to_owned(),
    };
    Fleet::over(&engines, 2, &settings(&[])).await
}

fn settings(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let parts = [PATIENT, QUICK, more];
    parts.into_iter().flatten().copied().collect()
}

async fn ask(client: &Client) -> Answer {
    client.post_raw(CHAT, question(ASKED)).await
}

fn is_whole(answer: &Answer) -> bool {
    answer.status == StatusCode::OK && answer.header("x-ibex-context-degradation") == "L0"
}

/// Both replicas answer as if nothing had been, within the test's patience.
async fn are_back(fleet: &Fleet) {
    for client in fleet.clients() {
        until("whole answers", async || ask(&client).await, is_whole).await;
        let ready = async || client.get("/ready").await;
        until("a ready replica", ready, |answer| {
            answer.status == StatusCode::OK
        })
        .await;
    }
}

/// Its name, what brings it about, and what mends it.
type Fault<E> = (&'static str, fn(&E), fn(&E));

const REDIS_FAULTS: [Fault<OwnRedis>; 3] = [
    ("stopped", |redis| redis.stop(), |redis| redis.restart()),
    ("hanging", |redis| redis.pause(), |redis| redis.resume()),
    ("refusing writes", OwnRedis::fill, OwnRedis::make_space),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_nothing_goes_uncounted_and_it_comes_back_by_itself() {
    let redis = OwnRedis::start();
    let (fleet, _database) =
        with_redis(&redis, &[("IBEX_RATE_LIMIT__REDIS_OUTAGE", "refuse")]).await;
    fleet.remember(0, KEY).await;
    are_back(&fleet).await;
    for (fault, breaks, mends) in REDIS_FAULTS {
        breaks(&redis);
        for (replica, client) in fleet.clients().iter().enumerate() {
            let hits = fleet.upstream.hits();
            for _ in 0..5 {
                let answer = ask(client).await;
                assert_eq!(
                    answer.status,
                    StatusCode::SERVICE_UNAVAILABLE,
                    "{fault}: {answer:?}"
                );
                assert_eq!(answer.code(), "SERVICE_DEGRADED", "{fault}");
                assert!(!answer.header("retry-after").is_empty(), "{fault}");
            }
            assert_eq!(fleet.upstream.hits(), hits, "{fault}");
            let ready = async || client.get("/ready").await;
            let unready = until("an unready replica", ready, |a| {
                a.status == StatusCode::SERVICE_UNAVAILABLE
            });
            let unready = unready.await.json();
            assert_ne!(unready["checks"]["redis"]["status"], "ok", "{fault}");
            let seen = fleet
                .metric_sum(replica, "ibex_redis_calls_total", "result=\"ok\"")
                .await;
            assert!(seen > 0.0, "{fault}");
        }
        mends(&redis);
        are_back(&fleet).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_operator_wants_it_replicas_count_their_share_meanwhile() {
    let redis = OwnRedis::start();
    let local = [
        ("IBEX_RATE_LIMIT__REDIS_OUTAGE", "local"),
        ("IBEX_RATE_LIMIT__REPLICAS", "2"),
    ];
    let (fleet, _database) = with_redis(&redis, &local).await;
    fleet.remember(0, KEY).await;
    are_back(&fleet).await;
    for (fault, breaks, mends) in REDIS_FAULTS {
        breaks(&redis);
        for client in fleet.clients() {
            let answer = ask(&client).await;
            assert_eq!(answer.status, StatusCode::OK, "{fault}: {answer:?}");
            assert_eq!(
                answer.header("x-ibex-rate-limit-source"),
                "local",
                "{fault}"
            );
            if fault != "refusing writes" {
                assert_eq!(
                    answer.header("x-ibex-context-degradation"),
                    "L3",
                    "{fault}: {answer:?}"
                );
                let reason = answer.header("x-ibex-context-reason");
                assert!(reason.contains("session="), "{fault}: {reason}");
            }
            let ready = client.get("/ready").await;
            assert_eq!(ready.status, StatusCode::OK, "{fault}: {ready:?}");
        }
        mends(&redis);
        are_back(&fleet).await;
        let source = ask(&fleet.client(0)).await;
        assert_eq!(
            source.headers.get("x-ibex-rate-limit-source"),
            None,
            "{fault}"
        );
    }
}

/// What the provider was sent last, from the first message on.
fn sent(fleet: &Fleet) -> String {
    let body = String::from_utf8(fleet.upstream.last().request.body.clone()).unwrap();
    let (_, rest) = body.split_once(r#""messages":["#).unwrap();
    rest.strip_suffix("]}").unwrap().to_owned()
}

/// A session that goes on turn by turn.
struct Talk(Vec<String>);

impl Talk {
    async fn ask(&mut self, fleet: &Fleet, replica: usize, text: &str) -> String {
        self.0.push(says("user", text));
        let body = format!(r#"{{"model":"gpt-4o","messages":[{}]}}"#, self.0.join(","));
        let named = fleet.client(replica).header("x-ibex-session-id", "trip");
        let post = async || named.post_raw(CHAT, body.clone()).await;
        until("a whole answer", post, is_whole).await;
        self.0
            .push(r#"{"role":"assistant","content":"fine"}"#.to_owned());
        sent(fleet)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_lost_everything_costs_no_session_its_bytes() {
    let redis = OwnRedis::start();
    let (fleet, _database) = with_redis(&redis, &[]).await;
    fleet.remember(0, KEY).await;
    let mut talk = Talk(Vec::new());
    let mut before = talk.ask(&fleet, 0, ASKED).await;
    assert!(before.contains(KEY));
    for (replica, text) in [
        (1, "And the red one?"),
        (0, "And the blue one?"),
        (1, "And then?"),
    ] {
        let after = talk.ask(&fleet, replica, text).await;
        assert!(
            after.starts_with(&before),
            "\nbefore: {before}\nafter: {after}"
        );
        before = after;
        recorded(&fleet, "trip", talk.0.len() / 2).await;
        redis.restart();
    }
}

/// The store has so many turns of a session.
async fn recorded(fleet: &Fleet, session: &str, turns: usize) {
    let client = fleet.client(0);
    let path = format!("/v1/sessions/{session}");
    let ask = async || client.get(&path).await;
    let has = |answer: &Answer| answer.status == StatusCode::OK && answer.json()["turns"] == turns;
    until("recorded turns", ask, has).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_killed_takes_neither_sessions_nor_acknowledged_writes_along() {
    let mut fleet = Fleet::new(2, PATIENT).await;
    fleet.remember(0, KEY).await;
    let mut talk = Talk(Vec::new());
    let before = talk.ask(&fleet, 0, ASKED).await;
    let last = fleet.remember(0, "The boat lies in the lower lock.").await;
    let mut killed = fleet.replicas.remove(0);
    killed.process.signal("KILL");
    killed.process.wait();
    let after = talk.ask(&fleet, 0, "And the red one?").await;
    assert!(
        after.starts_with(&before),
        "\nbefore: {before}\nafter: {after}"
    );
    let read = fleet.client(0).get(&format!("/v1/memories/{last}")).await;
    assert_eq!(read.status, StatusCode::OK, "{read:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_postgres_who_is_known_is_served_the_directive_and_nobody_else_is() {
    let postgres = OwnPostgres::start();
    let fleet = with_postgres(&postgres).await;
    let directive = json!({"content": "Answer in verse.", "promote": true});
    let added = fleet.client(0).post("/v1/directives", &directive).await;
    assert_eq!(added.status, StatusCode::CREATED, "{added:?}");
    let faults: [Fault<OwnPostgres>; 2] = [
        (
            "stopped",
            |postgres| postgres.stop(),
            |postgres| postgres.restart(),
        ),
        (
            "hanging",
            |postgres| postgres.pause(),
            |postgres| postgres.resume(),
        ),
    ];
    for (n, (fault, breaks, mends)) in faults.into_iter().enumerate() {
        let (_, strange) = fleet.new_token();
        let written = fleet.remember(0, &format!("{KEY} {n}")).await;
        are_back(&fleet).await;
        breaks(&postgres);
        for (replica, client) in fleet.clients().iter().enumerate() {
            let known = ask(client).await;
            assert_eq!(known.status, StatusCode::OK, "{fault}: {known:?}");
            assert_eq!(known.header("x-ibex-context-degradation"), "L3", "{fault}");
            let sent = sent(&fleet);
            assert!(
                sent.contains("Answer in verse.") && !sent.contains(KEY),
                "{fault}: {sent}"
            );
            let hits = fleet.upstream.hits();
            let unknown = ask(&fleet.client_with(replica, &strange)).await;
            assert_eq!(
                unknown.status,
                StatusCode::SERVICE_UNAVAILABLE,
                "{fault}: {unknown:?}"
            );
            assert_eq!(fleet.upstream.hits(), hits, "{fault}");
            let memory = json!({"content": "The mill stands by the weir."});
            let write = client.post("/v1/memories", &memory).await;
            assert_eq!(
                write.status,
                StatusCode::SERVICE_UNAVAILABLE,
                "{fault}: {write:?}"
            );
            let ready = async || client.get("/ready").await;
            let unready = |answer: &Answer| answer.status == StatusCode::SERVICE_UNAVAILABLE;
            until("an unready replica", ready, unready).await;
        }
        mends(&postgres);
        are_back(&fleet).await;
        for (replica, client) in fleet.clients().iter().enumerate() {
            let read = client.get(&format!("/v1/memories/{written}")).await;
            assert_eq!(read.status, StatusCode::OK, "{fault}: {read:?}");
            let known = ask(&fleet.client_with(replica, &strange)).await;
            assert_eq!(known.status, StatusCode::OK, "{fault}: {known:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_writes_are_refused_and_reads_go_on() {
    let postgres = OwnPostgres::start();
    let fleet = with_postgres(&postgres).await;
    fleet.remember(0, KEY).await;
    are_back(&fleet).await;
    // The words' table has its size already: soon it has to grow.
    let mut raw = PgConnection::connect(postgres.url()).await.unwrap();
    for statement in [
        "SELECT set_config('ibex.org', (SELECT id::text FROM ibex.orgs), FALSE)",
        "INSERT INTO ibex.memory_words SELECT current_setting('ibex.org')::uuid, n, gen_random_uuid() FROM generate_series(1, 40000) AS n",
    ] {
        raw.execute(statement).await.unwrap();
    }
    postgres.fill();
    let client = fleet.client(0);
    let mut n = 0;
    let refused = until(
        "a refused write",
        async || {
            n += 1;
            let content = format!("Berth {n} belongs to the barge of crew number {n}.");
            client
                .post("/v1/memories", &json!({"content": content}))
                .await
        },
        |answer| answer.status != StatusCode::CREATED,
    )
    .await;
    assert_eq!(
        refused.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "{refused:?}"
    );
    assert!(!refused.header("retry-after").is_empty());
    let whole = ask(&fleet.client(1)).await;
    assert_eq!(whole.status, StatusCode::OK, "{whole:?}");
    postgres.make_space();
    let memory = json!({"content": "The mill stands by the weir."});
    let write = async || client.post("/v1/memories", &memory).await;
    until("a write", write, |answer| {
        answer.status == StatusCode::CREATED
    })
    .await;
    are_back(&fleet).await;
}
