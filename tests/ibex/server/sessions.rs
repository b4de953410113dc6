//! Sessions over the API: what is shown of them, their end, and the working state.

use bytes::Bytes;
use http::{Method, StatusCode};
use ibex::auth::Permissions;
use ibex::ids::{AgentId, MemoryId, OrgId, SessionId};
use ibex::seams::{Clock, SystemClock};
use ibex::session::record::{OpeningRecord, SessionRecord, TurnEnd, TurnRecord};
use ibex::session::{Anchor, ChainHash, Lane, LaneKey, RotationReason, SessionKey};
use ibex::store::SessionStore;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::service;
use crate::support::{Answer, Client, TestApp};

const STATE: &str = "/v1/sessions/trip-1/working-state";

async fn put_raw(client: &Client, path: &str, body: impl Into<Bytes>) -> Answer {
    let client = client.clone().header("content-type", "application/json");
    client.send(Method::PUT, path, body.into()).await
}

/// Writes a state that is taken.
async fn put(client: &Client, state: &Value) -> Value {
    let answer = put_raw(client, STATE, state.to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    answer.json()
}

/// Field and code of each fault of a refused state.
async fn faults(client: &Client, body: &str) -> Vec<(String, String)> {
    let answer = put_raw(client, STATE, body.to_owned()).await;
    let outcome = (answer.status, answer.code());
    assert_eq!(
        outcome,
        (StatusCode::BAD_REQUEST, "VALIDATION_ERROR".to_owned()),
        "{body:.200}"
    );
    let error = answer.json()["error"].take();
    let text = |fault: &Value, name: &str| fault[name].as_str().unwrap().to_owned();
    let faults = error["field_errors"].as_array().unwrap();
    assert_eq!(error["param"], faults[0]["field"]);
    faults
        .iter()
        .map(|fault| (text(fault, "field"), text(fault, "code")))
        .collect()
}

fn numbered(number: usize) -> Vec<Value> {
    (0..number)
        .map(|i| json!({"id": format!("i{i}"), "text": format!("Number {i}")}))
        .collect()
}

fn lane(app: &TestApp, id: &str, model: &str) -> LaneKey {
    let session = SessionKey {
        org: app.org,
        agent: app.agent,
        user: None,
        id: id.parse().unwrap(),
    };
    LaneKey {
        session,
        lane: Lane::new("openai", model),
    }
}

fn opening(epoch: u32, at: Timestamp) -> OpeningRecord {
    OpeningRecord {
        epoch,
        nonce_epoch: 1,
        directive: Some(7),
        snapshot: vec![MemoryId::from_bytes([1; 16])],
        sha256: [u8::try_from(epoch).unwrap(); 32],
        reason: (epoch > 1).then_some(RotationReason::Forget),
        drops_blocks: false,
        at,
    }
}

fn chain(turn: u8) -> ChainHash {
    ChainHash::from_bytes([turn; 16])
}

fn turn(turn: u8, at: Timestamp) -> TurnRecord {
    TurnRecord {
        chain: chain(turn),
        anchor: Anchor::from_bytes([turn; 16]),
        nonce_epoch: 1,
        memories: vec![MemoryId::from_bytes([turn; 16])],
        state: None,
        digest: Some([turn; 16]),
        at,
    }
}

async fn record(app: &TestApp, records: Vec<SessionRecord>) {
    app.store.record_sessions(records).await.unwrap();
}

/// Opens a session and settles turns in it.
async fn settle(app: &TestApp, id: &str, turns: impl IntoIterator<Item = u8>, at: Timestamp) {
    let lane = lane(app, id, "gpt-4o");
    let opened = SessionRecord::Opened(lane.clone(), opening(1, at));
    let settled = turns
        .into_iter()
        .map(|n| SessionRecord::Settled(lane.clone(), turn(n, at)));
    record(app, std::iter::once(opened).chain(settled).collect()).await;
}

/// Whether the answer is the one that any absent resource has.
async fn is_absent(client: &Client, answer: &Answer) -> bool {
    let nothing = client
        .get(&format!("/v1/memories/{}", MemoryId::new()))
        .await;
    let error = |answer: &Answer| {
        let mut error = answer.json()["error"].take();
        error["request_id"].take();
        error["timestamp"].take();
        error
    };
    answer.status == StatusCode::NOT_FOUND && error(answer) == error(&nothing)
}

#[tokio::test]
async fn a_state_is_written_read_and_replaced() {
    let app = service().await;
    let client = app.client();
    let state = json!({
        "constraints": [{"text": " No flights. "}],
        "tasks": [{"id": "berth", "text": "Book a berth", "status": "in_progress"}, {"text": "Pack"}],
        "open_questions": [{"id": "when", "text": "Which night?"}],
    });
    let written = put(&client, &state).await;
    let whole = json!({
        "constraints": [{"id": "56683ef9", "text": "No flights."}],
        "tasks": [
            {"id": "berth", "text": "Book a berth", "status": "in_progress"},
            {"id": "80dc2167", "text": "Pack", "status": "open"},
        ],
        "facts": [],
        "open_questions": [{"id": "when", "text": "Which night?", "answered": false}],
    });
    assert_eq!(
        (&written["version"], &written["state"], &written["evicted"]),
        (&json!(1), &whole, &json!([]))
    );
    let read = client.get(STATE).await.json();
    assert_eq!(
        read,
        json!({"version": 1, "updated_at": written["updated_at"], "state": whole})
    );
    assert_eq!(put(&client, &state).await, written, "nothing has changed");
    assert_eq!(put(&client, &whole).await, written, "nor has it here");
    let empty = json!({"constraints": [], "tasks": [], "facts": [], "open_questions": []});
    let emptied = put(&client, &json!({})).await;
    assert_eq!(
        (&emptied["version"], &emptied["state"]),
        (&json!(2), &empty)
    );
    let session = client.get("/v1/sessions/trip-1").await.json();
    assert_eq!(
        session,
        json!({
            "id": "trip-1",
            "status": "active",
            "created_at": written["updated_at"],
            "used_at": emptied["updated_at"],
            "turns": 0,
            "lanes": [],
            "latest": [],
        })
    );
    settle(&app, "trip-2", [], SystemClock.now()).await;
    let none = client.get("/v1/sessions/trip-2/working-state").await;
    assert_eq!(
        none.json(),
        json!({"version": 0, "updated_at": null, "state": empty})
    );
}

#[tokio::test]
async fn what_is_over_is_gone_when_a_turn_was_settled_since() {
    let app = service().await;
    let client = app.client();
    let open = json!({"id": "a", "text": "Find a train", "status": "open"});
    let state = json!({
        "constraints": [],
        "tasks": [open, {"id": "b", "text": "Ask the dates", "status": "done"}],
        "facts": [{"id": "f", "text": "Bergen"}],
        "open_questions": [{"id": "q", "text": "When?", "answered": true}],
    });
    assert_eq!(put(&client, &state).await["version"], 1);
    assert_eq!(client.get(STATE).await.json()["state"], state);
    settle(&app, "trip-1", [1], SystemClock.now()).await;
    let carried = client.get(STATE).await.json();
    assert_eq!(
        (&carried["version"], &carried["state"]),
        (
            &json!(1),
            &json!({"constraints": [], "tasks": [open], "facts": state["facts"], "open_questions": []})
        )
    );
    let same = put(&client, &carried["state"]).await;
    assert_eq!(
        (&same["version"], &same["state"]),
        (&json!(1), &carried["state"])
    );
    let anew = put(&client, &state).await;
    assert_eq!((&anew["version"], &anew["state"]), (&json!(2), &state));
    assert_eq!(client.get(STATE).await.json()["state"], state);
}

#[tokio::test]
async fn a_damaged_state_is_told_and_can_be_replaced() {
    let app = service().await;
    let client = app.client();
    let key = lane(&app, "trip-1", "gpt-4o").session;
    let damaged = app
        .store
        .put_working_state(&key, "{".to_owned(), SystemClock.now())
        .await
        .unwrap();
    let refused = client.get(STATE).await;
    assert_eq!(
        (refused.status, refused.code()),
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "SERVICE_DEGRADED".to_owned()
        )
    );
    let replaced = put(&client, &json!({})).await;
    assert_eq!(replaced["version"], damaged.version + 1);
    assert_eq!(client.get(STATE).await.json()["version"], 2);
}

