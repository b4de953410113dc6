//! How the rewritten request is framed, and which headers cross the proxy in either direction.

use ibex::seams::{Clock, SystemClock};
use ibex::store::{DirectiveMode, DirectiveStore, NewDirective};
use serde_json::Value;

use super::raw::{self, Raw};
use super::{CHAT, app_with, chat};
use crate::support::{Received, Script, TestApp, Upstream, chunk, completion, in_assembled};

/// Line ends, tabs and characters of two, three and four bytes.
const PRETTY: &str = "{\r\n\t\"model\": \"gpt-4o\",\r\n\t\"x_vendor\": 1.50,\r\n\t\"messages\": [\r\n\t\t{\"role\": \"user\", \"content\": \"\u{fc}\u{96ea}\u{5c71} \u{1f989} \\u00e9\"}\r\n\t]\r\n}\r\n";

#[track_caller]
fn assert_framed(request: &Received) -> Value {
    assert_eq!(
        request.values("content-length"),
        [request.body.len().to_string()]
    );
    assert!(request.values("transfer-encoding").is_empty());
    assert_eq!(request.values("host").len(), 1);
    assert_eq!(request.values("content-type"), ["application/json"]);
    request.json()
}

async fn send_both_ways(app: &TestApp) {
    let mut client = Raw::connect(app).await;
    client.send(raw::post(app, CHAT, PRETTY)).await;
    assert_eq!(client.answer().await.status, 200);
    // In chunks that cut characters, with an extension and a trailer.
    let mut framed = raw::head(
        app,
        CHAT,
        "transfer-encoding: chunked\r\ntrailer: x-sum\r\n",
    )
    .into_bytes();
    for piece in PRETTY.as_bytes().chunks(7) {
        framed.extend_from_slice(&chunk(piece));
    }
    framed.extend_from_slice(b"0\r\nx-sum: CANARY\r\n\r\n");
    client.send(framed).await;
    assert_eq!(client.answer().await.status, 200);
}

/// HTTP-01, with nothing injected.
#[tokio::test]
async fn an_unchanged_body_goes_out_byte_for_byte_with_one_true_length() {
    let upstream = Upstream::echo_ok().await;
    // The other layout always has something to say.
    let app = app_with(&upstream, in_assembled).await;
    send_both_ways(&app).await;
    assert_eq!(upstream.hits(), 2);
    for exchange in upstream.exchanges() {
        assert_framed(&exchange.request);
        assert_eq!(exchange.request.body, PRETTY.as_bytes());
        assert!(!exchange.request.head().contains("CANARY"));
        assert!(exchange.request.values("trailer").is_empty());
    }
}

/// HTTP-01, with a directive.
#[tokio::test]
async fn a_rewritten_body_goes_out_with_its_own_length() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let directive = NewDirective {
        org: app.org,
        agent: app.agent,
        content: "Antworte h\u{f6}flich \u{1f989}.".into(),
        mode: DirectiveMode::SystemFirst,
        created_at: SystemClock.now(),
    };
    app.store.add_directive(directive).await.expect("added");
    app.store
        .promote_directive(app.org, app.agent, 1)
        .await
        .expect("promoted");
    send_both_ways(&app).await;
    for exchange in upstream.exchanges() {
        let body = assert_framed(&exchange.request);
        let first = &body["messages"][0];
        assert_eq!(first["role"], "system");
        let text = first["content"].as_str().expect("a text");
        assert!(text.contains("h\u{f6}flich \u{1f989}"), "{text}");
        let sent = String::from_utf8(exchange.request.body.clone()).expect("text");
        let message =
            "{\"role\": \"user\", \"content\": \"\u{fc}\u{96ea}\u{5c71} \u{1f989} \\u00e9\"}";
        assert!(sent.contains(message), "the client's message is untouched");
        assert!(sent.contains("\"x_vendor\": 1.50"));
    }
}

#[tokio::test]
async fn a_request_without_a_body_is_sent_without_one() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    app.client().get("/v1/models").await;
    let request = &upstream.last().request;
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("GET", "/v1/models")
    );
    assert!(request.values("content-length").is_empty());
    assert!(request.values("transfer-encoding").is_empty());
}

