//! One session is sent the same bytes whichever replica a request reaches.

use std::collections::HashMap;

use super::fleet::{CHAT, Fleet, PATIENT, says};
use crate::support::Client;

const REPLICAS: usize = 3;
const SESSIONS: usize = 20;
const TURNS: usize = 12;

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

const PLACES: [&str; 8] = [
    "shed",
    "attic",
    "cellar",
    "barn",
    "mill",
    "boathouse",
    "chapel",
    "stable",
];
const THINGS: [&str; 8] = [
    "key", "ladder", "lantern", "rope", "anchor", "saddle", "ledger", "bell",
];

/// What one session got: the hash of each epoch's prefix, and the messages as they were sent.
async fn converse(
    fleet: &Fleet,
    clients: &[Client],
    session: usize,
) -> HashMap<String, Vec<String>> {
    let mut dice = Dice(session as u64 + 1);
    let mut history: Vec<String> = Vec::new();
    let mut prefixes: HashMap<String, Vec<String>> = HashMap::new();
    let mut before = String::new();
    for turn in 0..TURNS {
        let thing = THINGS[dice.roll(THINGS.len())];
        history.push(says(
            "user",
            &format!("Where is the spare {thing}? And then? ({turn})"),
        ));
        let mark = format!("s{session}t{turn}.");
        let body = format!(
            r#"{{"model":"gpt-4o","user":"{mark}","messages":[{}]}}"#,
            history.join(",")
        );
        let replica = dice.roll(clients.len());
        let client = clients[replica]
            .clone()
            .header("x-ibex-session-id", &format!("s{session}"));
        let answer = client.post_raw(CHAT, body).await;
        assert_eq!(answer.status.as_u16(), 200, "{answer:?}");
        assert_eq!(
            answer.header("x-ibex-context-degradation"),
            "L0",
            "{answer:?}"
        );
        let epoch = answer.header("x-ibex-epoch").to_owned();
        assert_eq!(
            epoch, "1",
            "session {session}, turn {turn}, replica {replica}"
        );
        prefixes
            .entry(epoch)
            .or_default()
            .push(answer.header("x-ibex-prefix-sha256").to_owned());
        let sent = messages_of(fleet, &mark);
        assert!(
            sent.starts_with(&before),
            "session {session}, turn {turn}, replica {replica}\nbefore: {before}\nafter: {sent}"
        );
        before = sent;
        history.push(r#"{"role":"assistant","content":"fine"}"#.to_owned());
    }
    assert!(
        before.contains("<ibex_recall "),
        "something was recalled: {before}"
    );
    prefixes
}

/// The inside of the `messages` that the provider got with this mark.
fn messages_of(fleet: &Fleet, mark: &str) -> String {
    let mark = format!(r#""user":"{mark}""#);
    let sent = fleet
        .upstream
        .exchanges()
        .into_iter()
        .rev()
        .find_map(|exchange| {
            let body = String::from_utf8(exchange.request.body.clone()).unwrap();
            body.contains(&mark).then_some(body)
        });
    let body = sent.expect("the request of this turn");
    let (_, rest) = body.split_once(r#""messages":["#).unwrap();
    rest.strip_suffix("]}").unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_sessions_over_three_replicas_are_sent_the_same_bytes() {
    // Some of the memories are in the snapshot, the others are recalled.
    let more = [
        ("IBEX_CONTEXT__SNAPSHOT_TOKENS", "60"),
        ("IBEX_CONTEXT__RECALL_GATE", "off"),
        ("IBEX_CONTEXT__RELEVANCE_FLOOR", "0"),
    ];
    let settings: Vec<_> = PATIENT.iter().copied().chain(more).collect();
    let fleet = Fleet::new(REPLICAS, &settings).await;
    for (n, thing) in THINGS.iter().enumerate() {
        let text = format!("The spare {thing} hangs in the {}.", PLACES[n]);
        fleet.remember(n % REPLICAS, &text).await;
    }
    let clients = fleet.clients();
    let sessions = (0..SESSIONS).map(|session| converse(&fleet, &clients, session));
    for prefixes in futures_util::future::join_all(sessions).await {
        for (epoch, hashes) in prefixes {
            assert!(
                hashes
                    .iter()
                    .all(|hash| *hash == hashes[0] && !hash.is_empty()),
                "epoch {epoch}: {hashes:?}"
            );
        }
    }
    for replica in 0..REPLICAS {
        assert!(
            fleet
                .metric(replica, "ibex_session_prefix_broken_total")
                .await
                < 1.0
        );
    }
    assert_eq!(fleet.upstream.hits(), SESSIONS * TURNS);
}
