//! The newest chat requests of an agent, and the context plan of one.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use crate::app::App;
use crate::auth::{Permissions, Principal};
use crate::console::{Ended, Entry};
use crate::error::ApiError;
use crate::ids::{MemoryId, RequestId, SessionId, UserId};
use crate::memory::{Memory, PartitionKey};
use crate::request::context::plan::{ContextPlan, ContextStatus, Decision, Level, TokenAccount};
use crate::store::Reading;
use crate::telemetry::Trail;

use super::super::json::{Segment, absent, store_failed, told};
use super::super::memories::MemoryView;
use super::{answer, ask_console};

/// One request in the list.
#[derive(Serialize)]
struct RequestView<'a> {
    id: Uuid,
    request_id: &'a RequestId,
    trace_id: &'a str,
    at: Timestamp,
    user: Option<&'a UserId>,
    session: &'a SessionId,
    lane: &'a str,
    stream: bool,
    context: ContextStatus,
    level: Option<Level>,
    reason: Option<&'a str>,
    epoch: Option<u32>,
    packed: usize,
    excluded: usize,
    tokens: Option<TokenAccount>,
    /// There was a plan, and it was not kept: too many requests were under way.
    crowded: bool,
    #[serde(flatten)]
    ended: Ended,
}

impl<'a> RequestView<'a> {
    fn of(entry: &'a Entry) -> Self {
        let (about, plan) = (&entry.about, entry.about.plan.as_deref());
        let count = |decision| {
            let memories = plan.map_or(&[][..], |plan| &plan.memories);
            memories.iter().filter(|m| m.decision == decision).count()
        };
        Self {
            id: entry.id,
            request_id: &about.request,
            trace_id: &about.trace,
            at: about.at,
            user: about.scope.user(),
            session: &about.session,
            lane: about.lane.as_str(),
            stream: about.stream,
            context: entry.status,
            level: plan.map(|plan| plan.level),
            reason: plan.and_then(|plan| plan.reason.as_deref()),
            epoch: plan.and_then(|plan| plan.session.as_ref().map(|s| s.epoch)),
            packed: count(Decision::Packed),
            excluded: count(Decision::Excluded),
            tokens: plan.map(|plan| plan.tokens),
            crowded: entry.crowded,
            ended: entry.ended,
        }
    }
}

#[derive(Serialize)]
struct RequestsView<'a> {
    /// How many requests of all agents this process keeps.
    room: usize,
    requests: Vec<RequestView<'a>>,
}

pub(in crate::server) async fn requests(State(app): State<App>, request: Request) -> Response {
    told(&app, request, list).await
}

async fn list(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let (_, asked) = ask_console(app, request, Permissions::NONE, trail).await?;
    let entries = seen_by(app, asked.principal());
    let view = RequestsView {
        room: app.console.room(),
        requests: entries.iter().map(|e| RequestView::of(e)).collect(),
    };
    Ok(answer(app, &asked, &view))
}

fn seen_by(app: &App, who: &Principal) -> Vec<Arc<Entry>> {
    app.console.recent(|entry| entry.is_seen_by(who))
}

/// A request with its plan and the memories that were considered, as far as the viewer may read them.
#[derive(Serialize)]
struct WholeRequest<'a> {
    #[serde(flatten)]
    request: RequestView<'a>,
    plan: Option<&'a ContextPlan>,
    memories: Vec<MemoryView<'a>>,
}

pub(in crate::server) async fn request(
    State(app): State<App>,
    Segment(id): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        one(app, &id, request, trail).await
    })
    .await
}

async fn one(
    app: &App,
    id: &str,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (_, asked) = ask_console(app, request, Permissions::NONE, trail).await?;
    let id: Uuid = id.parse().map_err(|_| absent())?;
    let who = asked.principal();
    let entries = seen_by(app, who);
    let entry = entries.iter().find(|e| e.id == id).ok_or_else(absent)?;
    let plan = entry.about.plan.as_deref();
    let ids: Vec<MemoryId> = plan.map_or_else(Vec::new, |plan| {
        plan.memories.iter().map(|m| m.id).collect()
    });
    let memories = readable(app, who, &ids).await?;
    let view = WholeRequest {
        request: RequestView::of(entry),
        plan,
        memories: memories.iter().map(MemoryView::of).collect(),
    };
    Ok(answer(app, &asked, &view))
}

/// Those of `ids` that the viewer may read at this moment: what was forgotten since is not there any more.
async fn readable(app: &App, who: &Principal, ids: &[MemoryId]) -> Result<Vec<Memory>, ApiError> {
    if ids.is_empty() || !who.may(Permissions::MEMORY_READ) {
        return Ok(Vec::new());
    }
    let current = Reading::Current(app.clock.now());
    let reading = who.history().map_or(current, Reading::History);
    let found = app
        .store
        .memories_by_id(&PartitionKey::for_read(who.scope()), ids)
        .await;
    let mut memories = found.map_err(|e| store_failed(&e))?;
    memories.retain(|memory| reading.allows(memory));
    Ok(memories)
}
