//! Rates and slots that several replicas share, on a real Redis: the same figures as one process counts, and no key that stays for ever.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::time::Instant;
use uuid::Uuid;

use super::{OnOutage, Scripts, Shared};
use crate::config::{Environment, LimitOverride, RateLimitConfig, RedisConfig, RedisOutage};
use crate::limits::rates::{Figures, Limited, RateHeaders, Rates, Refusal, Subject};
use crate::limits::slots::{SlotHeld, Slots};
use crate::limits::{Level, Taken};
use crate::store::shared::redis::Redis;
use crate::store::shared::redis::testing::{
    Own, Reply, Scripted, ask, closed_port, comes, config, keys, open, url,
};
use crate::tasks::Tasks;

const LONG: Duration = Duration::from_secs(60);

fn figures(edit: impl FnOnce(&mut RateLimitConfig)) -> Figures {
    let mut config = RateLimitConfig {
        default_rpm: 60_000,
        default_streams: None,
        ..RateLimitConfig::default()
    };
    edit(&mut config);
    Figures::new(&config)
}

fn over(redis: &Redis, figures: Figures, on_outage: OnOutage) -> Rates {
    Rates::shared(figures, redis.clone(), on_outage, Tasks::new())
}

/// Streams of a replica.
struct Replica {
    rates: Rates,
    slots: Slots,
    tasks: Tasks,
}

impl Replica {
    fn new(redis: &Redis, figures: &Figures) -> Self {
        let tasks = Tasks::new();
        let refuse = OnOutage::Refuse;
        Self {
            rates: Rates::shared(figures.clone(), redis.clone(), refuse, tasks.clone()),
            slots: Slots::new(figures.clone()),
            tasks,
        }
    }

    /// One whose leases live for as long.
    fn with_life(redis: &Redis, figures: &Figures, life: Duration) -> Self {
        let tasks = Tasks::new();
        let shared = Shared {
            life,
            ..Shared::new(redis.clone(), OnOutage::Refuse, tasks.clone())
        };
        Self {
            rates: Rates::over(figures.clone(), shared),
            slots: Slots::new(figures.clone()),
            tasks,
        }
    }

    async fn stream(&self, who: &Subject) -> Result<SlotHeld, Refusal> {
        let taken = self.rates.take(&self.slots, who, 0, true).await?;
        Ok(taken.slot.expect("a stream has a slot"))
    }
}

fn limited<T: std::fmt::Debug>(outcome: Result<T, Refusal>) -> Limited {
    match outcome {
        Err(Refusal::Limited(limited)) => limited,
        other => panic!("{other:?}"),
    }
}

/// The server's clock, set by the test. Keys live on, whatever it says.
struct Set {
    redis: Redis,
    key: String,
}

impl Set {
    fn new(redis: &Redis, prefix: &str) -> Self {
        Self {
            redis: redis.clone(),
            key: format!("{prefix}:clock"),
        }
    }

    fn scripts(&self) -> Scripts {
        Scripts::new(|text| {
            let time = format!("redis.call('LRANGE', '{}', 0, -1)", self.key);
            let edited = text.replace("redis.call('TIME')", &time);
            assert_ne!(edited, text);
            edited.replace("math.max(math.ceil(ahead / 1000), 1)", "600000")
        })
    }

    async fn to(&self, at: Duration) {
        let (seconds, micros) = (at.as_secs().to_string(), at.subsec_micros().to_string());
        let _: i64 = ask(&self.redis, &["DEL", &self.key]).await;
        let _: i64 = ask(&self.redis, &["RPUSH", &self.key, &seconds, &micros]).await;
        let _: i64 = ask(&self.redis, &["PEXPIRE", &self.key, "600000"]).await;
    }
}

/// A day in 2026.
const DAY: Duration = Duration::from_secs(1_790_000_000);

