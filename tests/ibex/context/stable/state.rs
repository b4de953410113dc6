//! What a session costs in memory: no more than a few times what it had put into its requests.

use ibex::config::{Config, Switch};
use serde_json::{Value, json};

use crate::support::{Overrides, TestApp, Upstream, patient};

const TURNS: usize = 40;
/// Bytes held for each byte injected, at most.
const MOST_HELD: u64 = 3;
/// What a settled turn weighs besides its block: mostly the hashes that find it again.
const TURN_BYTES: u64 = 80;

const THINGS: [&str; 8] = [
    "key", "ladder", "lantern", "kettle", "compass", "passport", "umbrella", "violin",
];
const OWNERS: [&str; 5] = ["Ada", "Oskar", "Ines", "Rowan", "Philippa"];

/// What is held weighs as little as it can: no lane is rounded up to its share of the room.
fn edit(config: &mut Config) {
    patient(config);
    config.session.max_lanes = config.session.max_bytes;
    // A snapshot is shared with other sessions and weighs nothing, and would make what is held seem less.
    config.context.snapshot_tokens = 0;
    config.context.recall_gate = Switch::Off;
    config.context.relevance_floor = 0.0;
}

/// What a request was sent with, besides what came.
struct Injected {
    /// Everything.
    all: u64,
    /// Of it what stands in the blocks of the turns.
    blocks: u64,
    turns: usize,
}

fn injected(came: &str, sent: &[u8]) -> Injected {
    let sent = std::str::from_utf8(sent).unwrap();
    let count = |bytes: usize| u64::try_from(bytes).unwrap();
    let mut blocks = 0;
    let mut parts = sent.split("<ibex_recall ").skip(1);
    let turns = parts
        .by_ref()
        .map(|rest| rest.split_once("</ibex_recall>").unwrap().0)
        .inspect(|block| blocks += count("<ibex_recall </ibex_recall>".len() + block.len()))
        .count();
    Injected {
        all: count(sent.len() - came.len()),
        blocks,
        turns,
    }
}

/// A session in each of whose turns something is recalled that was learnt just before; what the last request had, and what is held.
async fn session(memory: impl Fn(&str, &str, usize) -> String) -> (Injected, u64) {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::with(&upstream.url(), edit, Overrides::default()).await;
    let client = app.client().header("x-ibex-session-id", "forty-turns");
    let mut messages: Vec<Value> = Vec::new();
    let mut came = String::new();
    for turn in 0..TURNS {
        let (thing, owner) = (THINGS[turn % 8], OWNERS[turn / 8]);
        let learnt = json!({"content": memory(thing, owner, turn)});
        let answer = client.post("/v1/memories", &learnt).await;
        assert_eq!(answer.status.as_u16(), 201, "{:?}", answer.body);
        let question = format!("Where is {owner}'s {thing}?");
        messages.push(json!({"role": "user", "content": question}));
        came = json!({"model": "house-model", "messages": messages}).to_string();
        let answer = client.post_raw("/v1/chat/completions", came.clone()).await;
        assert_eq!(answer.header("x-ibex-context-degradation"), "L0");
        assert_eq!(answer.header("x-ibex-memories-new"), "1", "turn {turn}");
        messages.push(json!({"role": "assistant", "content": "Found it."}));
    }
    let cache = app.app.sessions.in_process.as_ref().unwrap();
    let (lanes, held) = cache.sweep();
    assert_eq!(lanes, 1);
    (injected(&came, &upstream.last().request.body), held)
}

#[tokio::test]
async fn a_session_of_forty_turns_holds_at_most_three_times_what_it_injected() {
    let short =
        |thing: &str, owner: &str, turn: usize| format!("{owner}'s {thing} is in drawer {turn}.");
    let long = |thing: &str, owner: &str, turn: usize| {
        format!(
            "{owner}'s {thing} is in drawer {turn}. {}",
            "It was put there when the house was painted. ".repeat(6)
        )
    };
    let sessions = [session(short).await, session(long).await];
    for (injected, held) in sessions {
        assert_eq!(injected.turns, TURNS, "every turn has its block");
        let hashes = TURN_BYTES * u64::try_from(TURNS).unwrap();
        let state = held - hashes;
        let told = format!("{state} held and {} injected", injected.all);
        assert!(state <= MOST_HELD * injected.all, "{told}");
        // Else the measure would have missed what it is to measure.
        assert!(state >= injected.blocks, "{told}");
    }
}
