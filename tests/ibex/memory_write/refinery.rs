//! What the refinery does with a text besides storing it: redaction, review, supersession, restatements.

use std::sync::Arc;

use http::{Method, StatusCode};
use ibex::auth::Permissions;
use ibex::config::{Config, Uncertain};
use ibex::seams::{Clock, SystemClock};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{create, ids, search, service};
use crate::support::{Answer, Client, Overrides, TestApp, patient};

/// A service in which uncertain findings are held for review.
async fn careful() -> TestApp {
    let edit = |config: &mut Config| {
        patient(config);
        config.memory.pii.uncertain = Uncertain::Quarantine;
    };
    TestApp::with("http://127.0.0.1:9/v1", edit, Overrides::default()).await
}

async fn write(client: &Client, body: &Value) -> Answer {
    client.post("/v1/memories", body).await
}

async fn listed(client: &Client, query: &str) -> Value {
    client.get(&format!("/v1/memories{query}")).await.json()["memories"].take()
}

#[tokio::test]
async fn personal_data_is_replaced_before_anything_else() {
    let app = service().await;
    let client = app.client();
    let text = "Write to mara.quist@example.com or call +49 30 901820 about the lease.";
    let answer = write(&client, &json!({"content": text})).await;
    let memory = answer.json();
    assert_eq!(answer.status, StatusCode::CREATED);
    assert_eq!(
        memory["content"],
        "Write to [EMAIL_ADDRESS] or call [PHONE_NUMBER] about the lease."
    );
    assert_eq!(
        memory["redactions"],
        json!([{"kind": "email_address", "count": 1}, {"kind": "phone_number", "count": 1}])
    );
    // Another address in the same text is the same memory: hashed after redaction.
    let other = text.replace("mara.quist", "someone.else");
    let again = write(&client, &json!({"content": other})).await;
    assert_eq!(again.code(), "DUPLICATE_CONTENT");
    // No file of the store holds it.
    app.store.close().await.unwrap();
    let folder = app.app.config.store.path.parent().unwrap().to_owned();
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        assert!(memchr::memmem::find(&bytes, b"mara.quist").is_none());
    }
}

/// MEM-08: digits are not personal data because they are digits.
#[tokio::test]
async fn numbers_of_other_kinds_are_stored_verbatim() {
    let app = careful().await;
    let client = app.client();
    for text in [
        "Order 7318204459 shipped",
        "guid 3f0a9c11-7be2-4d10-9046-202555014312",
        "epoch ms 1793540120002",
        "build 2026.11.29.1830",
        "SKU QX-204417",
        "ticket 555-0100-7",
        "10.0.0.12",
        "isbn 978-3-16-148410-0",
        "commit 1234567890abcdef",
        "pi 3.14159265358",
    ] {
        let answer = write(&client, &json!({"content": text})).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{text}");
        assert_eq!(answer.json()["content"], text);
        let chat = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": text}]});
        let preview = client.post("/v1/context/preview", &chat).await;
        let blocks = preview.json()["messages"].to_string();
        assert!(blocks.matches(text).count() >= 2, "{text} in {blocks}");
    }
}

#[tokio::test]
async fn what_is_allowed_is_left_and_what_is_off_is_not_looked_for() {
    let edit = |config: &mut Config| {
        patient(config);
        config.memory.pii.allow = vec![ibex::memory::pii::Kind::EmailAddress];
    };
    let app = TestApp::with("http://127.0.0.1:9/v1", edit, Overrides::default()).await;
    let text = "Mail desk@example.com, card 4242 4242 4242 4242.";
    let answer = write(&app.client(), &json!({"content": text})).await;
    assert_eq!(
        answer.json()["content"],
        "Mail desk@example.com, card [CREDIT_CARD]."
    );
    let edit = |config: &mut Config| {
        patient(config);
        config.memory.pii.enabled = false;
    };
    let app = TestApp::with("http://127.0.0.1:9/v1", edit, Overrides::default()).await;
    let answer = write(&app.client(), &json!({"content": text})).await;
    assert_eq!(answer.json()["content"], text);
}

pub(super) const DOUBTFUL: &str = "Text 07700900456 to confirm the visit.";

