//! `/v1/memories`: what is written. The other files hold what is read, searched, changed and reviewed.

mod change;
mod keyed;
mod list;
mod review;
mod search;
mod view;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::app::App;
use crate::auth::{Permissions, Principal};
use crate::error::{ApiError, Code, ErrorBody, FieldError};
use crate::ids::{IdempotencyKey, MemoryId};
use crate::memory::Status;
use crate::memory::write::{WriteError, Written, objects};
use crate::request::idempotency;
use crate::telemetry::Trail;

use super::chat::apart;
use super::json::{Asked, ask, invalid, told};
use view::{Noticed, Results, WrittenView};

pub(super) use change::{feedback, forget, patch};
pub(super) use list::{get, list};
pub(super) use review::{dead_letters, escalations, quarantine, reject, release, resolve};
pub(super) use search::{hot, search};
pub(super) use view::MemoryView;

/// What a write into the principal's partition needs: without a user it is seen by every user of the agent.
fn write_permission(principal: &Principal) -> Permissions {
    if principal.scope().user().is_some() {
        Permissions::MEMORY_WRITE
    } else {
        Permissions::MEMORY_WRITE.with(Permissions::MEMORY_WRITE_SHARED)
    }
}

async fn ask_to_write(
    app: &App,
    request: Request,
    trail: &mut Trail,
) -> Result<(Asked, Option<IdempotencyKey>), ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::MEMORY_WRITE, trail).await?;
    let needed = write_permission(asked.principal());
    Ok((asked.require(needed)?, idempotency::key(&head.headers)?))
}

pub(super) async fn create(State(app): State<App>, request: Request) -> Response {
    told(&app, request, create_one).await
}

async fn create_one(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let (asked, key) = ask_to_write(app, request, trail).await?;
    let object: &RawValue = serde_json::from_slice(&asked.body).map_err(|e| invalid(&e))?;
    let written = keyed::run(app, &asked, (key, "create"), &[object]).await?;
    let outcome = written.outcomes.first();
    let outcome = outcome
        .cloned()
        .unwrap_or(Err(WriteError::StoreUnavailable))?;
    let mut answer = asked.answer(app, status_of(&outcome), &WrittenView::of(&outcome));
    written.mark(answer.headers_mut());
    Ok(answer)
}

/// What waits for review is accepted, and not there yet.
fn status_of(written: &Written) -> StatusCode {
    match written.memory.status {
        Status::Quarantined => StatusCode::ACCEPTED,
        Status::Active | Status::Superseded | Status::Forgotten => StatusCode::CREATED,
    }
}

/// One member's outcome, with the status it would have had alone.
#[derive(Serialize)]
struct BatchResult<'a> {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<MemoryId>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    supersedes: &'a [MemoryId],
    #[serde(flatten)]
    noticed: Option<Noticed<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorBody<'a>>,
}

pub(super) async fn batch(State(app): State<App>, request: Request) -> Response {
    told(&app, request, create_many).await
}

async fn create_many(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let (asked, key) = ask_to_write(app, request, trail).await?;
    let items = objects(&asked.body).map_err(|e| invalid(&e))?;
    let most = app.config.memory.max_batch;
    if items.is_empty() || items.len() > most {
        let fault = FieldError {
            field: "memories".to_owned(),
            code: "TOO_MANY",
            message: format!("must hold 1 to {most} memories"),
        };
        return Err(
            ApiError::new(Code::ValidationError, "the batch is not valid").fields(vec![fault]),
        );
    }
    let written = keyed::run(app, &asked, (key, "batch"), &items).await?;
    let outcomes: Vec<Result<Arc<Written>, ApiError>> = written
        .outcomes
        .iter()
        .map(|o| o.clone().map_err(ApiError::from))
        .collect();
    let results: Vec<BatchResult<'_>> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Ok(written) => BatchResult {
                status: status_of(written).as_u16(),
                id: Some(written.memory.id),
                supersedes: &written.memory.supersedes,
                noticed: Some(Noticed::of(written)),
                error: None,
            },
            Err(error) => BatchResult {
                status: error.code.status().as_u16(),
                id: None,
                supersedes: &[],
                noticed: None,
                error: Some(error.body(None, None)),
            },
        })
        .collect();
    let mut answer = asked.answer(app, StatusCode::MULTI_STATUS, &Results { results });
    written.mark(answer.headers_mut());
    Ok(answer)
}
