//! `/console`: a page for the people who run the service. It only reads.
//!
//! The page itself holds no data and is open. What it shows it asks for: the routes here, which need `ConsoleRead`, and those of memories,
//! sessions and previews under the rights of the same token. Where the console is off, none of it is there.

mod files;
mod recent;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde::Serialize;

use crate::app::App;
use crate::auth::Permissions;
use crate::config::Environment;
use crate::console::{Figures, STEP_S, STEPS};
use crate::error::ApiError;
use crate::ids::{AgentId, OrgId, UserId};
use crate::telemetry::Trail;

use super::chat::apart;
use super::json::{Asked, Segment, ask, told};
use super::probes::{Standing, standing};
use super::routes::no_route;

pub(super) use recent::{request, requests};

pub(super) async fn page(State(app): State<App>, headers: HeaderMap) -> Response {
    static_file(&app, files::PAGE, &headers)
}

pub(super) async fn file(
    State(app): State<App>,
    Segment(name): Segment,
    headers: HeaderMap,
) -> Response {
    if name == files::PAGE && app.console.is_on() {
        // Its parts are named from one level higher.
        return Redirect::permanent("../console").into_response();
    }
    static_file(&app, &name, &headers)
}

fn static_file(app: &App, name: &str, headers: &HeaderMap) -> Response {
    if !app.console.is_on() {
        return no_route().into_response();
    }
    files::answer(name, headers).unwrap_or_else(|| no_route().into_response())
}

/// Passes the gates of a route of the console. Where it is off, the route is not there for anybody.
async fn ask_console(
    app: &App,
    request: Request,
    needed: Permissions,
    trail: &mut Trail,
) -> Result<(http::request::Parts, Asked), ApiError> {
    if !app.console.is_on() {
        return Err(no_route());
    }
    let (head, body) = apart(request);
    let needed = needed.with(Permissions::CONSOLE_READ);
    let asked = ask(app, &head, body, needed, trail).await?;
    Ok((head, asked))
}

/// An answer that nobody keeps: it tells of a tenant.
fn answer(app: &App, asked: &Asked, body: &impl Serialize) -> Response {
    let mut response = asked.answer(app, StatusCode::OK, body);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// Who looks, and what they may see.
#[derive(Serialize)]
struct Viewer<'a> {
    org: OrgId,
    agent: AgentId,
    user: Option<&'a UserId>,
    permissions: Vec<&'static str>,
    environment: Environment,
    recent_requests: usize,
}

pub(super) async fn viewer(State(app): State<App>, request: Request) -> Response {
    told(&app, request, view_viewer).await
}

async fn view_viewer(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let (_, asked) = ask_console(app, request, Permissions::NONE, trail).await?;
    let who = asked.principal();
    let viewer = Viewer {
        org: who.org(),
        agent: who.agent(),
        user: who.scope().user(),
        permissions: who.permissions().names().collect(),
        environment: app.config.env,
        recent_requests: app.console.room(),
    };
    Ok(answer(app, &asked, &viewer))
}

/// What happens in this process.
#[derive(Serialize)]
struct LiveView {
    at: Timestamp,
    step_s: usize,
    steps: usize,
    #[serde(flatten)]
    figures: Figures,
    request_bytes: usize,
    ready: Standing,
}

pub(super) async fn live(State(app): State<App>, request: Request) -> Response {
    told(&app, request, view_live).await
}

/// These figures are of the whole process and so of every tenant, which a permission of its own stands for.
async fn view_live(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let needed = Permissions::OPERATOR_METADATA_READ;
    let (_, asked) = ask_console(app, request, needed, trail).await?;
    let ready = standing(app).await;
    let relayed = app.metrics.answers_open.get();
    let figures = app.console.figures(relayed).ok_or_else(no_route)?;
    let view = LiveView {
        at: app.clock.now(),
        step_s: STEP_S,
        steps: STEPS,
        figures,
        request_bytes: app.inflight.bytes(),
        ready,
    };
    Ok(answer(app, &asked, &view))
}