#[tokio::test]
async fn an_uncertain_finding_waits_for_review_and_is_retrieved_by_nobody() {
    let app = careful().await;
    let client = app.client();
    let answer = write(&client, &json!({"content": DOUBTFUL})).await;
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (answer.status, &answer.json()["status"]),
        (StatusCode::ACCEPTED, &json!("quarantined"))
    );
    let again = write(&client, &json!({"content": DOUBTFUL})).await;
    assert_eq!(again.json()["error"]["existing_memory_id"], id, "held once");
    assert_eq!(search(&client, "confirm the visit").await, [""; 0]);
    assert_eq!(listed(&client, "").await, json!([]));
    assert_eq!(listed(&client, "?history=true").await, json!([]));
    let path = format!("/v1/memories/{id}");
    assert_eq!(client.get(&path).await.status, StatusCode::NOT_FOUND);
    let hidden = client.get("/v1/memories?status=quarantined").await;
    assert_eq!(hidden.status, StatusCode::BAD_REQUEST);
    let reader = app
        .mint(
            app.org,
            None,
            None,
            Permissions::MEMORY_READ.with(Permissions::MEMORY_WRITE),
        )
        .await;
    let reader = app.client_with(&reader, Some(app.agent));
    assert_eq!(
        reader.get("/v1/memories/quarantine").await.code(),
        "INSUFFICIENT_PERMISSIONS"
    );
    let held = client.get("/v1/memories/quarantine").await.json();
    assert_eq!(ids(&held["memories"]), std::slice::from_ref(&id));
    let review = &held["memories"][0]["review"];
    assert_eq!(
        (&review["reason"], &review["findings"][0]["kind"]),
        (&json!("uncertain_pii"), &json!("phone_number"))
    );
    assert!(!review.to_string().contains("07700"));
    let released = client.post(&format!("{path}/release"), &json!({})).await;
    assert_eq!(
        (released.status, &released.json()["status"]),
        (StatusCode::OK, &json!("active"))
    );
    assert_eq!(
        search(&client, "confirm the visit").await,
        std::slice::from_ref(&id)
    );
    assert_eq!(
        client
            .post(&format!("{path}/release"), &json!({}))
            .await
            .code(),
        "CONFLICT"
    );
    assert_eq!(
        client
            .post(&format!("{path}/reject"), &json!({}))
            .await
            .code(),
        "CONFLICT"
    );
    assert_eq!(
        client.get("/v1/memories/quarantine").await.json()["memories"],
        json!([])
    );
}

