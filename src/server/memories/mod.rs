//! `/v1/memories`: create, batch, get, list, search, hot, forget.

mod keyed;
mod view;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::app::App;
use crate::auth::{Permissions, Principal};
use crate::error::{ApiError, Code, ErrorBody, FieldError};
use crate::ids::{IdempotencyKey, MemoryId};
use crate::memory::write::{WriteError, objects};
use crate::memory::{Category, Memory, PartitionKey, Status};
use crate::request::context::recall;
use crate::store::ListFilter;
use crate::telemetry::Trail;

use super::chat::apart;
use view::{Found, MemoryView, Page, Results};

use super::json::{Asked, Segment, absent, ask, invalid, query, store_failed, told};

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
    Ok((asked.require(needed)?, keyed::key(&head)?))
}

pub(super) async fn create(State(app): State<App>, request: Request) -> Response {
    told(&app, request, create_one).await
}

async fn create_one(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let (asked, key) = ask_to_write(app, request, trail).await?;
    let object: &RawValue = serde_json::from_slice(&asked.body).map_err(|e| invalid(&e))?;
    let written = keyed::run(app, &asked, (key, "create"), &[object]).await?;
    let outcome = written.outcomes.first();
    let memory = outcome
        .cloned()
        .unwrap_or(Err(WriteError::StoreUnavailable))?;
    let mut answer = asked.answer(app, StatusCode::CREATED, &MemoryView::of(&memory));
    written.mark(answer.headers_mut());
    Ok(answer)
}

/// One member's outcome, with the status it would have had alone.
#[derive(Serialize)]
struct BatchResult<'a> {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<MemoryId>,
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
    let outcomes: Vec<Result<Arc<Memory>, ApiError>> = written
        .outcomes
        .iter()
        .map(|o| o.clone().map_err(ApiError::from))
        .collect();
    let results: Vec<BatchResult<'_>> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Ok(memory) => BatchResult {
                status: StatusCode::CREATED.as_u16(),
                id: Some(memory.id),
                error: None,
            },
            Err(error) => BatchResult {
                status: error.code.status().as_u16(),
                id: None,
                error: Some(error.body(None, None)),
            },
        })
        .collect();
    let mut answer = asked.answer(app, StatusCode::MULTI_STATUS, &Results { results });
    written.mark(answer.headers_mut());
    Ok(answer)
}

pub(super) async fn get(
    State(app): State<App>,
    Segment(id): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        get_one(app, &id, request, trail).await
    })
    .await
}

