//! Epochs: each reason replaces the frozen prefix when it should and never else, and what a session goes through is told once.

use std::time::Duration;

use ibex::config::{Config, RecallPlace, SystemRole};
use serde_json::json;

use super::gate::{Gate, Step};
use super::scene::{
    CHAT, REPLY, Scene, Sent, Talk, assert_extends, model, plain, says, with_snapshot,
};
use crate::support::Overrides;

const SHED: &str = "The spare key hangs in the shed.";
const QUESTION: &str = "Where is the spare key?";

/// A session of three turns that nothing has happened to.
async fn three_turns(scene: &Scene, talk: &mut Talk) -> Sent {
    talk.ask(scene, QUESTION).await;
    talk.ask(scene, "And the red one?").await;
    talk.ask(scene, "And the blue one?").await
}

fn epoch(number: u64, reason: &str) -> (u64, String) {
    (number, reason.to_owned())
}

async fn revoke(scene: &Scene, version: u64) {
    let path = format!("/v1/directives/{version}/revoke");
    let answer = scene.app.client().post(&path, &json!({})).await;
    assert!(answer.status.is_success(), "{:?}", answer.body);
}

#[tokio::test]
async fn a_promotion_is_for_new_sessions_and_a_revocation_for_all() {
    let scene = Scene::with(with_snapshot, Overrides::default()).await;
    let old = scene.direct("Old orders.").await;
    scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, QUESTION).await;
    scene.remember("The spare key has a red tag.").await;
    scene.direct("New orders.").await;
    let second = talk.ask(&scene, "What tag has it?").await;
    assert_extends(&first, &second);
    assert!(second.body.contains("Old orders.") && !second.body.contains("New orders."));
    let fresh = scene.talk("other").ask(&scene, QUESTION).await;
    assert!(fresh.body.contains("New orders."));
    revoke(&scene, old).await;
    let third = talk.ask(&scene, "And now?").await;
    let exchanged = third.messages().replace("New orders.", "Old orders.");
    assert!(
        exchanged.starts_with(second.messages()),
        "nothing but the directive has changed"
    );
    assert!(!third.body.contains("Old orders."));
    assert_eq!((third.epoch(), third.recalls()), ("2", second.recalls()));
    assert_ne!(third.told("prefix-sha256"), second.told("prefix-sha256"));
    assert_eq!(
        (third.told("context-status"), third.counts()),
        ("full", ("2", "0"))
    );
    let fourth = talk.ask(&scene, "And then?").await;
    assert_extends(&third, &fourth);
    assert_eq!(
        scene.epochs("trip").await,
        [epoch(1, ""), epoch(2, "revoked")]
    );
    assert_eq!(scene.epochs("other").await, [epoch(1, "")]);
    assert_eq!(scene.rotations("revoked"), 1);
    scene.lose_memory().await;
    assert_extends(&fourth, &talk.ask(&scene, "And at last?").await);
    assert!(scene.kept_the_law());
}

#[tokio::test]
async fn a_revoked_directive_without_a_successor_leaves_none() {
    let scene = Scene::new().await;
    let only = scene.direct("Old orders.").await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, QUESTION).await;
    revoke(&scene, only).await;
    let second = talk.ask(&scene, "And now?").await;
    assert!(!second.body.contains("Old orders."));
    assert_eq!(second.epoch(), "2");
    assert_extends(&second, &talk.ask(&scene, "And then?").await);
}

#[tokio::test]
async fn two_sessions_in_use_when_a_directive_is_revoked_rotate_once_each() {
    let scene = Scene::new().await;
    let old = scene.direct("Old orders.").await;
    let mut talks = [scene.talk("one"), scene.talk("two")];
    for talk in &mut talks {
        talk.ask(&scene, QUESTION).await;
    }
    revoke(&scene, old).await;
    // Two requests of each session at once, on branches of their own.
    let [one, two] = &talks;
    let branch = |talk: &Talk, text: &str| {
        let mut talk = talk.clone();
        talk.push(says("user", text));
        talk
    };
    let asked = [
        branch(one, "a"),
        branch(one, "b"),
        branch(two, "a"),
        branch(two, "b"),
    ];
    let [a, b, c, d] = &asked;
    let post = async |talk: &Talk| talk.client.post_raw(CHAT, talk.body()).await;
    let (a, b, c, d) = tokio::join!(post(a), post(b), post(c), post(d));
    for answer in [a, b, c, d] {
        assert_eq!(answer.header("x-ibex-epoch"), "2");
    }
    assert_eq!(scene.rotations("revoked"), 2);
}

