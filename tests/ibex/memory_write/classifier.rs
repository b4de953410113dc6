//! What the rules leave open is asked of the configured model: a scripted provider answers.

use ibex::config::Config;
use serde_json::{Value, json};

use super::{create, ids, service};
use crate::support::{Client, Overrides, Script, TestApp, Upstream, patient};

/// No rule can tell these two, because they begin at the same time.
const OLDER: &str = "The sprint deadline of Heron is 4 May 2024.";
const NEWER: &str = "The sprint deadline of Heron is 9 May 2024.";

/// A service whose classifier gets this answer.
async fn with_answer(script: Script) -> (TestApp, Upstream) {
    let upstream = Upstream::playing(script).await;
    let edit = |config: &mut Config| {
        patient(config);
        config.memory.classifier.model = "judge-1".to_owned();
        config.memory.classifier.timeout_ms = 300;
    };
    let app = TestApp::with(&upstream.url(), edit, Overrides::default()).await;
    (app, upstream)
}

fn says(content: &str) -> Script {
    let message = json!({"role": "assistant", "content": content});
    Script::new().json("200 OK", &json!({"choices": [{"message": message}]}))
}

/// Writes both; the second one's answer.
async fn write_both(client: &Client) -> (String, Value) {
    let at = |content: &str| json!({"content": content, "valid_from": "2024-03-01T00:00:00Z"});
    let older = create(client, &at(OLDER)).await;
    (older, client.post("/v1/memories", &at(NEWER)).await.json())
}

async fn current(client: &Client) -> Vec<String> {
    ids(&client.get("/v1/memories").await.json()["memories"])
}

#[tokio::test]
async fn what_the_model_says_is_done_and_noted_as_its_word() {
    let (app, upstream) = with_answer(says(r#"{"relation": "supersedes"}"#)).await;
    let client = app.client();
    let (older, newer) = write_both(&client).await;
    assert_eq!(
        (&newer["supersedes"], newer.get("undecided")),
        (&json!([older]), None)
    );
    assert_eq!(current(&client).await, [newer["id"].as_str().unwrap()]);
    let one = client
        .get(&format!("/v1/memories/{}", newer["id"].as_str().unwrap()))
        .await
        .json();
    assert_eq!(one["relations"][0]["decided_by"], "model");
    // It is asked for one word of a schema, and the texts are data.
    let asked: Value = serde_json::from_slice(&upstream.last().request.body).unwrap();
    assert_eq!(
        (&asked["model"], &asked["response_format"]["type"]),
        (&json!("judge-1"), &json!("json_schema"))
    );
    let (rules, data) = (
        &asked["messages"][0]["content"],
        &asked["messages"][1]["content"],
    );
    assert!(!rules.as_str().unwrap().contains("Heron"));
    assert!(data.as_str().unwrap().contains(OLDER) && data.as_str().unwrap().contains(NEWER));
}

#[tokio::test]
async fn a_relation_that_retires_nothing_leaves_both() {
    for (said, relation) in [("contradiction", Some("contradiction")), ("none", None)] {
        let (app, _upstream) = with_answer(says(&json!({"relation": said}).to_string())).await;
        let client = app.client();
        let (_, newer) = write_both(&client).await;
        assert_eq!(
            (newer.get("supersedes"), newer.get("undecided")),
            (None, None),
            "{said}"
        );
        assert_eq!(current(&client).await.len(), 2);
        let one = client
            .get(&format!("/v1/memories/{}", newer["id"].as_str().unwrap()))
            .await
            .json();
        assert_eq!(one["relations"][0]["relation"].as_str(), relation, "{said}");
    }
}

#[tokio::test]
async fn a_model_that_fails_changes_nothing_and_somebody_is_asked() {
    for script in [
        Script::new().whole("500 Oops", "", ""),
        Script::new().hang(),
        says("no JSON at all"),
        says(r#"{"relation": "destroys"}"#),
        says(r#"{"relation": 7}"#),
    ] {
        let (app, _upstream) = with_answer(script).await;
        let client = app.client();
        let (older, newer) = write_both(&client).await;
        assert_eq!(newer["undecided"], json!([older]));
        assert_eq!(current(&client).await.len(), 2);
        let open = client.get("/v1/memories/escalations").await.json();
        assert_eq!(open["escalations"][0]["newer"]["id"], newer["id"]);
    }
}

#[tokio::test]
async fn a_decision_has_to_be_said() {
    let app = service().await;
    let client = app.client();
    let (_, newer) = write_both(&client).await;
    let open = client.get("/v1/memories/escalations").await.json();
    let path = format!(
        "/v1/memories/escalations/{}",
        open["escalations"][0]["id"].as_str().unwrap()
    );
    let refused = client.post(&path, &json!({})).await;
    assert_eq!(refused.status.as_u16(), 400, "{refused:?}");
    let answer = client.post(&path, &json!({"relation": null})).await;
    assert_eq!(answer.status.as_u16(), 204, "{answer:?}");
    assert!(
        current(&client)
            .await
            .contains(&newer["id"].as_str().unwrap().to_owned())
    );
}
