//! Stage 12, response relay: takes the provider's answer, yields the client's response; bytes pass as they come.
//!
//! A tap reads a copy for usage. The only bytes ever added are one error event when the provider dies inside a stream. Whoever drops
//! the body (a client that leaves) drops the provider's connection with it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::error::{ApiError, Code, Envelope};
use crate::openai::{Tap, TapReport};
use crate::telemetry::StreamEnd;

/// Headers that belong to one connection (RFC 9110, section 7.6.1).
pub(super) const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// The relay stopped before the answer was whole; the client's connection is cut.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the answer broke off: {}", .0.as_str())]
pub struct Aborted(StreamEnd);

/// Told once how an answer ended, with what the tap read. Dropping it untold means that the client went away.
pub trait Ending: Send + 'static {
    /// The first bytes have come: these, at this time.
    fn began(&mut self, _at: Instant, _first: &[u8]) {}
    /// Takes the end.
    fn ended(&mut self, end: StreamEnd, tap: TapReport);
}

/// Time between the error event and the cut. The server writes an event only while the body has nothing more to give, and a cut drops
/// what is not written; a reader that is slower than this has lost the answer anyway.
const CUT_GRACE: Duration = Duration::from_millis(500);

/// Limits of one answer.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Longest silence.
    pub idle: Duration,
    /// Longest whole answer.
    pub total: Option<Duration>,
}

/// What the relay still has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Passing,
    /// The error event is handed over; when the alarm rings the connection is cut.
    Cutting(StreamEnd),
    Over,
}

/// The body that a client reads.
pub struct Relay<B, E: Ending> {
    upstream: B,
    tap: Option<Tap>,
    ending: E,
    events: bool,
    boundary: Boundary,
    patience: Patience,
    began: Instant,
    last: Instant,
    alarm: Pin<Box<Sleep>>,
    state: State,
}

impl<B, E> Relay<B, E>
where
    B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
    E: Ending + Unpin,
{
    /// Wraps an answer's body. `events` says whether it is an event stream that may be given an error event: a plain one, whose length
    /// nobody has announced to the client.
    pub fn new(upstream: B, events: bool, tap: Tap, patience: Patience, ending: E) -> Self {
        let now = Instant::now();
        let first = patience
            .total
            .map_or(patience.idle, |t| t.min(patience.idle));
        let mut this = Self {
            upstream,
            tap: Some(tap),
            ending,
            events,
            boundary: Boundary::default(),
            patience,
            began: now,
            last: now,
            alarm: Box::pin(tokio::time::sleep_until(now + first)),
            state: State::Passing,
        };
        // Nobody asks an empty body for its end.
        if this.upstream.is_end_stream() {
            this.finish(StreamEnd::Complete);
        }
        this
    }

    fn finish(&mut self, end: StreamEnd) {
        self.state = State::Over;
        conclude(&mut self.tap, &mut self.ending, end);
    }

    /// Ends a broken answer: inside a stream with one error event first, then by cutting the connection.
    fn break_off(&mut self, end: StreamEnd) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        if self.events {
            self.state = State::Cutting(end);
            self.alarm.as_mut().reset(Instant::now() + CUT_GRACE);
            return Poll::Ready(Some(Ok(Frame::data(error_event(end, self.boundary)))));
        }
        self.finish(end);
        Poll::Ready(Some(Err(Aborted(end))))
    }

    /// The alarm is set once and looked at when it rings: chunks only note the time, which costs nothing a chunk.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<StreamEnd> {
        loop {
            ready!(self.alarm.as_mut().poll(cx));
            let now = Instant::now();
            let total = self.patience.total.map(|t| self.began + t);
            if total.is_some_and(|t| t <= now) {
                return Poll::Ready(StreamEnd::TotalTimeout);
            }
            let idle = self.last + self.patience.idle;
            if idle <= now {
                return Poll::Ready(StreamEnd::IdleTimeout);
            }
            self.alarm
                .as_mut()
                .reset(total.map_or(idle, |t| t.min(idle)));
        }
    }
}

