//! `/v1/directives`: versions, the active one, promote, rollback and revoke.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::app::App;
use crate::auth::Permissions;
use crate::error::{ApiError, Code};
use crate::ids::hex;
use crate::store::{DirectiveMode, DirectiveVersion, NewDirective};
use crate::telemetry::Trail;
use crate::tokens::Family;

use super::chat::apart;
use super::json::{Segment, absent, ask, store_failed, told};

/// Greatest directive in bytes (contract, section 1.1).
const MAX_BYTES: usize = 32_768;

#[derive(Serialize)]
struct DirectiveView<'a> {
    version: u32,
    mode: DirectiveMode,
    active: bool,
    content: &'a str,
    content_hash: String,
    created_at: Timestamp,
    revoked_at: Option<Timestamp>,
}

impl<'a> DirectiveView<'a> {
    fn of(version: &'a DirectiveVersion) -> Self {
        Self {
            version: version.version,
            mode: version.mode,
            active: version.active,
            content: &version.content,
            content_hash: hex(&version.content_hash),
            created_at: version.created_at,
            revoked_at: version.revoked_at,
        }
    }
}

/// Every version of an agent.
#[derive(Serialize)]
struct Versions<'a> {
    directives: Vec<DirectiveView<'a>>,
}

pub(super) async fn list(State(app): State<App>, request: Request) -> Response {
    told(&app, request, list_versions).await
}

async fn list_versions(
    app: &App,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::DIRECTIVE_READ, trail).await?;
    let who = asked.principal();
    let versions = app
        .store
        .directive_versions(who.org(), who.agent())
        .await
        .map_err(|e| store_failed(&e))?;
    let data: Vec<DirectiveView<'_>> = versions.iter().map(DirectiveView::of).collect();
    Ok(asked.answer(app, StatusCode::OK, &Versions { directives: data }))
}

pub(super) async fn active(State(app): State<App>, request: Request) -> Response {
    told(&app, request, active_version).await
}

async fn active_version(
    app: &App,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::DIRECTIVE_READ, trail).await?;
    let who = asked.principal();
    let version = app
        .store
        .active_directive(who.org(), who.agent())
        .await
        .map_err(|e| store_failed(&e))?
        .ok_or_else(absent)?;
    Ok(asked.answer(app, StatusCode::OK, &DirectiveView::of(&version)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddBody {
    content: Arc<str>,
    mode: Option<DirectiveMode>,
    #[serde(default)]
    promote: bool,
}

/// Refuses a directive that is empty or over a cap: a cut directive would make an agent that is quietly wrong.
///
/// # Errors
/// `VALIDATION_ERROR` or `PREFIX_TOO_LARGE`, naming the class.
pub(crate) fn check_size(app: &App, content: &str) -> Result<(), ApiError> {
    if content.trim().is_empty() {
        return Err(
            ApiError::new(Code::ValidationError, "a directive must not be empty").param("content"),
        );
    }
    if content.len() > MAX_BYTES {
        return Err(ApiError::new(
            Code::PrefixTooLarge,
            format!("the directive is larger than {MAX_BYTES} bytes"),
        )
        .param("content"));
    }
    let (tokens, cap) = (
        app.counter.counts(content).of(Family::O200kBase),
        app.rules.load().directive_tokens,
    );
    if tokens > cap {
        let text =
            format!("the directive has {tokens} tokens; context.directive_tokens allows {cap}");
        return Err(ApiError::new(Code::PrefixTooLarge, text).param("content"));
    }
    Ok(())
}

pub(super) async fn add(State(app): State<App>, request: Request) -> Response {
    told(&app, request, add_version).await
}

async fn add_version(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::DIRECTIVE_WRITE, trail).await?;
    let wanted: AddBody = asked.parse()?;
    let asked = if wanted.promote {
        asked.require(Permissions::DIRECTIVE_PROMOTE)?
    } else {
        asked
    };
    check_size(app, &wanted.content)?;
    let (org, agent) = (asked.principal().org(), asked.principal().agent());
    let new = NewDirective {
        org,
        agent,
        content: wanted.content,
        mode: wanted.mode.unwrap_or(DirectiveMode::SystemFirst),
        created_at: app.clock.now(),
    };
    let mut version = app
        .store
        .add_directive(new)
        .await
        .map_err(|e| store_failed(&e))?;
    if wanted.promote {
        version = app
            .store
            .promote_directive(org, agent, version.version)
            .await
            .map_err(|e| store_failed(&e))?;
        app.cached_directives.invalidate(org, agent, None);
    }
    Ok(asked.answer(app, StatusCode::CREATED, &DirectiveView::of(&version)))
}

pub(super) async fn promote(
    State(app): State<App>,
    Segment(version): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        promote_version(app, &version, request, trail).await
    })
    .await
}

async fn promote_version(
    app: &App,
    version: &str,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::DIRECTIVE_PROMOTE, trail).await?;
    let version: u32 = version.parse().map_err(|_| absent())?;
    let (org, agent) = (asked.principal().org(), asked.principal().agent());
    let promoted = app
        .store
        .promote_directive(org, agent, version)
        .await
        .map_err(|e| store_failed(&e))?;
    app.cached_directives.invalidate(org, agent, None);
    Ok(asked.answer(app, StatusCode::OK, &DirectiveView::of(&promoted)))
}

pub(super) async fn rollback(State(app): State<App>, request: Request) -> Response {
    told(&app, request, rollback_version).await
}

async fn rollback_version(
    app: &App,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::DIRECTIVE_PROMOTE, trail).await?;
    let (org, agent) = (asked.principal().org(), asked.principal().agent());
    let version = app
        .store
        .rollback_directive(org, agent)
        .await
        .map_err(|e| store_failed(&e))?;
    app.cached_directives.invalidate(org, agent, None);
    Ok(asked.answer(app, StatusCode::OK, &DirectiveView::of(&version)))
}

pub(super) async fn revoke(
    State(app): State<App>,
    Segment(version): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        revoke_version(app, &version, request, trail).await
    })
    .await
}

async fn revoke_version(
    app: &App,
    version: &str,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::DIRECTIVE_REVOKE, trail).await?;
    let version: u32 = version.parse().map_err(|_| absent())?;
    let (org, agent) = (asked.principal().org(), asked.principal().agent());
    let revoked = app
        .store
        .revoke_directive(org, agent, version, app.clock.now())
        .await
        .map_err(|e| store_failed(&e))?;
    app.cached_directives.invalidate(org, agent, None);
    Ok(asked.answer(app, StatusCode::OK, &DirectiveView::of(&revoked)))
}
