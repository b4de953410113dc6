//! Changing a memory, voting on it, and finding it by its fields.

use http::StatusCode;
use ibex::auth::Permissions;
use serde_json::{Value, json};

use super::{create, ids, search, service};
use crate::support::{Answer, Client};

async fn patch(client: &Client, id: &str, body: &Value) -> Answer {
    client.patch(&format!("/v1/memories/{id}"), body).await
}

#[tokio::test]
async fn a_new_text_takes_the_place_of_the_old_one_everywhere() {
    let app = service().await;
    let client = app.client();
    let id = create(
        &client,
        &json!({"content": "The vault opens with a brass key.", "pinned": true}),
    )
    .await;
    assert_eq!(search(&client, "vault").await, std::slice::from_ref(&id));
    let edited = patch(
        &client,
        &id,
        &json!({"content": "The vault opens with a steel key."}),
    )
    .await;
    assert_eq!(
        (edited.status, &edited.json()["content"]),
        (StatusCode::OK, &json!("The vault opens with a steel key."))
    );
    assert_eq!(edited.json()["pinned"], true, "what is not named stays");
    let found = client
        .post(
            "/v1/memories/search",
            &json!({"query": "brass steel vault key"}),
        )
        .await;
    assert!(!String::from_utf8_lossy(&found.body).contains("brass"));
    assert!(String::from_utf8_lossy(&found.body).contains("steel"));
    let hot = client.get("/v1/memories/hot").await;
    assert!(!String::from_utf8_lossy(&hot.body).contains("brass"));
    // The old text may be written anew, and is another memory then.
    assert_ne!(
        create(
            &client,
            &json!({"content": "The vault opens with a brass key."})
        )
        .await,
        id
    );
    let clash = patch(
        &client,
        &id,
        &json!({"content": "the VAULT opens with a brass key."}),
    )
    .await;
    assert_eq!(
        (clash.status, clash.code().as_str()),
        (StatusCode::CONFLICT, "DUPLICATE_CONTENT")
    );
    app.store.close().await.unwrap();
}

