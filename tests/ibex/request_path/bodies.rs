//! Request bodies: how large, how slow, and what becomes of the connection.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;

use super::raw::{self, Raw};
use super::{
    CHAT, app_with, assert_refused, assert_untouched, chat, chat_of, jump, released, settled, until,
};
use crate::support::{Event, Script, TestApp, Upstream, chunk, completion, in_assembled};

/// VAL-03: no hidden limit of a framework below the configured one.
#[tokio::test]
async fn large_bodies_pass_up_to_the_default_limit() {
    let upstream = Upstream::echo_ok().await;
    let app = app_with(&upstream, in_assembled).await;
    let image = "iVBOR".repeat(1 << 20);
    let picture = format!(
        r#"{{"model":"gpt-4o","messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{image}"}}}}]}}]}}"#
    );
    let client = app.client();
    for body in [picture.into(), chat_of(30 << 20)] {
        let answer = client.post_raw(CHAT, body.clone()).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(upstream.last().request.body == body, "the same bytes");
    }
    released(&app).await;
}

/// VAL-03: one byte over the limit, by a client that writes everything before it reads.
#[tokio::test]
async fn a_client_that_sends_too_much_can_still_read_why_it_is_refused() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let large = chat_of((32 << 20) + 1);
    for framed in [
        raw::post(&app, CHAT, &large),
        [
            raw::head(&app, CHAT, "transfer-encoding: chunked\r\n").as_bytes(),
            &chunk(&large),
            b"0\r\n\r\n",
        ]
        .concat(),
    ] {
        let mut client = Raw::connect(&app).await;
        client.try_send(&framed).await;
        let answer = client.answer().await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (413, "PAYLOAD_TOO_LARGE")
        );
    }
    assert_untouched("a 413", &upstream);
    released(&app).await;
}

/// A client that asks first need not send the body at all.
#[tokio::test]
async fn a_body_announced_as_too_large_is_refused_before_it_is_sent() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let mut client = Raw::connect(&app).await;
    client
        .send(raw::head(
            &app,
            CHAT,
            "expect: 100-continue\r\ncontent-length: 99999999\r\n",
        ))
        .await;
    let refused = client.answer().await;
    assert_eq!(refused.status, 413);
    let closes = "\r\nconnection: close\r\n";
    assert!(refused.head.contains(closes), "nobody reads the body");
    let body = chat().to_string();
    let mut client = Raw::connect(&app).await;
    let length = format!("expect: 100-continue\r\ncontent-length: {}\r\n", body.len());
    client.send(raw::head(&app, CHAT, &length)).await;
    client.read_to(b"HTTP/1.1 100 Continue\r\n\r\n").await;
    client.send(body).await;
    assert_eq!(client.answer().await.status, 200);
}

/// What a request was admitted under holds to its end, also what its session's text is made of.
#[tokio::test]
async fn a_reload_while_a_body_arrives_is_for_the_next_request() {
    let upstream = Upstream::echo_ok().await;
    let app = app_with(&upstream, |config| {
        config.context.platform_policy = "Name the old harbour.".to_owned();
    })
    .await;
    let body = chat().to_string();
    let (first, rest) = body.split_at(20);
    let mut client = Raw::connect(&app).await;
    let length = format!("content-length: {}\r\n", body.len());
    client.send(raw::head(&app, CHAT, &length) + first).await;
    until("the body to be waited for", || app.app.inflight.bytes() > 0).await;
    let mut config = app.app.config.clone();
    config.context.platform_policy = "Name the new harbour.".to_owned();
    app.app.reload(&config).unwrap();
    client.send(rest).await;
    assert_eq!(client.answer().await.status, 200);
    let sent = |text: &str| {
        let last = upstream.last();
        String::from_utf8_lossy(&last.request.body).contains(text)
    };
    assert!(sent("the old harbour"));
    let next = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}]});
    app.client().post(CHAT, &next).await;
    assert!(sent("the new harbour"));
}

