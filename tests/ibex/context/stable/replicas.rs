//! What another replica has done to the lanes, or knows of them, and this one does not.

use std::sync::Arc;

use http::Method;
use ibex::openai::ChatRequest;
use ibex::session::{Block, Chain, Opening, OpeningParts, Outcome, SessionNonce, StateDelta, Turn};
use ibex::store::SessionStore;
use ibex::store::shared::SessionCache;
use ibex::tokens::{Family, Tally};
use serde_json::json;

use super::gate::{Gate, Step};
use super::scene::{CHAT, REPLY, Scene, Sent, Talk, assert_extends, plain, says, with_snapshot};
use crate::support::{Answer, Event};

const SHED: &str = "The spare key hangs in the shed.";
const QUESTION: &str = "Where is the spare key?";

/// A service over lanes that other replicas share.
async fn scene(edit: impl FnOnce(&mut ibex::config::Config)) -> (Arc<Gate>, Scene) {
    let gate = Gate::shared();
    let scene = Scene::with(edit, gate.overrides()).await;
    gate.serve(&scene.app.app);
    scene.remember(SHED).await;
    (gate, scene)
}

/// Everything that was noted is in the store, but for what `lost` takes away, and the lanes are gone.
async fn lose(gate: &Gate, scene: &Scene, lost: &str) {
    scene.app.app.sessions.records.flushed().await;
    assert!(scene.sql().execute(lost, []).unwrap() > 0, "{lost}");
    gate.lanes().clear();
}

/// Region A of the lane `trip`.
async fn opening(gate: &Gate, scene: &Scene) -> Arc<Opening> {
    let held = gate.lanes().read(&scene.lane("trip"), &[]).await;
    held.unwrap().unwrap().opening.unwrap()
}

fn nonce(scene: &Scene, epoch: u32) -> SessionNonce {
    let secret = &scene.app.app.sessions.secret;
    secret.nonce(&scene.key("trip"), epoch)
}

/// What another replica has opened the lane with.
async fn open(gate: &Gate, scene: &Scene, opening: Opening, turns: Vec<(Turn, Outcome)>) {
    let lane = scene.lane("trip");
    let opened = gate.lanes().open(&lane, Arc::new(opening), turns).await;
    opened.unwrap();
}

fn turns_of(scene: &Scene, talk: &Talk) -> Vec<Turn> {
    let chat = ChatRequest::parse(talk.body().into(), 1_000).unwrap();
    let secret = &scene.app.app.sessions.secret;
    Chain::of(&chat, scene.app.org, secret).turns().to_vec()
}

/// Sends the history as it is, and lets something happen while the request is stopped.
async fn meanwhile(
    scene: &Scene,
    talk: &Talk,
    (reached, go): (Event, Event),
    happens: impl Future<Output = ()>,
) -> Sent {
    let post = talk.client.post_raw(CHAT, talk.body());
    let (answer, ()): (Answer, ()) = tokio::join!(post, async {
        reached.wait().await;
        happens.await;
        go.set();
    });
    assert_eq!(answer.status, http::StatusCode::OK, "{:?}", answer.body);
    Sent::of(answer, &scene.upstream.last().request.body)
}

#[tokio::test]
async fn a_row_that_another_replica_has_not_written_is_a_new_epoch() {
    let (gate, scene) = scene(plain).await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, "Hello.").await;
    let told = talk.ask(&scene, QUESTION).await;
    assert_eq!(told.counts().0, "1");
    talk.ask(&scene, "And the red one?").await;
    // The row in the middle is that of the other replica.
    lose(
        &gate,
        &scene,
        "DELETE FROM session_turns WHERE position = 1",
    )
    .await;
    let fourth = talk.ask(&scene, "And the blue one?").await;
    assert_eq!(fourth.epoch(), "2");
    assert_eq!(scene.rotations("state_lost"), 1);
    assert!(scene.kept_the_law());
}

