//! The outermost layer: identifiers in, identifiers and error bodies out, one log line and two metrics a request.

use std::any::Any;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use tokio::time::Instant;

use crate::app::App;
use crate::error::{ApiError, Code, Envelope};
use crate::ids::RequestId;
use crate::telemetry::RequestMeta;

use super::routes::ROUTES;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACE_ID: HeaderName = HeaderName::from_static("x-trace-id");
const RESPONSE_TIME: HeaderName = HeaderName::from_static("x-response-time");

/// Gives the request its identifiers and the response its last headers.
pub(super) async fn outermost(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Response {
    let meta = RequestMeta {
        id: request_id(request.headers()),
        trace: trace_id(&app, request.headers()),
        started: Instant::now(),
    };
    let route = label(request.extensions().get::<MatchedPath>());
    let method = request.method().clone();
    request.extensions_mut().insert(meta.clone());
    let mut response = next.run(request).await;
    if let Some(error) = response.extensions_mut().remove::<Arc<ApiError>>() {
        write_error(&app, &meta, &error, &mut response);
    }
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::try_from(meta.id.as_str()) {
        headers.insert(REQUEST_ID, value);
    }
    if let Ok(value) = HeaderValue::try_from(&*meta.trace) {
        headers.insert(TRACE_ID, value);
    }
    let elapsed = meta.started.elapsed();
    headers.insert(
        RESPONSE_TIME,
        HeaderValue::from(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)),
    );
    app.metrics
        .answered(route, response.status(), elapsed.as_secs_f64());
    tracing::info!(
        request_id = meta.id.as_str(),
        trace_id = &*meta.trace,
        method = method.as_str(),
        route,
        status = response.status().as_u16(),
        ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        "request"
    );
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
fn trace_id(app: &App, headers: &HeaderMap) -> Arc<str> {
    let given = headers
        .get("traceparent")
        .and_then(|v| v.to_str().ok())
        .and_then(|text| {
            let mut parts = text.split('-');
            let (version, trace) = (parts.next()?, parts.next()?);
            let valid = version.len() == 2
                && trace.len() == 32
                && trace
                    .bytes()
                    .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
                && trace.bytes().any(|b| b != b'0');
            valid.then(|| Arc::from(trace))
        });
    given.unwrap_or_else(|| {
        let mut bytes = [0; 16];
        // Without randomness the identifier is all zeros, which no reader takes for a trace; the request itself is not harmed.
        if app.entropy.fill(&mut bytes).is_err() {
            bytes = [0; 16];
        }
        uuid::Uuid::from_bytes(bytes).simple().to_string().into()
    })
}

/// The route's template: a closed set, so it may be a metric label.
fn label(path: Option<&MatchedPath>) -> &'static str {
    let Some(path) = path.map(MatchedPath::as_str) else {
        return "none";
    };
    let bare = |p: &str| p.strip_prefix("/v1").unwrap_or(p).replace("{*", "{");
    let wanted = bare(path);
    ROUTES
        .iter()
        .find(|r| r.path == path || bare(r.path) == wanted)
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
