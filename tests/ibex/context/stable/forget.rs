//! Forget beats the cache: whoever forgets, wherever and whenever, no request that is handed over afterwards carries the text.

use std::sync::Arc;

use http::StatusCode;
use ibex::config::{Config, StoreConfig};
use ibex::memory::PartitionKey;
use ibex::openai::ChatRequest;
use ibex::seams::{Clock, SystemClock};
use ibex::session::{Block, Chain, Element, Elements, Enveloped, Outcome};
use ibex::store::shared::SessionCache;
use ibex::store::sqlite::SqliteStore;
use ibex::store::{ChangeFeed, MemoryStore};
use ibex::tokens::{Family, Tally};

use super::gate::{Gate, Step};
use super::scene::{
    CHAT, REPLY, Scene, Sent, Talk, assert_extends, last_six, plain, says, until, with_snapshot,
};
use crate::support::{Answer, Overrides};

const SHED: &str = "The spare key hangs in the shed.";
const TAG: &str = "The spare key has a red tag.";
const QUESTION: &str = "Where is the spare key?";

/// The element of a memory, as it stands in a body.
fn element(id: &str, content: &str) -> String {
    let short = last_six(id);
    format!(r#"<memory ref=\"{short}\" kind=\"factual\">{content}</memory>\n"#)
}

#[tokio::test]
async fn only_what_was_forgotten_leaves_its_block() {
    let scene = Scene::new().await;
    let shed = scene.remember(SHED).await;
    scene.remember(TAG).await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, QUESTION).await;
    scene.remember("The spare key is made of brass.").await;
    let second = talk.ask(&scene, "What is it made of?").await;
    assert_eq!((second.epoch(), second.counts()), ("1", ("3", "1")));
    scene.forget(&shed).await;
    let third = talk.ask(&scene, "And now?").await;
    let cut = second.messages().replace(&element(&shed, SHED), "");
    assert_ne!(cut, second.messages());
    assert!(
        third.messages().starts_with(&cut),
        "nothing else has changed"
    );
    assert_eq!((third.epoch(), third.counts()), ("2", ("2", "0")));
    assert_eq!(scene.rotations("forget"), 1);
    let fourth = talk.ask(&scene, "And then?").await;
    assert_extends(&third, &fourth);
    assert_eq!(fourth.epoch(), "2");
    let epochs = scene.epochs("trip").await;
    assert_eq!(epochs, [(1, String::new()), (2, "forget".to_owned())]);
    let shown = scene.session(&talk.client, "trip").await;
    let shown = String::from_utf8(shown.body.to_vec()).unwrap();
    assert!(!shown.contains(&shed), "{shown}");
    scene.lose_memory().await;
    let fifth = talk.ask(&scene, "And at last?").await;
    assert_extends(&fourth, &fifth);
    assert_eq!((fifth.epoch(), scene.rotations("forget")), ("2", 1));
    assert!(scene.kept_the_law());
}

#[tokio::test]
async fn only_what_was_forgotten_leaves_the_snapshot() {
    let scene = Scene::with(with_snapshot, Overrides::default()).await;
    let shed = scene.remember(SHED).await;
    scene.remember(TAG).await;
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, QUESTION).await;
    assert_eq!(first.counts(), ("2", "2"));
    scene.forget(&shed).await;
    let second = talk.ask(&scene, "And now?").await;
    let cut = first.messages().replace(&element(&shed, SHED), "");
    assert!(
        second.messages().starts_with(&cut),
        "nothing else has changed"
    );
    assert_eq!((second.epoch(), second.counts()), ("2", ("1", "0")));
    assert_ne!(first.told("prefix-sha256"), second.told("prefix-sha256"));
    scene.lose_memory().await;
    assert_extends(&second, &talk.ask(&scene, "And then?").await);
}