fn with_clock(redis: &Redis, prefix: &str) -> (Set, Shared) {
    let clock = Set::new(redis, prefix);
    let shared = Shared {
        scripts: Arc::new(clock.scripts()),
        ..Shared::new(redis.clone(), OnOutage::Refuse, Tasks::new())
    };
    (clock, shared)
}

/// One step of a sequence.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Time that passes before it, in `Sequence::grid`.
    after: u64,
    /// Tokens; 0 is a request.
    tokens: u32,
    /// Which of two tokens of one agent asks.
    second: bool,
}

#[derive(Debug, Clone)]
struct Sequence {
    /// Per minute: token, agent, organisation, service.
    quotas: [u32; 4],
    /// The unit of time.
    grid: Duration,
    steps: Vec<Step>,
}

fn sequences(
    quota: impl Strategy<Value = u32> + Clone,
    grid: Duration,
) -> impl Strategy<Value = Sequence> {
    let quotas = [quota.clone(), quota.clone(), quota.clone(), quota];
    // As often at once as after a time in which a few or many cells drain.
    let after = prop_oneof![Just(0), 0..50_u64, 0..2_000_000_u64, 0..80_000_000_u64];
    let tokens = prop_oneof![Just(0), 1..5_u32, 1..2_000_u32];
    let step = (after, tokens, any::<bool>()).prop_map(move |(after, tokens, second)| Step {
        after: after / u64::try_from(grid.as_micros()).expect("small"),
        tokens,
        second,
    });
    (quotas, prop::collection::vec(step, 1..40)).prop_map(move |(quotas, steps)| Sequence {
        quotas,
        grid,
        steps,
    })
}

type Outcome = Result<Option<RateHeaders>, Refusal>;

async fn take(rates: &Rates, subjects: [Subject; 2], step: Step) -> Outcome {
    let who = &subjects[usize::from(step.second)];
    if step.tokens == 0 {
        return rates.request(who).await.map(Some);
    }
    let slots = Slots::new(figures(|_| {}));
    let taken = rates.take(&slots, who, step.tokens, false).await;
    taken.map(|taken| taken.tokens)
}

fn of_sequence(sequence: &Sequence) -> (Figures, [Subject; 2]) {
    let [token, agent, org, global] = sequence.quotas.map(|quota| LimitOverride {
        rpm: Some(quota),
        tpm: Some(quota),
        streams: None,
    });
    let figures = figures(|c| (c.token, c.agent, c.org, c.global) = (token, agent, org, global));
    let first = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    (figures, [first, first.with_token(Uuid::new_v4())])
}

/// What one process says, under a paused clock.
fn in_process(sequence: &Sequence) -> Vec<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (figures, subjects) = of_sequence(sequence);
        let rates = Rates::new(figures);
        let mut outcomes = Vec::new();
        for step in &sequence.steps {
            tokio::time::advance(sequence.grid * u32::try_from(step.after).expect("small")).await;
            outcomes.push(take(&rates, subjects, *step).await);
        }
        outcomes
    })
}

async fn in_redis(sequence: &Sequence, redis: &RedisConfig) -> Vec<Outcome> {
    let handle = open(redis);
    let (clock, shared) = with_clock(&handle, &redis.prefix);
    let (figures, subjects) = of_sequence(sequence);
    // The service's key is the same for every sequence.
    let global = format!("{}:{{global}}:rate", redis.prefix);
    for (key, _) in keys(&handle, &global).await {
        let _: i64 = ask(&handle, &["DEL", &key]).await;
    }
    let rates = Rates::over(figures, shared);
    let mut outcomes = Vec::new();
    let mut now = DAY;
    for step in &sequence.steps {
        now += sequence.grid * u32::try_from(step.after).expect("small");
        clock.to(now).await;
        outcomes.push(take(&rates, subjects, *step).await);
    }
    outcomes
}

