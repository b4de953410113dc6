//! What stands around every request: identifiers in, identifiers and error bodies out, one log line and its metrics a request.

use std::any::Any;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use tokio::time::Instant;

use crate::app::App;
use crate::error::{ApiError, Code, Envelope};
use crate::ids::RequestId;
use crate::request::Stage;
use crate::telemetry::trace::Trace;
use crate::telemetry::{CLIENT_GONE, Ended, OTHER_METHOD, RequestEnd, RequestMeta, Trail};

use super::chat::Told;
use super::routes::ROUTES;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACE_ID: HeaderName = HeaderName::from_static("x-trace-id");
const RESPONSE_TIME: HeaderName = HeaderName::from_static("x-response-time");

/// What stands for a route where none answers.
pub(super) const NO_ROUTE: &str = "none";

/// The template of the route that answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct RouteLabel(pub(super) &'static str);

/// What stands around a request: its identifiers, and what every answer gets last. Dropped before its answer is finished, the client has gone.
pub(super) struct Around {
    app: App,
    meta: RequestMeta,
    /// Of a request that does not pass the router.
    trail: Trail,
    /// Whether a body was announced that does not come with the head.
    large: bool,
    finished: bool,
}

impl Around {
    /// Reads or mints the identifiers.
    pub(super) fn new<B>(app: App, request: &http::Request<B>, route: &'static str) -> Self {
        let headers = request.headers();
        let meta = RequestMeta {
            id: request_id(headers),
            trace: Trace::of(headers, app.traces.sampler()),
            started: Instant::now(),
            method: known(request.method()),
            route,
        };
        app.metrics.began();
        Self {
            app,
            meta,
            large: is_large(headers),
            trail: Trail::default(),
            finished: false,
        }
    }

    pub(super) fn meta(&self) -> &RequestMeta {
        &self.meta
    }

    /// The identifiers, and where a request that does not pass the router notes what it comes to.
    pub(super) fn parts(&mut self) -> (&App, &RequestMeta, &mut Trail) {
        (&self.app, &self.meta, &mut self.trail)
    }

    /// Writes an error's body and the identifiers; counts the answer, and tells of it unless its relay does.
    pub(super) fn finish(mut self, route: &'static str, mut response: Response) -> Response {
        self.finished = true;
        self.meta.route = route;
        let error = response.extensions_mut().remove::<Arc<ApiError>>();
        if let Some(error) = &error {
            write_error(&self.app, &self.meta, error, &mut response);
        }
        if let Some(told) = response.extensions_mut().remove::<Told>() {
            self.trail = std::mem::take(&mut *told.0.lock());
        }
        if let Some(error) = &error
            && self.trail.code.is_none()
        {
            // Refused outside the stages: by the router, or by a panic.
            self.app.metrics.refused(self.trail.current(), error.code);
        }
        let at = Instant::now();
        let took = at.duration_since(self.meta.started);
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let headers = response.headers_mut();
        if let Ok(value) = HeaderValue::try_from(self.meta.id.as_str()) {
            headers.insert(REQUEST_ID, value);
        }
        if let Ok(value) = HeaderValue::from_str(self.meta.trace.id().hex().as_str()) {
            headers.insert(TRACE_ID, value);
        }
        if self.app.is_draining() || self.leaves_a_body() {
            // Whoever keeps the connection would find it closed with the next request.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        headers.insert(RESPONSE_TIME, HeaderValue::from(ms));
        let status = response.status().as_u16();
        let code = error.map(|e| e.code);
        self.app
            .console
            .answered(route, response.status(), code, took);
        let metrics = &self.app.metrics;
        metrics.answered(route, status, took, &self.meta.trace);
        if !self.trail.is_handed_over() {
            let refused = self.trail.code.is_some();
            let end = if refused {
                RequestEnd::Refused
            } else {
                RequestEnd::Answered
            };
            self.tell(status, end, at);
        }
        response
    }

    /// Whether the request was refused before its body was read, and there is so much of it that the server closes the connection instead.
    fn leaves_a_body(&self) -> bool {
        let unread = match self.trail.current() {
            Some(stage) => BEFORE_THE_BODY.contains(&stage),
            None => true,
        };
        self.large && unread && self.trail.code.is_some()
    }

    fn tell(&mut self, status: u16, end: RequestEnd, at: Instant) {
        let ended = Ended {
            meta: self.meta.clone(),
            trail: std::mem::take(&mut self.trail),
            status,
            end,
            usage: None,
            first_chunk: None,
            model: None,
            at,
        };
        ended.tell(&self.app.metrics, &self.app.traces);
    }
}

impl Drop for Around {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let at = Instant::now();
        let took = at.duration_since(self.meta.started);
        let metrics = &self.app.metrics;
        metrics.left(self.meta.route, took, &self.meta.trace);
        self.tell(CLIENT_GONE, RequestEnd::ClientGone, at);
    }
}