#[tokio::test]
async fn what_is_rejected_is_gone() {
    let app = careful().await;
    let client = app.client();
    let id = write(&client, &json!({"content": DOUBTFUL})).await.json()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let rejected = client
        .post(&format!("/v1/memories/{id}/reject"), &json!({}))
        .await;
    assert_eq!(rejected.status, StatusCode::NO_CONTENT);
    assert_eq!(
        client.get("/v1/memories/quarantine").await.json()["memories"],
        json!([])
    );
    let gone = client
        .post(&format!("/v1/memories/{id}/release"), &json!({}))
        .await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_newer_statement_replaces_an_older_one() {
    let app = service().await;
    let client = app.client();
    let day = |d: u32| format!("2024-03-{d:02}T00:00:00Z");
    let porto = create(
        &client,
        &json!({"content": "Mara lives in Porto.", "valid_from": day(1)}),
    )
    .await;
    create(
        &client,
        &json!({"content": "Ben lives in Porto.", "valid_from": day(1)}),
    )
    .await;
    let answer = write(
        &client,
        &json!({"content": "Mara lives in Lisbon.", "valid_from": day(9)}),
    )
    .await;
    let lisbon = answer.json();
    assert_eq!(lisbon["supersedes"], json!([porto]));
    let found = search(&client, "Where does Mara live?").await;
    assert!(!found.contains(&porto) && found.len() == 2, "{found:?}");
    assert_eq!(listed(&client, "").await.as_array().unwrap().len(), 2);
    // History is for those who write.
    let path = format!("/v1/memories/{porto}");
    assert_eq!(client.get(&path).await.status, StatusCode::NOT_FOUND);
    let past = client.get(&format!("{path}?history=true")).await.json();
    assert_eq!(
        (&past["status"], &past["valid_until"]),
        (&json!("superseded"), &json!(day(9)))
    );
    assert_eq!(past["relations"][0]["relation"], "supersedes");
    assert_eq!(past["relations"][0]["source"], lisbon["id"]);
    assert_eq!(past["relations"][0]["decided_by"], "rule");
    assert_eq!(
        ids(&listed(&client, "?status=superseded").await),
        std::slice::from_ref(&porto)
    );
    let reader = app
        .mint(app.org, None, None, Permissions::MEMORY_READ)
        .await;
    let reader = app.client_with(&reader, Some(app.agent));
    assert_eq!(
        reader.get(&format!("{path}?history=true")).await.code(),
        "INSUFFICIENT_PERMISSIONS"
    );
    assert_eq!(
        reader.get("/v1/memories?status=superseded").await.code(),
        "INSUFFICIENT_PERMISSIONS"
    );
    // What arrives late is history, and changes nothing.
    let late = write(
        &client,
        &json!({"content": "Mara lives in Braga.", "valid_from": day(5)}),
    )
    .await;
    assert_eq!(late.status, StatusCode::CREATED);
    assert_eq!(
        (&late.json()["status"], &late.json()["valid_until"]),
        (&json!("superseded"), &json!(day(9)))
    );
    assert!(
        search(&client, "Where does Mara live?")
            .await
            .contains(&lisbon["id"].as_str().unwrap().to_owned())
    );
}

#[tokio::test]
async fn a_batch_that_tells_a_story_ends_with_its_end() {
    let app = service().await;
    let client = app.client();
    let story = ["Porto", "Lisbon", "Braga", "Faro"].iter().enumerate();
    let memories: Vec<Value> = story
        .map(|(i, city)| json!({"content": format!("Mara lives in {city}."), "valid_from": format!("2024-03-{:02}T00:00:00Z", i + 1)}))
        .collect();
    let answer = client
        .post("/v1/memories/batch", &json!({"memories": memories}))
        .await;
    let statuses: Vec<Value> = answer.json()["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["status"].clone())
        .collect();
    assert_eq!(statuses, [201, 201, 201, 201]);
    let current = listed(&client, "").await;
    assert_eq!(
        (current.as_array().unwrap().len(), &current[0]["content"]),
        (1, &json!("Mara lives in Faro."))
    );
    assert_eq!(
        listed(&client, "?history=true")
            .await
            .as_array()
            .unwrap()
            .len(),
        4
    );
    assert_eq!(search(&client, "Where does Mara live?").await.len(), 1);
}

#[tokio::test]
async fn look_alikes_stay_and_restatements_are_one_memory() {
    let app = service().await;
    let client = app.client();
    for text in [
        "The billing service listens on port 8080.",
        "The billing service listens on port 8081 in staging.",
        "Always restart the worker after a deploy.",
        "Never restart the worker after a deploy.",
        "Ana manages Ben.",
        "Ben manages Ana.",
        "Mara likes jazz.",
        "Mara likes rock.",
    ] {
        create(&client, &json!({"content": text})).await;
    }
    assert_eq!(
        listed(&client, "").await.as_array().unwrap().len(),
        8,
        "all of them stay"
    );
    let known = create(
        &client,
        &json!({"content": "Zora keeps two owls in the barn."}),
    )
    .await;
    let again = write(
        &client,
        &json!({"content": "Zora keeps 2 owls in the barn"}),
    )
    .await;
    assert_eq!(
        (again.status, again.code().as_str()),
        (StatusCode::CONFLICT, "DUPLICATE_CONTENT")
    );
    assert_eq!(again.json()["error"]["existing_memory_id"], known);
}

#[tokio::test]
async fn much_alike_is_told_and_nothing_more() {
    let app = service().await;
    let client = app.client();
    let first = create(&client, &json!({"content": "The nightly backup of the archive database runs at 02:00 in Frankfurt."})).await;
    let second = write(&client, &json!({"content": "The nightly backup of the archive database runs at 02:30 in Frankfurt."})).await;
    assert_eq!(second.status, StatusCode::CREATED);
    let similar = &second.json()["similar_memories"];
    assert_eq!(similar[0]["id"], first);
    assert!(similar[0]["similarity"].as_f64().unwrap() > 0.92);
}

#[tokio::test]
async fn what_happened_is_not_replaced_by_what_happened_next() {
    let app = service().await;
    let client = app.client();
    for (text, day) in [
        ("Mara: I live in Porto.", 1),
        ("Mara: I live in Lisbon.", 2),
    ] {
        let body = json!({"content": text, "category": "episodic", "valid_from": format!("2024-03-{day:02}T00:00:00Z")});
        create(&client, &body).await;
    }
    assert_eq!(listed(&client, "").await.as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_open_question_is_decided_by_a_person() {
    let app = service().await;
    let client = app.client();
    let at = "2024-03-01T00:00:00Z";
    let older = create(
        &client,
        &json!({"content": "The sprint deadline of Heron is 4 May 2024.", "valid_from": at}),
    )
    .await;
    let answer = write(
        &client,
        &json!({"content": "The sprint deadline of Heron is 9 May 2024.", "valid_from": at}),
    )
    .await;
    let newer = answer.json()["id"].clone();
    assert_eq!(
        answer.json()["undecided"],
        json!([older]),
        "equal starts: no rule can tell"
    );
    assert_eq!(
        listed(&client, "").await.as_array().unwrap().len(),
        2,
        "both stay until then"
    );
    let open = client.get("/v1/memories/escalations").await.json();
    let question = &open["escalations"][0];
    assert_eq!(
        (
            &question["newer"]["id"],
            &question["older"]["id"],
            &question["guess"]
        ),
        (&newer, &json!(older), &json!("contradiction"))
    );
    let path = format!(
        "/v1/memories/escalations/{}",
        question["id"].as_str().unwrap()
    );
    let decided = client.post(&path, &json!({"relation": "supersedes"})).await;
    assert_eq!(decided.status, StatusCode::NO_CONTENT, "{:?}", decided.body);
    assert_eq!(ids(&listed(&client, "").await), [newer.as_str().unwrap()]);
    assert!(
        !search(&client, "sprint deadline of Heron")
            .await
            .contains(&older)
    );
    assert_eq!(
        client.post(&path, &json!({"relation": null})).await.code(),
        "CONFLICT",
        "once"
    );
    assert_eq!(
        client.get("/v1/memories/escalations").await.json()["escalations"],
        json!([])
    );
}

#[tokio::test]
async fn a_question_about_what_is_gone_is_void() {
    let app = service().await;
    let client = app.client();
    let at = "2024-03-01T00:00:00Z";
    let mut pair = Vec::new();
    for day in [4, 9] {
        let text = format!("The sprint deadline of Heron is {day} May 2024.");
        pair.push(create(&client, &json!({"content": text, "valid_from": at})).await);
    }
    client.delete(&format!("/v1/memories/{}", pair[0])).await;
    let open = client.get("/v1/memories/escalations").await.json();
    assert_eq!(
        open["escalations"],
        json!([]),
        "there is nothing to decide any more"
    );
}

#[tokio::test]
async fn our_own_text_is_not_stored_again() {
    let app = service().await;
    let client = app.client();
    let quoted = "I recall <ibex_recall nonce=\"n\" turn=\"t\">\n<memory ref=\"a1b2c3\" kind=\"factual\">Zora likes owls.</memory>\n</ibex_recall> that Ben likes hawks.";
    let answer = write(&client, &json!({"content": quoted})).await;
    assert_eq!(answer.json()["content"], "I recall  that Ben likes hawks.");
    let nothing = write(
        &client,
        &json!({"content": "<ibex_snapshot nonce=\"n\">\nall of it\n</ibex_snapshot>"}),
    )
    .await;
    assert_eq!(
        (nothing.status, nothing.code().as_str()),
        (StatusCode::BAD_REQUEST, "VALIDATION_ERROR")
    );
    let text = "The tags of blocks begin with ibex_recall.";
    assert_eq!(
        write(&client, &json!({"content": text})).await.json()["content"],
        text
    );
}

#[tokio::test]
async fn the_new_one_names_what_it_replaced() {
    let app = service().await;
    let client = app.client().header("x-ibex-session-id", "s");
    let porto = create(
        &client,
        &json!({"content": "Mara lives in Porto.", "valid_from": "2024-03-01T00:00:00Z"}),
    )
    .await;
    create(&client, &json!({"content": "Mara lives in Lisbon."})).await;
    let chat = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "Where does Mara live?"}]});
    let preview = client.post("/v1/context/preview", &chat).await.json()["messages"].to_string();
    let named = format!(
        "supersedes=\\\\\\\"{}\\\\\\\"",
        porto.get(porto.len() - 6..).unwrap()
    );
    assert!(
        preview.contains(&named) || preview.contains(&named.replace("\\\\\\\"", "\\\"")),
        "{named} in {preview}"
    );
    assert!(!preview.contains("lives in Porto"));
}

