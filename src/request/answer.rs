//! The client's response, put together from the provider's answer and what the path knows: headers first, then the relayed body.

use std::time::Duration;

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tokio::time::Instant;

use crate::app::App;
use crate::console::Noted;
use crate::limits::SlotHeld;
use crate::memory::capture::Turn;
use crate::openai::sse::ContentCoding;
use crate::openai::sse::Usage;
use crate::openai::{Tap, TapReport, named_model};
use crate::session::record::TurnEnd;
use crate::store::shared::Reply;
use crate::telemetry::{Direction, Ended, RequestEnd, RequestMeta, StreamEnd, Trail};
use crate::tokens::Counted;

use super::Stage;
use super::context::{Attached, Checkpoint, Estimate};
use super::handoff::{Answer, AnswerBody, end_to_end};
use super::idempotency::{self, Claim, Copied, Copy};
use super::rate_limit::CountedTokens;
use super::read::ValidChat;
use super::relay::{Ending, Patience, Relay, into_body};
use super::resolution::Resolved;

/// What the path knows when the provider's head has come.
#[derive(Debug)]
pub struct Told<'a> {
    /// Identifiers.
    pub meta: &'a RequestMeta,
    /// Stages and times.
    pub trail: &'a mut Trail,
    /// Rate figures and the stream's slot.
    pub counted: CountedTokens,
    /// The request.
    pub valid: ValidChat,
    /// Session and directive.
    pub resolved: Resolved,
    /// What was injected.
    pub attached: Attached,
    /// What may become memory once the answer has ended.
    pub capture: Option<Box<Turn>>,
    /// The request's key, for whoever repeats it.
    pub claim: Option<Claim>,
    /// The record of its context, for the console.
    pub noted: Option<Box<Noted>>,
}

/// Makes the response of a chat request.
#[must_use]
pub fn chat(app: &App, answer: Answer, told: Told<'_>) -> Response {
    let Told {
        meta,
        trail,
        mut counted,
        valid,
        resolved,
        attached,
        capture,
        claim,
        noted,
    } = told;
    let lane = &valid.route.lane;
    // What pictures and files cost is no matter of the words beside them.
    let telling = valid.chat.messages().iter().all(|m| m.media_parts() == 0);
    let model = trail
        .who()
        .filter(|_| telling)
        .map(|who| (who.org, lane.clone()));
    // The body has been sent: its share of the aggregate cap is free again, however long the answer takes.
    valid.release();
    let slot = counted.take_slot();
    let capture = capture.filter(|_| answer.head.status.is_success());
    let timing = trail.server_timing();
    let mut response = relayed(
        app,
        answer,
        Closing {
            slot,
            capture,
            checkpoint: attached.checkpoint().cloned(),
            estimate: model.zip(attached.estimate()),
            claim: claim.map(Pending::new),
            noted,
            ..Closing::of(app, meta)
        },
        trail,
    );
    let status = response.status();
    let headers = response.headers_mut();
    counted.write(status, headers);
    attached.write(headers);
    put(headers, "x-ibex-session-id", resolved.session.as_str());
    put(headers, "server-timing", &timing);
    response
}

/// Makes the response of a request that was answered before.
#[must_use]
pub fn repeated(reply: Reply, counted: &CountedTokens, resolved: &Resolved) -> Response {
    let mut response = idempotency::replay(reply);
    let status = response.status();
    let headers = response.headers_mut();
    counted.write(status, headers);
    put(headers, "x-ibex-session-id", resolved.session.as_str());
    response
}

/// Makes the response of a pass-through request.
#[must_use]
pub fn other(app: &App, answer: Answer, told: Other<'_>) -> Response {
    let Other {
        meta,
        trail,
        mut counted,
    } = told;
    let slot = counted.take_slot();
    let timing = trail.server_timing();
    let mut response = relayed(
        app,
        answer,
        Closing {
            slot,
            ..Closing::of(app, meta)
        },
        trail,
    );
    let status = response.status();
    let headers = response.headers_mut();
    counted.write(status, headers);
    put(headers, "server-timing", &timing);
    response
}

