//! A changed text counts as a forgotten one: no request that is handed over afterwards carries the old one, and nothing else changes.

use http::StatusCode;
use ibex::config::{Config, Uncertain};
use serde_json::{Value, json};

use super::scene::{Scene, assert_extends, last_six, plain, with_snapshot};
use crate::support::Overrides;

const SHED: &str = "The spare key hangs in the shed.";
const PORCH: &str = "The spare key hangs on the porch.";
const TAG: &str = "The spare key has a red tag.";
const QUESTION: &str = "Where is the spare key?";

async fn edit(scene: &Scene, id: &str, body: &Value) -> StatusCode {
    let client = scene.app.client();
    client
        .patch(&format!("/v1/memories/{id}"), body)
        .await
        .status
}

fn element(id: &str, content: &str) -> String {
    let short = last_six(id);
    format!(r#"<memory ref=\"{short}\" kind=\"factual\">{content}</memory>\n"#)
}

#[tokio::test]
async fn only_the_old_text_leaves_its_block() {
    let scene = Scene::new().await;
    let shed = scene.remember(SHED).await;
    scene.remember(TAG).await;
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, QUESTION).await;
    assert_eq!(
        edit(&scene, &shed, &json!({"content": PORCH})).await,
        StatusCode::OK
    );
    let second = talk.ask(&scene, "And now, the spare key?").await;
    let cut = first.messages().replace(&element(&shed, SHED), "");
    assert_ne!(cut, first.messages());
    assert!(
        second.messages().starts_with(&cut),
        "nothing else has changed"
    );
    assert_eq!((second.epoch(), scene.rotations("forget")), ("2", 1));
    // The new text comes with the next turn that asks for it.
    let third = talk.ask(&scene, "So where is the spare key?").await;
    assert_extends(&second, &third);
    assert!(third.messages().contains(PORCH));
    assert_eq!(third.epoch(), "2");
    scene.lose_memory().await;
    let fourth = talk.ask(&scene, "And at last?").await;
    assert_extends(&third, &fourth);
    assert_eq!((fourth.epoch(), scene.rotations("forget")), ("2", 1));
    assert!(scene.kept_the_law());
}

#[tokio::test]
async fn the_old_text_leaves_the_snapshot() {
    let scene = Scene::with(with_snapshot, Overrides::default()).await;
    let shed = scene.remember(SHED).await;
    scene.remember(TAG).await;
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, "hello").await;
    assert!(first.messages().contains(SHED));
    edit(&scene, &shed, &json!({"content": PORCH})).await;
    let second = talk.ask(&scene, "well").await;
    assert!(!second.messages().contains(SHED));
    assert!(second.messages().contains(TAG));
    assert_eq!(second.epoch(), "2");
}

#[tokio::test]
async fn a_text_that_changed_while_nobody_looked_does_not_come_back() {
    let scene = Scene::new().await;
    let shed = scene.remember(SHED).await;
    let tag = scene.remember(TAG).await;
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, QUESTION).await;
    edit(&scene, &shed, &json!({"content": PORCH})).await;
    scene.lose_memory().await;
    let second = talk.ask(&scene, "Thanks.").await;
    assert!(!second.messages().contains(SHED));
    assert!(
        second.messages().contains(&element(&tag, TAG)),
        "what did not change is sent again"
    );
    let cut = first.messages().replace(&element(&shed, SHED), "");
    assert!(second.messages().starts_with(&cut));
    assert_eq!(
        (
            second.epoch(),
            scene.rotations("forget"),
            scene.rotations("state_lost")
        ),
        ("2", 1, 0)
    );
}

#[tokio::test]
async fn another_field_changes_no_byte() {
    let scene = Scene::new().await;
    let shed = scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, QUESTION).await;
    for body in [
        json!({"confidence": 0.3}),
        json!({"pinned": true}),
        json!({"metadata": {"a": 1}}),
        json!({"content": SHED}),
    ] {
        assert_eq!(edit(&scene, &shed, &body).await, StatusCode::OK);
    }
    scene
        .app
        .client()
        .post(
            &format!("/v1/memories/{shed}/feedback"),
            &json!({"vote": "useful"}),
        )
        .await;
    let second = talk.ask(&scene, "And now?").await;
    assert_extends(&first, &second);
    assert_eq!((second.epoch(), scene.rotations("forget")), ("1", 0));
}

#[tokio::test]
async fn a_text_that_goes_to_review_leaves_too() {
    let careful = |config: &mut Config| {
        plain(config);
        config.memory.pii.uncertain = Uncertain::Quarantine;
    };
    let scene = Scene::with(careful, Overrides::default()).await;
    let shed = scene.remember(SHED).await;
    let mut talk = scene.talk("trip");
    talk.ask(&scene, QUESTION).await;
    let doubtful = json!({"content": "Text 07700900456 for the spare key."});
    assert_eq!(edit(&scene, &shed, &doubtful).await, StatusCode::ACCEPTED);
    let second = talk.ask(&scene, "Where is the spare key now?").await;
    assert!(!second.messages().contains("spare key hangs") && !second.messages().contains("07700"));
    assert_eq!(second.epoch(), "2");
}

#[tokio::test]
async fn what_is_replaced_stays_in_its_block_and_the_new_one_names_it() {
    let scene = Scene::new().await;
    let client = scene.app.client();
    let at = |day: u32| format!("2024-03-{day:02}T00:00:00Z");
    let old = client
        .post(
            "/v1/memories",
            &json!({"content": "Mara lives in Porto.", "valid_from": at(1)}),
        )
        .await;
    let old = old.json()["id"].as_str().unwrap().to_owned();
    let mut talk = scene.talk("trip");
    let first = talk.ask(&scene, "Where does Mara live?").await;
    assert!(first.messages().contains("Mara lives in Porto."));
    client
        .post(
            "/v1/memories",
            &json!({"content": "Mara lives in Lisbon.", "valid_from": at(2)}),
        )
        .await;
    let second = talk.ask(&scene, "And where does Mara live now?").await;
    assert_extends(&first, &second);
    assert!(
        second
            .messages()
            .contains(&format!(r#"supersedes=\"{}\""#, last_six(&old)))
    );
    scene.lose_memory().await;
    let third = talk.ask(&scene, "Thanks.").await;
    assert_extends(&second, &third);
    assert_eq!((third.epoch(), scene.rotations("state_lost")), ("1", 0));
    assert!(scene.kept_the_law());
}