#[tokio::test]
async fn rows_that_are_all_there_are_no_loss() {
    let (gate, scene) = scene(plain).await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, QUESTION).await;
    talk.model = "gpt-4o-mini".to_owned();
    talk.ask(&scene, "And the red one?").await;
    talk.model = "gpt-4o".to_owned();
    let third = talk.ask(&scene, "And the blue one?").await;
    scene.app.app.sessions.records.flushed().await;
    gate.lanes().clear();
    let fourth = talk.ask(&scene, "And the green one?").await;
    assert_eq!(fourth.epoch(), "1");
    assert_extends(&third, &fourth);
    assert_eq!(scene.rotations("state_lost"), 0);
}

#[tokio::test]
async fn a_session_that_the_store_does_not_know_yet_opens_with_an_epoch_of_its_own() {
    let (gate, scene) = scene(plain).await;
    let mut talk = scene.talk("trip");
    assert_eq!(talk.ask(&scene, QUESTION).await.epoch(), "1");
    assert_eq!(talk.ask(&scene, "And the red one?").await.epoch(), "1");
    lose(&gate, &scene, "DELETE FROM sessions").await;
    let third = talk.ask(&scene, "And the blue one?").await;
    assert_eq!(third.epoch(), "3");
    let fourth = talk.ask(&scene, "And the green one?").await;
    assert_eq!(fourth.epoch(), "3");
    assert_extends(&third, &fourth);
    assert!(scene.kept_the_law());
}

#[tokio::test]
async fn a_lane_whose_opener_wrote_no_row_gets_its_rows() {
    let (gate, scene) = scene(plain).await;
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, QUESTION).await;
    let opening = opening(&gate, &scene).await;
    let turn = turns_of(
        &scene,
        &Talk {
            messages: talk.messages[..1].to_vec(),
            ..talk.clone()
        },
    );
    let held = gate.lanes().read(&scene.lane("trip"), &turn).await;
    let ibex::store::shared::Known::Chain(outcome) = held.unwrap().unwrap().turns.remove(0) else {
        panic!("a settled turn")
    };
    lose(&gate, &scene, "DELETE FROM sessions").await;
    // The other replica came as far as this, and no further.
    open(
        &gate,
        &scene,
        Opening::new(opening.parts()),
        vec![(turn[0], outcome)],
    )
    .await;
    let second = talk.ask(&scene, "And the red one?").await;
    assert_extends(&first, &second);
    assert_eq!(scene.epochs("trip").await, [(1, String::new())]);
    let shown = scene.session(&talk.client, "trip").await.json();
    assert_eq!(shown["turns"], 2, "{shown}");
}

#[tokio::test]
async fn who_loses_a_rotation_reads_again_and_settles_under_the_nonce_that_holds() {
    let (gate, scene) = scene(plain).await;
    let old = scene.direct("Old orders.").await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, "Hello.").await;
    let path = format!("/v1/directives/{old}/revoke");
    let revoked = scene.app.client().post(&path, &json!({})).await;
    assert!(revoked.status.is_success());
    scene.remember("The spare key has a red tag.").await;
    talk.push(says("user", QUESTION));
    let parts = opening(&gate, &scene).await.parts();
    // The lane is lost, and another replica opens it anew.
    let stopped = gate.stop_at(Step::Rotate);
    let sent = meanwhile(&scene, &talk, stopped, async {
        gate.lanes().clear();
        let anew = Opening::new(OpeningParts {
            epoch: 5,
            nonce_epoch: 5,
            nonce: nonce(&scene, 5),
            directive: None,
            ..parts
        });
        open(&gate, &scene, anew, Vec::new()).await;
    })
    .await;
    assert_eq!(sent.epoch(), "5");
    let bears = nonce(&scene, 5);
    let recalls = sent.recalls();
    assert!(!recalls.is_empty() && recalls.iter().all(|r| r.contains(bears.as_str())));
    talk.push(REPLY);
    assert_extends(&sent, &talk.ask(&scene, "And now?").await);
    assert!(scene.kept_the_law());
}