/// A window that a long history fills.
fn tiny(config: &mut Config) {
    with_snapshot(config);
    let mut small = model("tiny", SystemRole::Single, RecallPlace::Inline);
    small.context_window = Some(2_400);
    config.models.push(small);
}

#[tokio::test]
async fn what_was_injected_yields_to_a_long_history_and_stays_away() {
    let scene = Scene::with(tiny, Overrides::default()).await;
    scene.remember(SHED).await;
    let mut talk = scene.talk("trip").with_model("tiny");
    let first = talk.ask(&scene, QUESTION).await;
    scene.remember("The spare key has a red tag.").await;
    let second = talk.ask(&scene, "What tag has it?").await;
    assert_extends(&first, &second);
    assert_eq!((second.epoch(), second.counts()), ("1", ("2", "1")));
    let mut short = talk.clone();
    let long = "It was long ago. ".repeat(400);
    let third = talk.ask(&scene, &long).await;
    assert_eq!(third.epoch(), "2");
    assert_eq!(third.told("context-reason"), "over_budget");
    assert_eq!(third.counts(), ("0", "0"));
    assert!(!third.body.contains("<ibex_"));
    let theirs = talk.messages[..5].join(",");
    assert!(
        third.messages().ends_with(&theirs),
        "the client's messages are unchanged"
    );
    let plan = talk.preview().await["plan"].take();
    assert_eq!(plan["budget"]["over_budget"], true);
    assert_extends(&third, &talk.ask(&scene, "And?").await);
    assert_extends(&third, &talk.ask(&scene, "So?").await);
    assert_eq!(
        talk.ask(&scene, "Then?").await.epoch(),
        "2",
        "there is nothing left to yield"
    );
    // With room again the turns stay without; only new ones get something.
    let roomy = short.ask(&scene, "Back to the key?").await;
    assert_eq!((roomy.epoch(), roomy.counts()), ("2", ("2", "2")));
    assert!(
        roomy.messages().contains(
            &short.messages[..5]
                .join(",")
                .replace(&says("user", "Back to the key?"), "")
        )
    );
    assert_eq!(
        scene.epochs("trip").await,
        [epoch(1, ""), epoch(2, "over_budget")]
    );
    assert_eq!(scene.rotations("over_budget"), 1);
    scene.lose_memory().await;
    assert_extends(&roomy, &short.ask(&scene, "And the tag?").await);
}

#[tokio::test]
async fn a_restart_is_no_loss() {
    let scene = Scene::with(with_snapshot, Overrides::default()).await;
    scene.direct("Be brief.").await;
    scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, QUESTION).await;
    scene.remember("The spare key has a red tag.").await;
    let second = talk.ask(&scene, "What tag has it?").await;
    scene.direct("Be long.").await;
    let scene = scene.restarted(with_snapshot).await;
    talk.client = scene.app.client().header("x-ibex-session-id", "trip");
    let third = talk.ask(&scene, "And now?").await;
    assert_extends(&second, &third);
    assert_eq!((third.epoch(), third.counts()), ("1", ("2", "0")));
    assert_eq!(scene.epochs("trip").await, [epoch(1, "")]);
}

