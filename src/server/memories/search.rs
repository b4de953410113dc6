//! Searching memories, and the hot set.

use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::app::App;
use crate::auth::Permissions;
use crate::error::{ApiError, Code};
use crate::memory::Category;
use crate::request::context::rank::Shares;
use crate::request::context::recall::{self, Asked, Filter};
use crate::store::Matching;
use crate::telemetry::Trail;

use super::super::chat::apart;
use super::super::json::{ask, query, told};
use super::list::limit_of;
use super::view::{Found, MemoryView, Results};

/// Results of a search without a limit of its own, and the most.
const RESULTS: usize = 10;
const MOST_RESULTS: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchBody {
    query: String,
    limit: Option<usize>,
    #[serde(default)]
    labels: Vec<Category>,
    user: Option<Whose>,
    pinned: Option<bool>,
    session: Option<String>,
    source: Option<String>,
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    #[serde(default)]
    metadata: Map<String, Value>,
    weights: Option<Shares>,
}

/// Whose memories are searched, of those that the scope sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Whose {
    Own,
    Shared,
}

pub(in crate::server) async fn search(State(app): State<App>, request: Request) -> Response {
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
    if let Some(weights) = &wanted.weights {
        if !asked.principal().may(Permissions::MEMORY_WEIGHTS) {
            let text = "weights need the permission MemoryWeights";
            return Err(ApiError::new(Code::InsufficientPermissions, text).param("weights"));
        }
        if !weights.are_whole() {
            let text = "weights must not be negative and must sum to 1";
            return Err(ApiError::new(Code::ValidationError, text).param("weights"));
        }
    }
    let question = Asked {
        text: &wanted.query,
        limit,
        shares: wanted.weights,
        filter: Filter {
            labels: wanted.labels,
            own: wanted.user.map(|whose| whose == Whose::Own),
            metadata: wanted.metadata,
            matching: Matching {
                pinned: wanted.pinned,
                session: wanted.session,
                source: wanted.source,
                from: wanted.from,
                until: wanted.until,
                ..Matching::default()
            },
        },
    };
    let ranked = recall::search(app, asked.principal(), &question).await?;
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

pub(in crate::server) async fn hot(State(app): State<App>, request: Request) -> Response {
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
