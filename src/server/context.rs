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
use crate::request::context::assemble::{Assembled, View, Whole};
use crate::request::context::plan::ContextPlan;
use crate::request::context::{Subject, preview, run};
use crate::request::resolution::resolve;
use crate::request::{Gated, Stage, gates, read};
use crate::telemetry::Trail;

use super::chat::apart;
use super::json::told;

pub(super) async fn preview_request(State(app): State<App>, request: Request) -> Response {
    told(&app, request, previewed).await
}

async fn previewed(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let run = assembled(app, request, trail, |_| None).await?;
    let subject = Subject {
        who: run.bound.principal(),
        chat: &run.chat,
        profile: run.profile,
    };
    let answer = preview::preview(&subject, run.assembled)
        .map_err(|e| ApiError::new(Code::InternalError, e.to_string()))?;
    let mut response = axum::Json(answer).into_response();
    run.counted.write(response.headers_mut(), app.clock.now());
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
    let run = assembled(app, request, trail, |chat| Some(whole(chat))).await?;
    let plan = &run.assembled.plan;
    let tokens_used = plan
        .tokens
        .injected
        .saturating_add(plan.budget.messages)
        .saturating_add(plan.budget.tool_schemas);
    let answer = AssembleAnswer {
        assembled: &run.assembled.injection.assembled,
        tokens_used,
        plan,
    };
    let mut response = (StatusCode::OK, axum::Json(answer)).into_response();
    run.counted.write(response.headers_mut(), app.clock.now());
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

/// An assembly without a provider.
struct Run {
    bound: BoundPrincipal,
    chat: ChatRequest,
    profile: crate::providers::ModelProfile,
    counted: crate::request::rate_limit::CountedRequest,
    assembled: Assembled,
}

/// Passes the gates and the validation of a chat request, then assembles. Whoever may not read directives does not see one here.
async fn assembled(
    app: &App,
    request: Request,
    trail: &mut Trail,
    whole: impl Fn(&ChatRequest) -> Option<Whole>,
) -> Result<Run, ApiError> {
    let (head, body) = apart(request);
    let Gated {
        bound,
        admitted,
        counted,
        declared,
    } = gates(app, &head, body, Permissions::MEMORY_READ, trail).await?;
    trail.enter(Stage::Validate);
    let who = bound.principal();
    let valid = read::chat(app, who, &admitted, declared).await?;
    trail.enter(Stage::Resolve);
    let resolved = resolve(&*app.directives, who, &head.headers);
    trail.enter(Stage::Context);
    let view = View {
        hide_directive: !who.may(Permissions::DIRECTIVE_READ),
        whole: whole(&valid.chat),
    };
    let profile = valid.route.profile;
    let subject = Subject {
        who,
        chat: &valid.chat,
        profile,
    };
    let assembled = run(app, &subject, &resolved.directive, &view).await;
    Ok(Run {
        bound,
        chat: valid.into_chat(),
        profile,
        counted,
        assembled,
    })
}