#[tokio::test]
async fn a_turn_whose_only_memory_was_forgotten_has_nothing_and_stays_so() {
    let scene = Scene::new().await;
    let shed = scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    talk.push(says("user", QUESTION));
    talk.send(&scene).await;
    scene.forget(&shed).await;
    scene.remember(TAG).await;
    let again = talk.send(&scene).await;
    assert!(!again.body.contains("<ibex_recall"));
    assert_eq!((again.epoch(), again.counts()), ("2", ("0", "0")));
    talk.push(REPLY);
    scene.lose_memory().await;
    assert_extends(&again, &talk.ask(&scene, "What tag?").await);
}

#[tokio::test]
async fn forgetting_what_a_session_never_had_changes_nothing() {
    let scene = Scene::new().await;
    let mut talk = scene.talk("trip");
    scene.remember(SHED).await;
    let first = talk.ask(&scene, QUESTION).await;
    let other = scene.remember(TAG).await;
    scene.forget(&other).await;
    let second = talk.ask(&scene, "And now?").await;
    assert_extends(&first, &second);
    assert_eq!((second.epoch(), scene.rotations("forget")), ("1", 0));
}

#[tokio::test]
async fn every_session_and_every_branch_loses_it() {
    let scene = Scene::new().await;
    let shed = scene.remember(SHED).await;
    let (mut one, mut two) = (scene.talk("one"), scene.talk("two"));
    one.ask(&scene, QUESTION).await;
    two.ask(&scene, QUESTION).await;
    let mut branch = one.clone();
    branch.messages.clear();
    branch.ask(&scene, "Is there another key?").await;
    scene.forget(&shed).await;
    for talk in [&mut one, &mut two, &mut branch] {
        let sent = talk.ask(&scene, "And now?").await;
        assert!(!sent.body.contains(SHED));
        assert_eq!(sent.epoch(), "2", "one epoch for all branches of a session");
    }
    assert_eq!(scene.rotations("forget"), 2);
}

/// A poll so rare that this process knows nothing of what another one wrote.
fn deaf(config: &mut Config) {
    plain(config);
    config.store.poll_interval_ms = 60_000;
}

async fn forget_elsewhere(scene: &Scene, id: &str) -> SqliteStore {
    let path = &scene.app.app.config.store.path;
    let other = SqliteStore::open(path, &StoreConfig::default()).unwrap();
    let partition = PartitionKey {
        org: scene.app.org,
        agent: scene.app.agent,
        user: None,
    };
    let partitions = [partition];
    let forgotten = other.forget_memory(&partitions, id.parse().unwrap(), SystemClock.now());
    assert!(forgotten.await.unwrap().is_some());
    other
}

#[tokio::test]
async fn what_another_process_forgot_does_not_go_out_again() {
    for snapshot in [0, 1_500] {
        let edit = |config: &mut Config| {
            deaf(config);
            config.context.snapshot_tokens = snapshot;
        };
        let scene = Scene::with(edit, Overrides::default()).await;
        let shed = scene.remember(SHED).await;
        scene.remember(TAG).await;
        let mut talk = scene.talk("trip");
        let first = talk.ask(&scene, QUESTION).await;
        assert!(first.body.contains(SHED));
        let _other = forget_elsewhere(&scene, &shed).await;
        let second = talk.ask(&scene, "And now?").await;
        let cut = first.messages().replace(&element(&shed, SHED), "");
        assert!(second.messages().starts_with(&cut));
        assert_eq!((second.epoch(), second.counts()), ("2", ("1", "0")));
        // The index of this process still has it, so that a new session finds it.
        for name in ["other", "another"] {
            let mut talk = scene.talk(name);
            for question in [QUESTION, "Where is the key?"] {
                let sent = talk.ask(&scene, question).await;
                assert!(!sent.body.contains(SHED), "{name}");
                assert!(sent.body.contains(TAG), "{name}");
            }
        }
        assert!(scene.kept_the_law());
    }
}

