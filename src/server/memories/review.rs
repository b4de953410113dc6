//! What waits for a person: quarantined memories, and pairs that no rule could judge.

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::app::App;
use crate::auth::{Permissions, Principal, ReviewRight};
use crate::error::{ApiError, Code};
use crate::ids::{EscalationId, MemoryId};
use crate::memory::PartitionKey;
use crate::memory::write::{self, changeable};
use crate::store::{
    Decider, Escalation, ListFilter, Matching, Reading, Relation, Settlement, StoreError,
};
use crate::telemetry::Trail;

use super::super::chat::apart;
use super::super::json::{Asked, Segment, absent, ask, query, store_failed, told};
use super::change::take_away;
use super::list::limit_of;
use super::view::{EscalationView, HeldView, LetterView, MemoryView, WrittenView};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageQuery<Id> {
    limit: Option<usize>,
    after: Option<Id>,
}

/// Rows of a page, and the most.
const PAGE: usize = 20;
const GREATEST_PAGE: usize = 100;
/// Users whose waiting things are looked through at once; others come up as these are settled.
const MOST_PARTITIONS: usize = 256;

async fn ask_to_review(
    app: &App,
    request: Request,
    trail: &mut Trail,
) -> Result<(Asked, http::request::Parts, ReviewRight), ApiError> {
    let (head, body) = apart(request);
    let asked = ask(app, &head, body, Permissions::MEMORY_REVIEW, trail).await?;
    let right = asked.principal().review().ok_or_else(absent)?;
    Ok((asked, head, right))
}

/// What a reviewer looks through: what they read, and for one who may act for any user and names none, whatever waits of any user.
async fn reviewed(app: &App, who: &Principal) -> Result<Vec<PartitionKey>, ApiError> {
    let scope = who.scope();
    let mut partitions = PartitionKey::for_read(scope).to_vec();
    if scope.user().is_none() && who.may(Permissions::ACT_FOR_USER) {
        let waiting = app
            .store
            .waiting_partitions(scope.org(), scope.agent(), MOST_PARTITIONS);
        let waiting = waiting.await.map_err(|e| store_failed(&e))?;
        partitions.extend(waiting.into_iter().filter(|p| p.user.is_some()));
    }
    Ok(partitions)
}

pub(in crate::server) async fn quarantine(State(app): State<App>, request: Request) -> Response {
    told(&app, request, held_back).await
}

#[derive(Serialize)]
struct HeldPage<'a> {
    memories: Vec<HeldView<'a>>,
    has_more: bool,
}

async fn held_back(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let (asked, head, right) = ask_to_review(app, request, trail).await?;
    let page: PageQuery<MemoryId> = query(&head)?;
    let filter = ListFilter {
        reading: Reading::Review(right),
        after: page.after,
        limit: limit_of(page.limit, PAGE, GREATEST_PAGE)?,
        matching: Matching::default(),
    };
    let partitions = reviewed(app, asked.principal()).await?;
    let page = app.store.list_memories(&partitions, filter).await;
    let page = page.map_err(|e| store_failed(&e))?;
    let mut reasons: Vec<Option<Box<RawValue>>> = Vec::with_capacity(page.memories.len());
    for memory in &page.memories {
        let review = app.store.review(&memory.partition, memory.id).await;
        let text = review.map_err(|e| store_failed(&e))?;
        reasons.push(text.and_then(|text| RawValue::from_string(text).ok()));
    }
    let memories = page.memories.iter().zip(&reasons);
    let memories = memories
        .map(|(memory, reason)| HeldView {
            review: reason.as_deref(),
            memory: MemoryView::of(memory),
        })
        .collect();
    let has_more = page.has_more;
    Ok(asked.answer(app, StatusCode::OK, &HeldPage { memories, has_more }))
}

pub(in crate::server) async fn release(
    State(app): State<App>,
    Segment(id): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        let (asked, _, right) = ask_to_review(app, request, trail).await?;
        let id: MemoryId = id.parse().map_err(|_| absent())?;
        let written = write::release(app, asked.principal(), right, id).await?;
        Ok(asked.answer(app, StatusCode::OK, &WrittenView::of(&written)))
    })
    .await
}

pub(in crate::server) async fn reject(
    State(app): State<App>,
    Segment(id): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        let (asked, _, right) = ask_to_review(app, request, trail).await?;
        let id: MemoryId = id.parse().map_err(|_| absent())?;
        let partitions = changeable(asked.principal());
        let found = app.store.memory(&partitions, id).await;
        let found = found.map_err(|e| store_failed(&e))?.ok_or_else(absent)?;
        if !Reading::Review(right).allows(&found) {
            return Err(ApiError::new(
                Code::Conflict,
                "the memory does not wait for review",
            ));
        }
        // Its tombstone keeps the same text from being captured again.
        take_away(app, &partitions, id).await?;
        Ok(asked.empty(app, StatusCode::NO_CONTENT))
    })
    .await
}

