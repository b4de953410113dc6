//! Clients that go away: the provider's call ends with them and nothing stays taken.

use std::time::Duration;

use http::StatusCode;
use ibex::config::LimitOverride;

use super::raw::{self, Raw};
use super::{CHAT, app_with, chat, metric, model_of, released, streamed};
use crate::support::{Exchange, Received, Script, TestApp, Upstream, completion, ordinary};

/// The provider must see the end without having said another word; a generous bound for a loaded machine.
async fn gone(exchange: &Exchange) {
    tokio::time::timeout(Duration::from_secs(2), exchange.gone.wait())
        .await
        .expect("the provider's connection is closed at once");
}

/// SSE-09.
#[tokio::test]
async fn a_client_that_leaves_in_mid_stream_ends_the_call_and_frees_its_slot() {
    let upstream = Upstream::start(|request| {
        if request.json()["stream"] == true {
            Script::new()
                .events_head()
                .chunk("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":1}}\n\n")
                .hang()
        } else {
            ordinary(request)
        }
    })
    .await;
    let app = app_with(&upstream, |config| {
        config.rate_limit.token = LimitOverride {
            streams: Some(1),
            ..LimitOverride::default()
        };
    })
    .await;
    for round in 0..3 {
        let mut client = Raw::connect(&app).await;
        client
            .send(raw::post(&app, CHAT, streamed().to_string()))
            .await;
        client.read_to(b"usage").await;
        let exchange = upstream.last();
        drop(client);
        gone(&exchange).await;
        released(&app).await;
        assert_eq!(
            upstream.hits(),
            round + 1,
            "the one slot is free for the next"
        );
    }
    assert_eq!(
        metric(&app, "ibex_answers_total{result=\"client_gone\"}").await,
        3
    );
    assert_eq!(
        super::counted_tokens(&app).await,
        (12, 3),
        "what was used is counted"
    );
}

#[tokio::test]
async fn a_client_that_leaves_before_the_first_byte_ends_the_call() {
    let upstream = Upstream::playing(Script::new().hang()).await;
    let app = TestApp::start(&upstream.url()).await;
    for (i, body) in [chat(), streamed()].iter().enumerate() {
        let mut client = Raw::connect(&app).await;
        client.send(raw::post(&app, CHAT, body.to_string())).await;
        let exchange = upstream.exchange(i).await;
        drop(client);
        gone(&exchange).await;
        released(&app).await;
    }
    assert_eq!(upstream.hits(), 2);
}

#[tokio::test]
async fn a_client_that_leaves_inside_a_document_ends_the_call() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    for script in [
        Script::new()
            .send(format!("{head}content-length: 500\r\n\r\n{{\"a\":"))
            .hang(),
        Script::new()
            .chunked_head("content-type: application/json\r\n")
            .chunk("{\"a\":")
            .hang(),
    ] {
        let upstream = Upstream::playing(script).await;
        let app = TestApp::start(&upstream.url()).await;
        let mut client = Raw::connect(&app).await;
        client.send(raw::post(&app, CHAT, chat().to_string())).await;
        client.read_to(b"{\"a\":").await;
        drop(client);
        gone(&upstream.last()).await;
        released(&app).await;
    }
}

fn script_for(request: &Received) -> Script {
    match model_of(request).as_str() {
        "headless" => Script::new().hang(),
        "stall" => Script::new().events_head().chunk("data: 1\n\n").hang(),
        "die" => Script::new().events_head().chunk("data: 1\n\n").reset(),
        "silent" => Script::new().close(),
        "fail" => Script::new().json("500 Oops", &completion()),
        _ => ordinary(request),
    }
}

async fn round(app: &TestApp, upstream: &Upstream, kind: usize) {
    let body = |model: &str| {
        let mut body = streamed();
        body["model"] = model.into();
        body.to_string()
    };
    match kind {
        0 => {
            let before = upstream.hits();
            let mut client = Raw::connect(app).await;
            client.send(raw::post(app, CHAT, body("headless"))).await;
            upstream.exchange(before).await;
        }
        1 => {
            let mut client = Raw::connect(app).await;
            client.send(raw::post(app, CHAT, body("stall"))).await;
            client.read_to(b"data: 1\n\n").await;
        }
        2 => {
            let answer = app.client().post_raw(CHAT, "{\"model\": 1}").await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        }
        3 => {
            let head = raw::head(app, CHAT, "content-length: 500\r\n");
            let mut client = Raw::connect(app).await;
            client.send(format!("{head}{{\"model\":")).await;
        }
        4 => {
            // As an SDK does: it raises on the error event and hangs up.
            let mut client = Raw::connect(app).await;
            client.send(raw::post(app, CHAT, body("die"))).await;
            client.read_to(b"PROVIDER_UNAVAILABLE").await;
        }
        5 => {
            for model in ["silent", "fail"] {
                let answer = app.client().post_raw(CHAT, body(model)).await;
                assert!(answer.status.is_server_error());
            }
        }
        _ => {
            let answer = app.client().post_raw(CHAT, body("gpt-4o")).await;
            assert_eq!((answer.status, answer.cut), (StatusCode::OK, false));
        }
    }
}

#[tokio::test]
async fn three_hundred_bad_ends_leave_nothing_behind() {
    let upstream = Upstream::start(script_for).await;
    let app = app_with(&upstream, |config| {
        config.rate_limit.default_rpm = 1_000_000;
        // A slot that stays taken in one kind of round alone would refuse the last rounds.
        config.rate_limit.token.streams = Some(40);
    })
    .await;
    for i in 0..300 {
        round(&app, &upstream, i % 7).await;
    }
    released(&app).await;
    for exchange in upstream.exchanges() {
        super::until("every call to end", || {
            exchange.gone.is_set() || exchange.done.is_set()
        })
        .await;
    }
    assert_eq!(metric(&app, "ibex_answers_open").await, 0);
    assert_eq!(metric(&app, "ibex_request_bytes_in_flight").await, 0);
}
