//! What a provider may answer, and where requests for it go.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::StatusCode;
use ibex::config::{AuthStyle, ModelConfig, ProviderConfig};
use serde_json::json;
use tokio::net::TcpListener;

use super::{CHAT, app_with, assert_refused, chat, metric, model_of, released, streamed};
use crate::support::{Answer, Script, TestApp, Upstream, completion, in_assembled};

const HTML: &str = "content-type: text/html\r\n";
const JSON: &str = "content-type: application/json\r\n";

fn page() -> String {
    format!("<html>{}</html>", "<p>gateway</p>".repeat(2_200))
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn answer_of(model: &str) -> Script {
    let script = Script::new();
    match model {
        "page" => script.whole("502 Bad Gateway", HTML, page()),
        "empty" => script.whole("503 Service Unavailable", "", ""),
        "text" => script.whole("504 Gateway Timeout", "content-type: text/plain\r\n", "late"),
        "alien" => script.json("500 Internal Server Error", &json!({"detail": "x"})),
        "portal" => script.whole("200 OK", HTML, page()),
        "cut-403" => script.whole("403 Forbidden", JSON, "{\"error\": {\"mess"),
        "cut-400" => script.whole("400 Bad Request", JSON, "{\"error\": {\"mess"),
        "zipped" => script.whole(
            "429 Too Many Requests",
            "content-type: application/json\r\ncontent-encoding: gzip\r\nretry-after: 17\r\n",
            zipped(b"{\"error\": {\"message\": \"slow down\"}}"),
        ),
        "short" => script
            .send("HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 9000\r\n\r\n<html>")
            .close(),
        "key" => script.json(
            "401 Unauthorized",
            &json!({"error": {"message": "CANARY: sk-upstream-invented is wrong"}}),
        ),
        "moved" => script.whole("307 Temporary Redirect", "location: http://127.0.0.1:9/\r\n", ""),
        "limited" => script.whole(
            "429 Too Many Requests",
            "content-type: application/json\r\nretry-after: 21\r\nx-ratelimit-limit-requests: 77\r\nx-ratelimit-remaining-requests: 0\r\n",
            "{\"error\": {\"message\": \"slow down\", \"type\": \"requests\", \"code\": \"rate_limit_exceeded\"}}",
        ),
        "garbage" => script.send("SSH-2.0-OpenSSH_9.6\r\n\r\n").close(),
        "silent" => script.close(),
        "reset" => script.reset(),
        _ => script.json("200 OK", &completion()),
    }
}

async fn ask(app: &TestApp, model: &str, stream: bool) -> Answer {
    let mut body = if stream { streamed() } else { chat() };
    body["model"] = model.into();
    let answer = app.client().post(CHAT, &body).await;
    let kind = answer.header("content-type").to_owned();
    assert!(!kind.contains("event-stream"), "{model}");
    if kind == "application/json" && answer.header("content-encoding").is_empty() {
        answer.json();
    }
    assert!(!answer.cut, "{model}");
    answer
}

/// PROV-01.
#[tokio::test]
async fn every_provider_answer_becomes_one_the_client_can_read() {
    let upstream = Upstream::start(|request| answer_of(&model_of(request))).await;
    let app = TestApp::start(&upstream.url()).await;
    for stream in [false, true] {
        let page_answer = ask(&app, "page", stream).await;
        assert_eq!(page_answer.status, StatusCode::BAD_GATEWAY);
        assert_eq!(page_answer.body, page());
        let empty = ask(&app, "empty", stream).await;
        assert_refused("empty", &empty, 503, "PROVIDER_BAD_RESPONSE");
        let text = ask(&app, "text", stream).await;
        assert_eq!(
            (text.status, &text.body[..]),
            (StatusCode::GATEWAY_TIMEOUT, &b"late"[..])
        );
        let alien = ask(&app, "alien", stream).await;
        assert_eq!(alien.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(alien.json(), json!({"detail": "x"}));
        let portal = ask(&app, "portal", stream).await;
        assert_refused("portal", &portal, 502, "PROVIDER_BAD_RESPONSE");
        let cut = ask(&app, "cut-403", stream).await;
        assert_refused("cut-403", &cut, 503, "PROVIDER_UNAVAILABLE");
        let cut = ask(&app, "cut-400", stream).await;
        assert_refused("cut-400", &cut, 400, "PROVIDER_BAD_RESPONSE");
        let packed = ask(&app, "zipped", stream).await;
        assert_eq!(packed.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(packed.header("content-encoding"), "gzip");
        assert_eq!(packed.header("retry-after"), "17");
        assert_eq!(
            packed.body,
            zipped(b"{\"error\": {\"message\": \"slow down\"}}")
        );
        let short = ask(&app, "short", stream).await;
        assert_refused("short", &short, 502, "PROVIDER_BAD_RESPONSE");
    }
    assert_eq!(upstream.hits(), 18, "nothing was asked twice");
    assert_eq!(
        metric(
            &app,
            "ibex_provider_requests_total{provider=\"openai\",model=\"other\",result=\"ok\"}"
        )
        .await,
        0
    );
    released(&app).await;
}

#[tokio::test]
async fn our_own_key_and_redirects_are_no_business_of_the_clients() {
    let upstream = Upstream::start(|request| answer_of(&model_of(request))).await;
    let app = TestApp::start(&upstream.url()).await;
    for stream in [false, true] {
        let key = ask(&app, "key", stream).await;
        assert_refused("key", &key, 503, "PROVIDER_UNAVAILABLE");
        let shown = String::from_utf8_lossy(&key.body);
        assert!(
            !shown.contains("CANARY") && !shown.contains("sk-"),
            "{shown}"
        );
        assert_eq!(key.header("www-authenticate"), "");
        let moved = ask(&app, "moved", stream).await;
        assert_refused("moved", &moved, 502, "PROVIDER_BAD_RESPONSE");
        assert_eq!(moved.header("location"), "");
        for broken in ["garbage", "silent", "reset"] {
            let answer = ask(&app, broken, stream).await;
            assert_refused(broken, &answer, 502, "PROVIDER_BAD_RESPONSE");
        }
    }
    released(&app).await;
}

#[tokio::test]
async fn the_providers_own_limits_are_told_when_it_refuses() {
    let upstream = Upstream::start(|request| answer_of(&model_of(request))).await;
    let app = TestApp::start(&upstream.url()).await;
    let answer = ask(&app, "limited", false).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.header("retry-after"), "21");
    assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded");
    assert_eq!(answer.header("x-ratelimit-limit-requests"), "77");
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), "0");
    for ours in ["x-ratelimit-limit", "x-ratelimit-reset-requests"] {
        assert_eq!(
            answer.header(ours),
            "",
            "half of theirs beside half of ours is no limit"
        );
    }
}