#[tokio::test]
async fn methods_that_are_not_there_are_told() {
    let app = service().await;
    let answer = app
        .client()
        .send(Method::PUT, "/v1/memories/quarantine", bytes::Bytes::new())
        .await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
}

/// The store's unique index knows equal texts alone.
#[tokio::test(flavor = "multi_thread")]
async fn writers_at_the_same_time_see_what_the_other_one_states() {
    let app = service().await;
    for round in 0..8 {
        let client = app
            .client()
            .header("x-ibex-user-id", &format!("user-{round}"));
        let towns = ["Porto", "Lisbon", "Faro", "Braga"];
        let state = async |town: &str| {
            write(
                &client,
                &json!({"content": format!("Otto lives in {town}.")}),
            )
            .await
        };
        let answers = futures_util::future::join_all(towns.map(state)).await;
        assert!(answers.iter().all(|a| a.status == StatusCode::CREATED));
        let current = listed(&client, "").await;
        assert_eq!(ids(&current).len(), 1, "{current}");
        let said = current[0]["content"]
            .as_str()
            .unwrap()
            .trim_end_matches('.');
        let stop = ["", "!"]
            .map(async |stop| write(&client, &json!({"content": format!("{said}{stop}")})).await);
        for answer in futures_util::future::join_all(stop).await {
            assert_eq!(answer.code(), "DUPLICATE_CONTENT", "{answer:?}");
        }
    }
}