fn compare(cases: u32, of: impl Strategy<Value = Sequence>, what: impl Fn(Outcome) -> Outcome) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let redis = config(&[url()]);
    let mut runner = TestRunner::new(Config::with_cases(cases));
    let compared = runner.run(&of, |sequence| {
        let one: Vec<Outcome> = in_process(&sequence).into_iter().map(&what).collect();
        let all = runtime.block_on(in_redis(&sequence, &redis));
        let all: Vec<Outcome> = all.into_iter().map(&what).collect();
        prop_assert_eq!(one, all);
        Ok(())
    });
    compared.expect("both count alike");
}

/// Quotas whose cells are whole microseconds: every figure is the same.
#[test]
fn the_shared_rates_say_exactly_what_one_process_says() {
    let quotas = prop::sample::select(vec![1_u32, 2, 3, 5, 16, 60, 120, 1_000, 6_000, 60_000]);
    compare(
        150,
        sequences(quotas, Duration::from_micros(1)),
        |outcome| outcome,
    );
}

/// Any quota, in milliseconds: what passes is the same, and what is left.
#[test]
fn the_shared_rates_admit_what_one_process_admits_whatever_the_quota() {
    let admitted = |outcome: Outcome| match outcome {
        Ok(headers) => Ok(headers.map(RateHeaders::without_times)),
        Err(Refusal::Limited(limited)) => Err(Refusal::Limited(Limited {
            wait: limited.wait.map(|_| Duration::ZERO),
            ..limited
        })),
        Err(Refusal::Unavailable) => Err(Refusal::Unavailable),
    };
    compare(
        150,
        sequences(1..5_000_u32, Duration::from_millis(1)),
        admitted,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replicas_together_admit_one_limit_and_what_drains_meanwhile() {
    let redis = config(&[url()]);
    let figures = figures(|c| c.org.rpm = Some(60));
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    let replicas: Vec<Arc<Rates>> = (0..3)
        .map(|_| Arc::new(over(&open(&redis), figures.clone(), OnOutage::Refuse)))
        .collect();
    let began = Instant::now();
    let mut calls = Vec::new();
    for n in 0..300 {
        let rates = Arc::clone(&replicas[n % replicas.len()]);
        calls.push(async move { rates.request(&who).await });
    }
    let outcomes = futures_util::future::join_all(calls).await;
    let drained = usize::try_from(began.elapsed().as_secs()).expect("short") + 1;
    let admitted = outcomes.iter().filter(|o| o.is_ok()).count();
    assert!((60..=60 + drained).contains(&admitted), "{admitted}");
    for refused in outcomes.into_iter().filter(Result::is_err) {
        let refused = limited(refused);
        assert_eq!((refused.level, refused.limit), (Level::Org, 60));
        assert!(
            refused
                .wait
                .is_some_and(|wait| wait <= Duration::from_secs(60))
        );
    }
}

#[tokio::test]
async fn a_clock_that_was_set_back_holds_nobody_up_for_long() {
    let redis = config(&[url()]);
    let handle = open(&redis);
    let (clock, shared) = with_clock(&handle, &redis.prefix);
    let rates = Rates::over(figures(|c| c.default_rpm = 2), shared);
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    clock.to(DAY + Duration::from_secs(86_400)).await;
    assert!(rates.request(&who).await.is_ok());
    clock.to(DAY).await;
    assert!(rates.request(&who).await.is_ok(), "a day: counted anew");
    clock.to(DAY - Duration::from_secs(60)).await;
    let refused = limited(rates.request(&who).await);
    assert_eq!(refused.wait, Some(Duration::from_secs(60)), "a minute");
    clock.to(DAY).await;
    assert!(rates.request(&who).await.is_ok());
}

#[tokio::test]
async fn every_key_lives_as_long_as_it_says_something_and_no_longer() {
    let redis = config(&[url()]);
    let handle = open(&redis);
    let figures = figures(|c| {
        c.default_rpm = 60;
        c.default_tpm = Some(600);
        c.default_streams = Some(3);
    });
    let replica = Replica::new(&handle, &figures);
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    replica.rates.request(&who).await.expect("the first");
    let taken = replica.rates.take(&replica.slots, &who, 300, true).await;
    let keys = keys(&handle, &redis.prefix).await;
    assert_eq!(keys.len(), 12, "three kinds at four levels: {keys:?}");
    for (key, ttl) in keys {
        let most = match key.split(':').nth(3).expect("a kind") {
            "requests" => 1_000,
            "tokens" => 30_000,
            _ => 30_000,
        };
        assert!((1..=most).contains(&ttl), "{key}: {ttl}");
    }
    drop(taken);
}

#[tokio::test]
async fn slots_are_shared_and_come_back() {
    let redis = config(&[url()]);
    let figures = figures(|c| {
        c.token.streams = Some(2);
        c.org.streams = Some(3);
    });
    let [one, other] = [(); 2].map(|()| Replica::new(&open(&redis), &figures));
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    let second = who.with_token(Uuid::new_v4());
    let held = [one.stream(&who).await, other.stream(&who).await].map(|s| s.expect("free"));
    let refused = limited(one.stream(&who).await);
    assert_eq!(
        (refused.level, refused.limit, refused.what),
        (Level::Token, 2, "streams")
    );
    let third = other.stream(&second).await.expect("free");
    let refused = limited(one.stream(&second).await);
    assert_eq!(refused.level, Level::Org);
    drop((held, third));
    for replica in [&one, &other] {
        assert_eq!(
            replica.tasks.drain(LONG).await,
            0,
            "what ends is given back"
        );
        assert_eq!(replica.slots.taken(), 0);
    }
    assert!(
        keys(&open(&redis), &redis.prefix)
            .await
            .iter()
            .all(|(key, _)| !key.contains("streams"))
    );
    let _all = [one.stream(&second).await, other.stream(&second).await].map(|s| s.expect("free"));
}

#[tokio::test]
async fn a_stream_that_is_refused_for_its_tokens_takes_no_slot() {
    let redis = config(&[url()]);
    let handle = open(&redis);
    let figures = figures(|c| {
        c.token.tpm = Some(10);
        c.token.streams = Some(1);
    });
    let replica = Replica::new(&handle, &figures);
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    let take = |tokens| replica.rates.take(&replica.slots, &who, tokens, true);
    let refused = limited(take(11).await);
    assert_eq!((refused.what, refused.wait), ("tokens", None));
    let first = take(8).await.expect("all is free");
    let refused = limited(take(2).await);
    assert_eq!(refused.what, "streams");
    assert_eq!(
        limited(take(1).await).what,
        "tokens",
        "what had no slot stays counted"
    );
    drop(first);
}

/// A replica that is gone gives nothing back; what it held runs out.
#[test]
fn the_leases_of_a_replica_that_died_run_out() {
    let redis = config(&[url()]);
    let figures = figures(|c| c.token.streams = Some(2));
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    let on_clock = |handle: &Redis| {
        let (clock, shared) = with_clock(handle, &redis.prefix);
        let replica = Replica {
            tasks: shared.tasks.clone(),
            rates: Rates::over(figures.clone(), shared),
            slots: Slots::new(figures.clone()),
        };
        (clock, replica)
    };
    let died = tokio::runtime::Runtime::new().expect("a runtime");
    let held = died.block_on(async {
        let (clock, replica) = on_clock(&open(&redis));
        clock.to(DAY).await;
        [replica.stream(&who).await, replica.stream(&who).await].map(|s| s.expect("free"))
    });
    died.shutdown_background();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let handle = open(&redis);
        let (clock, replica) = on_clock(&handle);
        clock.to(DAY + super::LIFE - Duration::from_millis(1)).await;
        assert_eq!(limited(replica.stream(&who).await).what, "streams");
        clock.to(DAY + super::LIFE).await;
        let _free =
            [replica.stream(&who).await, replica.stream(&who).await].map(|s| s.expect("free"));
        for (key, ttl) in keys(&handle, &redis.prefix).await {
            assert!(ttl > 0, "{key} would stay");
        }
    });
    drop(held);
}

