//! The provider's surface: chat, and the operations that pass through.

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use super::json::Segment;
use crate::app::App;
use crate::error::{ApiError, Code};
use crate::request::pass_through::{self, Operation};
use crate::request::{self, Stage};
use crate::telemetry::{RequestMeta, Trail, Who};

/// What the log line of a request tells besides its identifiers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Logged {
    pub(super) who: Option<Who>,
    pub(super) stage: Option<Stage>,
    pub(super) code: Option<Code>,
}

/// Takes a request apart; the identifiers were put there by the outermost layer.
pub(super) fn apart(request: Request) -> (Parts, Body) {
    request.into_parts()
}

/// Turns a path's result into a response and counts a refusal under its stage.
pub(super) fn conclude(app: &App, trail: &Trail, result: Result<Response, ApiError>) -> Response {
    let code = result.as_ref().err().map(|error| error.code);
    let mut response = result.unwrap_or_else(|mut error| {
        app.metrics.refused(trail.current(), error.code);
        for (name, value) in trail.carried() {
            if !error.headers.iter().any(|(given, _)| given == name) {
                error.headers.push((name.clone(), value.clone()));
            }
        }
        error.into_response()
    });
    if tracing::enabled!(tracing::Level::INFO) {
        response.extensions_mut().insert(Logged {
            who: trail.who(),
            stage: trail.current(),
            code,
        });
    }
    response
}

/// Answers a chat request.
pub(super) async fn answer(app: &App, meta: &RequestMeta, request: Request) -> Response {
    let (head, body) = apart(request);
    let mut trail = Trail::default();
    let result = request::handle(app, &head, body, meta, &mut trail).await;
    conclude(app, &trail, result)
}

pub(super) async fn chat_completions(
    State(app): State<App>,
    Extension(meta): Extension<RequestMeta>,
    request: Request,
) -> Response {
    answer(&app, &meta, request).await
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
    conclude(app, &trail, result)
}

pub(super) async fn models(
    State(app): State<App>,
    Extension(meta): Extension<RequestMeta>,
    request: Request,
) -> Response {
    let (head, _body) = apart(request);
    let mut trail = Trail::default();
    let result = pass_through::get(&app, &head, Operation::Models, &meta, &mut trail).await;
    conclude(&app, &trail, result)
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
    conclude(&app, &trail, result)
}
