//! Stage 11, provider handoff: takes the rewritten request, yields the provider's [`Answer`], its head read and its body still to come.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header, response,
};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::Instant;

use crate::app::App;
use crate::error::{ApiError, Code};
use crate::openai::RewrittenBody;
use crate::providers::Provider;
use crate::telemetry::metrics::Call as Counted;
use crate::telemetry::trace::Trace;
use crate::telemetry::{CallFacts, CallFigures, RequestMeta};

use super::relay::HOP_BY_HOP;

/// The client's headers that a provider may see. Everything else stays here: credentials, cookies, `X-IBEX-*`, whatever is not listed.
const PASSED_ON: [HeaderName; 5] = [
    header::ACCEPT,
    header::ACCEPT_ENCODING,
    header::CONTENT_TYPE,
    header::USER_AGENT,
    HeaderName::from_static("openai-beta"),
];

const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");

/// An error body larger than this is not held back to be checked.
const ERROR_BYTES: usize = 1 << 20;

/// A request as it leaves.
#[derive(Debug)]
pub struct Outgoing {
    /// The method.
    pub method: Method,
    /// The joined URL.
    pub uri: Uri,
    /// The body, with its exact length.
    pub body: RewrittenBody,
    /// Whether the client expects events.
    pub stream: bool,
}

/// The provider's answer.
#[derive(Debug)]
pub struct Answer {
    /// Status and end-to-end headers.
    pub head: response::Parts,
    /// What follows.
    pub body: AnswerBody,
}

/// An answer's body.
#[derive(Debug)]
pub enum AnswerBody {
    /// Still arriving.
    Arriving(Incoming),
    /// An error, read whole and checked.
    Whole(Bytes),
}

/// Why there is no answer to relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandoffError {
    /// No connection, or it broke before the head.
    #[error("the provider cannot be reached")]
    Unreachable,
    /// No head in time.
    #[error("the provider did not answer in time")]
    Timeout,
    /// The provider refuses our key; its text is not shown.
    #[error("the provider refused the request of this service")]
    KeyRefused,
    /// A success that is neither JSON nor events, a redirect, or a body that breaks off.
    #[error("the provider's answer could not be understood")]
    BadResponse,
    /// An error status with an empty or broken body.
    #[error("the provider answered with an error and no readable explanation")]
    BareError(StatusCode),
    /// The request could not be formed.
    #[error("the request to the provider could not be formed")]
    Unsendable,
}

impl HandoffError {
    /// The metric's label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::KeyRefused => "key_refused",
            Self::BadResponse | Self::Unsendable => "bad_response",
            Self::BareError(_) => "error_status",
        }
    }
}

impl From<HandoffError> for ApiError {
    fn from(error: HandoffError) -> Self {
        let text = error.to_string();
        match error {
            HandoffError::Unreachable => Self::new(Code::ProviderUnavailable, text).retry_after(1),
            HandoffError::KeyRefused => Self::new(Code::ProviderUnavailable, text),
            HandoffError::Timeout => Self::new(Code::ProviderTimeout, text),
            HandoffError::BadResponse => Self::new(Code::BadGateway, text),
            HandoffError::BareError(status) => Self::new(Code::BadGateway, text).status(status),
            HandoffError::Unsendable => Self::new(Code::InternalError, text),
        }
    }
}

/// Whom to call, and what for.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// The provider and the call's figures.
    pub facts: &'a CallFacts,
    /// The request's place in its trace.
    pub trace: Trace,
    /// The client's headers.
    pub headers: &'a HeaderMap,
}

impl<'a> Call<'a> {
    /// The call of a request.
    #[must_use]
    pub fn new(facts: &'a CallFacts, meta: &RequestMeta, headers: &'a HeaderMap) -> Self {
        Self {
            facts,
            trace: meta.trace,
            headers,
        }
    }
}

/// Counts a call however it ends: one that is dropped was given up by its client.
struct Counting<'a> {
    figures: &'a CallFigures,
    trace: Trace,
    began: Instant,
    result: &'static str,
    status: Option<StatusCode>,
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        let counted = Counted {
            result: self.result,
            status: self.status.map(|status| status.as_u16()),
            took: self.began.elapsed(),
        };
        self.figures.called(&counted, &self.trace);
    }
}

/// Sends the request and waits for the answer's head.
///
/// # Errors
/// When there is no answer that may be relayed. Dropping the future cancels the call.
pub async fn send(app: &App, call: Call<'_>, outgoing: Outgoing) -> Result<Answer, HandoffError> {
    let provider = &*call.facts.provider;
    let mut counting = Counting {
        figures: &call.facts.figures,
        trace: call.trace,
        began: Instant::now(),
        result: "client_gone",
        status: None,
    };
    let result = attempt(app, call, outgoing, &mut counting.status).await;
    let label = match &result {
        Ok(answer) if answer.head.status.is_success() => "ok",
        Ok(_) => "error_status",
        Err(error) => error.label(),
    };
    counting.result = label;
    app.console
        .provider(label == "ok", counting.began.elapsed());
    if let Err(error) = &result {
        tracing::warn!(
            provider = provider.name(),
            outcome = label,
            "provider call failed: {error}"
        );
    }
    result
}