#[tokio::test]
async fn a_lease_is_renewed_while_its_stream_is_open_and_survives_a_server_that_forgot_it() {
    let redis = config(&[url()]);
    let handle = open(&redis);
    let figures = figures(|c| c.token.streams = Some(1));
    let replica = Replica::with_life(&handle, &figures, Duration::from_millis(300));
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    let held = replica.stream(&who).await.expect("free");
    let [(key, _)] = keys(&handle, &redis.prefix)
        .await
        .try_into()
        .expect("one key");
    let count = async || ask::<i64>(&handle, &["ZCARD", &key]).await;
    let scores = async || {
        let words = ["ZRANGE", &key, "0", "-1", "WITHSCORES"];
        ask::<Vec<String>>(&handle, &words).await
    };
    let first = scores().await;
    comes(async || scores().await != first).await;
    let _: i64 = ask(&handle, &["DEL", &key]).await;
    comes(async || count().await == 1).await;
    drop(held);
    comes(async || count().await == 0).await;
}

/// Whoever leaves while its slot is being taken leaves nothing behind.
#[tokio::test]
async fn a_request_that_is_given_up_gives_back_what_it_may_have_taken() {
    let redis = config(&[url()]);
    let handle = open(&redis);
    let figures = figures(|c| c.token.streams = Some(5));
    let replica = Replica::new(&handle, &figures);
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    for polls in 0..50 {
        let mut stream = Box::pin(replica.stream(&who));
        for _ in 0..polls {
            if futures_util::poll!(&mut stream).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(replica.tasks.drain(LONG).await, 0);
    let left = keys(&handle, &redis.prefix).await;
    assert!(
        left.iter().all(|(key, _)| !key.contains("streams")),
        "{left:?}"
    );
    assert_eq!(replica.slots.taken(), 0);
}

/// Requests and streams without end; every so many rounds the streams do end.
async fn load(replica: Replica, rounds: usize) {
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    let mut held = Vec::new();
    for round in 0.. {
        let _counted = replica.rates.request(&who).await;
        let taken = replica.rates.take(&replica.slots, &who, 7, true).await;
        held.extend(taken.ok().and_then(|taken| taken.slot));
        if round % rounds == 0 {
            held.clear();
        }
    }
}

/// LIM-04: two hundred connections, clients and servers that end at any moment leave no key without a lifetime.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_is_killed_whenever_no_key_stays_for_ever() {
    let mut server = Own::start(&["--appendonly", "yes"]).await;
    let redis = RedisConfig {
        timeout_ms: 2_000,
        ..config(&[&server.url()])
    };
    let figures = figures(|c| {
        c.default_rpm = 6_000;
        c.default_tpm = Some(60_000);
        c.default_streams = Some(50);
    });
    let mut checked = 0;
    for kill in 0..200_u64 {
        let tasks = Tasks::new();
        let client = tokio_util::sync::CancellationToken::new();
        for n in 0..4 {
            let replica = Replica::new(&open(&redis), &figures);
            let load = load(replica, n + 2);
            let client = client.clone();
            tasks.spawn(async move {
                tokio::select! { () = client.cancelled() => {}, () = load => {} }
            });
        }
        // A moment that is another one each time.
        let killer = open(&redis);
        for _ in 0..(kill * 7) % 23 {
            let _: String = ask(&killer, &["PING"]).await;
        }
        match kill % 20 {
            0 => server.kill().await,
            n if n % 2 == 1 => {
                let _: i64 = ask(
                    &killer,
                    &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"],
                )
                .await;
            }
            _ => {}
        }
        client.cancel();
        assert_eq!(tasks.drain(LONG).await, 0);
        let left = keys(&open(&redis), &redis.prefix).await;
        checked += left.len();
        for (key, ttl) in left {
            // -2 is one that ended between the two questions.
            assert!(ttl == -2 || (0..=60_000).contains(&ttl), "{key}: {ttl}");
        }
    }
    assert!(checked > 1_000, "the load was real: {checked}");
}

fn local(replicas: u32) -> OnOutage {
    OnOutage::Local {
        replicas: NonZeroU32::new(replicas).expect("some"),
    }
}

/// As configured by default.
fn impatient(url: &str) -> Redis {
    open(&RedisConfig {
        timeout_ms: 50,
        connect_timeout_ms: 1_000,
        ..config(&[url])
    })
}

async fn every_outage() -> Vec<(&'static str, Redis)> {
    let silent = Scripted::start(0, Reply::Silent).await;
    let replica = Scripted::start(0, Reply::Says("-READONLY You can't write.\r\n")).await;
    let full = Scripted::start(0, Reply::Says("-OOM command not allowed.\r\n")).await;
    let nonsense = Scripted::start(0, Reply::Says("*1\r\n$5\r\nhello\r\n")).await;
    let hangs_up = Scripted::start(0, Reply::HangsUp).await;
    vec![
        (
            "a closed port",
            impatient(&format!("redis://127.0.0.1:{}", closed_port())),
        ),
        ("silence", impatient(&silent.url())),
        ("a replica", impatient(&replica.url())),
        ("no memory", impatient(&full.url())),
        ("nonsense", impatient(&nonsense.url())),
        ("a broken connection", impatient(&hangs_up.url())),
    ]
}

#[tokio::test]
async fn in_an_outage_requests_are_refused_where_that_is_configured() {
    let figures = figures(|c| {
        c.default_tpm = Some(100);
        c.default_streams = Some(2);
    });
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    for (what, redis) in every_outage().await {
        let rates = over(&redis, figures.clone(), OnOutage::Refuse);
        let slots = Slots::new(figures.clone());
        for _ in 0..10 {
            assert_eq!(
                rates.request(&who).await,
                Err(Refusal::Unavailable),
                "{what}"
            );
            let taken = rates.take(&slots, &who, 1, true).await;
            assert_eq!(taken.map(drop), Err(Refusal::Unavailable), "{what}");
        }
        assert_eq!(slots.taken(), 0, "{what}");
    }
}

#[tokio::test]
async fn in_an_outage_each_replica_counts_its_share_where_that_is_configured() {
    let figures = figures(|c| {
        c.token.rpm = Some(10);
        c.token.tpm = Some(100);
        c.token.streams = Some(4);
        c.agent.streams = Some(1);
    });
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    for (what, redis) in every_outage().await {
        let rates = over(&redis, figures.clone(), local(3));
        let slots = Slots::new(figures.clone());
        for left in (0..4).rev() {
            let headers = rates.request(&who).await.expect(what);
            assert!(headers.is_local(), "{what}");
            assert_eq!(
                headers.figures(),
                (4, left),
                "{what}: a third of ten, rounded up"
            );
        }
        let refused = limited(rates.request(&who).await);
        assert_eq!(
            (refused.level, refused.limit, refused.local),
            (Level::Token, 4, true)
        );
        let take = |tokens| rates.take(&slots, &who, tokens, true);
        let first: Taken = take(90).await.expect("more than the share takes all of it");
        assert!(first.local, "{what}");
        assert_eq!(first.tokens.map(|t| t.figures()), Some((34, 0)), "{what}");
        assert_eq!(limited(take(1).await).what, "tokens");
        assert_eq!(
            limited(take(101).await).wait,
            None,
            "more than everybody together"
        );
        let second = limited(take(0).await);
        assert_eq!((second.what, second.level), ("streams", Level::Agent));
        assert_eq!((second.limit, second.local), (1, true), "no less than one");
        drop(first);
        assert!(take(0).await.is_ok(), "{what}");
    }
}

#[tokio::test]
async fn rates_are_shared_again_when_the_server_answers() {
    let mut server = Own::start(&[]).await;
    let redis = config(&[&server.url()]);
    let figures = figures(|c| {
        c.token.rpm = Some(10);
        c.token.streams = Some(4);
    });
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    let handle = impatient(&server.url());
    let rates = over(&handle, figures.clone(), local(2));
    assert!(!until(&rates, &who, false).await.is_local());
    let asleep = open(&redis);
    // Every client but this one waits for so long.
    let _: String = ask(&asleep, &["CLIENT", "PAUSE", "600000", "ALL"]).await;
    assert!(until(&rates, &who, true).await.is_local());
    server.kill().await;
    assert!(!until(&rates, &who, false).await.is_local());
}

/// Requests until one is counted in this way, whatever the others meet.
async fn until(rates: &Rates, who: &Subject, local: bool) -> RateHeaders {
    let mut counted = None;
    comes(async || {
        let fresh = who.with_token(Uuid::new_v4());
        counted = rates.request(&fresh).await.ok();
        counted.is_some_and(|headers| headers.is_local() == local)
    })
    .await;
    counted.expect("it came")
}

/// A stream that began in an outage is known to the others once it is over.
#[tokio::test]
async fn a_slot_taken_in_an_outage_is_put_there_afterwards() {
    let port = closed_port();
    let figures = figures(|c| c.token.streams = Some(1));
    let redis = config(&[&format!("redis://127.0.0.1:{port}")]);
    let handle = open(&RedisConfig {
        timeout_ms: 50,
        ..redis.clone()
    });
    let shared = Shared {
        life: Duration::from_millis(300),
        ..Shared::new(handle, local(1), Tasks::new())
    };
    let replica = Replica {
        tasks: shared.tasks.clone(),
        rates: Rates::over(figures.clone(), shared),
        slots: Slots::new(figures.clone()),
    };
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    let _held = replica.stream(&who).await.expect("its share");
    let _server = Own::start_at(port).await;
    let other = open(&redis);
    comes(async || !keys(&other, &redis.prefix).await.is_empty()).await;
}

#[test]
fn by_default_an_outage_is_bridged_in_development_only() {
    let by_default = RateLimitConfig::default();
    let of = |environment| OnOutage::of(&by_default, environment);
    assert_eq!(of(Environment::Development), local(1));
    assert_eq!(of(Environment::Staging), OnOutage::Refuse);
    assert_eq!(of(Environment::Production), OnOutage::Refuse);
    let set = RateLimitConfig {
        redis_outage: Some(RedisOutage::Local),
        replicas: 4,
        ..by_default
    };
    assert_eq!(OnOutage::of(&set, Environment::Production), local(4));
}

/// In a cluster one request is counted by two scripts.
#[tokio::test]
async fn a_cluster_counts_at_every_level() {
    let server = Own::cluster().await;
    let redis = RedisConfig {
        mode: crate::config::RedisMode::Cluster,
        ..config(&[&server.url()])
    };
    let handle = open(&redis);
    let figures = figures(|c| {
        c.token.rpm = Some(5);
        c.global.rpm = Some(3);
        c.token.streams = Some(2);
        c.global.streams = Some(1);
    });
    let replica = Replica::new(&handle, &figures);
    let who = Subject::new(Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    for left in (0..3).rev() {
        let headers = replica.rates.request(&who).await.expect("within the limit");
        assert_eq!(
            headers.figures(),
            (3, left),
            "the service's is the tightest"
        );
    }
    let mut refused_by = Vec::new();
    for _ in 0..3 {
        refused_by.push(limited(replica.rates.request(&who).await).level);
    }
    let narrow_counted_too = [Level::Global, Level::Global, Level::Token];
    assert_eq!(refused_by, narrow_counted_too);
    let held = replica.stream(&who).await.expect("free");
    let second = who.with_token(Uuid::new_v4());
    assert_eq!(limited(replica.stream(&second).await).level, Level::Global);
    drop(held);
    assert_eq!(replica.tasks.drain(LONG).await, 0);
    let left = keys(&open(&config(&[&server.url()])), &redis.prefix).await;
    assert!(
        left.iter().all(|(key, _)| !key.contains("streams")),
        "{left:?}"
    );
    assert!(left.iter().all(|(_, ttl)| *ttl != -1), "{left:?}");
}