#[tokio::test]
async fn what_cannot_be_rendered_to_the_same_bytes_is_a_new_epoch() {
    let policy = |text: &'static str| {
        move |config: &mut Config| {
            plain(config);
            config.context.platform_policy = text.to_owned();
        }
    };
    let scene = Scene::with(policy(""), Overrides::default()).await;
    scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, QUESTION).await;
    assert_eq!((first.epoch(), first.recalls().len()), ("1", 1));
    let scene = scene.restarted(policy("No secrets.")).await;
    talk.client = scene.app.client().header("x-ibex-session-id", "trip");
    let second = talk.ask(&scene, "And now, the key?").await;
    assert_eq!((second.epoch(), second.counts()), ("2", ("1", "1")));
    assert!(second.body.contains("No secrets."));
    assert!(!second.body.contains(first.recalls()[0]));
    assert_eq!(scene.rotations("state_lost"), 1);
    assert_extends(&second, &talk.ask(&scene, "And then?").await);
    let scene = scene.restarted(policy("")).await;
    talk.client = scene.app.client().header("x-ibex-session-id", "trip");
    let fourth = talk.ask(&scene, "And the key?").await;
    assert_eq!(fourth.epoch(), "3", "a number is never used again");
    let lost = [epoch(1, ""), epoch(2, "state_lost"), epoch(3, "state_lost")];
    assert_eq!(scene.epochs("trip").await, lost);
    let scene = scene.restarted(policy("")).await;
    talk.client = scene.app.client().header("x-ibex-session-id", "trip");
    let fifth = talk.ask(&scene, "And again?").await;
    assert_extends(&fourth, &fifth);
    assert_eq!(fifth.epoch(), "3");
}

#[tokio::test]
async fn damaged_rows_are_a_new_epoch() {
    for damage in [
        "UPDATE session_turns SET digest = zeroblob(16) WHERE position = 0",
        "UPDATE session_turns SET anchor = zeroblob(16) WHERE position = 0",
        "UPDATE session_lanes SET sha256 = zeroblob(32)",
        "UPDATE session_lanes SET nonce_epoch = 7",
        "UPDATE session_lanes SET directive = 99",
    ] {
        let scene = Scene::new().await;
        scene.direct("Be brief.").await;
        scene.remember(SHED).await;
        let mut talk = scene.talk("trip");
        let third = three_turns(&scene, &mut talk).await;
        scene.lose_memory().await;
        assert!(scene.sql().execute(damage, []).unwrap() > 0, "{damage}");
        let fourth = talk.ask(&scene, "And the green one?").await;
        assert_eq!(fourth.epoch(), "2", "{damage}");
        assert!(!fourth.body.contains(third.recalls()[0]), "{damage}");
        assert_extends(&fourth, &talk.ask(&scene, "So?").await);
        let lost = [epoch(1, ""), epoch(2, "state_lost")];
        assert_eq!(scene.epochs("trip").await, lost, "{damage}");
        assert_eq!(scene.rotations("state_lost"), 1, "{damage}");
    }
}

#[tokio::test]
async fn rows_that_a_crash_took_are_a_new_epoch() {
    // What was written is the beginning: the last turn, every turn, or the whole session may be missing.
    for (damage, number) in [
        ("DELETE FROM session_turns WHERE position = 2", 2),
        ("DELETE FROM session_turns", 2),
        ("DELETE FROM sessions", 4),
    ] {
        let scene = Scene::new().await;
        scene.remember(SHED).await;
        let mut talk = scene.talk("trip");
        let third = three_turns(&scene, &mut talk).await;
        let scene = scene.crashed(plain, Some(damage)).await;
        talk.client = scene.app.client().header("x-ibex-session-id", "trip");
        let fourth = talk.ask(&scene, "And the green one?").await;
        assert_eq!(fourth.epoch(), number.to_string(), "{damage}");
        assert!(!fourth.body.contains(third.recalls()[0]), "{damage}");
        assert_extends(&fourth, &talk.ask(&scene, "So?").await);
        let known = scene.epochs("trip").await;
        assert_eq!(known.last(), Some(&epoch(number, "state_lost")), "{damage}");
        assert_eq!(scene.rotations("state_lost"), 1, "{damage}");
    }
}

#[tokio::test]
async fn a_crash_that_took_nothing_is_no_loss_and_a_new_conversation_has_none() {
    let scene = Scene::new().await;
    scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    let third = three_turns(&scene, &mut talk).await;
    let scene = scene.crashed(plain, None).await;
    talk.client = scene.app.client().header("x-ibex-session-id", "trip");
    let fourth = talk.ask(&scene, "And the green one?").await;
    assert_eq!(fourth.epoch(), "1");
    assert_extends(&third, &fourth);
    let other = scene.talk("other").ask(&scene, QUESTION).await;
    assert_eq!(other.epoch(), "1");
    assert_eq!(scene.rotations("state_lost"), 0);
}

