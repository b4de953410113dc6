//! What a slow neighbour, a store that takes nothing, and another tenant's odd requests cost: nothing of what is frozen.

use std::time::Duration;

use ibex::auth::Permissions;
use ibex::ids::{AgentId, OrgId};
use ibex::openai::ChatRequest;
use ibex::session::Chain;
use ibex::store::SessionStore;
use serde_json::{Value, json};

use super::scene::{Scene, Talk, assert_extends, plain, says, until};
use crate::support::{Overrides, Script, Upstream, completion};

const SHED: &str = "The shed key hangs behind the blue door.";
const QUESTION: &str = "Where is the shed key?";

#[tokio::test]
async fn who_waits_in_vain_for_a_turn_sends_what_is_frozen_and_settles_it() {
    let short = |config: &mut ibex::config::Config| {
        plain(config);
        config.context.deadline_ms = 300;
        config.context.timeout_ms = 305;
    };
    let scene = Scene::with(short, Overrides::default()).await;
    scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, QUESTION).await;
    assert_eq!(first.counts(), ("1", "1"));
    scene.remember("The spare key has a red tag.").await;
    talk.push(says("user", "What tag has the spare key?"));
    let chat = ChatRequest::parse(talk.body().into(), 1_000).unwrap();
    let sessions = &scene.app.app.sessions;
    let chain = Chain::of(&chat, scene.app.org, &sessions.secret);
    let turn = Some(chain.turns().last().unwrap().chain);
    let never = tokio::time::Instant::now() + Duration::from_secs(3_600);
    let lane = scene.lane("trip");
    let other = sessions.flights.enter(&lane, turn, never).await.unwrap();
    let second = talk.send(&scene).await;
    assert_eq!((second.epoch(), second.counts()), ("1", ("1", "0")));
    assert_eq!(second.told("context-reason"), "deadline");
    assert_extends(&first, &second);
    drop(other);
    let again = talk.send(&scene).await;
    assert_eq!(again.messages(), second.messages(), "the turn is settled");
    assert!(scene.kept_the_law());
}

fn impatient(config: &mut ibex::config::Config) {
    plain(config);
    config.store.busy_timeout_ms = 1;
}

#[tokio::test]
async fn records_that_a_busy_store_does_not_take_are_tried_again() {
    let scene = Scene::with(impatient, Overrides::default()).await;
    scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, QUESTION).await;
    scene.app.app.sessions.records.flushed().await;
    let other = scene.sql();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let second = talk.ask(&scene, "And the red one?").await;
    // Each of these is refused as well, so the records have been by then.
    for _ in 0..50 {
        assert!(scene.app.store.begin_run().await.is_err());
    }
    other.execute_batch("COMMIT").unwrap();
    let shown = scene.session(&talk.client, "trip").await.json();
    assert_eq!(shown["turns"], 2, "{shown}");
    assert_eq!(scene.metric("ibex_session_records_lost_total"), 0);
    scene.lose_memory().await;
    assert_extends(&second, &talk.ask(&scene, "And the green one?").await);
}

#[tokio::test]
async fn a_record_that_the_store_refuses_costs_no_other_one() {
    let scene = Scene::new().await;
    scene.remember(SHED).await;
    let refused = "CREATE TRIGGER refused BEFORE INSERT ON session_turns WHEN new.lane LIKE '%odd%'
                   BEGIN SELECT raise(ABORT, 'refused'); END";
    scene.sql().execute_batch(refused).unwrap();
    let mut odd = scene.talk("odd").with_model("odd");
    odd.ask(&scene, QUESTION).await;
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, QUESTION).await;
    scene.lose_memory().await;
    assert_extends(&first, &talk.ask(&scene, "And the red one?").await);
    assert_eq!(scene.app.app.sessions.records.lost(), 1);
    assert_eq!(scene.rotations("state_lost"), 0);
}

#[tokio::test]
async fn a_turn_that_was_sent_without_a_block_has_none_after_a_loss() {
    let scene = Scene::new().await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, "Good morning.").await;
    // The client's window slides: its new first turn is settled with nothing, as one among others.
    let mut later = scene.talk("trip");
    for text in [
        says("user", QUESTION),
        says("assistant", "Yes."),
        says("user", "And then?"),
    ] {
        later.push(text);
    }
    let sent = later.send(&scene).await;
    scene.remember(SHED).await;
    scene.lose_memory().await;
    let mut back = scene.talk("trip");
    back.push(says("user", QUESTION));
    let alone = back.send(&scene).await;
    assert_eq!(alone.counts(), ("0", "0"));
    assert_extends(&sent, &later.ask(&scene, "And now?").await);
    assert!(scene.kept_the_law());
}

/// A provider whose prompts are thrice as long as they look.
fn verbose() -> impl Fn(&crate::support::Received) -> Script + Send + Sync {
    |request| {
        let mut answer = completion();
        answer["usage"]["prompt_tokens"] = json!(request.body.len());
        Script::new().json("200 OK", &answer)
    }
}

async fn counted(talk: &Talk) -> Value {
    talk.preview().await["plan"]["budget"]["messages"].take()
}

#[tokio::test]
async fn what_a_provider_reports_to_one_organisation_changes_nothing_for_another() {
    let scene = Scene::before(
        Upstream::start(verbose()).await,
        plain,
        Overrides::default(),
    )
    .await;
    let (org, agent) = (OrgId::from_bytes([7; 16]), AgentId::from_bytes([8; 16]));
    scene.app.create_org(org).await;
    scene.app.create_agent(org, agent).await;
    let token = scene.app.mint(org, None, None, Permissions::all()).await;
    let long = "The harbour lies in the north. ".repeat(40);
    let mut theirs = Talk::of(scene.app.client_with(&token, Some(agent)));
    theirs.push(says("user", &long));
    let mut ours = scene.talk("trip");
    ours.push(says("user", &long));
    let (before, of_theirs) = (counted(&ours).await, counted(&theirs).await);
    assert_eq!(before, of_theirs);
    // A picture costs what it costs, whatever stands beside it.
    let picture = json!({"role": "user", "content": [
        {"type": "text", "text": long},
        {"type": "image_url", "image_url": {"url": "https://pictures.invalid/1.png"}},
    ]});
    let mut seen = ours.clone();
    seen.messages = vec![picture.to_string()];
    seen.send(&scene).await;
    let answered = scene.metric("ibex_answers_total{result=\"complete\"}");
    theirs.send(&scene).await;
    until("the second answer", || {
        scene.metric("ibex_answers_total{result=\"complete\"}") > answered
    })
    .await;
    let learnt = counted(&theirs).await;
    assert!(learnt.as_u64() > of_theirs.as_u64(), "{learnt} {of_theirs}");
    assert_eq!(counted(&ours).await, before);
}
