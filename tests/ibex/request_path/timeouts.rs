//! SSE-16: long answers live, dead ones end, and each timeout has its own face. The clock is moved; nothing waits.

use std::time::Duration;

use http::StatusCode;

use super::raw::{self, Raw};
use super::{CHAT, app_with, assert_refused, chat, jump, metric, released, settled, streamed};
use crate::support::{Event, Script, TestApp, Upstream, completion};

#[tokio::test]
async fn a_slow_stream_lives_as_long_as_it_says_something() {
    let gates: Vec<Event> = (0..10).map(|_| Event::default()).collect();
    let mut script = Script::new().events_head();
    for (i, gate) in gates.iter().enumerate() {
        script = script.wait(gate).chunk(format!("data: {i}\n\n"));
    }
    let upstream = Upstream::playing(script.chunk("data: [DONE]\n\n").last_chunk()).await;
    let app = TestApp::start(&upstream.url()).await;
    let mut client = Raw::connect(&app).await;
    client
        .send(raw::post(&app, CHAT, streamed().to_string()))
        .await;
    client.read_to(b"\r\n\r\n").await;
    for (i, gate) in gates.iter().enumerate() {
        // Just under the limit of two minutes, ten times.
        jump(Duration::from_secs(115)).await;
        gate.set();
        client.read_to(format!("data: {i}\n\n").as_bytes()).await;
    }
    client.read_to(b"data: [DONE]\n\n\r\n0\r\n\r\n").await;
    assert_eq!(
        metric(&app, "ibex_answers_total{result=\"complete\"}").await,
        1
    );
}

#[tokio::test]
async fn a_stream_that_falls_silent_ends_with_an_error_event() {
    let upstream = Upstream::playing(Script::new().events_head().chunk("data: 1\n\n").hang()).await;
    let app = app_with(&upstream, |config| config.upstream.idle_timeout_ms = 3_000).await;
    let mut client = Raw::connect(&app).await;
    client
        .send(raw::post(&app, CHAT, streamed().to_string()))
        .await;
    client.read_to(b"data: 1\n\n").await;
    jump(Duration::from_millis(2_500)).await;
    settled().await;
    assert!(!upstream.last().gone.is_set(), "not before its time");
    assert_eq!(app.app.metrics.answers_open.get(), 1);
    jump(Duration::from_millis(1_000)).await;
    let event = client.read_to(b"}\n\n").await;
    let event = String::from_utf8(event).expect("text");
    assert!(event.contains("\"code\":\"PROVIDER_TIMEOUT\""), "{event}");
    let rest = client.count_to_end().await;
    assert!(rest <= 2, "cut behind the event, without a last chunk");
    upstream.last().gone.wait().await;
    assert_eq!(
        metric(&app, "ibex_answers_total{result=\"idle_timeout\"}").await,
        1
    );
    released(&app).await;
}

#[tokio::test]
async fn a_document_that_falls_silent_is_cut() {
    let upstream = Upstream::playing(
        Script::new()
            .send(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
            )
            .hang(),
    )
    .await;
    let app = TestApp::start(&upstream.url()).await;
    let mut client = Raw::connect(&app).await;
    client.send(raw::post(&app, CHAT, chat().to_string())).await;
    client.read_to(b"\r\n\r\n{").await;
    jump(Duration::from_secs(121)).await;
    assert_eq!(client.count_to_end().await, 0);
    upstream.last().gone.wait().await;
    released(&app).await;
}

#[tokio::test]
async fn a_provider_without_a_head_is_given_up_with_504() {
    for body in [chat(), streamed()] {
        let upstream = Upstream::playing(Script::new().hang()).await;
        let app = app_with(&upstream, |config| {
            config.upstream.first_byte_timeout_ms = 3_000;
        })
        .await;
        let client = app.client();
        let asked = tokio::spawn(async move { client.post(CHAT, &body).await });
        let exchange = upstream.exchange(0).await;
        jump(Duration::from_millis(2_500)).await;
        settled().await;
        assert!(!exchange.gone.is_set(), "not before its time");
        jump(Duration::from_millis(1_000)).await;
        let answer = asked.await.expect("an answer");
        assert_refused("no head", &answer, 504, "PROVIDER_TIMEOUT");
        exchange.gone.wait().await;
        assert_eq!(upstream.hits(), 1);
        released(&app).await;
    }
}

#[tokio::test]
async fn a_late_head_is_no_fault() {
    let go = Event::default();
    let upstream = Upstream::playing(Script::new().wait(&go).json("200 OK", &completion())).await;
    let app = TestApp::start(&upstream.url()).await;
    let client = app.client();
    let asked = tokio::spawn(async move { client.post(CHAT, &chat()).await });
    upstream.exchange(0).await;
    jump(Duration::from_secs(290)).await;
    go.set();
    assert_eq!(asked.await.expect("an answer").status, StatusCode::OK);
}

#[tokio::test]
async fn a_total_limit_ends_a_stream_that_never_falls_silent() {
    let go = Event::default();
    let upstream = Upstream::playing(
        Script::new()
            .events_head()
            .chunk("data: 1\n\n")
            .wait(&go)
            .chunk("data: 2\n\n")
            .hang(),
    )
    .await;
    let app = app_with(&upstream, |config| {
        config.upstream.total_timeout_ms = 60_000
    })
    .await;
    let mut client = Raw::connect(&app).await;
    client
        .send(raw::post(&app, CHAT, streamed().to_string()))
        .await;
    client.read_to(b"data: 1\n\n").await;
    jump(Duration::from_secs(55)).await;
    go.set();
    client.read_to(b"data: 2\n\n").await;
    jump(Duration::from_secs(6)).await;
    client.read_to(b"PROVIDER_TIMEOUT").await;
    client.count_to_end().await;
    upstream.last().gone.wait().await;
    assert_eq!(
        metric(&app, "ibex_answers_total{result=\"total_timeout\"}").await,
        1
    );
    released(&app).await;
}

#[tokio::test]
async fn an_error_body_that_never_comes_is_given_up_too() {
    let said = Event::default();
    let upstream = Upstream::playing(
        Script::new()
            .send(
                "HTTP/1.1 500 Oops\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{",
            )
            .set(&said)
            .hang(),
    )
    .await;
    let app = app_with(&upstream, |config| {
        config.upstream.first_byte_timeout_ms = 3_000;
    })
    .await;
    let client = app.client();
    let asked = tokio::spawn(async move { client.post(CHAT, &chat()).await });
    said.wait().await;
    // The body has a limit of its own, which begins when the head has been read.
    settled().await;
    jump(Duration::from_millis(2_500)).await;
    settled().await;
    assert!(!upstream.last().gone.is_set(), "not before its time");
    jump(Duration::from_millis(1_000)).await;
    let answer = asked.await.expect("an answer");
    assert_refused("no error body", &answer, 504, "PROVIDER_TIMEOUT");
    upstream.last().gone.wait().await;
    released(&app).await;
}

#[tokio::test]
async fn a_request_head_that_never_ends_is_dropped() {
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::start(&upstream.url()).await;
    let mut client = Raw::connect(&app).await;
    client
        .send("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n")
        .await;
    // The service has taken the connection when another request has been answered.
    app.client().get("/health").await;
    jump(Duration::from_secs(11)).await;
    assert!(client.closed().await);
}
