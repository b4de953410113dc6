//! The relay under a paused clock, over scripted bodies.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use super::{CUT_GRACE, Ending, Patience, Relay};
use crate::openai::{Tap, TapReport};
use crate::telemetry::StreamEnd;

/// What a scripted body does next.
enum Step {
    Bytes(&'static str),
    Wait(Duration),
    Fail,
    Hang,
}

struct Script {
    steps: VecDeque<Step>,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Body for Script {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        loop {
            if let Some(waiting) = &mut this.waiting {
                std::task::ready!(waiting.as_mut().poll(cx));
                this.waiting = None;
            }
            match this.steps.pop_front() {
                Some(Step::Bytes(text)) => {
                    return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(text.as_bytes())))));
                }
                Some(Step::Wait(time)) => this.waiting = Some(Box::pin(tokio::time::sleep(time))),
                Some(Step::Fail) => {
                    return Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())));
                }
                Some(Step::Hang) => {
                    this.steps.push_front(Step::Hang);
                    return Poll::Pending;
                }
                None => return Poll::Ready(None),
            }
        }
    }
}

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<(StreamEnd, TapReport)>>>);

impl Ending for Told {
    fn ended(&mut self, end: StreamEnd, report: TapReport) {
        self.0.lock().push((end, report));
    }
}

const PATIENCE: Patience = Patience {
    idle: Duration::from_secs(3),
    total: None,
};

fn relay(steps: Vec<Step>, events: bool, patience: Patience) -> (Relay<Script, Told>, Told) {
    let told = Told::default();
    let script = Script {
        steps: steps.into(),
        waiting: None,
    };
    (
        Relay::new(
            script,
            events,
            Tap::new(events, &HeaderMap::new()),
            patience,
            told.clone(),
        ),
        told,
    )
}

/// Everything that the client gets, and whether its connection is cut.
async fn read(mut relay: Relay<Script, Told>) -> (String, bool) {
    let mut text = String::new();
    while let Some(frame) = relay.frame().await {
        match frame {
            Ok(frame) => text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap()),
            Err(_) => return (text, true),
        }
    }
    (text, false)
}

fn ends(told: &Told) -> Vec<StreamEnd> {
    told.0.lock().iter().map(|(end, _)| *end).collect()
}

#[tokio::test(start_paused = true)]
async fn a_whole_stream_passes_and_its_usage_is_read() {
    let usage =
        r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}"#;
    let event: &'static str =
        Box::leak(format!("data: {usage}\n\ndata: [DONE]\n\n").into_boxed_str());
    let (body, told) = relay(
        vec![
            Step::Bytes("data: {}\n"),
            Step::Bytes("\n"),
            Step::Bytes(event),
        ],
        true,
        PATIENCE,
    );
    assert_eq!(read(body).await, (format!("data: {{}}\n\n{event}"), false));
    let (end, report) = told.0.lock()[0];
    assert_eq!(
        (end, report.usage.unwrap().total_tokens),
        (StreamEnd::Complete, 7)
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_provider_gives_one_error_event_and_a_cut_connection() {
    let (body, told) = relay(
        vec![Step::Bytes("data: {\"a\":1}\n\n"), Step::Fail],
        true,
        PATIENCE,
    );
    let (text, cut) = read(body).await;
    assert!(cut);
    let event = text
        .strip_prefix("data: {\"a\":1}\n\n")
        .and_then(|t| t.strip_prefix("data: "))
        .and_then(|t| t.strip_suffix("\n\n"))
        .unwrap();
    let error: serde_json::Value = serde_json::from_str(event).unwrap();
    assert_eq!(error["error"]["code"], "PROVIDER_UNAVAILABLE");
    assert_eq!(error["error"]["type"], "server_error");
    assert_eq!(ends(&told), [StreamEnd::UpstreamError]);
}

#[tokio::test(start_paused = true)]
async fn a_half_sent_event_is_closed_before_the_error_event() {
    for (sent, closed) in [
        ("data: {\"a", true),
        ("data: {}\r\n", true),
        ("data: {}\r\n\r\n", false),
        ("data: {}\r\r", false),
        ("", false),
    ] {
        let (body, _) = relay(vec![Step::Bytes(sent), Step::Fail], true, PATIENCE);
        let (text, _) = read(body).await;
        assert_eq!(
            text.strip_prefix(sent).unwrap().starts_with("\n\n"),
            closed,
            "{sent:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_document_is_cut_without_a_word() {
    let (body, told) = relay(vec![Step::Bytes("{\"a\":"), Step::Fail], false, PATIENCE);
    assert_eq!(read(body).await, ("{\"a\":".to_owned(), true));
    assert_eq!(ends(&told), [StreamEnd::UpstreamError]);
}

#[tokio::test(start_paused = true)]
async fn silence_ends_at_the_idle_limit_and_slow_progress_does_not() {
    let began = Instant::now();
    let (body, told) = relay(
        vec![Step::Bytes("data: {}\n\n"), Step::Hang],
        true,
        PATIENCE,
    );
    let (text, cut) = read(body).await;
    assert!(cut && text.contains("PROVIDER_TIMEOUT"), "{text}");
    assert_eq!(
        (began.elapsed(), ends(&told)),
        (PATIENCE.idle + CUT_GRACE, vec![StreamEnd::IdleTimeout])
    );

    let slow = (0..10)
        .flat_map(|_| {
            [
                Step::Wait(Duration::from_secs(2)),
                Step::Bytes("data: {}\n\n"),
            ]
        })
        .collect();
    let (body, told) = relay(slow, true, PATIENCE);
    let (text, cut) = read(body).await;
    assert_eq!(
        (text.len(), cut, ends(&told)),
        (100, false, vec![StreamEnd::Complete])
    );
}

#[tokio::test(start_paused = true)]
async fn the_total_limit_ends_even_a_lively_stream() {
    let lively = (0..100)
        .flat_map(|_| {
            [
                Step::Wait(Duration::from_secs(1)),
                Step::Bytes("data: {}\n\n"),
            ]
        })
        .collect();
    let began = Instant::now();
    let (body, told) = relay(
        lively,
        true,
        Patience {
            total: Some(Duration::from_secs(10)),
            ..PATIENCE
        },
    );
    assert!(read(body).await.1);
    assert_eq!(
        (began.elapsed(), ends(&told)),
        (
            Duration::from_secs(10) + CUT_GRACE,
            vec![StreamEnd::TotalTimeout]
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_told_once() {
    let (mut body, told) = relay(
        vec![Step::Bytes("data: {}\n\n"), Step::Hang],
        true,
        PATIENCE,
    );
    assert!(body.frame().await.is_some());
    drop(body);
    assert_eq!(ends(&told), [StreamEnd::ClientGone]);
}

#[tokio::test(start_paused = true)]
async fn an_error_object_in_the_stream_passes_and_counts_as_a_failure() {
    let error = "data: {\"error\":{\"message\":\"engine overloaded\",\"type\":\"server_error\",\"code\":\"overloaded\"}}\n\ndata: [DONE]\n\n";
    let (body, told) = relay(vec![Step::Bytes(error)], true, PATIENCE);
    assert_eq!(read(body).await, (error.to_owned(), false));
    assert_eq!(ends(&told), [StreamEnd::ErrorEvent]);
}