/// A request under way: it is answered when it was let go on.
async fn in_flight(talk: &Talk) -> Answer {
    talk.client.post_raw(CHAT, talk.body()).await
}

/// Whether the change feed has told this process of everything that is in the store.
async fn caught_up(scene: &Scene) {
    let newest = scene.app.store.revision().await.unwrap();
    until("the feed", || scene.app.app.applied() >= newest).await;
}

/// Stops a request at `step`, forgets, lets it go on, and looks at everything that was sent afterwards.
async fn forgets_at(step: Step, at_turn: usize, snapshot: u32, heard: bool) {
    let case = format!("{step:?}, turn {at_turn}, snapshot {snapshot}, heard {heard}");
    let gate = Gate::new();
    let edit = |config: &mut Config| {
        plain(config);
        config.context.snapshot_tokens = snapshot;
    };
    let scene = Scene::with(edit, gate.overrides()).await;
    gate.serve(&scene.app.app);
    let mut talk = scene.talk("trip");
    let shed = scene.remember(SHED).await;
    if at_turn > 0 {
        talk.ask(&scene, QUESTION).await;
    }
    if step == Step::Rotate || step == Step::Turns || step == Step::Checked {
        // These happen only after another memory was forgotten.
        let brass = scene.remember("The spare key is made of brass.").await;
        talk.ask(&scene, "What is it made of?").await;
        scene.forget(&brass).await;
    }
    if step == Step::Restore {
        scene.app.app.sessions.records.flushed().await;
        gate.lanes().clear();
    }
    scene.remember(TAG).await;
    caught_up(&scene).await;
    talk.push(says("user", "Where is the key, and what is its tag?"));
    let before = scene.upstream.hits();
    let (reached, go) = gate.stop_at(step);
    let (answer, ()) = tokio::join!(in_flight(&talk), async {
        reached.wait().await;
        scene.forget(&shed).await;
        if heard {
            caught_up(&scene).await;
        }
        go.set();
    });
    assert_eq!(answer.status, StatusCode::OK, "{case}");
    let looped = talk.send(&scene).await;
    talk.push(REPLY);
    let next = talk.ask(&scene, "And now?").await;
    let exchanges = scene.upstream.exchanges();
    for exchange in &exchanges[before..] {
        let body = String::from_utf8_lossy(&exchange.request.body);
        assert!(!body.contains(SHED), "{case}: {body}");
    }
    assert_eq!(exchanges.len(), before + 3, "{case}");
    let sent = Sent::of(answer, &exchanges[before].request.body);
    assert!(sent.body.contains(TAG), "{case}: the other one is there");
    assert_extends(&sent, &looped);
    assert_extends(&looped, &next);
    assert!(scene.kept_the_law(), "{case}");
}

#[tokio::test]
async fn a_memory_forgotten_while_a_request_is_under_way_does_not_go_out() {
    // A session's first turn is settled when it is opened.
    let first = [
        Step::Read,
        Step::Search,
        Step::Found,
        Step::Open,
        Step::Sent,
    ];
    let later = [
        Step::Read,
        Step::Search,
        Step::Found,
        Step::Settle,
        Step::Sent,
    ];
    for heard in [false, true] {
        for (turn, steps) in [first, later].into_iter().enumerate() {
            for step in steps {
                forgets_at(step, turn, 0, heard).await;
            }
        }
    }
}

#[tokio::test]
async fn nor_does_one_that_a_session_is_opening_with() {
    for heard in [false, true] {
        for step in [
            Step::Read,
            Step::Standing,
            Step::Found,
            Step::Open,
            Step::Sent,
        ] {
            forgets_at(step, 0, 1_500, heard).await;
        }
    }
}

#[tokio::test]
async fn nor_while_another_one_is_taken_out_or_a_session_is_brought_back() {
    for heard in [false, true] {
        for step in [Step::Rotate, Step::Turns, Step::Checked, Step::Restore] {
            for snapshot in [0, 1_500] {
                forgets_at(step, 1, snapshot, heard).await;
            }
        }
    }
}

