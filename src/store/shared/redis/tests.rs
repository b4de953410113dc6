//! The connection: outages cost what they may, heal by themselves, and say nothing of what was sent.

use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::testing::{Own, Reply, Scripted, ask, closed_port, config, open, shared};
use super::{Outage, Redis, RedisSetupError, Script};
use crate::config::{RedisConfig, RedisMode};
use crate::ids::OrgId;
use crate::limits::Level;
use crate::telemetry::RedisCall;

use super::keys::{Counted, Key};

/// No arguments.
const NONE: Option<&str> = None;

const LIMIT: Duration = Duration::from_millis(50);

/// As configured by default.
fn impatient(url: &str) -> RedisConfig {
    RedisConfig {
        timeout_ms: 50,
        connect_timeout_ms: 1_000,
        ..config(&[url])
    }
}

/// Calls until one succeeds; the outages before it.
async fn until_it_answers(redis: &Redis) -> Vec<Outage> {
    let mut outages = Vec::new();
    let calls = async {
        while let Err(outage) = redis.ping().await {
            outages.push(outage);
            tokio::task::yield_now().await;
        }
    };
    let long = Duration::from_secs(30);
    tokio::time::timeout(long, calls).await.expect("it heals");
    outages
}

fn a_key(redis: &Redis) -> Key {
    let org = OrgId::new();
    redis
        .keys()
        .rate(Level::Org, org, uuid::Uuid::nil(), Counted::Tokens)
}