#[tokio::test]
async fn fields_are_changed_one_by_one() {
    let app = service().await;
    let client = app.client();
    let body = json!({"content": "Ferries run daily.", "metadata": {"a": 1}, "valid_until": "2999-01-01T00:00:00Z", "observed_at": "2024-01-01T00:00:00Z"});
    let id = create(&client, &body).await;
    let change = json!({"labels": [{"label": "procedural", "confidence": 0.9}], "confidence": 0.5, "metadata": null, "valid_until": null, "pinned": true});
    let after = patch(&client, &id, &change).await.json();
    assert_eq!(
        (
            &after["category"],
            &after["confidence"],
            &after["metadata"],
            &after["valid_until"],
            &after["pinned"]
        ),
        (
            &json!("procedural"),
            &json!(0.5),
            &Value::Null,
            &Value::Null,
            &json!(true)
        )
    );
    assert_eq!(
        (&after["content"], &after["observed_at"]),
        (&json!("Ferries run daily."), &json!("2024-01-01T00:00:00Z"))
    );
    assert_eq!(
        client.get(&format!("/v1/memories/{id}")).await.json()["labels"],
        after["labels"]
    );
    for (wrong, field) in [
        (json!({}), "memory"),
        (json!({"content": ""}), "content"),
        (json!({"source": {"kind": "x"}}), "source"),
        (json!({"confidence": 2}), "confidence"),
        (
            json!({"valid_until": "2001-01-01T00:00:00Z"}),
            "valid_until",
        ),
        (json!({"id": id}), "id"),
        (json!({"user_id": "ann"}), "user_id"),
    ] {
        let refused = patch(&client, &id, &wrong).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{wrong}");
        assert_eq!(
            refused.json()["error"]["field_errors"][0]["field"],
            field,
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn a_change_of_an_older_revision_is_refused() {
    let app = service().await;
    let client = app.client();
    let id = create(&client, &json!({"content": "Tides are at noon."})).await;
    let first = client.get(&format!("/v1/memories/{id}")).await.json()["revision"].clone();
    let change = json!({"content": "Tides are at one.", "revision": first});
    assert_eq!(patch(&client, &id, &change).await.status, StatusCode::OK);
    let late = patch(
        &client,
        &id,
        &json!({"content": "Tides are at two.", "revision": first}),
    )
    .await;
    assert_eq!(
        (late.status, late.code().as_str()),
        (StatusCode::CONFLICT, "CONFLICT")
    );
    let now = client.get(&format!("/v1/memories/{id}")).await.json();
    assert_eq!(now["content"], "Tides are at one.");
}

#[tokio::test]
async fn parallel_changes_of_other_fields_are_all_kept() {
    let app = service().await;
    let client = app.client();
    let id = create(&client, &json!({"content": "Gulls nest on the roof."})).await;
    let (confident, pinned, labelled) = (
        json!({"confidence": 0.31}),
        json!({"pinned": true}),
        json!({"category": "episodic"}),
    );
    let (a, b, c) = tokio::join!(
        patch(&client, &id, &confident),
        patch(&client, &id, &pinned),
        patch(&client, &id, &labelled),
    );
    assert_eq!([a.status, b.status, c.status], [StatusCode::OK; 3]);
    let now = client.get(&format!("/v1/memories/{id}")).await.json();
    assert_eq!(
        (&now["pinned"], &now["category"]),
        (&json!(true), &json!("episodic"))
    );
    assert!((now["confidence"].as_f64().unwrap() - 0.31).abs() < 1e-6);
}

#[tokio::test]
async fn an_edit_is_redacted_and_needs_the_right_to_write() {
    let app = service().await;
    let client = app.client();
    let id = create(&client, &json!({"content": "Ask the harbour master."})).await;
    let edited = patch(
        &client,
        &id,
        &json!({"content": "Ask harbour@example.com."}),
    )
    .await
    .json();
    assert_eq!(edited["content"], "Ask [EMAIL_ADDRESS].");
    let reader = app
        .mint(app.org, None, None, Permissions::MEMORY_READ)
        .await;
    let reader = app.client_with(&reader, Some(app.agent));
    assert_eq!(
        patch(&reader, &id, &json!({"pinned": true})).await.code(),
        "INSUFFICIENT_PERMISSIONS"
    );
    let user = app
        .mint(
            app.org,
            None,
            Some("ann".parse().unwrap()),
            Permissions::MEMORY_READ.with(Permissions::MEMORY_WRITE),
        )
        .await;
    let user = app.client_with(&user, Some(app.agent));
    let foreign = patch(&user, &id, &json!({"pinned": true})).await;
    assert_eq!(
        foreign.status,
        StatusCode::NOT_FOUND,
        "what every user sees is not one user's to change"
    );
    let vote = user
        .post(
            &format!("/v1/memories/{id}/feedback"),
            &json!({"vote": "useful"}),
        )
        .await;
    assert_eq!(vote.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn votes_move_the_ranking() {
    let app = service().await;
    let client = app.client();
    let a = create(
        &client,
        &json!({"content": "Beehive number one needs sugar water."}),
    )
    .await;
    let b = create(
        &client,
        &json!({"content": "Beehive number two needs sugar water."}),
    )
    .await;
    let usefulness = async |id: &str| {
        let answer = client
            .post(
                "/v1/memories/search",
                &json!({"query": "beehive sugar water"}),
            )
            .await
            .json();
        let results = answer["results"].as_array().unwrap().clone();
        let hit = results.iter().find(|r| r["id"] == *id).unwrap();
        hit["components"]["usefulness"].as_f64().unwrap()
    };
    assert!((usefulness(&a).await - 0.5).abs() < 1e-6);
    let path = format!("/v1/memories/{b}/feedback");
    for _ in 0..3 {
        let voted = client.post(&path, &json!({"vote": "useful"})).await;
        assert_eq!(voted.status, StatusCode::OK);
    }
    let voted = client
        .post(
            &format!("/v1/memories/{a}/feedback"),
            &json!({"vote": "not_useful"}),
        )
        .await
        .json();
    assert_eq!(voted["feedback"], json!({"useful": 0, "not_useful": 1}));
    assert!((usefulness(&b).await - 0.8).abs() < 1e-6);
    assert!((usefulness(&a).await - 0.33).abs() < 1e-6);
    assert_eq!(search(&client, "beehive sugar water").await, [b, a]);
    for wrong in [
        json!({}),
        json!({"vote": "great"}),
        json!({"vote": "useful", "x": 1}),
    ] {
        assert_eq!(
            client.post(&path, &wrong).await.status,
            StatusCode::BAD_REQUEST
        );
    }
}

#[tokio::test]
async fn lists_and_searches_are_filtered() {
    let app = service().await;
    let client = app.client().header("x-ibex-user-id", "ann");
    let shared = app.client();
    let old = json!({"content": "Owls: the oldest note.", "valid_from": "2020-01-01T00:00:00Z", "metadata": {"ticket": "T-1", "n": 3, "ok": true}});
    let old = create(&client, &old).await;
    let talk = json!({"content": "Owls: from a talk.", "source": {"kind": "dialogue", "session": "call-7", "turn": 1}, "category": "episodic", "pinned": true});
    let talk = create(&client, &talk).await;
    let wide = create(
        &shared,
        &json!({"content": "Owls: for everybody.", "metadata": {"ticket": "T-2"}}),
    )
    .await;
    let list = async |query: &str| {
        let answer = client.get(&format!("/v1/memories?{query}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{query}: {:?}", answer.body);
        ids(&answer.json()["memories"])
    };
    assert_eq!(list("").await.len(), 3);
    assert_eq!(
        list("metadata[ticket]=T-1").await,
        std::slice::from_ref(&old)
    );
    assert_eq!(
        list("metadata[n]=3&metadata[ok]=true").await,
        std::slice::from_ref(&old)
    );
    assert_eq!(list("metadata[ticket]=T-9").await, [""; 0]);
    assert_eq!(
        list("until=2021-01-01T00:00:00Z").await,
        std::slice::from_ref(&old)
    );
    assert_eq!(list("from=2021-01-01T00:00:00Z").await.len(), 2);
    assert_eq!(list("session=call-7").await, std::slice::from_ref(&talk));
    assert_eq!(
        list("source=dialogue&pinned=true&category=episodic").await,
        std::slice::from_ref(&talk)
    );
    let first = list("limit=2").await;
    assert_eq!(
        list(&format!("after={}", first[1])).await,
        std::slice::from_ref(&old)
    );
    let find = async |filter: Value| {
        let mut body = json!({"query": "owls"});
        body.as_object_mut()
            .unwrap()
            .extend(filter.as_object().unwrap().clone());
        let answer = client.post("/v1/memories/search", &body).await;
        assert_eq!(answer.status, StatusCode::OK, "{body}: {:?}", answer.body);
        let mut found = ids(&answer.json()["results"]);
        found.sort();
        found
    };
    assert_eq!(find(json!({})).await.len(), 3);
    assert_eq!(
        find(json!({"metadata": {"ticket": "T-1", "n": 3}})).await,
        std::slice::from_ref(&old)
    );
    assert_eq!(
        find(json!({"user": "shared"})).await,
        std::slice::from_ref(&wide)
    );
    assert_eq!(find(json!({"user": "own"})).await.len(), 2);
    assert_eq!(
        find(json!({"until": "2021-01-01T00:00:00Z"})).await,
        std::slice::from_ref(&old)
    );
    assert_eq!(
        find(json!({"labels": ["episodic"], "session": "call-7", "pinned": true})).await,
        [talk]
    );
}

#[tokio::test]
async fn weights_are_for_those_who_may() {
    let app = service().await;
    let client = app.client();
    let young = create(
        &client,
        &json!({"content": "Kayaks are red.", "confidence": 0.1}),
    )
    .await;
    let sure = create(&client, &json!({"content": "Kayaks are red and new.", "confidence": 1.0, "valid_from": "2020-01-01T00:00:00Z"})).await;
    let weights = |r: f32, c: f32| json!({"query": "kayaks", "weights": {"relevance": 0.0, "recency": r, "usefulness": 0.0, "confidence": c, "frequency": 0.0}});
    let first = async |body: Value| {
        ids(&client.post("/v1/memories/search", &body).await.json()["results"])[0].clone()
    };
    assert_eq!(first(weights(1.0, 0.0)).await, young);
    assert_eq!(first(weights(0.0, 1.0)).await, sure);
    for (r, c) in [(0.5, 0.4), (1.5, -0.5)] {
        let refused = client.post("/v1/memories/search", &weights(r, c)).await;
        assert_eq!(
            (refused.status, &refused.json()["error"]["param"]),
            (StatusCode::BAD_REQUEST, &json!("weights"))
        );
    }
    let reader = app
        .mint(app.org, None, None, Permissions::MEMORY_READ)
        .await;
    let reader = app.client_with(&reader, Some(app.agent));
    let refused = reader.post("/v1/memories/search", &weights(1.0, 0.0)).await;
    assert_eq!(refused.code(), "INSUFFICIENT_PERMISSIONS");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_name_no_revision_wait_for_each_other() {
    let app = service().await;
    let client = app.client();
    let id = create(&client, &json!({"content": "The pump is blue."})).await;
    let changes = (0..24).map(async |i| patch(&client, &id, &json!({"metadata": {"i": i}})).await);
    for answer in futures_util::future::join_all(changes).await {
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    }
}

#[tokio::test]
async fn a_new_text_is_the_newest_statement() {
    let app = service().await;
    let client = app.client();
    let edited = create(&client, &json!({"content": "A note about Ben for later."})).await;
    let older = create(&client, &json!({"content": "Ben lives in Faro."})).await;
    let answer = patch(&client, &edited, &json!({"content": "Ben lives in Oslo."})).await;
    let memory = answer.json();
    assert_eq!(
        (&memory["status"], &memory["supersedes"]),
        (&json!("active"), &json!([older]))
    );
    let refused = patch(&client, &edited, &json!({"valid_from": null})).await;
    assert_eq!(
        refused.json()["error"]["field_errors"][0]["field"],
        "valid_from"
    );
}

#[tokio::test]
async fn who_may_write_and_not_read_is_told_no_text() {
    let app = service().await;
    let id = create(
        &app.client(),
        &json!({"content": "The vault code is in the safe.", "metadata": {"a": 1}}),
    )
    .await;
    let writes = Permissions::MEMORY_WRITE.with(Permissions::MEMORY_WRITE_SHARED);
    let writer = app.mint(app.org, None, None, writes).await;
    let writer = app.client_with(&writer, Some(app.agent));
    let changed = patch(&writer, &id, &json!({"pinned": true})).await;
    let voted = writer
        .post(
            &format!("/v1/memories/{id}/feedback"),
            &json!({"vote": "useful"}),
        )
        .await;
    for answer in [changed, voted] {
        assert_eq!(
            (answer.status, &answer.json()["id"]),
            (StatusCode::OK, &json!(id))
        );
        assert!(!String::from_utf8_lossy(&answer.body).contains("vault"));
        assert_eq!(answer.json()["metadata"], Value::Null);
    }
}

#[tokio::test]
async fn a_note_on_a_memory_leaves_what_it_states() {
    let app = service().await;
    let client = app.client();
    let older = create(&client, &json!({"content": "Mara lives in Porto."})).await;
    let pinned = patch(
        &client,
        &older,
        &json!({"pinned": true, "metadata": {"seen": 1}}),
    )
    .await;
    assert_eq!(
        (pinned.status, &pinned.json()["pinned"]),
        (StatusCode::OK, &json!(true))
    );
    let newer = client
        .post("/v1/memories", &json!({"content": "Mara lives in Lisbon."}))
        .await;
    assert_eq!(newer.json()["supersedes"], json!([older]));
}