/// What a pass-through route knows.
#[derive(Debug)]
pub struct Other<'a> {
    /// Identifiers.
    pub meta: &'a RequestMeta,
    /// Stages and times.
    pub trail: &'a mut Trail,
    /// Rate figures and the stream's slot.
    pub counted: CountedTokens,
}

/// The provider's `X-Request-ID`.
const UPSTREAM_REQUEST_ID: HeaderName = HeaderName::from_static("x-ibex-upstream-request-id");

fn relayed(app: &App, answer: Answer, mut closing: Closing, trail: &mut Trail) -> Response {
    let Answer { mut head, body } = answer;
    end_to_end(&mut head.headers);
    // Our own identifier takes this name; a support ticket needs the provider's.
    if let Some(theirs) = head.headers.remove("x-request-id") {
        head.headers.insert(UPSTREAM_REQUEST_ID, theirs);
    }
    match body {
        AnswerBody::Whole(bytes) => {
            if let Some(pending) = closing.claim.take() {
                pending
                    .claim
                    .complete(head.status, &head.headers, bytes.clone());
            }
            Response::from_parts(head, bytes.into())
        }
        AnswerBody::Arriving(incoming) => {
            let copy = closing.claim.as_mut().map(|pending| pending.begin(&head));
            let incoming = Copied::new(incoming, copy);
            let upstream = &app.config.upstream;
            let total = Some(upstream.total_timeout_ms)
                .filter(|ms| *ms > 0)
                .map(Duration::from_millis);
            let patience = Patience {
                idle: Duration::from_millis(upstream.idle_timeout_ms),
                total,
            };
            let kind = head
                .headers
                .get(header::CONTENT_TYPE)
                .map(HeaderValue::as_bytes)
                .unwrap_or_default();
            let events = kind
                .get(..17)
                .is_some_and(|k| k.eq_ignore_ascii_case(b"text/event-stream"));
            let tap = Tap::new(events, &head.headers);
            // Plain text has no place inside a compressed stream: that one is only cut.
            let tellable = events
                && ContentCoding::of(head.headers.get(header::CONTENT_ENCODING))
                    == ContentCoding::Identity;
            if tellable {
                head.headers.remove(header::CONTENT_LENGTH);
            }
            app.metrics.relaying();
            closing.status = head.status;
            closing.trail = trail.hand_over();
            Response::from_parts(
                head,
                into_body(Relay::new(incoming, tellable, tap, patience, closing)),
            )
        }
    }
}

/// Sets a header from text that is known to be a valid value; anything else is left out.
pub(super) fn put(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// A claim that waits for its answer.
struct Pending {
    claim: Claim,
    status: StatusCode,
    headers: HeaderMap,
    copy: Copy,
}

impl Pending {
    fn new(claim: Claim) -> Self {
        Self {
            claim,
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            copy: Copy::new(),
        }
    }

    /// Notes the head; answers with what takes the body's copy.
    fn begin(&mut self, head: &http::response::Parts) -> Copy {
        self.status = head.status;
        for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING] {
            if let Some(value) = head.headers.get(&name) {
                self.headers.insert(name, value.clone());
            }
        }
        self.copy.clone()
    }

    fn complete(self) {
        if let Some(body) = self.copy.take() {
            self.claim.complete(self.status, &self.headers, body);
        }
    }
}

/// What happens when the answer ends: the slot is given back, usage is counted, one line is logged.
struct Closing {
    app: App,
    meta: RequestMeta,
    trail: Trail,
    status: StatusCode,
    first_chunk: Option<Instant>,
    /// The model as the answer names it, where the request is traced.
    model: Option<String>,
    slot: Option<SlotHeld>,
    capture: Option<Box<Turn>>,
    checkpoint: Option<Checkpoint>,
    estimate: Option<(Counted, Estimate)>,
    claim: Option<Pending>,
    noted: Option<Box<Noted>>,
}