impl<B, E> HttpBody for Relay<B, E>
where
    B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
    E: Ending + Unpin,
{
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let this = self.get_mut();
        match this.state {
            State::Passing => {}
            State::Cutting(end) => {
                ready!(this.alarm.as_mut().poll(cx));
                this.finish(end);
                return Poll::Ready(Some(Err(Aborted(end))));
            }
            State::Over => return Poll::Ready(None),
        }
        loop {
            match Pin::new(&mut this.upstream).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers are hop-by-hop here: nothing downstream has asked for them.
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    this.last = Instant::now();
                    if !this.boundary.any && !data.is_empty() {
                        this.ending.began(this.last, &data);
                    }
                    if let Some(tap) = &mut this.tap {
                        tap.feed(&data);
                    }
                    this.boundary.feed(&data);
                    // With a declared length hyper does not ask again after the last byte.
                    if this.upstream.is_end_stream() {
                        this.finish(StreamEnd::Complete);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Poll::Ready(Some(Err(_))) => return this.break_off(StreamEnd::UpstreamError),
                Poll::Ready(None) => {
                    this.finish(StreamEnd::Complete);
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    let end = ready!(this.poll_alarm(cx));
                    return this.break_off(end);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        // Never early: the end is told by polling, so that it is recorded.
        self.state == State::Over
    }

    fn size_hint(&self) -> SizeHint {
        if self.events {
            // A provider's announced length would leave no room for the error event.
            SizeHint::default()
        } else {
            self.upstream.size_hint()
        }
    }
}

impl<B, E: Ending> Drop for Relay<B, E> {
    fn drop(&mut self) {
        let end = match self.state {
            State::Cutting(end) => end,
            State::Passing | State::Over => StreamEnd::ClientGone,
        };
        conclude(&mut self.tap, &mut self.ending, end);
    }
}

/// Tells the end once: the tap is there only until then.
fn conclude<E: Ending>(tap: &mut Option<Tap>, ending: &mut E, end: StreamEnd) {
    let Some(tap) = tap.take() else { return };
    let report = tap.finish();
    let end = if end == StreamEnd::Complete && report.error_event {
        StreamEnd::ErrorEvent
    } else {
        end
    };
    ending.ended(end, report);
}

/// Where in an event stream the relay stands: its last four bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Boundary {
    tail: [u8; 4],
    any: bool,
}

impl Boundary {
    fn feed(&mut self, data: &[u8]) {
        self.any |= !data.is_empty();
        if let Some(tail) = data.last_chunk::<4>() {
            self.tail = *tail;
            return;
        }
        for byte in data {
            let [_, b, c, d] = self.tail;
            self.tail = [b, c, d, *byte];
        }
    }

    /// Whether an event may begin here: at the start, or after a blank line with any line ending.
    fn between_events(self) -> bool {
        !self.any
            || self.tail == *b"\r\n\r\n"
            || matches!(self.tail, [_, _, b'\n', b'\n'] | [_, _, b'\r', b'\r'])
    }
}

/// One event in OpenAI's shape, on which the official SDKs raise. A half-sent event is closed first.
fn error_event(end: StreamEnd, boundary: Boundary) -> Bytes {
    let (code, text) = match end {
        StreamEnd::IdleTimeout | StreamEnd::TotalTimeout => (
            Code::ProviderTimeout,
            "the provider fell silent in the middle of the answer",
        ),
        StreamEnd::Complete
        | StreamEnd::ClientGone
        | StreamEnd::Stopped
        | StreamEnd::UpstreamError
        | StreamEnd::ErrorEvent => (
            Code::ProviderUnavailable,
            "the provider broke off in the middle of the answer",
        ),
    };
    let error = ApiError::new(code, text);
    let json = serde_json::to_string(&Envelope {
        error: error.body(None, None),
    })
    .unwrap_or_default();
    let lead = if boundary.between_events() {
        ""
    } else {
        "\n\n"
    };
    Bytes::from(format!("{lead}data: {json}\n\n"))
}

/// Wraps a relay as a response body.
pub fn into_body<B, E>(relay: Relay<B, E>) -> Body
where
    B: HttpBody<Data = Bytes> + Unpin + Send + 'static,
    E: Ending + Unpin,
{
    Body::new(relay)
}

#[cfg(test)]
mod tests;