pub(in crate::server) async fn escalations(State(app): State<App>, request: Request) -> Response {
    told(&app, request, open_pairs).await
}

#[derive(Serialize)]
struct EscalationPage<'a> {
    escalations: Vec<EscalationView<'a>>,
    has_more: bool,
}

async fn open_pairs(app: &App, request: Request, trail: &mut Trail) -> Result<Response, ApiError> {
    let (asked, head, _) = ask_to_review(app, request, trail).await?;
    let page: PageQuery<EscalationId> = query(&head)?;
    let limit = limit_of(page.limit, PAGE, GREATEST_PAGE)?;
    let partitions = reviewed(app, asked.principal()).await?;
    let found = app.store.escalations(&partitions, page.after, limit + 1);
    let mut found: Vec<Escalation> = found.await.map_err(|e| store_failed(&e))?;
    let has_more = found.len() > limit;
    found.truncate(limit);
    let ids: Vec<MemoryId> = found.iter().flat_map(|e| [e.newer, e.older]).collect();
    let memories = app.store.memories_by_id(&partitions, &ids).await;
    let memories = memories.map_err(|e| store_failed(&e))?;
    let of = |id| memories.iter().find(|memory| memory.id == id);
    let escalations = found
        .iter()
        .filter_map(|e| Some(EscalationView::of(e, of(e.newer)?, of(e.older)?)))
        .collect();
    let body = EscalationPage {
        escalations,
        has_more,
    };
    Ok(asked.answer(app, StatusCode::OK, &body))
}

pub(in crate::server) async fn dead_letters(State(app): State<App>, request: Request) -> Response {
    told(&app, request, newest_letters).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LetterQuery {
    limit: Option<usize>,
}

#[derive(Serialize)]
struct Letters<'a> {
    dead_letters: Vec<LetterView<'a>>,
}

/// Turns from which nothing could be captured: which, why, and none of their text.
async fn newest_letters(
    app: &App,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (asked, head, _) = ask_to_review(app, request, trail).await?;
    let limit = limit_of(query::<LetterQuery>(&head)?.limit, PAGE, GREATEST_PAGE)?;
    let partitions = reviewed(app, asked.principal()).await?;
    let letters = app.store.dead_letters(&partitions, limit).await;
    let letters = letters.map_err(|e| store_failed(&e))?;
    let dead_letters = letters.iter().map(LetterView::of).collect();
    Ok(asked.answer(app, StatusCode::OK, &Letters { dead_letters }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decision {
    /// What the newer one is to the older one; `null` for nothing, which has to be said.
    #[serde(deserialize_with = "Option::deserialize")]
    relation: Option<Relation>,
}

pub(in crate::server) async fn resolve(
    State(app): State<App>,
    Segment(id): Segment,
    request: Request,
) -> Response {
    told(&app, request, async |app, request, trail| {
        resolve_one(app, &id, request, trail).await
    })
    .await
}

async fn resolve_one(
    app: &App,
    id: &str,
    request: Request,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let (asked, _, _) = ask_to_review(app, request, trail).await?;
    let id: EscalationId = id.parse().map_err(|_| absent())?;
    let decision: Decision = asked.parse()?;
    let partitions = changeable(asked.principal());
    let failed = |e: StoreError| store_failed(&e);
    let found = app
        .store
        .escalation(&partitions, id)
        .await
        .map_err(failed)?;
    let escalation = found.ok_or_else(absent)?;
    let said = decision
        .relation
        .map(|relation| (relation, Decider::Person));
    let settled = app
        .store
        .settle_escalation(&escalation, said, app.clock.now());
    match settled.await.map_err(failed)? {
        Settlement::Settled => {}
        Settlement::Over => {
            return Err(ApiError::new(
                Code::Conflict,
                "somebody has decided already",
            ));
        }
        Settlement::Void => {
            let text = "one of the two memories is not what it was; the question is void";
            return Err(ApiError::new(Code::Conflict, text));
        }
    }
    // The index learns at once what the change feed would tell it.
    let pair = [escalation.newer, escalation.older];
    for memory in app
        .store
        .memories_by_id(&partitions, &pair)
        .await
        .map_err(failed)?
    {
        app.index.upsert(memory);
    }
    Ok(asked.empty(app, StatusCode::NO_CONTENT))
}