/// Tells the outside which route answered.
pub(super) async fn labelled(mut request: Request, next: Next) -> Response {
    let route = label(request.extensions().get::<MatchedPath>());
    if let Some(meta) = request.extensions_mut().get_mut::<RequestMeta>() {
        meta.route = route;
    }
    let mut response = next.run(request).await;
    response.extensions_mut().insert(RouteLabel(route));
    response
}

/// The method's name, of a closed set: any other is the client's own text, which nothing here repeats. `_OTHER` is what the semantic
/// conventions call it.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        "CONNECT" => "CONNECT",
        "TRACE" => "TRACE",
        _ => OTHER_METHOD,
    }
}

/// The stages in which nothing of the body is read.
const BEFORE_THE_BODY: [Stage; 5] = [
    Stage::BodyLimit,
    Stage::BearerToken,
    Stage::AgentBinding,
    Stage::PolicySnapshot,
    Stage::RequestRate,
];

/// Bytes of a body that may well come with its head.
const WITH_HEAD: u64 = 16 << 10;

/// Whether the body's length is beyond that, or not known.
fn is_large(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    match length {
        Some(length) => length > WITH_HEAD,
        None => headers.contains_key(header::TRANSFER_ENCODING),
    }
}

/// The client's identifier when it sent exactly one valid one.
fn request_id(headers: &HeaderMap) -> RequestId {
    let mut given = headers.get_all(&REQUEST_ID).iter();
    match (
        given
            .next()
            .and_then(|v| v.to_str().ok())
            .and_then(|t| t.parse().ok()),
        given.next(),
    ) {
        (Some(id), None) => id,
        _ => RequestId::mint(),
    }
}

/// The route's template: a closed set, so it may be a metric label.
fn label(path: Option<&MatchedPath>) -> &'static str {
    let Some(path) = path.map(MatchedPath::as_str) else {
        return NO_ROUTE;
    };
    if let Some(known) = ROUTES.iter().find(|r| r.path == path) {
        return known.path;
    }
    // The aliases without `/v1`, and the wildcard that takes model names with slashes.
    let bare = |p: &str| p.strip_prefix("/v1").unwrap_or(p).replace("{*", "{");
    let wanted = bare(path);
    ROUTES
        .iter()
        .find(|r| bare(r.path) == wanted)
        .map_or(NO_ROUTE, |r| r.path)
}

fn write_error(app: &App, meta: &RequestMeta, error: &ApiError, response: &mut Response) {
    let envelope = Envelope {
        error: error.body(Some(meta.id.as_str()), Some(app.clock.now().to_string())),
    };
    let json = serde_json::to_vec(&envelope).unwrap_or_default();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
        .headers_mut()
        .insert(header::CONTENT_LENGTH, HeaderValue::from(json.len()));
    *response.body_mut() = Bytes::from(json).into();
}

/// A panic is a fault of ours: logged where it is caught, told to nobody.
pub(super) fn panicked(_payload: Box<dyn Any + Send + 'static>) -> Response {
    tracing::error!("a handler panicked");
    ApiError::new(Code::InternalError, "an internal error occurred").into_response()
}