#[tokio::test]
async fn facts_make_room_and_constraints_fail_visibly() {
    let app = service().await;
    let client = app.client();
    let full = json!({"constraints": numbered(20), "facts": numbered(42)});
    let written = put(&client, &full).await;
    assert_eq!(
        written["evicted"],
        json!([{"list": "facts", "id": "i0"}, {"list": "facts", "id": "i1"}])
    );
    assert_eq!(written["state"]["facts"], json!(numbered(42)[2..]));
    let long = format!("Long{}", " word".repeat(95));
    let longs = |number: usize| -> Vec<Value> {
        let item = |i: usize| json!({"id": format!("l{i}"), "text": long});
        (0..number).map(item).collect()
    };
    for (state, expected) in [
        (
            json!({"constraints": numbered(21)}),
            [("constraints", "TOO_MANY")].as_slice(),
        ),
        (
            json!({"tasks": numbered(31), "open_questions": numbered(21)}),
            &[("tasks", "TOO_MANY"), ("open_questions", "TOO_MANY")],
        ),
        (
            json!({"constraints": longs(11)}),
            &[("constraints", "TOO_LONG")],
        ),
        (
            json!({"constraints": longs(21), "facts": [{"text": " "}, {"id": "é", "text": "a"}]}),
            &[
                ("constraints", "TOO_MANY"),
                ("constraints", "TOO_LONG"),
                ("facts[0].text", "REQUIRED"),
                ("facts[1].id", "INVALID_FORMAT"),
            ],
        ),
    ] {
        let expected: Vec<_> = expected
            .iter()
            .map(|(f, c)| ((*f).to_owned(), (*c).to_owned()))
            .collect();
        assert_eq!(faults(&client, &state.to_string()).await, expected);
    }
    assert_eq!(client.get(STATE).await.json()["state"], written["state"]);
    let roomy = put(
        &client,
        &json!({"constraints": longs(9), "facts": longs(3)}),
    )
    .await;
    assert_eq!(roomy["state"]["constraints"], json!(longs(9)));
    // Each of these lines has 100 tokens: the newest fact just fits.
    assert_eq!(roomy["state"]["facts"], json!(longs(3)[2..]));
    assert_eq!(
        roomy["evicted"],
        json!([{"list": "facts", "id": "l0"}, {"list": "facts", "id": "l1"}])
    );
}