#[test]
fn urls_that_cannot_be_meant_are_told_by_their_place() {
    let of = |urls: &[&str]| {
        let config = config(urls);
        Redis::new(
            &config,
            super::RedisFigures::default(),
            crate::tasks::Tasks::new(),
        )
        .map(drop)
    };
    assert_eq!(of(&[]), Err(RedisSetupError::NoUrl));
    let wrong = of(&["redis://localhost/0", "redis://user:secret@localhost/seven"]);
    assert_eq!(wrong, Err(RedisSetupError::Url(1)));
    let text = RedisSetupError::Url(1).to_string();
    assert!(text.contains("redis.urls[1]") && !text.contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_never_answers_costs_its_time_a_few_times_and_then_nothing() {
    let server = Scripted::start(0, Reply::Silent).await;
    let redis = open(&impatient(&server.url()));
    let mut waited = 0;
    for _ in 0..100 {
        let began = Instant::now();
        let outage = redis.ping().await.expect_err("silence");
        let took = began.elapsed();
        if outage == Outage::Resting {
            assert_eq!(took, Duration::ZERO);
            continue;
        }
        assert_eq!(outage, Outage::TimedOut);
        assert!((LIMIT..LIMIT * 2).contains(&took), "{took:?}");
        waited += 1;
    }
    assert_eq!(waited, crate::breaker::FAILURES);
}

#[tokio::test]
async fn a_server_that_stalled_is_used_again_when_it_answers() {
    let server = Scripted::start(0, Reply::Says("+PONG\r\n")).await;
    let redis = open(&impatient(&server.url()));
    until_it_answers(&redis).await;
    server.set_answer(Reply::Silent);
    let stalled = async {
        while redis.ping().await != Err(Outage::Resting) {
            tokio::task::yield_now().await;
        }
    };
    let long = Duration::from_secs(30);
    tokio::time::timeout(long, stalled).await.expect("it rests");
    let before = server.connections();
    server.set_answer(Reply::Says("+PONG\r\n"));
    until_it_answers(&redis).await;
    assert!(
        server.connections() > before,
        "the stalled connection is not trusted"
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_at_the_start_is_an_outage_and_no_failure() {
    let port = closed_port();
    let redis = open(&impatient(&format!("redis://127.0.0.1:{port}")));
    for _ in 0..crate::breaker::FAILURES {
        assert_eq!(redis.ping().await, Err(Outage::Refused));
    }
    assert_eq!(redis.ping().await, Err(Outage::Resting));
    let _server = Scripted::start(port, Reply::Says("+PONG\r\n")).await;
    let outages = until_it_answers(&redis).await;
    let left_alone = outages.iter().all(|o| *o == Outage::Resting);
    assert!(left_alone, "the first that tries succeeds: {outages:?}");
}

#[tokio::test]
async fn a_connection_that_broke_is_replaced_within_the_call() {
    let server = Own::start(&[]).await;
    let redis = open(&config(&[&server.url()]));
    for _ in 0..20 {
        let name: i64 = ask(&redis, &["CLIENT", "ID"]).await;
        let killer = redis::Client::open(server.url()).expect("a URL");
        let mut killer = killer
            .get_multiplexed_async_connection()
            .await
            .expect("a server");
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(name);
        let killed: i64 = kill.query_async(&mut killer).await.expect("killed");
        assert_eq!(killed, 1);
        assert_eq!(redis.ping().await, Ok(()));
    }
}

#[tokio::test]
async fn a_replica_is_told_by_its_answer_and_asked_again_when_it_leads() {
    let server = Own::start(&[]).await;
    let redis = open(&config(&[&server.url()]));
    let key = a_key(&redis);
    let write = Script::new("return redis.call('SET', KEYS[1], '1', 'PX', 1000)");
    let write = || redis.script::<Value>(RedisCall::Rate, &write, std::slice::from_ref(&key), NONE);
    assert!(write().await.is_ok());
    let nobody = closed_port().to_string();
    let _: Value = ask(&redis, &["REPLICAOF", "127.0.0.1", &nobody]).await;
    assert_eq!(write().await, Err(Outage::ReadOnly));
    let _: Value = ask(&redis, &["REPLICAOF", "NO", "ONE"]).await;
    assert!(write().await.is_ok());
}

#[tokio::test]
async fn a_script_that_the_server_does_not_know_is_sent_to_it() {
    let redis = shared();
    let key = a_key(&redis);
    let script = Script::new(&format!("return {{ #KEYS, ARGV[1] }} -- {}", key.as_str()));
    for _ in 0..2 {
        let said: (u32, String) = redis
            .script(RedisCall::Rate, &script, std::slice::from_ref(&key), "x")
            .await
            .expect("an answer");
        assert_eq!(said, (1, "x".to_owned()));
    }
}

#[tokio::test]
async fn what_the_server_refuses_is_no_outage_of_the_connection_and_keeps_its_words() {
    let redis = shared();
    let secret = "ARGV-with-a-secret";
    let script = Script::new("return redis.error_reply('ERR ' .. ARGV[1])");
    for _ in 0..crate::breaker::FAILURES * 2 {
        let said = redis
            .script::<Value>(RedisCall::Rate, &script, &[], secret)
            .await;
        let outage = said.expect_err("an error");
        assert_eq!(outage, Outage::Rejected);
        assert!(!outage.to_string().contains(secret) && !format!("{outage:?}").contains(secret));
    }
    assert_eq!(redis.ping().await, Ok(()));
}

/// The servers want a password, which the URLs of the sentinels name; the sentinel wants none.
#[tokio::test]
async fn sentinels_are_asked_again_for_the_primary_when_it_has_changed() {
    let password = ["--requirepass", "a-password"];
    let (old, new) = (Own::start(&password).await, Own::start(&password).await);
    let [to_old, to_new] = [&old, &new].map(|own| open(&config(&[&own.url_with("a-password")])));
    let conf = tempfile::NamedTempFile::new().expect("a file");
    let sentinel = Own::sentinel(conf.path()).await;
    let to_sentinel = open(&config(&[&sentinel.url()]));
    let leads = async |own: &Own| {
        let port = own.port().to_string();
        let words = ["SENTINEL", "MONITOR", "prime", "127.0.0.1", &port, "1"];
        let _: Value = ask(&to_sentinel, &words).await;
        let words = ["SENTINEL", "SET", "prime", "auth-pass", "a-password"];
        let _: Value = ask(&to_sentinel, &words).await;
    };
    leads(&old).await;
    let gone = format!("redis://:a-password@127.0.0.1:{}", closed_port());
    let redis = open(&RedisConfig {
        mode: RedisMode::Sentinel,
        master: "prime".to_owned(),
        ..config(&[&gone, &sentinel.url_with("a-password")])
    });
    let key = a_key(&redis);
    let set = async |value: &str| {
        let mut cmd = redis::cmd("SET");
        cmd.arg(&key).arg(value);
        redis.run::<Value>(RedisCall::Rate, &cmd).await
    };
    assert_eq!(set("first").await, Ok(Value::Okay));
    let held: String = ask(&to_old, &["GET", key.as_str()]).await;
    assert_eq!(held, "first");
    // A failover: the sentinel names another primary, which the former one follows from now on.
    let _: Value = ask(&to_sentinel, &["SENTINEL", "REMOVE", "prime"]).await;
    leads(&new).await;
    let port = new.port().to_string();
    let _: Value = ask(&to_old, &["REPLICAOF", "127.0.0.1", &port]).await;
    assert_eq!(set("second").await, Ok(Value::Okay));
    let held: String = ask(&to_new, &["GET", key.as_str()]).await;
    assert_eq!(held, "second");
}

#[tokio::test]
async fn a_server_without_tls_is_not_spoken_to_where_tls_is_asked_for() {
    let server = Own::start(&[]).await;
    let redis = open(&impatient(&server.url().replace("redis:", "rediss:")));
    for _ in 0..crate::breaker::FAILURES {
        let outage = redis.ping().await.expect_err("no handshake");
        assert!(
            matches!(outage, Outage::Refused | Outage::TimedOut),
            "{outage}"
        );
    }
    assert_eq!(redis.ping().await, Err(Outage::Resting));
}

#[tokio::test]
async fn a_cluster_runs_scripts_whose_keys_share_a_tag() {
    let server = Own::cluster().await;
    let redis = open(&RedisConfig {
        mode: RedisMode::Cluster,
        ..config(&[&server.url()])
    });
    assert!(redis.is_cluster());
    let (org, id) = (OrgId::new(), uuid::Uuid::new_v4());
    let keys = redis.keys();
    let of = |level| keys.rate(level, org, id, Counted::Requests);
    let script = Script::new("return redis.call('MSET', KEYS[1], 'a', KEYS[2], 'b')");
    let run = |keys: [Key; 2]| {
        let (redis, script) = (&redis, &script);
        async move {
            redis
                .script::<Value>(RedisCall::Rate, script, &keys, NONE)
                .await
        }
    };
    let within = run([of(Level::Token), of(Level::Org)]).await;
    assert_eq!(within, Ok(Value::Okay));
    let across = run([of(Level::Org), of(Level::Global)]).await;
    assert!(across.is_err(), "two tags are two slots");
}
