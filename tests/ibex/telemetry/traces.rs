//! Spans as a collector gets them: decoded with the published types, over a real socket.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;
use ibex::config::Config;
use ibex::telemetry::metrics::Exposition;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::{Value, json};

use super::scraped;
use crate::support::{Event, Overrides, Received, Script, TestApp, Upstream, patient};

const CHAT: &str = "/v1/chat/completions";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn chat(text: &str, stream: bool) -> Value {
    json!({"model": "gpt-4o", "stream": stream, "messages": [{"role": "user", "content": text}]})
}

/// A collector that takes what it gets.
async fn collector() -> Upstream {
    Upstream::playing(Script::new().whole("200 OK", "content-type: application/x-protobuf\r\n", ""))
        .await
}

/// A service that exports each request by itself.
async fn traced(upstream: &Upstream, to: &Upstream, edit: impl FnOnce(&mut Config)) -> TestApp {
    let endpoint = to.url().trim_end_matches("/v1").to_owned();
    let edit = |config: &mut Config| {
        patient(config);
        config.telemetry.endpoint = Some(endpoint);
        config.telemetry.batch = 1;
        edit(config);
    };
    TestApp::with(&upstream.url(), edit, Overrides::default()).await
}

fn message(request: &Received) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest::decode(&*request.body).expect("an export")
}

/// The spans of one export.
fn spans(request: &Received) -> Vec<Span> {
    let resources = message(request).resource_spans.into_iter();
    let scopes = resources.flat_map(|r| r.scope_spans);
    scopes.flat_map(|s| s.spans).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn attributes(span: &Span) -> BTreeMap<&str, Value> {
    let value = |any: &Any| match any {
        Any::StringValue(text) => json!(text),
        Any::BoolValue(flag) => json!(flag),
        Any::IntValue(n) => json!(n),
        Any::DoubleValue(n) => json!(n),
        Any::ArrayValue(_)
        | Any::KvlistValue(_)
        | Any::BytesValue(_)
        | Any::StringValueStrindex(_) => panic!("no such value is sent"),
    };
    let pair = |kv: &'_ opentelemetry_proto::tonic::common::v1::KeyValue| {
        value(kv.value.as_ref().unwrap().value.as_ref().unwrap())
    };
    span.attributes
        .iter()
        .map(|kv| (kv.key.as_str(), pair(kv)))
        .collect()
}