#[tokio::test]
async fn identifiers_are_echoed_and_traces_passed_on() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{trace}-b7ad6b7169203331-01");
    let client = app
        .client()
        .header("x-request-id", "req-owl-1")
        .header("traceparent", &parent)
        .header("tracestate", "vendor=1")
        .header("user-agent", "owl/1.0")
        .header("openai-beta", "assistants=v2");
    let answer = client.post(CHAT, &chat()).await;
    assert_eq!(answer.header("x-request-id"), "req-owl-1");
    assert_eq!(answer.header("x-trace-id"), trace);
    assert_ne!(answer.header("x-ibex-session-id"), "");
    let request = &upstream.last().request;
    assert_eq!(request.values("traceparent"), [parent.as_str()]);
    assert_eq!(request.values("tracestate"), ["vendor=1"]);
    assert_eq!(request.values("user-agent"), ["owl/1.0"]);
    assert_eq!(request.values("openai-beta"), ["assistants=v2"]);
    assert!(request.values("x-request-id").is_empty());

    let refused = client
        .clone()
        .without("authorization")
        .post(CHAT, &chat())
        .await;
    assert_eq!(refused.header("x-request-id"), "req-owl-1");
    let (long, doubled) = (
        app.client().header("x-request-id", &"x".repeat(4_000)),
        app.client()
            .header("x-request-id", "one")
            .another("x-request-id", "two"),
    );
    for client in [app.client(), long, doubled] {
        let answer = client.post(CHAT, &chat()).await;
        let minted = answer.header("x-request-id");
        assert!(!minted.is_empty() && minted.len() < 100 && minted != "one" && minted != "two");
        assert_eq!(answer.header("x-trace-id").len(), 32);
    }
}

#[tokio::test]
async fn what_belongs_to_the_providers_connection_stays_there() {
    let upstream = Upstream::playing(Script::new().whole(
        "200 OK",
        "content-type: application/json\r\n\
         connection: x-private\r\n\
         x-private: CANARY\r\n\
         keep-alive: timeout=5\r\n\
         proxy-authenticate: Basic\r\n\
         trailer: x-sum\r\n\
         upgrade: h2c\r\n\
         x-ibex-context-status: CANARY\r\n\
         x-ibex-forged: CANARY\r\n\
         x-request-id: their-own-7\r\n\
         x-trace-id: CANARY\r\n\
         x-ratelimit-limit: 987654\r\n\
         x-ratelimit-remaining-requests: 987654\r\n\
         openai-processing-ms: 12\r\n\
         openai-version: 2020-10-01\r\n",
        completion().to_string(),
    ))
    .await;
    let app = TestApp::start(&upstream.url()).await;
    for path in [CHAT, "/v1/embeddings"] {
        let mut client = Raw::connect(&app).await;
        client.send(raw::post(&app, path, chat().to_string())).await;
        let answer = client.answer().await;
        let head = &answer.head;
        for gone in [
            "canary",
            "x-private",
            "keep-alive",
            "proxy-authenticate",
            "trailer",
            "upgrade",
            "x-ibex-forged",
            "987654",
        ] {
            assert!(!head.contains(gone), "{gone} in {head}");
        }
        for kept in [
            "openai-processing-ms: 12",
            "openai-version: 2020-10-01",
            "x-ibex-upstream-request-id: their-own-7",
        ] {
            assert!(head.contains(kept), "{kept} not in {head}");
        }
        for once in [
            "content-length:",
            "content-type:",
            "x-request-id:",
            "x-trace-id:",
            "x-ratelimit-limit:",
            "x-ratelimit-remaining:",
            "x-ratelimit-reset:",
            "x-ratelimit-limit-requests:",
            "date:",
        ] {
            assert_eq!(
                head.matches(&format!("\r\n{once}")).count(),
                1,
                "{once} in {head}"
            );
        }
        assert_eq!(answer.body, completion().to_string().as_bytes());
    }
}