#[tokio::test]
async fn a_body_that_is_no_state_is_refused_by_its_place() {
    let app = service().await;
    let client = app.client();
    for (body, field) in [
        (r#"{"notes": "cormorant"}"#, "notes"),
        (
            r#"{"facts": [{"text": "a", "cormorant": 1}]}"#,
            "facts[0].cormorant",
        ),
        (
            r#"{"tasks": [{"text": "a"}, {"text": "a", "status": "cormorant"}]}"#,
            "tasks[1].status",
        ),
        (
            r#"{"open_questions": [{"text": "a", "answered": "cormorant"}]}"#,
            "open_questions[0].answered",
        ),
        (r#"{"constraints": [{}]}"#, "constraints[0]"),
        (r#"{"constraints": "cormorant"}"#, "constraints"),
        ("[]", "."),
        ("null", "."),
    ] {
        let expected = [(field.to_owned(), "INVALID_FORMAT".to_owned())];
        assert_eq!(faults(&client, body).await, expected, "{body}");
    }
    let long = format!(r#"{{"{}": 1}}"#, "é".repeat(5_000));
    assert_eq!(faults(&client, &long).await[0].0, "é".repeat(64));
    for (body, status, code) in [
        (String::new(), StatusCode::BAD_REQUEST, "INVALID_JSON"),
        ("{".to_owned(), StatusCode::BAD_REQUEST, "INVALID_JSON"),
        ("{} {}".to_owned(), StatusCode::BAD_REQUEST, "INVALID_JSON"),
        (
            json!({"facts": numbered(20_000)}).to_string(),
            StatusCode::PAYLOAD_TOO_LARGE,
            "PAYLOAD_TOO_LARGE",
        ),
        (
            "[".repeat(200_000),
            StatusCode::BAD_REQUEST,
            "VALIDATION_ERROR",
        ),
        (
            format!(r#"{{"facts": [{{"text": "{}"}}]}}"#, "a".repeat(200_000)),
            StatusCode::BAD_REQUEST,
            "VALIDATION_ERROR",
        ),
    ] {
        let refused = put_raw(&client, STATE, body.clone()).await;
        let (got, text) = (refused.code(), String::from_utf8_lossy(&refused.body));
        assert_eq!((refused.status, got.as_str()), (status, code), "{body:.80}");
        assert!(text.len() < 1_000 && !text.contains("cormorant"), "{text}");
    }
    let answer = client.get(STATE).await;
    assert!(is_absent(&client, &answer).await, "nothing was opened");
}

#[tokio::test]
async fn a_session_is_one_scopes_own() {
    let app = service().await;
    let client = app.client();
    put(&client, &json!({"facts": [{"text": "ours"}]})).await;
    let (agent, org, foreign) = (AgentId::new(), OrgId::new(), AgentId::new());
    app.create_agent(app.org, agent).await;
    app.create_org(org).await;
    app.create_agent(org, foreign).await;
    let token = app.mint(org, None, None, Permissions::all()).await;
    let others = [
        client.clone().header("x-ibex-user-id", "ann"),
        client.clone().header("x-ibex-user-id", "bob"),
        app.client_with(&app.token, Some(agent)),
        app.client_with(&token, Some(foreign)),
    ];
    for other in &others {
        for answer in [
            other.get("/v1/sessions/trip-1").await,
            other.get(STATE).await,
            other
                .post("/v1/sessions/trip-1/terminate", &json!({}))
                .await,
        ] {
            assert!(is_absent(other, &answer).await, "{:?}", answer.body);
        }
    }
    for (i, other) in others.iter().enumerate() {
        let theirs = put(
            other,
            &json!({"facts": [{"id": "i", "text": i.to_string()}]}),
        )
        .await;
        assert_eq!(theirs["version"], 1);
    }
    for (i, other) in others.iter().enumerate() {
        let read = other.get(STATE).await.json();
        assert_eq!(read["state"]["facts"][0]["text"], i.to_string());
        let user = &other.get("/v1/sessions/trip-1").await.json()["user"];
        assert_eq!(user.as_str(), [Some("ann"), Some("bob"), None, None][i]);
    }
    let ended = others[0]
        .post("/v1/sessions/trip-1/terminate", &json!({}))
        .await;
    assert_eq!(ended.json()["status"], "completed");
    let ours = client.get("/v1/sessions/trip-1").await.json();
    assert_eq!(ours["status"], "active");
    assert_eq!(
        client.get(STATE).await.json()["state"]["facts"][0]["text"],
        "ours"
    );
}

#[tokio::test]
async fn a_session_ends_once() {
    let app = service().await;
    let client = app.client();
    settle(&app, "trip-1", [1], SystemClock.now()).await;
    let path = "/v1/sessions/trip-1/terminate";
    let ended = client.post(path, &json!({})).await;
    assert_eq!(ended.status, StatusCode::OK);
    let ended = ended.json();
    assert_eq!(
        (&ended["status"], &ended["turns"]),
        (&json!("completed"), &json!(1))
    );
    assert!(ended["terminated_at"].is_string());
    let again = client.send(Method::POST, path, Bytes::new()).await;
    assert_eq!(
        (again.status, again.json()),
        (StatusCode::OK, ended.clone())
    );
    assert_eq!(client.get("/v1/sessions/trip-1").await.json(), ended);
}

#[tokio::test]
async fn what_the_client_did_not_name_cannot_be_ended_or_written() {
    let app = service().await;
    let client = app.client();
    settle(&app, "auto-1", [1], SystemClock.now()).await;
    let seen = client.get("/v1/sessions/auto-1").await;
    assert_eq!(
        (seen.status, &seen.json()["turns"]),
        (StatusCode::OK, &json!(1))
    );
    let long = "x".repeat(SessionId::MAX + 1);
    for name in ["auto-1", "auto-2", "unknown", "%20", "%ff", "a%0Ab", &long] {
        let path = format!("/v1/sessions/{name}");
        let state = format!("{path}/working-state");
        let ended = client.post(&format!("{path}/terminate"), &json!({})).await;
        assert!(is_absent(&client, &ended).await, "{name}");
        if name != "unknown" {
            let written = put_raw(&client, &state, "{}").await;
            assert!(is_absent(&client, &written).await, "{name}");
        }
        let read = client.get(&state).await;
        assert!(is_absent(&client, &read).await, "{state}");
        if name != "auto-1" {
            assert!(is_absent(&client, &client.get(&path).await).await, "{path}");
        }
    }
}

#[tokio::test]
async fn each_operation_asks_for_its_permission() {
    let app = service().await;
    put(&app.client(), &json!({})).await;
    for (permission, may) in [
        (Permissions::SESSION_READ, [true, true, false, false]),
        (Permissions::SESSION_CREATE, [false, false, true, false]),
        (Permissions::SESSION_TERMINATE, [false, false, false, true]),
        (Permissions::MEMORY_READ, [false; 4]),
    ] {
        let token = app.mint(app.org, None, None, permission).await;
        let client = app.client_with(&token, Some(app.agent));
        let got = [
            client.get("/v1/sessions/trip-1").await,
            client.get(STATE).await,
            put_raw(&client, STATE, "{}").await,
            client
                .post("/v1/sessions/trip-1/terminate", &json!({}))
                .await,
        ];
        assert_eq!(got.each_ref().map(|a| a.status == StatusCode::OK), may);
        for refused in got.iter().filter(|a| a.status != StatusCode::OK) {
            assert_eq!(refused.code(), "INSUFFICIENT_PERMISSIONS");
        }
    }
}

#[tokio::test]
async fn a_session_is_shown_with_its_lanes_epochs_and_newest_turns() {
    let app = service().await;
    let client = app.client();
    let at: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
    let lane = lane(&app, "trip-1", "gpt-4o");
    settle(&app, "trip-1", 1..=60, at).await;
    let end = TurnEnd {
        prompt_tokens: 100,
        cached_tokens: 80,
        completion_tokens: 9,
        ms: 1_200,
        stream: true,
        complete: true,
        at,
    };
    record(
        &app,
        vec![
            SessionRecord::Opened(lane.clone(), opening(2, at)),
            SessionRecord::Ended(lane.clone(), chain(59), end.clone()),
            SessionRecord::Ended(lane, chain(59), end),
        ],
    )
    .await;
    let session = client.get("/v1/sessions/trip-1").await.json();
    let (first, second) = ("01".repeat(32), "02".repeat(32));
    assert_eq!(
        session["lanes"],
        json!([{
            "lane": "openai/gpt-4o",
            "epoch": 2,
            "prefix_sha256": second,
            "directive_version": 7,
            "snapshot": ["01010101-0101-0101-0101-010101010101"],
            "epochs": [
                {"epoch": 1, "prefix_sha256": first, "at": at},
                {"epoch": 2, "reason": "forget", "prefix_sha256": second, "at": at},
            ],
        }])
    );
    assert_eq!(
        (&session["turns"], &session["used_at"]),
        (&json!(60), &json!(at))
    );
    let turns = session["latest"].as_array().unwrap();
    assert_eq!(turns.len(), 50);
    assert_eq!(
        (&turns[0], &turns[1]),
        (
            &json!({
                "index": 59,
                "lane": "openai/gpt-4o",
                "messages_hash": "3c".repeat(16),
                "memories": ["3c3c3c3c-3c3c-3c3c-3c3c-3c3c3c3c3c3c"],
                "calls": 0,
                "at": at,
            }),
            &json!({
                "index": 58,
                "lane": "openai/gpt-4o",
                "messages_hash": "3b".repeat(16),
                "memories": ["3b3b3b3b-3b3b-3b3b-3b3b-3b3b3b3b3b3b"],
                "calls": 2,
                "prompt_tokens": 200,
                "cached_tokens": 160,
                "completion_tokens": 18,
                "ms": 2_400,
                "stream": true,
                "complete": true,
                "at": at,
            })
        )
    );
    for (query, shown) in [("turns=0", 0), ("turns=3", 3), ("turns=200", 60)] {
        let path = format!("/v1/sessions/trip-1?{query}");
        let session = client.get(&path).await.json();
        assert_eq!(session["latest"].as_array().unwrap().len(), shown);
        assert_eq!(session["turns"], 60);
    }
    for query in ["turns=201", "turns=-1", "turns=x", "turn=1"] {
        let refused = client.get(&format!("/v1/sessions/trip-1?{query}")).await;
        let outcome = (refused.status, refused.code());
        let expected = (StatusCode::BAD_REQUEST, "VALIDATION_ERROR".to_owned());
        assert_eq!(outcome, expected, "{query}");
    }
}

#[tokio::test]
async fn a_session_is_abandoned_when_it_was_idle_for_long() {
    let app = service().await;
    let client = app.client();
    for (minutes, status) in [(0, "active"), (44, "active"), (46, "abandoned")] {
        let id = format!("idle-{minutes}");
        let at = SystemClock.now() - SignedDuration::from_mins(minutes);
        settle(&app, &id, [], at).await;
        let path = format!("/v1/sessions/{id}");
        assert_eq!(
            client.get(&path).await.json()["status"],
            status,
            "{minutes}"
        );
        let ended = client.post(&format!("{path}/terminate"), &json!({})).await;
        assert_eq!(ended.json()["status"], "completed");
    }
}