#[tokio::test]
async fn a_request_leaves_its_spans() {
    let answers = |_: &Received| {
        let (first, usage) = (
            json!({"model": "gpt-4o-2024-08-06", "choices": [{"index": 0, "delta": {"content": "fine"}}]}),
            json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}),
        );
        Script::new()
            .events_head()
            .chunk(format!("data: {first}\n\n"))
            .chunk(format!("data: {usage}\n\ndata: [DONE]\n\n"))
            .last_chunk()
    };
    let (upstream, to) = (Upstream::start(answers).await, collector().await);
    let app = traced(&upstream, &to, |config| {
        config.telemetry.headers = Some("x-key=sk-collector-invented".to_owned());
        config.telemetry.service_name = "ferry".to_owned();
    })
    .await;
    let client = app
        .client()
        .header("traceparent", &format!("00-{TRACE}-b7ad6b7169203331-01"))
        .header("tracestate", "vendor=1");
    let answer = client
        .post(CHAT, &chat("Is there a quillwort?", true))
        .await;
    assert_eq!(answer.status, StatusCode::OK);
    let request = &to.exchange(0).await.request;
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/v1/traces")
    );
    assert_eq!(request.values("content-type"), ["application/x-protobuf"]);
    assert_eq!(request.values("x-key"), ["sk-collector-invented"]);
    let resource = message(request).resource_spans[0].resource.clone().unwrap();
    let named = resource.attributes.iter().any(|kv| {
        let value = kv.value.as_ref().and_then(|v| v.value.as_ref());
        kv.key == "service.name" && value == Some(&Any::StringValue("ferry".to_owned()))
    });
    assert!(named, "{resource:?}");

    let spans = spans(request);
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE));
    assert!(
        spans
            .iter()
            .all(|s| s.start_time_unix_nano <= s.end_time_unix_nano)
    );
    let of_kind = |kind: i32| spans.iter().filter(move |span| span.kind == kind);
    let [server] = of_kind(2).collect::<Vec<_>>()[..] else {
        panic!("one span of the request: {spans:#?}")
    };
    assert_eq!(server.name, "POST /v1/chat/completions");
    assert_eq!(hex(&server.parent_span_id), "b7ad6b7169203331");
    let said = attributes(server);
    for (key, value) in [
        ("http.request.method", json!("POST")),
        ("http.route", json!(CHAT)),
        ("http.response.status_code", json!(200)),
        ("ibex.outcome", json!("complete")),
        ("ibex.org.id", json!(app.org.to_string())),
        ("ibex.agent.id", json!(app.agent.to_string())),
    ] {
        assert_eq!(said.get(key), Some(&value), "{key}");
    }
    assert_eq!(server.status, None);

    let stages: Vec<&Span> = of_kind(1).collect();
    let names: Vec<&str> = stages.iter().map(|span| span.name.as_str()).collect();
    let all: Vec<&str> = ibex::request::Stage::ALL.iter().map(|s| s.name()).collect();
    assert_eq!(names, all);
    assert!(
        stages
            .iter()
            .all(|span| span.parent_span_id == server.span_id)
    );
    let context = stages.iter().find(|span| span.name == "context").unwrap();
    assert_eq!(attributes(context)["ibex.context.status"], json!("full"));

    let [call] = of_kind(3).collect::<Vec<_>>()[..] else {
        panic!("one span of the call: {spans:#?}")
    };
    assert_eq!(call.name, "chat gpt-4o");
    assert_eq!(call.parent_span_id, server.span_id);
    let said = attributes(call);
    for (key, value) in [
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.provider.name", json!("openai")),
        ("gen_ai.request.model", json!("gpt-4o")),
        ("gen_ai.response.model", json!("gpt-4o-2024-08-06")),
        ("gen_ai.request.stream", json!(true)),
        ("gen_ai.usage.input_tokens", json!(7)),
        ("gen_ai.usage.output_tokens", json!(3)),
        ("server.address", json!("127.0.0.1")),
    ] {
        assert_eq!(said.get(key), Some(&value), "{key}");
    }
    assert!(
        said["gen_ai.response.time_to_first_chunk"]
            .as_f64()
            .unwrap()
            > 0.0
    );

    let sent = &upstream.last().request;
    let parent = format!("00-{TRACE}-{}-01", hex(&call.span_id));
    assert_eq!(sent.values("traceparent"), [parent]);
    assert_eq!(sent.values("tracestate"), ["vendor=1"]);

    let body = String::from_utf8_lossy(&request.body).into_owned();
    let secret = app.secret();
    for canary in ["quillwort", secret, "sk-upstream-invented", "sk-collector"] {
        assert!(!body.contains(canary), "{canary}");
    }
}

#[tokio::test]
async fn failures_are_marked() {
    let broken = Script::new().json("500 Oh", &json!({"error": {"message": "x"}}));
    let (upstream, to) = (Upstream::playing(broken).await, collector().await);
    let app = traced(&upstream, &to, |_| {}).await;
    app.client().post(CHAT, &chat("Hello.", false)).await;
    let found = spans(&to.exchange(0).await.request);
    for kind in [2, 3] {
        let span = found.iter().find(|span| span.kind == kind).unwrap();
        assert_eq!(span.status.as_ref().map(|s| s.code), Some(2), "{kind}");
    }
    let call = found.iter().find(|span| span.kind == 3).unwrap();
    assert_eq!(attributes(call)["error.type"], json!("500"));

    app.client().post_raw(CHAT, "{").await;
    let found = spans(&to.exchange(1).await.request);
    let server = found.iter().find(|span| span.kind == 2).unwrap();
    assert_eq!(attributes(server)["ibex.code"], json!("INVALID_JSON"));
    assert_eq!(
        server.status, None,
        "the client's own fault is none of the server's"
    );
    let last = found.last().unwrap();
    assert_eq!(
        (last.name.as_str(), last.status.as_ref().map(|s| s.code)),
        ("validate", Some(2))
    );
    assert!(found.iter().all(|span| span.kind != 3), "no call, no span");
}