async fn get_one(
    app: &App,
    id: &str,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::MEMORY_READ, trail).await?;
    let id: MemoryId = id.parse().map_err(|_| absent())?;
    let partitions = PartitionKey::for_read(asked.principal().scope());
    let memory = app
        .store
        .memory(&partitions, id)
        .await
        .map_err(|e| store_failed(&e))?
        .ok_or_else(absent)?;
    Ok(asked.answer(app, StatusCode::OK, &MemoryView::of(&memory)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    limit: Option<usize>,
    after: Option<MemoryId>,
    status: Option<Status>,
    category: Option<Category>,
}

/// Rows of a page unless the client asks for fewer; the greatest is 100 (contract, section 15).
const PAGE: usize = 20;
const GREATEST_PAGE: usize = 100;

fn limit_of(given: Option<usize>, usual: usize, greatest: usize) -> Result<usize, ApiError> {
    match given.unwrap_or(usual) {
        n @ 1.. if n <= greatest => Ok(n),
        _ => {
            let fault = FieldError {
                field: "limit".to_owned(),
                code: "RANGE_ERROR",
                message: format!("must be 1 to {greatest}"),
            };
            Err(
                ApiError::new(Code::ValidationError, "the request is not valid")
                    .fields(vec![fault]),
            )
        }
    }
}

pub(super) async fn list(State(app): State<App>, request: Request) -> Response {
    told(&app, request, list_page).await
}

async fn list_page(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::MEMORY_READ, trail).await?;
    let query: ListQuery = query(&head)?;
    if query.status == Some(Status::Forgotten) {
        return Err(
            ApiError::new(Code::ValidationError, "forgotten memories cannot be listed")
                .param("status"),
        );
    }
    let filter = ListFilter {
        after: query.after,
        limit: limit_of(query.limit, PAGE, GREATEST_PAGE)?,
        status: query.status,
        category: query.category,
    };
    let partitions = PartitionKey::for_read(asked.principal().scope());
    let page = app
        .store
        .list_memories(&partitions, filter)
        .await
        .map_err(|e| store_failed(&e))?;
    let data: Vec<MemoryView<'_>> = page.memories.iter().map(MemoryView::of).collect();
    Ok(asked.answer(
        app,
        StatusCode::OK,
        &Page {
            memories: data,
            has_more: page.has_more,
        },
    ))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchBody {
    query: String,
    limit: Option<usize>,
    #[serde(default)]
    labels: Vec<Category>,
}

/// Results of a search without a limit of its own, and the most.
const RESULTS: usize = 10;
const MOST_RESULTS: usize = 100;

pub(super) async fn search(State(app): State<App>, request: Request) -> Response {
    told(&app, request, search_memories).await
}

async fn search_memories(
    app: &App,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::MEMORY_READ, trail).await?;
    let wanted: SearchBody = asked.parse()?;
    let limit = limit_of(wanted.limit, RESULTS, MOST_RESULTS)?;
    if wanted.query.trim().is_empty() {
        return Err(ApiError::new(Code::ValidationError, "query must not be empty").param("query"));
    }
    let ranked =
        recall::search(app, asked.principal(), &wanted.query, limit, &wanted.labels).await?;
    let results: Vec<Found<'_>> = ranked
        .iter()
        .enumerate()
        .map(|(i, (similarity, r))| Found {
            rank: i + 1,
            similarity: Some(*similarity),
            score: r.score,
            components: r.components,
            memory: MemoryView::of(&r.memory),
        })
        .collect();
    Ok(asked.answer(app, StatusCode::OK, &Results { results }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HotQuery {
    limit: Option<usize>,
}

pub(super) async fn hot(State(app): State<App>, request: Request) -> Response {
    told(&app, request, hot_members).await
}

async fn hot_members(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::MEMORY_READ, trail).await?;
    let limit = limit_of(query::<HotQuery>(&head)?.limit, 20, 50)?;
    let members = recall::hot(app, asked.principal(), limit).await?;
    let now = app.clock.now();
    let results: Vec<Found<'_>> = members
        .iter()
        .enumerate()
        .map(|(i, memory)| Found::hot(i + 1, memory, now))
        .collect();
    Ok(asked.answer(app, StatusCode::OK, &Results { results }))
}

pub(super) async fn forget(
    State(app): State<App>,
    Segment(id): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        forget_one(app, &id, request, trail).await
    })
    .await
}

async fn forget_one(
    app: &App,
    id: &str,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::MEMORY_DELETE, trail).await?;
    let id: MemoryId = id.parse().map_err(|_| absent())?;
    let scope = asked.principal().scope();
    // What every user sees may only be taken away by whoever may write it.
    let shared = asked.principal().may(Permissions::MEMORY_WRITE_SHARED);
    let partitions: Vec<PartitionKey> = PartitionKey::for_read(scope)
        .into_iter()
        .filter(|p| p.user.is_some() || shared)
        .collect();
    let forgotten = app
        .store
        .forget_memory(&partitions, id, app.clock.now())
        .await
        .map_err(|e| store_failed(&e))?;
    let partition = forgotten.ok_or_else(absent)?;
    app.index.remove(&partition, id);
    app.sessions.renderings.forget();
    app.metrics.memory_write("forgotten");
    Ok(asked.empty(app, StatusCode::NO_CONTENT))
}
