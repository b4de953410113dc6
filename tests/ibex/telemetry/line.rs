//! One line a request, with the fields of the list.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use http::{Method, StatusCode};
use ibex::telemetry::FIELDS;
use serde_json::{Value, json};

use crate::support::{Event, Log, Overrides, Script, TestApp, Upstream, patient, soon};

const CHAT: &str = "/v1/chat/completions";

/// The log, a line for each request among it.
struct Lines(Log);

impl Lines {
    /// The fields of every request's line, by request.
    fn requests(&self) -> BTreeMap<String, Vec<Value>> {
        let text = self.0.text();
        let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for line in text.lines() {
            let mut line: Value = serde_json::from_str(line).unwrap();
            if line["message"] != "request" {
                continue;
            }
            for every_event in ["timestamp", "level", "message", "target"] {
                assert!(line.as_object_mut().unwrap().remove(every_event).is_some());
            }
            let id = line["request_id"].as_str().unwrap().to_owned();
            found.entry(id).or_default().push(line);
        }
        found
    }

    /// The one line of a request, as soon as it is there.
    async fn of(&self, request: &str) -> Value {
        soon("the line of a request", async {
            loop {
                if let Some([line]) = self.requests().get(request).map(Vec::as_slice) {
                    return line.clone();
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }
}

fn names(line: &Value) -> BTreeSet<&str> {
    line.as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[tokio::test]
async fn each_request_leaves_one_line_with_the_listed_fields() {
    let (log, _capturing) = Log::captured("info");
    let lines = Lines(log);
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::with(&upstream.url(), patient, Overrides::default()).await;
    let client = app.client().header("x-ibex-session-id", "s1");
    let memory = json!({"content": "The ferry to Brandtholm leaves at six."});
    client.post("/v1/memories", &memory).await;

    let chat = json!({"model": "gpt-4o", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "When does the ferry to Brandtholm leave?"}]});
    let first = client.clone().header("x-request-id", "first");
    assert_eq!(
        first
            .post(CHAT, &chat)
            .await
            .header("x-ibex-memories-injected"),
        "1"
    );
    let line = lines.of("first").await;
    let mut listed: BTreeSet<&str> = FIELDS.iter().map(|field| field.name).collect();
    assert!(listed.remove("code"), "it was not refused");
    assert_eq!(names(&line), listed);
    for (field, value) in [
        ("route", json!(CHAT)),
        ("status", json!(200)),
        ("outcome", json!("complete")),
        ("stage", json!("relay")),
        ("org", json!(app.org.to_string())),
        ("agent", json!(app.agent.to_string())),
        ("provider", json!("openai")),
        ("model", json!("gpt-4o")),
        ("stream", json!(true)),
        ("context_status", json!("full")),
        ("degradation", json!("L0")),
        ("epoch", json!(1)),
        ("memories_packed", json!(1)),
        ("input_tokens", json!(7)),
        ("output_tokens", json!(3)),
        ("stable_bytes", json!(0)),
    ] {
        assert_eq!(line[field], value, "{field}");
    }
    let stages = line["stages_ms"].as_str().unwrap();
    assert!(
        stages.starts_with("body_limit=") && stages.contains(" relay="),
        "{stages}"
    );
    let ms = |field: &str| line[field].as_f64().unwrap();
    assert!(ms("overhead_ms") + ms("ttfb_ms") <= ms("duration_ms") + 0.01);
    assert!(ms("ttfb_ms") <= ms("first_chunk_ms"));

    // The session goes on: what was sent before is sent again.
    let more = json!({"model": "gpt-4o", "messages": [
        {"role": "user", "content": "When does the ferry to Brandtholm leave?"},
        {"role": "assistant", "content": "At six."},
        {"role": "user", "content": "Thank you."},
    ]});
    let second = client.clone().header("x-request-id", "second");
    second.post(CHAT, &more).await;
    let line = lines.of("second").await;
    let sent = upstream.last().request.body.len();
    assert_eq!(line["sent_bytes"], json!(sent));
    let stable = line["stable_bytes"].as_u64().unwrap();
    let question = "When does the ferry to Brandtholm leave?".len() as u64;
    assert!(
        stable > question && stable < sent as u64,
        "{stable} of {sent}"
    );

    let refused = app.client().header("x-request-id", "refused");
    refused.post_raw(CHAT, "{").await;
    let line = lines.of("refused").await;
    assert_eq!(
        (
            &line["status"],
            &line["outcome"],
            &line["stage"],
            &line["code"]
        ),
        (
            &json!(400),
            &json!("refused"),
            &json!("validate"),
            &json!("INVALID_JSON")
        )
    );
    let listed = app.client().header("x-request-id", "listed");
    listed.get("/v1/memories").await;
    let line = lines.of("listed").await;
    assert_eq!(
        (&line["route"], &line["outcome"], &line["org"]),
        (
            &json!("/v1/memories"),
            &json!("answered"),
            &json!(app.org.to_string())
        )
    );
    let unknown = app.client().header("x-request-id", "unknown");
    unknown.get("/nowhere").await;
    assert_eq!(lines.of("unknown").await["route"], json!("none"));
    assert!(lines.requests().values().all(|of_one| of_one.len() == 1));
}

/// A method is text of the client's own choice, and needs no credential.
#[tokio::test]
async fn a_method_that_is_none_of_https_own_is_not_repeated() {
    let (log, _capturing) = Log::captured("trace");
    let lines = Lines(log);
    let app = TestApp::start("http://127.0.0.1:9/v1").await;
    let client = app.client().header("x-request-id", "odd");
    let method = Method::from_bytes(b"PINECONE").unwrap();
    let answer = client.send(method, CHAT, Bytes::new()).await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(lines.of("odd").await["method"], "_OTHER");
    assert!(!lines.0.text().contains("PINECONE"));
}

#[tokio::test]
async fn a_client_that_leaves_is_told_of() {
    let (log, _capturing) = Log::captured("info");
    let lines = Lines(log);
    let asked = Event::default();
    let silent = asked.clone();
    let upstream = Upstream::start(move |_| Script::new().set(&silent).hang()).await;
    let app = TestApp::with(&upstream.url(), patient, Overrides::default()).await;
    let chat = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "Hello."}]});
    let client = app.client().header("x-request-id", "gone");
    tokio::select! {
        _ = client.post(CHAT, &chat) => panic!("nobody answers"),
        () = asked.wait() => {}
    }
    let line = lines.of("gone").await;
    assert_eq!(
        (
            &line["status"],
            &line["outcome"],
            &line["stage"],
            &line["route"]
        ),
        (
            &json!(499),
            &json!("client_gone"),
            &json!("handoff"),
            &json!(CHAT)
        )
    );
    let text = super::scraped(&app).await;
    for counted in [
        "ibex_requests_total{route=\"/v1/chat/completions\",code=\"499\"} 1\n",
        "ibex_provider_requests_total{provider=\"openai\",model=\"other\",result=\"client_gone\"} 1\n",
        "ibex_stage_seconds_count{stage=\"handoff\",outcome=\"client_gone\"} 1\n",
        "ibex_requests_in_flight 1\n",
    ] {
        assert!(text.contains(counted), "{counted}{text}");
    }
}