/// A clock that stands still.
#[derive(Debug)]
struct Still(Timestamp);

impl Clock for Still {
    fn now(&self) -> Timestamp {
        self.0
    }
}

#[tokio::test]
async fn of_statements_in_the_same_microsecond_the_later_one_holds() {
    let overrides = Overrides {
        clock: Some(Arc::new(Still(SystemClock.now()))),
        ..Overrides::default()
    };
    let app = TestApp::with("http://127.0.0.1:9/v1", patient, overrides).await;
    let client = app.client();
    let mut last = Value::Null;
    for town in ["Porto", "Lisbon", "Faro"] {
        let written = write(
            &client,
            &json!({"content": format!("Otto lives in {town}.")}),
        )
        .await
        .json();
        let replaced = if last.is_null() {
            Value::Null
        } else {
            json!([last])
        };
        assert_eq!(written["supersedes"], replaced, "{written}");
        last = written["id"].clone();
    }
    // Dates that somebody gave are not touched: which of the two holds is not known.
    let dated = json!({"content": "Otto lives in Braga.", "valid_from": "2026-01-01T00:00:00Z"});
    let other = json!({"content": "Otto lives in Beja.", "valid_from": "2026-01-01T00:00:00Z"});
    let client = client.header("x-ibex-user-id", "somebody");
    let first = write(&client, &dated).await.json();
    let second = write(&client, &other).await.json();
    assert_eq!(second["valid_from"], first["valid_from"]);
    assert_eq!(second["supersedes"], Value::Null, "{second}");
}

#[tokio::test]
async fn a_batch_states_one_thing_after_the_other() {
    let app = service().await;
    let client = app.client();
    let batch = json!({"memories": [
        {"content": "Mara lives in Porto. Write to mara@example.com."},
        {"content": "Otto lives in Porto."},
        {"content": "Otto lives in Lisbon."},
    ]});
    let results = client.post("/v1/memories/batch", &batch).await.json()["results"].take();
    assert_eq!(results[0]["redactions"][0]["kind"], "email_address");
    assert_eq!(results[2]["supersedes"], json!([results[1]["id"]]));
    let current: Vec<String> = ids(&listed(&client, "").await);
    assert!(!current.contains(&results[1]["id"].as_str().unwrap().to_owned()));
    assert_eq!(current.len(), 2);
}

