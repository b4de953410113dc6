//! The provider's surface: chat, and the operations that pass through.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use parking_lot::Mutex;

use super::json::Segment;
use crate::app::App;
use crate::error::ApiError;
use crate::request;
use crate::request::pass_through::{self, Operation};
use crate::telemetry::{RequestMeta, Trail};

/// What a handler behind the router tells of its request, for the line that is written around it.
#[derive(Debug, Clone)]
pub(super) struct Told(pub(super) Arc<Mutex<Trail>>);

/// Takes a request apart; the identifiers were put there by the outermost layer.
pub(super) fn apart(request: Request) -> (Parts, Body) {
    request.into_parts()
}

/// Turns a path's result into a response and counts a refusal under its stage.
fn settled(app: &App, trail: &mut Trail, result: Result<Response, ApiError>) -> Response {
    result.unwrap_or_else(|mut error| {
        trail.code = Some(error.code);
        app.metrics.refused(trail.current(), error.code);
        for (name, value) in trail.carried() {
            if !error.headers.iter().any(|(given, _)| *given == name) {
                error.headers.push((name, value));
            }
        }
        error.into_response()
    })
}

/// The same for a handler behind the router.
pub(super) fn conclude(
    app: &App,
    mut trail: Trail,
    result: Result<Response, ApiError>,
) -> Response {
    let mut response = settled(app, &mut trail, result);
    let told = Told(Arc::new(Mutex::new(trail)));
    response.extensions_mut().insert(told);
    response
}

/// Answers a chat request.
pub(super) async fn answer(
    app: &App,
    meta: &RequestMeta,
    request: Request,
    trail: &mut Trail,
) -> Response {
    let (head, body) = apart(request);
    let result = request::handle(app, &head, body, meta, trail).await;
    settled(app, trail, result)
}

pub(super) async fn chat_completions(
    State(app): State<App>,
    Extension(meta): Extension<RequestMeta>,
    request: Request,
) -> Response {
    let (head, body) = apart(request);
    let mut trail = Trail::default();
    let result = request::handle(&app, &head, body, &meta, &mut trail).await;
    conclude(&app, trail, result)
}

pub(super) async fn responses(
    State(app): State<App>,
    Extension(meta): Extension<RequestMeta>,
    request: Request,
) -> Response {
    forward(&app, &meta, request, "/responses").await
}

pub(super) async fn completions(
    State(app): State<App>,
    Extension(meta): Extension<RequestMeta>,
    request: Request,
) -> Response {
    forward(&app, &meta, request, "/completions").await
}

pub(super) async fn embeddings(
    State(app): State<App>,
    Extension(meta): Extension<RequestMeta>,
    request: Request,
) -> Response {
    forward(&app, &meta, request, "/embeddings").await
}

async fn forward(app: &App, meta: &RequestMeta, request: Request, operation: &str) -> Response {
    let (head, body) = apart(request);
    let mut trail = Trail::default();
    let result = pass_through::post(app, &head, body, operation, meta, &mut trail).await;
    conclude(app, trail, result)
}

pub(super) async fn models(
    State(app): State<App>,
    Extension(meta): Extension<RequestMeta>,
    request: Request,
) -> Response {
    let (head, _body) = apart(request);
    let mut trail = Trail::default();
    let result = pass_through::get(&app, &head, Operation::Models, &meta, &mut trail).await;
    conclude(&app, trail, result)
}

pub(super) async fn model(
    State(app): State<App>,
    Extension(meta): Extension<RequestMeta>,
    Segment(id): Segment,
    request: Request,
) -> Response {
    let (head, _body) = apart(request);
    let mut trail = Trail::default();
    let result = pass_through::get(&app, &head, Operation::Model(&id), &meta, &mut trail).await;
    conclude(&app, trail, result)
}