#[tokio::test]
async fn bodies_over_the_aggregate_cap_wait_their_turn() {
    let (head, go) = (Event::default(), Event::default());
    let upstream = Upstream::playing(
        Script::new()
            .set(&head)
            .wait(&go)
            .json("200 OK", &completion()),
    )
    .await;
    let app = app_with(&upstream, |config| {
        config.server.max_body_bytes = 1_000;
        config.server.max_bytes_in_flight = 1_500;
        config.server.org_share = 1.0;
    })
    .await;
    let mut first = Raw::connect(&app).await;
    first.send(raw::post(&app, CHAT, chat_of(900))).await;
    head.wait().await;
    assert_eq!(app.app.inflight.bytes(), 900);
    let declared = app.client().post_raw(CHAT, chat_of(900)).await;
    assert_refused("declared", &declared, 503, "SERVICE_DEGRADED");
    assert_eq!(declared.header("retry-after"), "1");
    let mut chunked = Raw::connect(&app).await;
    chunked
        .send(raw::head(&app, CHAT, "transfer-encoding: chunked\r\n"))
        .await;
    chunked.send(chunk(chat_of(900))).await;
    let answer = chunked.answer().await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (503, "SERVICE_DEGRADED")
    );
    assert_eq!(
        app.app.inflight.bytes(),
        900,
        "a refused body holds nothing"
    );
    assert_eq!(upstream.hits(), 1);
    go.set();
    assert_eq!(first.answer().await.status, 200);
    let now = app.client().post_raw(CHAT, chat_of(900)).await;
    assert_eq!(now.status, StatusCode::OK);
    released(&app).await;
}

#[tokio::test]
async fn a_body_that_stalls_is_refused_in_time_and_releases_everything() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let mut client = Raw::connect(&app).await;
    let head = raw::head(&app, CHAT, "content-length: 500\r\n");
    client.send(format!("{head}{{\"model\":")).await;
    until("the body to be waited for", || {
        app.app.inflight.bytes() == 500
    })
    .await;
    jump(Duration::from_millis(59_000)).await;
    settled().await;
    assert_eq!(app.app.inflight.bytes(), 500, "not before its time");
    jump(Duration::from_millis(2_000)).await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (408, "REQUEST_TIMEOUT")
    );
    released(&app).await;
    assert_untouched("a stalled body", &upstream);
}

#[tokio::test]
async fn a_client_that_leaves_inside_its_body_releases_everything() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    for framing in ["content-length: 500\r\n", "transfer-encoding: chunked\r\n"] {
        let mut client = Raw::connect(&app).await;
        let head = raw::head(&app, CHAT, framing);
        client.send(format!("{head}5\r\n{{\"mod\r\n")).await;
        until("the body to be waited for", || app.app.inflight.bytes() > 0).await;
        drop(client);
        released(&app).await;
    }
    assert_untouched("half a body", &upstream);
}

#[tokio::test]
async fn a_connection_goes_on_after_a_refusal() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let mut client = Raw::connect(&app).await;
    let good = chat().to_string();
    for (request, status) in [
        (raw::post(&app, CHAT, "{"), 400),
        (raw::post(&app, CHAT, &good), 200),
        (raw::post(&app, "/v1/nothing", &good), 404),
        (
            String::from_utf8(raw::post(&app, CHAT, &good))
                .expect("text")
                .replace(&app.token, "wrong")
                .into_bytes(),
            401,
        ),
        (
            String::from_utf8(raw::post(&app, CHAT, &good))
                .expect("text")
                .replace("application/json", "text/plain")
                .into_bytes(),
            415,
        ),
        (raw::post(&app, CHAT, &good), 200),
    ] {
        client.send(request).await;
        assert_eq!(client.answer().await.status, status);
    }
    assert_eq!(upstream.hits(), 2);
}