#[tokio::test]
async fn what_is_over_or_has_not_begun_may_be_said_for_now() {
    let app = service().await;
    let client = app.client();
    for (key, time) in [
        (
            "heron",
            json!({"valid_from": "2020-01-01T00:00:00Z", "valid_until": "2021-01-01T00:00:00Z"}),
        ),
        ("crane", json!({"valid_from": "2999-01-01T00:00:00Z"})),
    ] {
        let content = format!("The guest lounge is called {key}.");
        let mut old = time;
        old["content"] = json!(content);
        let old = create(&client, &old).await;
        let new = create(&client, &json!({"content": content})).await;
        assert_ne!(old, new);
        assert_eq!(search(&client, key).await, std::slice::from_ref(&new));
        let again = write(&client, &json!({"content": content})).await;
        assert_eq!(again.json()["error"]["existing_memory_id"], new);
    }
}

#[tokio::test]
async fn metadata_is_nested_no_deeper_than_clients_can_read() {
    let app = service().await;
    let nested = |levels: usize| {
        let text = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let deep: Value = serde_json::from_str(&text).unwrap();
        json!({"content": format!("Nested {levels}."), "metadata": {"a": deep, "text": "[[[\"\\"}})
    };
    assert_eq!(
        write(&app.client(), &nested(126)).await.status,
        StatusCode::CREATED
    );
    let text = format!(
        r#"{{"content":"Deep.","metadata":{{"a":{}{}}}}}"#,
        "[".repeat(127),
        "]".repeat(127)
    );
    let refused = app.client().post_raw("/v1/memories", text).await;
    assert_eq!(
        refused.json()["error"]["field_errors"][0]["field"],
        "metadata"
    );
    let filtered = listed(&app.client(), "?metadata%5Ba%5D=x").await;
    assert_eq!(filtered, json!([]));
}

#[tokio::test]
async fn history_that_arrives_twice_is_kept_once() {
    let app = service().await;
    let client = app.client();
    create(
        &client,
        &json!({"content": "Nina lives in Porto.", "valid_from": "2024-01-01T00:00:00Z"}),
    )
    .await;
    let late = json!({"content": "Nina lives in Lisbon.", "valid_from": "2022-01-01T00:00:00Z"});
    let first = create(&client, &late).await;
    for _ in 0..2 {
        let again = write(&client, &late).await;
        assert_eq!(again.json()["error"]["existing_memory_id"], first);
    }
    assert_eq!(ids(&listed(&client, "?history=true").await).len(), 2);
    // Who moves back says something new.
    create(&client, &json!({"content": "Nina lives in Lisbon."})).await;
}

/// What the README shows.
#[tokio::test]
async fn a_new_code_takes_the_place_of_the_old_one() {
    let app = service().await;
    let client = app.client();
    let code = |code: &str| json!({"content": format!("The parking garage code of the office is {code}.")});
    let old = create(&client, &code("7421")).await;
    let new = write(&client, &code("8832")).await.json();
    assert_eq!(new["supersedes"], json!([old]));
    for hearsay in [
        "False: Mara lives in Lisbon.",
        "Tom: Mara lives in Faro.",
        "Draft: Mara lives in Braga.",
    ] {
        let porto = json!({"content": "Mara lives in Porto."});
        client.post("/v1/memories", &porto).await;
        let told = write(&client, &json!({"content": hearsay})).await.json();
        assert_eq!(told.get("supersedes"), None, "{hearsay}");
    }
}

/// Ours are secrets like any other.
#[tokio::test]
async fn tokens_of_this_service_are_redacted() {
    let app = service().await;
    let text = format!("Use {} for the proxy.", app.token);
    let stored = write(&app.client(), &json!({"content": text})).await.json();
    assert_eq!(stored["content"], "Use [API_KEY] for the proxy.");
}
