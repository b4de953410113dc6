//! Changing memories: fields, votes, forgetting.

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::app::App;
use crate::auth::Permissions;
use crate::error::ApiError;
use crate::ids::MemoryId;
use crate::memory::Status;
use crate::memory::write::{changeable, edit};
use crate::telemetry::Trail;

use super::super::chat::apart;
use super::super::json::{Segment, absent, ask, invalid, store_failed, told};
use super::view::{MemoryView, WrittenView};

pub(in crate::server) async fn patch(
    State(app): State<App>,
    Segment(id): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        patch_one(app, &id, request, trail).await
    })
    .await
}

async fn patch_one(
    app: &App,
    id: &str,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::MEMORY_WRITE, trail).await?;
    let id: MemoryId = id.parse().map_err(|_| absent())?;
    let change: &RawValue = serde_json::from_slice(&asked.body).map_err(|e| invalid(&e))?;
    let written = edit(app, asked.principal(), id, change).await?;
    let status = match written.memory.status {
        Status::Quarantined => StatusCode::ACCEPTED,
        Status::Active | Status::Superseded | Status::Forgotten => StatusCode::OK,
    };
    let view = WrittenView::of(&written).for_principal(asked.principal());
    Ok(asked.answer(app, status, &view))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Feedback {
    vote: Vote,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Vote {
    Useful,
    NotUseful,
}

pub(in crate::server) async fn feedback(
    State(app): State<App>,
    Segment(id): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        vote_on(app, &id, request, trail).await
    })
    .await
}

async fn vote_on(
    app: &App,
    id: &str,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::MEMORY_WRITE, trail).await?;
    let Feedback { vote } = asked.parse()?;
    let id: MemoryId = id.parse().map_err(|_| absent())?;
    let (useful, now) = (vote == Vote::Useful, app.clock.now());
    let partitions = changeable(asked.principal());
    let voted = app.store.vote(&partitions, id, useful, now).await;
    let memory = voted.map_err(|e| store_failed(&e))?.ok_or_else(absent)?;
    app.metrics.memory_write("voted");
    let view = MemoryView::of(&memory).for_principal(asked.principal());
    let answer = asked.answer(app, StatusCode::OK, &view);
    app.index.upsert(memory);
    Ok(answer)
}

pub(in crate::server) async fn forget(
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
    // What every user sees may only be taken away by whoever may write it.
    let partitions = changeable(asked.principal());
    take_away(app, &partitions, id).await?;
    Ok(asked.empty(app, StatusCode::NO_CONTENT))
}

/// Forgets a memory in the store and in everything that was derived from it.
pub(super) async fn take_away(
    app: &App,
    partitions: &[crate::memory::PartitionKey],
    id: MemoryId,
) -> Result<(), ApiError> {
    let forgotten = app.store.forget_memory(partitions, id, app.clock.now());
    let forgotten = forgotten.await.map_err(|e| store_failed(&e))?;
    let partition = forgotten.ok_or_else(absent)?;
    app.index.remove(&partition, id);
    app.sessions.forget_texts();
    app.metrics.memory_write("forgotten");
    Ok(())
}
