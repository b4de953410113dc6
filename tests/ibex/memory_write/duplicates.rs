//! MEM-01: one fact is one memory, however it is spelled and however often it is written.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::json;

use super::{create, service};

#[tokio::test]
async fn other_spellings_of_a_text_are_the_same_memory() {
    let app = service().await;
    let client = app.client();
    let owls = create(&client, &json!({"content": "Zora likes owls."})).await;
    let zoe = create(&client, &json!({"content": "Zo\u{eb} likes owls."})).await;
    for (text, id) in [
        ("Zora likes owls.", &owls),
        (" zora  LIKES owls. ", &owls),
        ("Zora\u{200b} likes\u{a0}owls.", &owls),
        ("Zora likes owls\u{ff0e}", &owls),
        ("Zora likes owls", &owls),
        ("Zoe\u{308} likes owls.", &zoe),
    ] {
        let refused = client.post("/v1/memories", &json!({"content": text})).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (StatusCode::CONFLICT, "DUPLICATE_CONTENT"),
            "{text:?}"
        );
        assert_eq!(
            refused.json()["error"]["existing_memory_id"],
            **id,
            "{text:?}"
        );
        assert_eq!(refused.json()["error"]["param"], "content");
    }
    for text in ["Zora likes owls 2.", "Zora dislikes owls."] {
        create(&client, &json!({"content": text})).await;
    }
    let preview = client.post("/v1/context/preview", &json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "What does Zora like?"}]})).await;
    assert_eq!(
        preview.json()["messages"]
            .to_string()
            .matches("Zora likes owls.")
            .count(),
        1
    );
}

#[tokio::test]
async fn parallel_identical_writes_leave_one_memory() {
    let app = service().await;
    let client = app.client();
    let body = json!({"content": "Forty hands write this at once."});
    let answers = join_all((0..40).map(|_| client.post("/v1/memories", &body))).await;
    let created: Vec<_> = answers
        .iter()
        .filter(|a| a.status == StatusCode::CREATED)
        .collect();
    assert_eq!(created.len(), 1);
    let id = created[0].json()["id"].clone();
    let known: BTreeSet<String> = answers
        .iter()
        .filter(|a| a.status == StatusCode::CONFLICT)
        .map(|a| a.json()["error"]["existing_memory_id"].to_string())
        .collect();
    assert_eq!(known, BTreeSet::from([id.to_string()]));
    let listed = client.get("/v1/memories").await.json()["memories"].take();
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["id"]),
        (1, &id)
    );
}

#[tokio::test]
async fn parallel_batches_agree_on_who_was_first() {
    let app = service().await;
    let client = app.client();
    let batch = json!({"memories": (0..5).map(|i| json!({"content": format!("Shared text {i}.")})).collect::<Vec<_>>()});
    let answers = join_all((0..12).map(|_| client.post("/v1/memories/batch", &batch))).await;
    let mut ids = vec![BTreeSet::new(); 5];
    let mut stored = 0;
    for answer in &answers {
        let results = answer.json()["results"].take();
        for (i, result) in results.as_array().unwrap().iter().enumerate() {
            let id = if result["status"] == 201 {
                stored += 1;
                &result["id"]
            } else {
                assert_eq!(result["error"]["code"], "DUPLICATE_CONTENT");
                &result["error"]["existing_memory_id"]
            };
            ids[i].insert(id.as_str().unwrap().to_owned());
        }
    }
    assert_eq!(
        (stored, ids.iter().map(BTreeSet::len).collect::<Vec<_>>()),
        (5, vec![1; 5])
    );
    assert_eq!(
        client.get("/v1/memories").await.json()["memories"]
            .as_array()
            .unwrap()
            .len(),
        5
    );
}
