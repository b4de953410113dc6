//! Create, batch, get, list, search, hot and forget.

use std::sync::Arc;

use async_trait::async_trait;
use http::{Method, StatusCode};
use ibex::memory::embedder::{EmbedError, Embedder};
use ibex::store::ChangeFeed;
use serde_json::{Value, json};

use super::{create, ids, search, service};
use crate::support::{Overrides, TestApp, patient, soon};

#[tokio::test]
async fn a_memory_is_stored_found_and_forgotten() {
    let app = service().await;
    let client = app.client();
    let body = json!({"content": "The harbour office closes at six.", "pinned": true});
    let id = create(&client, &body).await;
    let question = "When does the harbour office close?";
    let chat = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": question}]});
    let shown =
        async || client.post("/v1/context/preview", &chat).await.json()["messages"].to_string();
    assert_eq!(search(&client, question).await, std::slice::from_ref(&id));
    assert_eq!(
        ids(&client.get("/v1/memories/hot").await.json()["results"]),
        std::slice::from_ref(&id)
    );
    assert!(shown().await.contains("closes at six"));
    let path = format!("/v1/memories/{id}");
    let forgotten = client.delete(&path).await;
    assert_eq!(
        (forgotten.status, forgotten.body.len()),
        (StatusCode::NO_CONTENT, 0)
    );
    // At once, everywhere.
    assert_eq!(search(&client, question).await, [""; 0]);
    assert_eq!(
        client.get("/v1/memories/hot").await.json()["results"],
        json!([])
    );
    assert!(!shown().await.contains("closes at six"));
    assert_eq!(
        client.get("/v1/memories").await.json()["memories"],
        json!([])
    );
    assert_eq!(client.get(&path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(client.delete(&path).await.status, StatusCode::NOT_FOUND);
    assert_ne!(
        create(&client, &body).await,
        id,
        "the same text may be written anew"
    );
    assert_eq!(search(&client, question).await.len(), 1);
}

#[tokio::test]
async fn what_is_written_is_read_back() {
    let app = service().await;
    let client = app.client().header("x-ibex-user-id", "ann");
    // A JSON text that no parse and print would leave alone.
    let metadata = r#"{ "z":1.0,"a":[1e2, 9007199254740993],"u":"\u00e9" }"#;
    let body = format!(
        r#"{{"content":"Ünïcode 雪 stays.","labels":[{{"label":"preference","confidence":0.5}},{{"label":"episodic","confidence":0.75}}],"confidence":0.25,"valid_from":"2024-02-29T12:00:00Z","valid_until":"2999-01-01T00:00:00+02:00","observed_at":"2024-03-01T00:00:00Z","source":{{"kind":"dialogue","session":"s-1","turn":3}},"pinned":true,"metadata":{metadata}}}"#
    );
    let created = client.post_raw("/v1/memories", body).await;
    assert_eq!(created.status, StatusCode::CREATED);
    let id = created.json()["id"].as_str().unwrap().to_owned();
    let read = client.get(&format!("/v1/memories/{id}")).await;
    assert!(String::from_utf8_lossy(&created.body).contains(metadata));
    assert!(String::from_utf8_lossy(&read.body).contains(metadata));
    let mut memory = read.json();
    let relations = memory.as_object_mut().unwrap().remove("relations");
    assert_eq!((relations, &memory), (Some(json!([])), &created.json()));
    let expected = json!({
        "id": id, "status": "active", "category": "episodic", "content": "Ünïcode 雪 stays.", "confidence": 0.25,
        "labels": [{"label": "episodic", "confidence": 0.75}, {"label": "preference", "confidence": 0.5}],
        "user_id": "ann", "valid_from": "2024-02-29T12:00:00Z", "valid_until": "2998-12-31T22:00:00Z",
        "observed_at": "2024-03-01T00:00:00Z", "source": {"kind": "dialogue", "session": "s-1", "turn": 3},
        "pinned": true, "retrieval_count": 0,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&memory[name], value, "{name}");
    }
    let plain = client
        .post("/v1/memories", &json!({"content": "Nothing but a text."}))
        .await
        .json();
    assert_eq!(
        (
            &plain["category"],
            &plain["labels"],
            &plain["source"],
            &plain["metadata"],
            &plain["pinned"]
        ),
        (
            &json!("factual"),
            &json!([{"label": "factual", "confidence": 0.8}]),
            &json!({"kind": "api"}),
            &Value::Null,
            &json!(false)
        )
    );
    assert_eq!(plain["valid_from"], plain["created_at"]);
}

#[tokio::test]
async fn a_batch_has_an_outcome_for_each_of_its_members_in_order() {
    let app = service().await;
    let client = app.client();
    let known = create(&client, &json!({"content": "The first of all."})).await;
    let batch = json!({"memories": [
        {"content": "One."}, {"content": ""}, {"content": "the FIRST of all."}, {"content": "Two.", "category": "weekly"},
        {"content": "Three."}, {"content": " three. "}, 7,
    ]});
    let answer = client.post("/v1/memories/batch", &batch).await;
    assert_eq!(answer.status, StatusCode::MULTI_STATUS);
    let results = answer.json()["results"].take();
    let codes: Vec<&str> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["error"]["code"].as_str().unwrap_or("stored"))
        .collect();
    assert_eq!(
        codes,
        [
            "stored",
            "VALIDATION_ERROR",
            "DUPLICATE_CONTENT",
            "VALIDATION_ERROR",
            "stored",
            "DUPLICATE_CONTENT",
            "VALIDATION_ERROR"
        ]
    );
    assert_eq!(results[2]["error"]["existing_memory_id"], known);
    assert_eq!(results[5]["error"]["existing_memory_id"], results[4]["id"]);
    assert_eq!(results[3]["error"]["field_errors"][0]["field"], "category");
    let stored = ids(&client.get("/v1/memories").await.json()["memories"]);
    assert_eq!(stored.len(), 3);
    assert!(stored.contains(&results[0]["id"].as_str().unwrap().to_owned()));
}

#[tokio::test]
async fn batches_have_a_size() {
    let edit = |config: &mut ibex::config::Config| {
        patient(config);
        config.memory.max_batch = 2;
    };
    let app = TestApp::with("http://127.0.0.1:9/v1", edit, Overrides::default()).await;
    let client = app.client();
    let of = |n: usize| json!({"memories": (0..n).map(|i| json!({"content": format!("text {i}")})).collect::<Vec<_>>()});
    for n in [0, 3] {
        let refused = client.post("/v1/memories/batch", &of(n)).await;
        assert_eq!(
            (
                refused.status,
                refused.json()["error"]["field_errors"][0]["code"].clone()
            ),
            (StatusCode::BAD_REQUEST, json!("TOO_MANY"))
        );
    }
    assert_eq!(
        client.post("/v1/memories/batch", &of(2)).await.status,
        StatusCode::MULTI_STATUS
    );
    for body in [
        "[]",
        "{}",
        r#"{"memories": {}}"#,
        r#"{"memories": [], "x": 1}"#,
    ] {
        let refused = client.post_raw("/v1/memories/batch", body).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (StatusCode::BAD_REQUEST, "VALIDATION_ERROR"),
            "{body}"
        );
    }
    let broken = client
        .post_raw("/v1/memories/batch", r#"{"memories": ["#)
        .await;
    assert_eq!(
        (broken.status, broken.code().as_str()),
        (StatusCode::BAD_REQUEST, "INVALID_JSON")
    );
}

#[tokio::test]
async fn lists_are_paged_newest_first_and_filtered() {
    let app = service().await;
    let client = app.client();
    let mut written = Vec::new();
    for i in 0..7 {
        let category = if i % 2 == 0 { "factual" } else { "preference" };
        written.push(
            create(
                &client,
                &json!({"content": format!("Item {i}."), "category": category}),
            )
            .await,
        );
    }
    written.reverse();
    let mut read = Vec::new();
    let mut path = "/v1/memories?limit=3".to_owned();
    let mut more = Vec::new();
    loop {
        let page = client.get(&path).await.json();
        let page_ids = ids(&page["memories"]);
        path = format!("/v1/memories?limit=3&after={}", page_ids.last().unwrap());
        read.extend(page_ids);
        more.push(page["has_more"].as_bool().unwrap());
        if more.last() == Some(&false) {
            break;
        }
    }
    assert_eq!(
        (read, more.as_slice()),
        (written.clone(), [true, true, false].as_slice())
    );
    let preferences = client.get("/v1/memories?category=preference").await.json();
    assert_eq!(
        ids(&preferences["memories"]),
        [1, 3, 5].map(|i| written[i].clone())
    );
    assert_eq!(
        ids(&client.get("/v1/memories?status=active").await.json()["memories"]).len(),
        7
    );
    assert_eq!(
        client.get("/v1/memories?status=superseded").await.json()["memories"],
        json!([])
    );
    for wrong in [
        "limit=0",
        "limit=101",
        "limit=-1",
        "limit=x",
        "after=x",
        "status=forgotten",
        "status=gone",
        "category=weekly",
        "page=2",
    ] {
        let refused = client.get(&format!("/v1/memories?{wrong}")).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (StatusCode::BAD_REQUEST, "VALIDATION_ERROR"),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn a_search_ranks_limits_and_filters() {
    let app = service().await;
    let client = app.client();
    let best = create(
        &client,
        &json!({"content": "The lighthouse lamp needs whale oil.", "metadata": {"n": 1}}),
    )
    .await;
    create(
        &client,
        &json!({"content": "The lighthouse stairs are wet.", "category": "procedural"}),
    )
    .await;
    for i in 0..5 {
        create(
            &client,
            &json!({"content": format!("Ledger page {i} lists barley.")}),
        )
        .await;
    }
    let ask = async |body: Value| {
        client.post("/v1/memories/search", &body).await.json()["results"].take()
    };
    let results = ask(json!({"query": "Which oil does the lighthouse lamp need?"})).await;
    let first = &results[0];
    assert_eq!(
        (first["id"].as_str(), &first["rank"], &first["metadata"]),
        (Some(best.as_str()), &json!(1), &json!({"n": 1}))
    );
    for part in [
        "relevance",
        "recency",
        "usefulness",
        "confidence",
        "frequency",
    ] {
        assert!(first["components"][part].is_number(), "{first}");
    }
    let scores: Vec<f64> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["score"].as_f64().unwrap())
        .collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    assert!((0.0..=1.0).contains(&first["similarity"].as_f64().unwrap()));
    assert_eq!(
        ask(json!({"query": "lighthouse", "limit": 1}))
            .await
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let filtered = ask(json!({"query": "lighthouse", "labels": ["procedural"]})).await;
    assert_eq!(
        filtered
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["category"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["procedural"]
    );
    for wrong in [
        json!({"query": ""}),
        json!({"query": " \n"}),
        json!({"query": "x", "limit": 0}),
        json!({"query": "x", "limit": 101}),
        json!({"query": "x", "labels": ["weekly"]}),
        json!({}),
    ] {
        let refused = client.post("/v1/memories/search", &wrong).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (StatusCode::BAD_REQUEST, "VALIDATION_ERROR"),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn the_hot_set_holds_what_stands_highest() {
    let app = service().await;
    let client = app.client();
    let pinned = create(
        &client,
        &json!({"content": "Pinned.", "pinned": true, "confidence": 0.1}),
    )
    .await;
    let sure = create(&client, &json!({"content": "Sure.", "confidence": 1.0})).await;
    let unsure = create(&client, &json!({"content": "Unsure.", "confidence": 0.2})).await;
    let hot = ids(&client.get("/v1/memories/hot").await.json()["results"]);
    let place = |id: &String| hot.iter().position(|h| h == id).unwrap();
    assert_eq!(hot.len(), 3);
    assert!(
        hot.contains(&pinned) && place(&sure) < place(&unsure),
        "{hot:?}"
    );
    assert_eq!(
        ids(&client.get("/v1/memories/hot?limit=1").await.json()["results"]).len(),
        1
    );
    for wrong in ["limit=0", "limit=51", "agent_id=x"] {
        assert_eq!(
            client
                .get(&format!("/v1/memories/hot?{wrong}"))
                .await
                .status,
            StatusCode::BAD_REQUEST,
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn every_route_asks_for_its_permission() {
    use ibex::auth::Permissions as P;
    let app = service().await;
    let id = create(&app.client(), &json!({"content": "Guarded."})).await;
    let path = format!("/v1/memories/{id}");
    let rows = [
        (
            Method::POST,
            "/v1/memories",
            r#"{"content":"x"}"#,
            P::MEMORY_WRITE,
        ),
        (
            Method::POST,
            "/v1/memories/batch",
            r#"{"memories":[{"content":"x"}]}"#,
            P::MEMORY_WRITE,
        ),
        (
            Method::POST,
            "/v1/memories/search",
            r#"{"query":"x"}"#,
            P::MEMORY_READ,
        ),
        (Method::GET, "/v1/memories", "", P::MEMORY_READ),
        (Method::GET, "/v1/memories/hot", "", P::MEMORY_READ),
        (Method::GET, path.as_str(), "", P::MEMORY_READ),
        (
            Method::POST,
            "/v1/context/preview",
            r#"{"model":"m","messages":[]}"#,
            P::MEMORY_READ,
        ),
        (
            Method::POST,
            "/v1/context/assemble",
            r#"{"model":"m","messages":[]}"#,
            P::MEMORY_READ,
        ),
        (Method::DELETE, path.as_str(), "", P::MEMORY_DELETE),
    ];
    for (method, path, body, needed) in rows {
        let rest = P::from_bits(P::all().bits() & !needed.bits());
        let token = app.mint(app.org, None, None, rest).await;
        let client = app
            .client_with(&token, Some(app.agent))
            .header("content-type", "application/json");
        let refused = client.send(method.clone(), path, body.into()).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (StatusCode::FORBIDDEN, "INSUFFICIENT_PERMISSIONS"),
            "{method} {path}"
        );
        let allowed = app
            .client()
            .header("content-type", "application/json")
            .send(method.clone(), path, body.into())
            .await;
        assert_ne!(allowed.status, StatusCode::FORBIDDEN, "{method} {path}");
    }
}

#[derive(Debug)]
struct Broken;

#[async_trait]
impl Embedder for Broken {
    fn model(&self) -> &str {
        "broken-2"
    }

    async fn embed(&self, _: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Err(EmbedError("out of order"))
    }
}

#[tokio::test]
async fn without_an_embedding_nothing_is_stored() {
    let overrides = Overrides {
        embedder: Some(Arc::new(Broken)),
        ..Overrides::default()
    };
    let app = TestApp::with("http://127.0.0.1:9/v1", patient, overrides).await;
    let client = app.client();
    let refused = client
        .post("/v1/memories", &json!({"content": "Lost."}))
        .await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "EMBEDDING_FAILED")
    );
    assert_eq!(refused.header("retry-after"), "1");
    let batch =
        json!({"memories": [{"content": "Lost."}, {"content": " LOST. "}, {"content": ""}]});
    let results = client.post("/v1/memories/batch", &batch).await.json()["results"].take();
    let codes: Vec<&str> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["error"]["code"].as_str().unwrap())
        .collect();
    assert_eq!(
        codes,
        ["EMBEDDING_FAILED", "EMBEDDING_FAILED", "VALIDATION_ERROR"],
        "no duplicate of what was not stored"
    );
    assert_eq!(
        client.get("/v1/memories").await.json()["memories"],
        json!([])
    );
}

#[tokio::test]
async fn a_closed_store_is_said_to_be_unavailable() {
    let edit = |config: &mut ibex::config::Config| {
        patient(config);
        config.store.poll_interval_ms = 5;
    };
    let app = TestApp::with("http://127.0.0.1:9/v1", edit, Overrides::default()).await;
    let client = app.client();
    let id = create(&client, &json!({"content": "Out of reach."})).await;
    // With all news heard, nothing takes the credential away any more.
    let newest = app.store.revision().await.unwrap();
    soon("the feed", async {
        while app.app.applied() < newest {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(client.get("/v1/memories").await.status.is_success());
    app.store.close().await.unwrap();
    // What is in memory could still be searched.
    app.app.index.invalidate_all();
    let path = format!("/v1/memories/{id}");
    let answers = [
        client
            .post("/v1/memories", &json!({"content": "New."}))
            .await,
        client.get(&path).await,
        client.get("/v1/memories").await,
        client.delete(&path).await,
        client
            .post("/v1/memories/search", &json!({"query": "reach"}))
            .await,
        client.get("/v1/memories/hot").await,
    ];
    for answer in answers {
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::SERVICE_UNAVAILABLE, "SERVICE_DEGRADED"),
            "{:?}",
            answer.body
        );
        assert_eq!(answer.header("retry-after"), "1");
    }
}