#[tokio::test]
async fn one_that_a_stale_search_put_into_a_checked_lane_does_not_reach_who_waited() {
    let gate = Gate::new();
    let scene = Scene::with(deaf, gate.overrides()).await;
    gate.serve(&scene.app.app);
    let mut talk = scene.talk("trip");
    talk.ask(&scene, "Hello?").await;
    let shed = scene.remember(SHED).await;
    let _other = forget_elsewhere(&scene, &shed).await;
    // The lane is held to the newest state of the store, on a branch that finds nothing new.
    scene.remember(TAG).await;
    let mut branch = talk.clone();
    assert!(!branch.ask(&scene, "Hello again?").await.body.contains(SHED));
    talk.push(says("user", QUESTION));
    // The first request has settled its turn and waits before its last look; the second one reads what was settled.
    let (reached, go) = gate.stop_at(Step::Turns);
    let (_, ()) = tokio::join!(in_flight(&talk), async {
        reached.wait().await;
        in_flight(&talk).await;
        go.set();
    });
    for exchange in scene.upstream.exchanges() {
        let body = String::from_utf8_lossy(&exchange.request.body);
        assert!(!body.contains(SHED), "{body}");
    }
}

#[tokio::test]
async fn one_that_another_process_settled_first_does_not_go_out() {
    let gate = Gate::new();
    let scene = Scene::with(plain, gate.overrides()).await;
    gate.serve(&scene.app.app);
    let mut talk = scene.talk("trip");
    talk.ask(&scene, "Hello?").await;
    let shed = scene.remember(SHED).await;
    scene.forget(&shed).await;
    scene.remember(TAG).await;
    caught_up(&scene).await;
    // The lane is held to the newest state of the store.
    talk.clone().ask(&scene, "Hello again?").await;
    talk.push(says("user", QUESTION));
    let chat = ChatRequest::parse(talk.body().into(), 10).unwrap();
    let chain = Chain::of(&chat, scene.app.org, &scene.app.app.sessions.secret);
    let turn = *chain.turns().last().unwrap();
    let element = Element {
        id: shed.parse().unwrap(),
        json: SHED.into(),
        cost: Tally::given(Family::Unknown, 1),
    };
    let cost = element.cost;
    let elements = Arc::new(Elements::new(&[Arc::new(element)]).unwrap());
    let recall = Enveloped::new("", elements, "", cost);
    let stale = Block::new(Arc::new(scene.key("trip")), 1, Some(recall), None).unwrap();
    let (reached, go) = gate.stop_at(Step::Settle);
    let (answer, ()) = tokio::join!(in_flight(&talk), async {
        reached.wait().await;
        let settled = vec![(turn, Outcome::Block(Arc::new(stale)))];
        let lane = scene.lane("trip");
        gate.lanes().settle(&lane, 1, settled).await.unwrap();
        go.set();
    });
    let sent = Sent::of(answer, &scene.upstream.last().request.body);
    assert_eq!((sent.epoch(), sent.counts()), ("2", ("0", "0")));
    assert!(!sent.body.contains(SHED));
    let again = talk.send(&scene).await;
    assert_eq!(again.messages(), sent.messages());
}