#[tokio::test]
async fn turns_of_another_model_are_no_loss_after_a_restart() {
    let scene = Scene::with(with_snapshot, Overrides::default()).await;
    scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, QUESTION).await;
    talk.model = "gpt-4o-mini".to_owned();
    talk.ask(&scene, "And the red one?").await;
    let scene = scene.restarted(with_snapshot).await;
    talk.client = scene.app.client().header("x-ibex-session-id", "trip");
    talk.model = "gpt-4o".to_owned();
    let third = talk.ask(&scene, "And the green one?").await;
    assert_eq!(third.epoch(), "1");
    assert_extends(&first, &third);
    assert_eq!(scene.rotations("state_lost"), 0);
}

#[tokio::test]
async fn a_session_that_was_opened_degraded_freezes_its_turns_and_no_prefix() {
    let gate = Gate::new();
    let scene = Scene::with(with_snapshot, gate.overrides()).await;
    gate.serve(&scene.app.app);
    scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    gate.fail(Step::Standing);
    let first = talk.ask(&scene, QUESTION).await;
    assert_eq!((first.epoch(), first.envelopes("snapshot").len()), ("0", 0));
    assert_eq!(first.told("context-status"), "partial");
    assert_eq!(first.told("context-reason"), "snapshot=error");
    let nobody = scene.session(&talk.client, "trip").await;
    assert_eq!(nobody.status, http::StatusCode::NOT_FOUND);
    gate.fail(Step::Search);
    let second = talk.ask(&scene, "And the red one?").await;
    assert_eq!(
        second.epoch(),
        "1",
        "a missing search is no reason to wait for a prefix"
    );
    gate.mend();
    scene.remember("The spare key has a red tag.").await;
    let third = talk.ask(&scene, "What tag has it?").await;
    assert_eq!(third.epoch(), "1");
    assert_extends(&second, &third);
    assert_eq!(
        third.recalls()[..first.recalls().len()],
        first.recalls(),
        "a settled turn stays"
    );
    assert_eq!(scene.epochs("trip").await, [epoch(1, "")]);
    scene.app.app.sessions.records.flushed().await;
    gate.lanes().clear();
    assert_extends(&third, &talk.ask(&scene, "And at last?").await);
    assert!(scene.kept_the_law());
}

/// The limits of the product, but for a database that a busy machine keeps waiting.
fn hurried(config: &mut Config) {
    plain(config);
    config.context.deadline_ms = 2_000;
    config.context.timeout_ms = 2_005;
}

