//! Reading memories: one, and pages of them.

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use jiff::Timestamp;
use serde::Deserialize;
use url::form_urlencoded;

use crate::app::App;
use crate::auth::{Permissions, Principal};
use crate::error::{ApiError, Code, FieldError};
use crate::ids::MemoryId;
use crate::memory::{Category, PartitionKey, Status};
use crate::store::{ListFilter, Matching, Reading};
use crate::telemetry::Trail;

use super::super::chat::apart;
use super::super::json::{Segment, absent, ask, query_of, store_failed, told};
use super::view::{Page, Whole};

/// Rows of a page unless the client asks for fewer; the greatest is 100 (contract, section 15).
const PAGE: usize = 20;
const GREATEST_PAGE: usize = 100;
/// Most members of the client's own object that one list asks about.
const MOST_MEMBERS: usize = 8;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct GetQuery {
    history: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ListQuery {
    limit: Option<usize>,
    after: Option<MemoryId>,
    status: Option<Status>,
    history: bool,
    category: Option<Category>,
    pinned: Option<bool>,
    session: Option<String>,
    source: Option<String>,
    from: Option<Timestamp>,
    until: Option<Timestamp>,
}

pub(in crate::server) async fn get(
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
    let GetQuery { history } = query_of(head.uri.query().unwrap_or_default())?;
    let id: MemoryId = id.parse().map_err(|_| absent())?;
    let who = asked.principal();
    let reading = reading(app, who, history)?;
    let found = app
        .store
        .memory(&PartitionKey::for_read(who.scope()), id)
        .await;
    let memory = found.map_err(|e| store_failed(&e))?;
    let memory = memory.filter(|m| reading.allows(m)).ok_or_else(absent)?;
    let relations = app.store.relations(&memory.partition, id).await;
    let relations = relations.map_err(|e| store_failed(&e))?;
    Ok(asked.answer(app, StatusCode::OK, &Whole::of(&memory, &relations)))
}

/// What was is for those who write.
fn reading(app: &App, who: &Principal, history: bool) -> Result<Reading, ApiError> {
    if !history {
        return Ok(Reading::Current(app.clock.now()));
    }
    who.history().map(Reading::History).ok_or_else(|| {
        ApiError::new(
            Code::InsufficientPermissions,
            "history needs the permission MemoryWrite",
        )
    })
}

pub(super) fn limit_of(
    given: Option<usize>,
    usual: usize,
    greatest: usize,
) -> Result<usize, ApiError> {
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

pub(in crate::server) async fn list(State(app): State<App>, request: Request) -> Response {
    told(&app, request, list_page).await
}

async fn list_page(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::MEMORY_READ, trail).await?;
    let (query, metadata) = list_query(&head)?;
    let who = asked.principal();
    let reading = match query.status {
        Some(Status::Forgotten) => {
            let refusal =
                ApiError::new(Code::ValidationError, "forgotten memories cannot be listed");
            return Err(refusal.param("status"));
        }
        Some(Status::Quarantined) => {
            let refusal = ApiError::new(
                Code::ValidationError,
                "what waits for review is at /v1/memories/quarantine",
            );
            return Err(refusal.param("status"));
        }
        Some(Status::Superseded) => reading(app, who, true)?,
        Some(Status::Active) | None => reading(app, who, query.history)?,
    };
    let filter = ListFilter {
        reading,
        after: query.after,
        limit: limit_of(query.limit, PAGE, GREATEST_PAGE)?,
        matching: Matching {
            status: query.status,
            category: query.category,
            pinned: query.pinned,
            session: query.session,
            source: query.source,
            from: query.from,
            until: query.until,
            metadata,
        },
    };
    let partitions = PartitionKey::for_read(who.scope());
    let page = app.store.list_memories(&partitions, filter).await;
    let page = page.map_err(|e| store_failed(&e))?;
    Ok(asked.answer(app, StatusCode::OK, &Page::of(&page)))
}

/// The parameters of a list. `metadata[NAME]=VALUE` asks about a member of the client's own object, whatever its name.
fn list_query(head: &Parts) -> Result<(ListQuery, Vec<(String, String)>), ApiError> {
    let given = head.uri.query().unwrap_or_default();
    let mut rest = form_urlencoded::Serializer::new(String::new());
    let mut metadata = Vec::new();
    for (name, value) in form_urlencoded::parse(given.as_bytes()) {
        let member = name
            .strip_prefix("metadata[")
            .and_then(|n| n.strip_suffix(']'));
        match member {
            Some(name) => metadata.push((name.to_owned(), value.into_owned())),
            None => {
                rest.append_pair(&name, &value);
            }
        }
    }
    if metadata.len() > MOST_MEMBERS {
        let text = format!("at most {MOST_MEMBERS} members of metadata can be asked about");
        return Err(ApiError::new(Code::ValidationError, text).param("metadata"));
    }
    Ok((query_of(&rest.finish())?, metadata))
}