#[tokio::test]
async fn who_could_only_open_degraded_sends_what_another_replica_has_opened() {
    let (gate, scene) = scene(with_snapshot).await;
    let mut talk = scene.talk("trip");
    let whole = talk.ask(&scene, QUESTION).await;
    assert_eq!(whole.envelopes("snapshot").len(), 1);
    let parts = opening(&gate, &scene).await.parts();
    lose(&gate, &scene, "DELETE FROM sessions").await;
    let mut talk = scene.talk("trip");
    talk.push(says("user", QUESTION));
    gate.fail(Step::Standing);
    let stopped = gate.stop_also_at(Step::Settle);
    let sent = meanwhile(&scene, &talk, stopped, async {
        open(&gate, &scene, Opening::new(parts), Vec::new()).await;
    })
    .await;
    assert_eq!(sent.epoch(), "1");
    assert_eq!(sent.envelopes("snapshot"), whole.envelopes("snapshot"));
    assert!(scene.kept_the_law());
}

#[tokio::test]
async fn a_state_that_was_told_is_not_taken_back_by_who_knows_an_older_one() {
    let (gate, scene) = scene(plain).await;
    let mut talk = scene.talk("trip");
    talk.push(says("user", QUESTION));
    let client = scene
        .app
        .client()
        .header("content-type", "application/json");
    let state = json!({"facts": [{"id": "f", "text": "Bergen"}]}).to_string();
    let path = "/v1/sessions/trip/working-state";
    let put = client.send(Method::PUT, path, state.into()).await;
    assert!(put.status.is_success());
    let told = talk.clone().send(&scene).await;
    assert!(told.body.contains("Bergen"));
    let parts = opening(&gate, &scene).await.parts();
    // Another replica has changed it since then, and told it.
    let (key, at) = (scene.key("trip"), scene.app.app.clock.now());
    let newer = json!({"facts": [{"id": "f", "text": "Stavanger"}]}).to_string();
    let stored = scene.app.store.put_working_state(&key, newer, at).await;
    assert_eq!(stored.unwrap().version, 2);
    let turn = turns_of(&scene, &talk)[0];
    let state = StateDelta {
        json: "Stavanger".into(),
        from: 0,
        to: 2,
        cost: Tally::given(Family::Unknown, 3),
    };
    let block = Block::new(Arc::clone(&parts.owner), 1, None, Some(state)).unwrap();
    gate.lanes().clear();
    let turns = vec![(turn, Outcome::Block(Arc::new(block)))];
    open(&gate, &scene, Opening::new(parts), turns).await;
    talk.push(REPLY);
    let second = talk.ask(&scene, "And now?").await;
    assert!(second.body.contains("Stavanger") && !second.body.contains("Bergen"));
}

#[tokio::test]
async fn a_turn_that_did_not_wait_for_its_lane_costs_the_session_nothing() {
    let (gate, scene) = scene(|config| {
        plain(config);
        config.context.deadline_ms = 300;
    })
    .await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, "Hello.").await;
    let told = talk.ask(&scene, QUESTION).await;
    assert_eq!(told.counts().0, "1");
    scene.app.app.sessions.records.flushed().await;
    gate.lanes().clear();
    // The lane is read from the store, and it takes too long.
    let (_, go) = gate.stop_at(Step::Restore);
    let bare = talk.ask(&scene, "And the red one?").await;
    assert_eq!(bare.told("context-degradation"), "L3");
    assert_eq!(bare.told("context-reason"), "session=timeout");
    go.set();
    while gate
        .lanes()
        .read(&scene.lane("trip"), &[])
        .await
        .unwrap()
        .is_none()
    {
        tokio::task::yield_now().await;
    }
    let fourth = talk.ask(&scene, "And the blue one?").await;
    assert_eq!(fourth.epoch(), "1");
    assert_extends(&told, &fourth);
    assert_eq!(scene.rotations("state_lost"), 0);
    assert!(scene.kept_the_law());
}