#[tokio::test]
async fn the_callers_decision_holds_and_else_the_ratio() {
    let (upstream, to) = (Upstream::echo_ok().await, collector().await);
    let app = traced(&upstream, &to, |config| config.telemetry.sample_ratio = 0.0).await;
    let with = |flags: &str| {
        let parent = format!("00-{TRACE}-b7ad6b7169203331-{flags}");
        app.client().header("traceparent", &parent)
    };
    app.client().post(CHAT, &chat("No parent.", false)).await;
    assert!(upstream.last().request.values("traceparent").is_empty());
    with("00").post(CHAT, &chat("Not sampled.", false)).await;
    let unsampled = format!("00-{TRACE}-b7ad6b7169203331-00");
    assert_eq!(upstream.last().request.values("traceparent"), [unsampled]);
    let broken = app
        .client()
        .header("traceparent", "00-nonsense")
        .header("tracestate", "vendor=1");
    broken.post(CHAT, &chat("Broken.", false)).await;
    let sent = &upstream.last().request;
    assert!(sent.values("traceparent").is_empty() && sent.values("tracestate").is_empty());
    with("01").post(CHAT, &chat("Sampled.", false)).await;
    let found = spans(&to.exchange(0).await.request);
    assert!(found.iter().all(|span| hex(&span.trace_id) == TRACE));
    let server = found.iter().find(|span| span.kind == 2).unwrap();
    assert_eq!(hex(&server.parent_span_id), "b7ad6b7169203331");
    assert_eq!(to.hits(), 1);
}

#[tokio::test]
async fn a_collector_that_hangs_costs_no_request_anything() {
    let upstream = Upstream::echo_ok().await;
    let reached = Event::default();
    let hanging = Upstream::playing(Script::new().set(&reached).hang()).await;
    let app = traced(&upstream, &hanging, |config| config.telemetry.queue = 1).await;
    let ask = async || {
        let answer = app.client().post(CHAT, &chat("Hello.", false)).await;
        assert_eq!(answer.status, StatusCode::OK);
    };
    ask().await;
    // The first one is on its way, the second fills the queue; there is no room for the others.
    reached.wait().await;
    for _ in 0..5 {
        ask().await;
    }
    let text = scraped(&app).await;
    let dropped: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("ibex_trace_spans_total{result=\"dropped\"} "))
        .expect("the counter")
        .parse()
        .unwrap();
    // Twelve stages, the request and the call.
    assert_eq!(dropped, 4 * 14, "{text}");
    assert!(
        text.contains("ibex_queue_depth{queue=\"traces\"} 1\n"),
        "{text}"
    );
}

#[tokio::test]
async fn what_waits_at_the_end_is_exported_or_counted() {
    let upstream = Upstream::echo_ok().await;
    let to = collector().await;
    let app = traced(&upstream, &to, |config| {
        config.telemetry.batch = 100;
        config.telemetry.interval_ms = 3_600_000;
    })
    .await;
    app.client().post(CHAT, &chat("Hello.", false)).await;
    app.stopped().await;
    assert_eq!(spans(&to.exchange(0).await.request).len(), 14);

    let away = traced(&upstream, &to, |config| {
        // Nothing listens there.
        config.telemetry.endpoint = Some("http://127.0.0.1:9".to_owned());
        config.telemetry.interval_ms = 3_600_000;
        config.telemetry.batch = 100;
    })
    .await;
    away.client().post(CHAT, &chat("Hello.", false)).await;
    away.stopped().await;
    let text = away.app.metrics.render(Exposition::Text).unwrap();
    assert!(
        text.contains("ibex_trace_spans_total{result=\"rejected\"} 14\n"),
        "{text}"
    );
}

/// Lets everybody go on who can: the test's runtime has one thread, and sockets on loopback need no time.
async fn settled() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_collector_that_is_busy_is_asked_again() {
    let upstream = Upstream::echo_ok().await;
    let asked = AtomicUsize::new(0);
    let to = Upstream::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Script::new().whole("503 Busy", "", ""),
        1 => Script::new().whole("200 OK", "", ""),
        _ => Script::new().whole("400 No", "", ""),
    })
    .await;
    let app = traced(&upstream, &to, |_| {}).await;
    let ask = async || {
        app.client().post(CHAT, &chat("Hello.", false)).await;
    };
    ask().await;
    // After its pause.
    let again = to.exchange(1).await;
    assert_eq!(again.request.body, to.exchange(0).await.request.body);
    // What it refuses for good is not sent again.
    ask().await;
    to.exchange(2).await.done.wait().await;
    // What is under way when the service stops is sent once more: the answer has to be read before.
    settled().await;
    app.stopped().await;
    assert_eq!(to.hits(), 3);
    let text = app.app.metrics.render(Exposition::Text).unwrap();
    for counted in ["exported\"} 14\n", "rejected\"} 14\n", "dropped\"} 0\n"] {
        let line = format!("ibex_trace_spans_total{{result=\"{counted}");
        assert!(text.contains(&line), "{line}{text}");
    }
}