#[tokio::test]
async fn a_cache_that_fails_or_hangs_costs_what_is_frozen_for_one_request() {
    for (step, reason) in [(Step::Read, "session"), (Step::Settle, "session")] {
        for hangs in [false, true] {
            let gate = Gate::new();
            let scene = Scene::with(hurried, gate.overrides()).await;
            gate.serve(&scene.app.app);
            scene.direct("Be brief.").await;
            scene.remember(SHED).await;
            let mut talk = scene.talk("trip");
            let first = talk.ask(&scene, QUESTION).await;
            scene.remember("The spare key has a red tag.").await;
            if hangs {
                gate.hang(step);
            } else {
                gate.fail(step);
            }
            talk.push(says("user", "What tag has it?"));
            let without = talk.send(&scene).await;
            let case = format!("{step:?} {hangs}");
            let word = if hangs { "timeout" } else { "error" };
            assert_eq!(
                without.told("context-reason"),
                format!("{reason}={word}"),
                "{case}"
            );
            assert_eq!(without.told("context-degradation"), "L3", "{case}");
            assert_eq!(without.told("context-status"), "directive-only", "{case}");
            assert_eq!(
                (without.epoch(), without.counts()),
                ("0", ("0", "0")),
                "{case}"
            );
            assert!(
                without.body.contains("Be brief.") && !without.body.contains("<ibex_"),
                "{case}"
            );
            gate.mend();
            let second = talk.send(&scene).await;
            assert_extends(&first, &second);
            assert_eq!(
                (second.epoch(), second.counts()),
                ("1", ("2", "1")),
                "{case}"
            );
            assert_eq!(scene.epochs("trip").await, [epoch(1, "")], "{case}");
        }
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_asked_for_the_session_freezes_nothing() {
    let scene = Scene::new().await;
    scene.direct("Be brief.").await;
    scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, QUESTION).await;
    scene.lose_memory().await;
    scene
        .sql()
        .execute_batch("ALTER TABLE sessions RENAME TO hidden")
        .unwrap();
    talk.push(says("user", "And now?"));
    for _ in 0..2 {
        let without = talk.send(&scene).await;
        assert_eq!(without.told("context-reason"), "session=error");
        assert_eq!((without.epoch(), without.counts()), ("0", ("0", "0")));
        assert!(without.body.contains("Be brief.") && !without.body.contains("<ibex_"));
        let new = scene.talk("other").ask(&scene, QUESTION).await;
        assert_eq!(new.told("context-reason"), "session=error");
    }
    scene
        .sql()
        .execute_batch("ALTER TABLE hidden RENAME TO sessions")
        .unwrap();
    let second = talk.send(&scene).await;
    assert_extends(&first, &second);
    assert_eq!(second.epoch(), "1");
    let new = scene.talk("other").ask(&scene, QUESTION).await;
    assert_eq!((new.epoch(), new.counts()), ("1", ("1", "1")));
}

#[tokio::test]
async fn what_the_client_does_with_its_history_is_told_once() {
    let scene = Scene::new().await;
    scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    let events = |trimmed, branched, changed| {
        let told =
            ["history_trimmed", "branched", "client_prefix_changed"].map(|e| scene.events(e));
        assert_eq!(told, [trimmed, branched, changed]);
    };
    talk.push(says("system", "It is 10:01."));
    let third = three_turns(&scene, &mut talk).await;
    events(0, 0, 0);
    talk.messages[0] = says("system", "It is 10:02.");
    let fourth = talk.ask(&scene, "And the green one?").await;
    events(0, 0, 1);
    assert_eq!(fourth.recalls(), third.recalls());
    talk.ask(&scene, "And the grey one?").await;
    events(0, 0, 1);
    let mut edited = talk.clone();
    edited.messages.truncate(3);
    let regenerated = edited.ask(&scene, "And the white one?").await;
    events(0, 1, 1);
    assert_eq!(regenerated.recalls(), third.recalls());
    edited.ask(&scene, "And the black one?").await;
    events(0, 1, 1);
    talk.ask(&scene, "Back to the grey one?").await;
    events(0, 2, 1);
    // The first turn goes, and the assistant's answer in front of the second one stays.
    talk.messages.drain(1..2);
    let trimmed = talk.ask(&scene, "What was it?").await;
    events(1, 2, 1);
    assert_eq!(trimmed.epoch(), "1");
    talk.ask(&scene, "And that?").await;
    events(1, 2, 1);
    for reason in ["forget", "revoked", "over_budget", "state_lost"] {
        assert_eq!(scene.rotations(reason), 0, "an event is no epoch");
    }
    assert!(scene.kept_the_law());
}

#[tokio::test]
async fn a_trimmed_history_keeps_the_blocks_of_what_is_left() {
    let scene = Scene::new().await;
    let mut talk = scene.talk("trip");
    for n in 0..4 {
        scene
            .remember(&format!("The spare key number {n} hangs in the shed."))
            .await;
        talk.ask(&scene, &format!("Where is key number {n}?")).await;
    }
    let whole = talk.ask(&scene, "Which one is it?").await;
    assert_eq!(whole.recalls().len(), 4);
    // Two turns go; the answer in front of the third one stays.
    talk.messages.drain(..3);
    talk.messages.pop();
    let trimmed = talk.send(&scene).await;
    assert_eq!(trimmed.recalls()[..2], whole.recalls()[2..]);
    assert_eq!((trimmed.epoch(), scene.events("history_trimmed")), ("1", 1));
    let again = talk.send(&scene).await;
    assert_eq!(again.messages(), trimmed.messages());
    assert_eq!(scene.events("history_trimmed"), 1);
    talk.push(REPLY);
    scene.lose_memory().await;
    let restored = talk.ask(&scene, "And now?").await;
    assert_extends(&trimmed, &restored);
}

#[tokio::test]
async fn an_idle_session_leaves_memory_and_comes_back_identical() {
    let scene = Scene::with(with_snapshot, Overrides::default()).await;
    scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, QUESTION).await;
    scene.remember("The spare key has a red tag.").await;
    let second = talk.ask(&scene, "What tag has it?").await;
    scene.app.app.sessions.records.flushed().await;
    let cache = scene.app.app.sessions.in_process.clone().unwrap();
    let later = async |minutes: u64| {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(60 * minutes)).await;
        tokio::time::resume();
        cache.sweep().0
    };
    assert_eq!(later(44).await, 1);
    assert_eq!(later(1).await, 0);
    let third = talk.ask(&scene, "And now?").await;
    assert_extends(&second, &third);
    assert_extends(&first, &third);
    assert_eq!((third.epoch(), third.counts()), ("1", ("2", "0")));
    assert_eq!(scene.epochs("trip").await, [epoch(1, "")]);
}