async fn attempt(
    app: &App,
    call: Call<'_>,
    outgoing: Outgoing,
    seen: &mut Option<StatusCode>,
) -> Result<Answer, HandoffError> {
    let stream = outgoing.stream;
    let request = build(call, outgoing)?;
    let first_byte = Duration::from_millis(app.config.upstream.first_byte_timeout_ms);
    let response = match tokio::time::timeout(first_byte, app.client.request(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) if is_timeout(&error) => return Err(HandoffError::Timeout),
        Ok(Err(error)) if error.is_connect() => return Err(HandoffError::Unreachable),
        // Connected, and then no valid head: the provider hung up or spoke something else.
        Ok(Err(_)) => return Err(HandoffError::BadResponse),
        Err(_) => return Err(HandoffError::Timeout),
    };
    let (mut head, body) = response.into_parts();
    *seen = Some(head.status);
    match head.status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(HandoffError::KeyRefused),
        status if status.is_success() => {
            expect_known_type(&head.headers, stream)?;
            Ok(Answer {
                head,
                body: AnswerBody::Arriving(body),
            })
        }
        status if status.is_client_error() || status.is_server_error() => {
            let body = error_body(status, &head.headers, body, first_byte).await?;
            // The body is whole: hyper writes its length, and a length that the provider declared otherwise cannot survive.
            head.headers.remove(header::CONTENT_LENGTH);
            Ok(Answer { head, body })
        }
        _ => Err(HandoffError::BadResponse),
    }
}

fn build(call: Call<'_>, outgoing: Outgoing) -> Result<Request<RewrittenBody>, HandoffError> {
    let provider: &Provider = &call.facts.provider;
    let headers = call.headers;
    let length = outgoing.body.remaining();
    let with_body = outgoing.method == Method::POST;
    let mut request = Request::builder()
        .method(outgoing.method)
        .uri(outgoing.uri)
        .body(outgoing.body)
        .map_err(|_| HandoffError::Unsendable)?;
    let out = request.headers_mut();
    for name in &PASSED_ON {
        if let Some(value) = headers.get(name) {
            out.insert(name.clone(), value.clone());
        }
    }
    put_trace(out, call);
    if with_body {
        out.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        out.entry(header::CONTENT_TYPE)
            .or_insert(HeaderValue::from_static("application/json"));
    }
    if let Some((name, value)) = provider.key_header() {
        out.insert(name.clone(), value.clone());
    }
    Ok(request)
}

/// Passes the trace on. Where this call is recorded, its own span is the parent; else the caller's stays, as this hop is in no trace. What is
/// not well formed goes no further, and neither does the state that came with it.
fn put_trace(out: &mut HeaderMap, call: Call<'_>) {
    if let Some(parent) = call.trace.outgoing() {
        out.insert(TRACE_PARENT, parent);
    } else if let Some(parent) = call.headers.get(&TRACE_PARENT)
        && call.trace.was_given()
    {
        out.insert(TRACE_PARENT, parent.clone());
    }
    if call.trace.was_given() {
        for state in call.headers.get_all(&TRACE_STATE) {
            out.append(TRACE_STATE, state.clone());
        }
    }
}

/// A connect timeout hides inside the client's error.
fn is_timeout(error: &hyper_util::client::legacy::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if inner
            .downcast_ref::<std::io::Error>()
            .is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
        {
            return true;
        }
        source = inner.source();
    }
    false
}

fn essence(headers: &HeaderMap) -> &[u8] {
    headers
        .get(header::CONTENT_TYPE)
        .map(|v| {
            v.as_bytes()
                .split(|b| *b == b';')
                .next()
                .unwrap_or_default()
                .trim_ascii()
        })
        .unwrap_or_default()
}

/// A success must be what the client can read: a captive portal's page is no answer.
fn expect_known_type(headers: &HeaderMap, stream: bool) -> Result<(), HandoffError> {
    let kind = essence(headers);
    let json = kind.eq_ignore_ascii_case(b"application/json")
        || kind.ends_with(b"+json")
        || kind.is_empty();
    let events = kind.eq_ignore_ascii_case(b"text/event-stream");
    if events || (json && !kind.is_empty()) || (json && !stream) {
        Ok(())
    } else {
        Err(HandoffError::BadResponse)
    }
}

/// Reads an error's body, so that a broken one never reaches the client with a good head.
async fn error_body(
    status: StatusCode,
    headers: &HeaderMap,
    body: Incoming,
    time: Duration,
) -> Result<AnswerBody, HandoffError> {
    let reading = Limited::new(body, ERROR_BYTES).collect();
    let bytes = match tokio::time::timeout(time, reading).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(_)) => return Err(HandoffError::BadResponse),
        Err(_) => return Err(HandoffError::Timeout),
    };
    let plain = !headers.contains_key(header::CONTENT_ENCODING);
    let cut_json = plain
        && essence(headers).eq_ignore_ascii_case(b"application/json")
        && serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_err();
    if bytes.is_empty() || cut_json {
        return Err(HandoffError::BareError(status));
    }
    Ok(AnswerBody::Whole(bytes))
}

/// What a provider says to us and not to the client: cookies of a connection that many tenants share, promises about its host's name,
/// and the account that our key belongs to.
const FOR_US: [HeaderName; 5] = [
    header::SET_COOKIE,
    header::ALT_SVC,
    header::STRICT_TRANSPORT_SECURITY,
    HeaderName::from_static("openai-organization"),
    HeaderName::from_static("openai-project"),
];

/// Drops what may not pass through a proxy from an answer's headers.
pub(super) fn end_to_end(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&FOR_US).chain(&named) {
        headers.remove(name);
    }
    let ours: Vec<HeaderName> = headers
        .keys()
        .filter(|n| n.as_str().starts_with("x-ibex-"))
        .cloned()
        .collect();
    for name in ours {
        headers.remove(name);
    }
}