impl Closing {
    /// What every answer has; the rest is put in where there is any.
    fn of(app: &App, meta: &RequestMeta) -> Self {
        Self {
            app: app.clone(),
            meta: meta.clone(),
            trail: Trail::default(),
            status: StatusCode::OK,
            first_chunk: None,
            model: None,
            slot: None,
            capture: None,
            checkpoint: None,
            estimate: None,
            claim: None,
            noted: None,
        }
    }

    /// Counts what the provider's answer came to.
    fn count(&self, at: Instant, usage: Usage) {
        let handoff = self.trail.began(Stage::Handoff);
        let (Some(call), Some(handoff)) = (&self.trail.call, handoff) else {
            return;
        };
        let figures = &call.figures;
        figures.tokens(Direction::Input, usage.prompt_tokens);
        figures.tokens(Direction::Cached, usage.cached_tokens);
        figures.tokens(Direction::Output, usage.completion_tokens);
        figures.ended(at.duration_since(handoff), &self.meta.trace);
        if let Some(first) = self.first_chunk {
            figures.first_chunk(first.duration_since(handoff));
        }
    }

    /// Holds what was counted against what the provider reports.
    fn learn(&self, usage: Usage) {
        let Some((model, counted)) = &self.estimate else {
            return;
        };
        let (estimator, metrics) = (&self.app.estimator, &self.app.metrics);
        if let Some(ratio) = estimator.observe(model, counted.tokens, usage.prompt_tokens) {
            metrics.token_estimate(counted.family, ratio);
        }
    }

    /// The checkpoint of the turn: numbers alone.
    fn check(&self, end: StreamEnd, usage: Usage, ms: u64) {
        let Some(Checkpoint { lane, turn }) = &self.checkpoint else {
            return;
        };
        let ended = TurnEnd {
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.cached_tokens,
            completion_tokens: usage.completion_tokens,
            ms,
            stream: self.trail.call.as_ref().is_some_and(|call| call.stream),
            complete: end == StreamEnd::Complete,
            at: self.app.clock.now(),
        };
        self.app.sessions.records.ended(lane, *turn, ended);
    }
}

impl Ending for Closing {
    fn began(&mut self, at: Instant, first: &[u8]) {
        self.first_chunk = Some(at);
        if self.meta.trace.is_sampled() {
            self.model = named_model(first);
        }
    }

    fn ended(&mut self, end: StreamEnd, report: TapReport) {
        // Who is cut off has not left.
        let end = if end == StreamEnd::ClientGone && self.app.is_cut() {
            StreamEnd::Stopped
        } else {
            end
        };
        self.slot = None;
        let metrics = &self.app.metrics;
        metrics.ended(end);
        if report.lost {
            metrics.tap_lost();
        }
        let at = Instant::now();
        let usage = report.usage.unwrap_or_default();
        self.count(at, usage);
        let took = at.duration_since(self.meta.started);
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let noted = self.noted.take();
        self.app.console.ended(end, usage, took, noted);
        self.check(end, usage, ms);
        self.learn(usage);
        // One that broke off is given back where it is dropped.
        let claim = self.claim.take();
        if let Some(pending) = claim.filter(|_| end == StreamEnd::Complete) {
            pending.complete();
        }
        if end == StreamEnd::Complete
            && let Some(turn) = self.capture.take()
        {
            self.app.capture.offer(&self.app, *turn);
        }
        let ended = Ended {
            meta: self.meta.clone(),
            trail: std::mem::take(&mut self.trail),
            status: self.status.as_u16(),
            end: RequestEnd::Relayed(end),
            usage: report.usage,
            first_chunk: self.first_chunk,
            model: self.model.take(),
            at,
        };
        ended.tell(&self.app.metrics, &self.app.traces);
    }
}