#[tokio::test]
async fn a_store_that_cannot_tell_what_was_forgotten_costs_every_block() {
    let scene = Scene::with(with_snapshot, Overrides::default()).await;
    scene.direct("Be brief.").await;
    scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, QUESTION).await;
    scene.remember(TAG).await;
    let second = talk.ask(&scene, "What tag has it?").await;
    let rename = |from: &str, to: &str| {
        let sql = format!("ALTER TABLE {from} RENAME TO {to}");
        scene.sql().execute_batch(&sql).unwrap();
    };
    rename("forget_fences", "hidden");
    talk.push(says("user", "And now?"));
    let without = talk.send(&scene).await;
    assert_eq!(without.told("context-reason"), "fence=error");
    assert_eq!(without.told("context-status"), "directive-only");
    assert_eq!(without.told("context-degradation"), "L3");
    assert_eq!(without.told("context-fallback"), "true");
    assert_eq!((without.epoch(), without.counts()), ("0", ("0", "0")));
    assert!(without.body.contains("Be brief.") && !without.body.contains("<ibex_"));
    let preview = talk.preview().await;
    assert_eq!(preview["plan"]["reason"], "fence=error");
    assert!(!preview.to_string().contains("<ibex_"));
    rename("hidden", "forget_fences");
    let third = talk.send(&scene).await;
    assert_extends(&second, &third);
    assert_eq!((third.epoch(), third.counts()), ("1", ("2", "0")));
    assert!(scene.kept_the_law());
}

#[tokio::test]
async fn a_preview_carries_nothing_that_was_forgotten_and_counts_no_epoch() {
    let scene = Scene::with(deaf, Overrides::default()).await;
    let shed = scene.remember(SHED).await;
    scene.remember(TAG).await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, QUESTION).await;
    let _other = forget_elsewhere(&scene, &shed).await;
    talk.push(says("user", "And now?"));
    for _ in 0..2 {
        let preview = talk.preview().await;
        assert!(!preview.to_string().contains(SHED));
        assert_eq!(preview["plan"]["memories_sent"], 1);
    }
    assert_eq!(scene.rotations("forget"), 0);
    let sent = talk.send(&scene).await;
    assert_eq!((sent.epoch(), scene.rotations("forget")), ("2", 1));
}

#[tokio::test]
async fn a_session_that_comes_back_after_a_forget_rotates_once() {
    let scene = Scene::with(with_snapshot, Overrides::default()).await;
    let shed = scene.remember(SHED).await;
    scene.remember(TAG).await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, QUESTION).await;
    let brass = scene.remember("The spare key is made of brass.").await;
    talk.ask(&scene, "What is it made of?").await;
    scene.lose_memory().await;
    scene.forget(&shed).await;
    scene.forget(&brass).await;
    let third = talk.ask(&scene, "And now?").await;
    assert!(!third.body.contains(SHED) && !third.body.contains("brass"));
    assert!(third.body.contains(TAG));
    assert_eq!((third.epoch(), scene.rotations("forget")), ("2", 1));
    for _ in 0..2 {
        scene.lose_memory().await;
        let next = talk.ask(&scene, "And then?").await;
        assert_extends(&third, &next);
        assert_eq!((next.epoch(), scene.rotations("forget")), ("2", 1));
    }
    let epochs = scene.epochs("trip").await;
    assert_eq!(epochs, [(1, String::new()), (2, "forget".to_owned())]);
}

#[tokio::test]
async fn two_requests_that_both_find_it_forgotten_rotate_once() {
    let gate = Gate::new();
    let scene = Scene::with(plain, gate.overrides()).await;
    gate.serve(&scene.app.app);
    let shed = scene.remember(SHED).await;
    scene.remember(TAG).await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, QUESTION).await;
    scene.forget(&shed).await;
    let branch = |text: &str| {
        let mut talk = talk.clone();
        talk.push(says("user", text));
        talk
    };
    let (a, b) = (branch("a"), branch("b"));
    let (reached, go) = gate.stop_at(Step::Rotate);
    let (first, second) = tokio::join!(in_flight(&a), async {
        reached.wait().await;
        let answer = in_flight(&b).await;
        go.set();
        answer
    });
    for answer in [first, second] {
        assert_eq!(answer.header("x-ibex-epoch"), "2");
        assert_eq!(answer.header("x-ibex-memories-injected"), "1");
    }
    assert_eq!(scene.rotations("forget"), 1);
    assert_eq!(scene.epochs("trip").await.len(), 2);
}
