//! `/v1/context`: preview shows what a chat request would become, assemble gives the formatted string. Neither calls a provider.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;

use crate::app::App;
use crate::auth::Permissions;
use crate::error::{ApiError, Code};
use crate::openai::ChatRequest;
use crate::request::agent_binding::BoundPrincipal;
use crate::request::context::assemble::{View, Whole};
use crate::request::context::plan::ContextPlan;
use crate::request::context::{Subject, preview, run};
use crate::request::resolution::{Resolved, resolve};
use crate::request::{Gated, Stage, gates, read};
use crate::telemetry::Trail;

use super::chat::apart;
use super::json::told;

pub(super) async fn preview_request(State(app): State<App>, request: Request) -> Response {
    told(&app, request, previewed).await
}

async fn previewed(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let asked = asked(app, request, trail).await?;
    let subject = Subject::of(&asked.bound, &asked.valid);
    let view = asked.view(None);
    let answer = preview::preview(app, &subject, &asked.resolved, &view)
        .await
        .map_err(|e| ApiError::new(Code::InternalError, e.to_string()))?;
    let mut response = axum::Json(answer).into_response();
    asked.counted.write(response.headers_mut(), app.clock.now());
    Ok(response)
}

#[derive(Serialize)]
struct AssembleAnswer<'a> {
    assembled: &'a str,
    tokens_used: u32,
    plan: &'a ContextPlan,
}

pub(super) async fn assemble(State(app): State<App>, request: Request) -> Response {
    told(&app, request, assembled_string).await
}

async fn assembled_string(
    app: &App,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let asked = asked(app, request, trail).await?;
    let subject = Subject::of(&asked.bound, &asked.valid);
    let view = asked.view(Some(whole(&asked.valid.chat)));
    let result = run(app, &subject, &asked.resolved.directive, &view).await;
    let plan = &result.plan;
    let tokens_used = plan
        .tokens
        .injected
        .saturating_add(plan.budget.messages)
        .saturating_add(plan.budget.tool_schemas);
    let answer = AssembleAnswer {
        assembled: &result.injection.assembled,
        tokens_used,
        plan,
    };
    let mut response = (StatusCode::OK, axum::Json(answer)).into_response();
    asked.counted.write(response.headers_mut(), app.clock.now());
    Ok(response)
}

/// History and tools as text.
fn whole(chat: &ChatRequest) -> Whole {
    let history = chat
        .messages()
        .iter()
        .map(|m| (m.role.as_str().to_owned(), chat.text(m).into_owned()))
        .collect();
    let tools = chat
        .tools()
        .map(|t| vec![String::from_utf8_lossy(chat.raw(&t.range)).into_owned()])
        .unwrap_or_default();
    Whole { history, tools }
}

/// A chat request that no provider will see.
struct Asked {
    bound: BoundPrincipal,
    valid: read::ValidChat,
    resolved: Resolved,
    counted: crate::request::rate_limit::CountedRequest,
}

impl Asked {
    /// Whoever may not read directives does not see one here.
    fn view(&self, whole: Option<Whole>) -> View {
        View {
            hide_directive: !self.bound.principal().may(Permissions::DIRECTIVE_READ),
            whole,
        }
    }
}

/// Passes the gates and the validation of a chat request.
async fn asked(app: &App, request: Request, trail: &mut Trail) -> Result<Asked, ApiError> {
    let (head, body) = apart(request);
    let Gated {
        bound,
        admitted,
        counted,
        declared,
    } = gates(app, &head, body, Permissions::MEMORY_READ, trail).await?;
    trail.enter(Stage::Validate);
    let valid = read::chat(app, bound.principal(), &admitted, declared).await?;
    trail.enter(Stage::Resolve);
    let resolved = resolve(app, bound.principal(), &valid.chat, &head.headers);
    trail.enter(Stage::Context);
    Ok(Asked {
        bound,
        valid,
        resolved,
        counted,
    })
}