#[tokio::test]
async fn a_provider_that_is_not_there() {
    let port = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = port.local_addr().expect("bound");
    drop(port);
    let app = TestApp::start(&format!("http://{address}/v1")).await;
    for body in [chat(), streamed()] {
        let answer = app.client().post(CHAT, &body).await;
        assert_refused("nobody", &answer, 503, "PROVIDER_UNAVAILABLE");
        assert_eq!(answer.header("retry-after"), "1");
        assert!(!String::from_utf8_lossy(&answer.body).contains(&address.to_string()));
    }
    released(&app).await;
}

#[tokio::test]
async fn connections_are_kept_and_a_stale_one_costs_no_request() {
    let upstream = Upstream::start(|request| {
        let script = answer_of("");
        if model_of(request) == "last" {
            script.close()
        } else {
            script
        }
    })
    .await;
    let app = TestApp::start(&upstream.url()).await;
    for model in ["a", "b", "last", "c", "last", "d"] {
        assert_eq!(
            ask(&app, model, false).await.status,
            StatusCode::OK,
            "{model}"
        );
    }
    assert_eq!((upstream.hits(), upstream.connections()), (6, 3));
}

/// HTTP-03.
#[tokio::test]
async fn every_base_url_is_joined_by_one_rule() {
    let upstream = Upstream::echo_ok().await;
    let origin = upstream.url().trim_end_matches("/v1").to_owned();
    let table = [
        ("", "/v1"),
        ("/", "/v1"),
        ("/v1", "/v1"),
        ("/v1/", "/v1"),
        ("/api/v1", "/api/v1"),
        ("/v1beta/openai/", "/v1beta/openai"),
        ("/v10", "/v10"),
        ("/openai/deployments/d1", "/openai/deployments/d1"),
    ];
    let app = app_with(&upstream, |config| {
        in_assembled(config);
        config.providers.clear();
        for (i, (base, _)) in table.iter().enumerate() {
            let provider = ProviderConfig {
                base_url: format!("{origin}{base}"),
                api_key: None,
                auth: AuthStyle::None,
                default: i == 0,
            };
            config.providers.insert(format!("p{i}"), provider);
            config.models.push(ModelConfig {
                pattern: format!("m{i}"),
                provider: Some(format!("p{i}")),
                upstream_model: Some(format!("their-{i}")),
                context_window: None,
                max_output_tokens: None,
                tokenizer: None,
                system_role: None,
                recall: None,
            });
        }
    })
    .await;
    for (i, (base, prefix)) in table.iter().enumerate() {
        for lead in ["", "/v1"] {
            for operation in ["/chat/completions", "/embeddings", "/completions"] {
                let mut body = chat();
                body["model"] = format!("m{i}").into();
                let answer = app
                    .client()
                    .post(&format!("{lead}{operation}"), &body)
                    .await;
                assert_eq!(answer.status, StatusCode::OK, "{base}");
                let request = &upstream.last().request;
                assert_eq!(request.path, format!("{prefix}{operation}"), "{base}");
                body["model"] = format!("their-{i}").into();
                assert_eq!(
                    request.body,
                    body.to_string().into_bytes(),
                    "only the name differs"
                );
            }
        }
    }
}
