//! What stands around every request: identifiers in, identifiers and error bodies out, one log line and two metrics a request.

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
use crate::telemetry::RequestMeta;

use super::chat::Logged;
use super::routes::ROUTES;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACE_ID: HeaderName = HeaderName::from_static("x-trace-id");
const RESPONSE_TIME: HeaderName = HeaderName::from_static("x-response-time");

/// The template of the route that answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct RouteLabel(pub(super) &'static str);

/// What stands around a request: its identifiers, and what every answer gets last.
pub(super) struct Around {
    meta: RequestMeta,
    method: Method,
}

impl Around {
    /// Reads or mints the identifiers.
    pub(super) fn new<B>(request: &http::Request<B>) -> Self {
        let headers = request.headers();
        let meta = RequestMeta {
            id: request_id(headers),
            trace: trace_id(headers),
            started: Instant::now(),
        };
        Self {
            meta,
            method: request.method().clone(),
        }
    }

    pub(super) fn meta(&self) -> &RequestMeta {
        &self.meta
    }

    /// Writes an error's body, the identifiers, one log line and two metrics.
    pub(super) fn finish(self, app: &App, route: &'static str, mut response: Response) -> Response {
        let Self { meta, method } = self;
        let error = response.extensions_mut().remove::<Arc<ApiError>>();
        if let Some(error) = &error {
            write_error(app, &meta, error, &mut response);
        }
        let headers = response.headers_mut();
        if let Ok(value) = HeaderValue::try_from(meta.id.as_str()) {
            headers.insert(REQUEST_ID, value);
        }
        if let Ok(value) = HeaderValue::try_from(&*meta.trace) {
            headers.insert(TRACE_ID, value);
        }
        if app.is_draining() {
            // Whoever keeps the connection would find it closed with the next request.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let elapsed = meta.started.elapsed();
        let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        headers.insert(RESPONSE_TIME, HeaderValue::from(ms));
        app.metrics
            .answered(route, response.status(), elapsed.as_secs_f64());
        let code = error.map(|e| e.code);
        app.console
            .answered(route, response.status(), code, elapsed);
        log(&meta, &method, route, ms, &response);
        response
    }
}

/// The request's one line.
fn log(meta: &RequestMeta, method: &Method, route: &'static str, ms: u64, response: &Response) {
    if !tracing::enabled!(tracing::Level::INFO) {
        return;
    }
    let logged = response.extensions().get::<Logged>();
    let who = logged.and_then(|l| l.who);
    tracing::info!(
        request_id = meta.id.as_str(),
        trace_id = &*meta.trace,
        method = method.as_str(),
        route,
        status = response.status().as_u16(),
        ms,
        org = who.map(|w| w.org.to_string()),
        agent = who.map(|w| w.agent.to_string()),
        token = who.map(|w| w.token.to_string()),
        stage = logged.and_then(|l| l.stage).map(Stage::name),
        code = logged.and_then(|l| l.code).map(Code::as_str),
        "request"
    );
}

/// Tells the outside which route answered.
pub(super) async fn labelled(request: Request, next: Next) -> Response {
    let route = label(request.extensions().get::<MatchedPath>());
    let mut response = next.run(request).await;
    response.extensions_mut().insert(RouteLabel(route));
    response
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

/// The trace id of a valid `traceparent` (W3C Trace Context, version 00), else a random one.
fn trace_id(headers: &HeaderMap) -> Arc<str> {
    let given = headers
        .get("traceparent")
        .and_then(|v| v.to_str().ok())
        .and_then(|text| {
            let mut parts = text.split('-');
            let (version, trace) = (parts.next()?, parts.next()?);
            let hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
            let valid = version.len() == 2
                && trace.len() == 32
                && trace.bytes().all(hex)
                && trace.bytes().any(|b| b != b'0');
            valid.then(|| Arc::from(trace))
        });
    given.unwrap_or_else(|| Arc::from(&*uuid::Uuid::new_v4().simple().encode_lower(&mut [0; 32])))
}

/// The route's template: a closed set, so it may be a metric label.
fn label(path: Option<&MatchedPath>) -> &'static str {
    let Some(path) = path.map(MatchedPath::as_str) else {
        return "none";
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
        .map_or("none", |r| r.path)
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
