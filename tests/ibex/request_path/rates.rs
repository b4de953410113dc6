//! Rate and stream limits as a client meets them: truthful waits, both header families, no provider call.

use std::time::Duration;

use http::StatusCode;
use ibex::config::LimitOverride;
use serde_json::{Value, json};

use super::{CHAT, app_with, assert_refused, chat, jump, streamed};
use crate::support::{Answer, Script, Upstream};

fn number(answer: &Answer, name: &str) -> u64 {
    answer
        .header(name)
        .parse()
        .unwrap_or_else(|_| panic!("{name}: {:?}", answer.header(name)))
}

fn milliseconds(answer: &Answer, name: &str) -> u64 {
    let text = answer.header(name);
    text.strip_suffix("ms")
        .and_then(|ms| ms.parse().ok())
        .unwrap_or_else(|| panic!("{name}: {text:?}"))
}

/// LIM-02, requests.
#[tokio::test]
async fn a_request_over_the_rate_is_told_when_to_come_back_and_may_then() {
    for body in [chat(), streamed()] {
        let upstream = Upstream::echo_ok().await;
        let app = app_with(&upstream, |config| config.rate_limit.token.rpm = Some(2)).await;
        let first = app.client().post(CHAT, &body).await;
        assert_eq!(number(&first, "x-ratelimit-limit"), 2);
        assert_eq!(number(&first, "x-ratelimit-remaining"), 1);
        assert_eq!(number(&first, "x-ratelimit-limit-requests"), 2);
        assert_eq!(number(&first, "x-ratelimit-remaining-requests"), 1);
        let second = app.client().post(CHAT, &body).await;
        assert_eq!(number(&second, "x-ratelimit-remaining"), 0);
        let third = app.client().post(CHAT, &body).await;
        assert_refused("the third", &third, 429, "RATE_LIMITED");
        assert_eq!(third.json()["error"]["type"], "rate_limit_exceeded");
        assert_eq!(number(&third, "x-ratelimit-limit"), 2);
        assert_eq!(number(&third, "x-ratelimit-remaining"), 0);
        let wait = number(&third, "retry-after");
        let exact = milliseconds(&third, "x-ratelimit-reset-requests");
        assert!((1..=30).contains(&wait));
        assert!(exact <= wait * 1_000 && exact + 1_000 > (wait - 1) * 1_000);
        let now = u64::try_from(jiff::Timestamp::now().as_second()).expect("after 1970");
        assert!(number(&third, "x-ratelimit-reset") >= now);
        assert_eq!(upstream.hits(), 2);

        jump(Duration::from_millis(exact.saturating_sub(2_000))).await;
        let early = app.client().post(CHAT, &body).await;
        assert_eq!(early.status, StatusCode::TOO_MANY_REQUESTS);
        jump(Duration::from_secs(number(&early, "retry-after"))).await;
        assert_eq!(app.client().post(CHAT, &body).await.status, StatusCode::OK);
    }
}

/// LIM-02, tokens.
#[tokio::test]
async fn a_request_over_the_token_rate_is_told_when_to_come_back_and_may_then() {
    let upstream = Upstream::echo_ok().await;
    let app = app_with(&upstream, |config| {
        config.rate_limit.agent.tpm = Some(1_000)
    })
    .await;
    let asks = |tokens: u32| {
        let mut body = chat();
        body["max_tokens"] = tokens.into();
        body
    };
    let never = app.client().post(CHAT, &asks(5_000)).await;
    assert_refused("more than a minute's", &never, 400, "INVALID_REQUEST");
    assert_eq!(never.header("retry-after"), "");
    assert_eq!(upstream.hits(), 0);
    let first = app.client().post(CHAT, &asks(900)).await;
    assert_eq!(first.status, StatusCode::OK);
    assert_eq!(number(&first, "x-ratelimit-limit-tokens"), 1_000);
    assert!(number(&first, "x-ratelimit-remaining-tokens") < 100);
    let mut body = asks(500);
    body["stream"] = Value::Bool(true);
    let second = app.client().post(CHAT, &body).await;
    assert_refused("over the rate", &second, 429, "RATE_LIMITED");
    assert_eq!(number(&second, "x-ratelimit-remaining-tokens"), 0);
    assert_eq!(upstream.hits(), 1);
    assert_eq!(app.app.slots.taken(), 0, "a refused stream holds no slot");
    jump(Duration::from_secs(number(&second, "retry-after"))).await;
    assert_eq!(app.client().post(CHAT, &body).await.status, StatusCode::OK);
}

/// LIM-02, streams.
#[tokio::test]
async fn a_stream_too_many_is_refused_and_the_slot_comes_back() {
    let upstream = Upstream::start(|request| {
        if request.json()["stream"] == true {
            Script::new().events_head().chunk("data: {}\n\n").hang()
        } else {
            Script::new().json("200 OK", &json!({}))
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
    let mut open = super::raw::Raw::connect(&app).await;
    open.send(super::raw::post(&app, CHAT, streamed().to_string()))
        .await;
    open.read_to(b"data: {}").await;
    for path in [CHAT, "/v1/completions"] {
        let refused = app.client().post(path, &streamed()).await;
        assert_refused(path, &refused, 429, "RATE_LIMITED");
        assert_eq!(number(&refused, "retry-after"), 1);
    }
    assert_eq!(upstream.hits(), 1);
    let plain = app.client().post(CHAT, &chat()).await;
    assert_eq!(plain.status, StatusCode::OK, "no stream, no slot");
    drop(open);
    super::released(&app).await;
    let mut again = super::raw::Raw::connect(&app).await;
    again
        .send(super::raw::post(&app, CHAT, streamed().to_string()))
        .await;
    again.read_to(b"data: {}").await;
}