#[tokio::test]
async fn a_state_that_had_to_yield_is_told_as_a_whole_when_there_is_room() {
    let scene = Scene::with(tiny, Overrides::default()).await;
    let mut talk = scene.talk("trip").with_model("tiny");
    let put = async |text: &str| {
        let client = scene
            .app
            .client()
            .header("content-type", "application/json");
        let path = "/v1/sessions/trip/working-state";
        let answer = client
            .send(http::Method::PUT, path, text.to_owned().into())
            .await;
        assert!(answer.status.is_success());
    };
    put(r#"{"facts": [{"id": "f", "text": "Bergen"}]}"#).await;
    let first = talk.ask(&scene, QUESTION).await;
    assert!(first.body.contains("Bergen"));
    put(r#"{"facts": [{"id": "f", "text": "Bergen"}, {"id": "g", "text": "Oslo"}]}"#).await;
    let mut long = talk.clone();
    let full = long.ask(&scene, &"It was long ago. ".repeat(400)).await;
    assert_eq!((full.epoch(), full.envelopes("state").len()), ("2", 0));
    let roomy = talk.ask(&scene, "And now?").await;
    let [told] = roomy.envelopes("state")[..] else {
        panic!("one envelope")
    };
    assert!(told.contains("Bergen") && told.contains("Oslo"), "{told}");
}

#[tokio::test]
async fn an_unnamed_session_that_began_with_two_requests_at_once_is_whole_after_a_loss() {
    let gate = Gate::new();
    let scene = Scene::with(plain, gate.overrides()).await;
    gate.serve(&scene.app.app);
    scene.remember(SHED).await;
    let mut talk = Talk::of(scene.app.client());
    talk.push(says("user", QUESTION));
    // Both have read the lane before either notes what it sent, and the one that opened it notes first.
    let (opened, go_on) = gate.stop_at(Step::Sent);
    let post = || talk.client.post_raw(CHAT, talk.body());
    let (first, ()) = tokio::join!(post(), async {
        opened.wait().await;
        let (read, end) = gate.stop_at(Step::Sent);
        let (second, ()) = tokio::join!(post(), async {
            read.wait().await;
            go_on.set();
            let _first = scene.upstream.exchange(0).await;
            end.set();
        });
        assert_eq!(second.header("x-ibex-memories-injected"), "1");
    });
    assert_eq!(first.header("x-ibex-memories-new"), "1");
    talk.push(REPLY);
    let second = talk.ask(&scene, "And now?").await;
    assert_eq!(second.counts(), ("1", "0"));
    scene.app.app.sessions.records.flushed().await;
    gate.lanes().clear();
    let third = talk.ask(&scene, "And then?").await;
    assert_extends(&second, &third);
    assert_eq!(third.epoch(), "1");
}
