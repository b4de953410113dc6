//! What one replica takes away is gone at all of them: rights, memories, and what a token may still spend.

use std::time::{Duration, Instant};

use http::StatusCode;

use super::fleet::{CHAT, Fleet, PATIENT, question, says, until};

const REPLICAS: usize = 3;
/// What other replicas took away is gone within this time.
const WITHIN: Duration = Duration::from_secs(1);

/// Whether replicas tell each other of changes. Without it they find them by themselves.
const HEARD: [&str; 2] = ["true", "false"];

fn settings(pubsub: &'static str, poll_ms: &'static str) -> Vec<(&'static str, &'static str)> {
    let more = [
        ("IBEX_REDIS__PUBSUB", pubsub),
        ("IBEX_STORE__POLL_INTERVAL_MS", poll_ms),
    ];
    PATIENT.iter().copied().chain(more).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_token_opens_no_replica() {
    for pubsub in HEARD {
        let fleet = Fleet::new(REPLICAS, &settings(pubsub, "200")).await;
        let (id, secret) = fleet.new_token();
        let guests: Vec<_> = (0..REPLICAS)
            .map(|replica| fleet.client_with(replica, &secret))
            .collect();
        for guest in &guests {
            let ask = async || guest.post_raw(CHAT, question("Hello.")).await;
            until("the token is known", ask, |answer| {
                answer.status == StatusCode::OK
            })
            .await;
        }
        fleet.ok(&["token", "revoke", &id]);
        let returned = Instant::now();
        for guest in &guests {
            loop {
                let (began, hits) = (returned.elapsed(), fleet.upstream.hits());
                let answer = guest.post_raw(CHAT, question("Hello again.")).await;
                if answer.status == StatusCode::UNAUTHORIZED {
                    assert_eq!(fleet.upstream.hits(), hits);
                    break;
                }
                assert!(
                    began < WITHIN,
                    "pubsub {pubsub}: {answer:?} after {began:?}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_command_changes_is_announced() {
    // Nobody polls before the test is long over.
    let fleet = Fleet::new(2, &settings("true", "3600000")).await;
    let (id, secret) = fleet.new_token();
    for replica in 0..2 {
        let guest = fleet.client_with(replica, &secret);
        let ask = async || guest.post_raw(CHAT, question("Hello.")).await;
        until("the token is known", ask, |answer| {
            answer.status == StatusCode::OK
        })
        .await;
    }
    fleet.ok(&["token", "revoke", &id]);
    for replica in 0..2 {
        let guest = fleet.client_with(replica, &secret);
        let ask = async || guest.post_raw(CHAT, question("Hello.")).await;
        until("it is revoked", ask, |answer| {
            answer.status == StatusCode::UNAUTHORIZED
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_that_begins_after_a_delete_returned_carries_what_it_forgot() {
    // Nobody polls while the test runs: what is forgotten is asked for at every handoff.
    for pubsub in HEARD {
        let fleet = Fleet::new(REPLICAS, &settings(pubsub, "3600000")).await;
        let clients = fleet.clients();
        for n in 0..8 {
            let secret = format!("The number of vault {n} is 77{n}11.");
            let ask = question(&format!("What is the number of vault {n}?"));
            let id = fleet.remember(0, &secret).await;
            for (replica, client) in clients.iter().enumerate() {
                let named = client
                    .clone()
                    .header("x-ibex-session-id", &format!("v{n}r{replica}"));
                let told = named.post_raw(CHAT, ask.clone()).await;
                assert_eq!(told.status, StatusCode::OK, "{told:?}");
            }
            let knew = fleet
                .upstream
                .exchanges()
                .iter()
                .filter(|e| has(&e.request.body, &secret))
                .count();
            assert!(knew > 0, "somebody knew it before: vault {n}");
            let gone = clients[n % REPLICAS]
                .delete(&format!("/v1/memories/{id}"))
                .await;
            assert_eq!(gone.status, StatusCode::NO_CONTENT);
            let before = fleet.upstream.hits();
            let again = clients.iter().enumerate().map(|(replica, client)| {
                let named = client
                    .clone()
                    .header("x-ibex-session-id", &format!("v{n}r{replica}"));
                let history = format!(
                    r#"{{"model":"gpt-4o","messages":[{},{},{}]}}"#,
                    says("user", &format!("What is the number of vault {n}?")),
                    says("assistant", "fine"),
                    says("user", "And once more?")
                );
                async move { named.post_raw(CHAT, history).await }
            });
            for answer in futures_util::future::join_all(again).await {
                assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
            }
            for exchange in &fleet.upstream.exchanges()[before..] {
                assert!(
                    !has(&exchange.request.body, &secret),
                    "pubsub {pubsub}, vault {n}"
                );
            }
        }
    }
}

fn has(body: &[u8], text: &str) -> bool {
    String::from_utf8_lossy(body).contains(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_replicas_together_admit_what_one_limit_allows() {
    // One a second, and as many at once as a minute has.
    const LIMIT: usize = 60;
    let limit = [("IBEX_RATE_LIMIT__DEFAULT_RPM", "60")];
    let settings: Vec<_> = PATIENT.iter().copied().chain(limit).collect();
    let fleet = Fleet::new(REPLICAS, &settings).await;
    let began = Instant::now();
    let clients = fleet.clients();
    let asked = (0..150).map(|n| clients[n % REPLICAS].post_raw(CHAT, question("Hello.")));
    let answers = futures_util::future::join_all(asked).await;
    let earned = usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
    let count = |status| {
        answers
            .iter()
            .filter(|answer| answer.status == status)
            .count()
    };
    let admitted = count(StatusCode::OK);
    assert_eq!(
        admitted + count(StatusCode::TOO_MANY_REQUESTS),
        answers.len(),
        "{answers:?}"
    );
    assert_eq!(fleet.upstream.hits(), admitted);
    assert!(
        (LIMIT..=LIMIT + earned).contains(&admitted),
        "{admitted}, {earned}"
    );
}
