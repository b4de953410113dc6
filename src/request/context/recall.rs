//! Recall outside a chat: the search and hot routes ask the same branches and the same ranking, without gate, budget or injection.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::app::App;
use crate::auth::Principal;
use crate::error::{ApiError, Code};
use crate::ids::MemoryId;
use crate::memory::search::{BranchError, Hit};
use crate::memory::{Category, Memory};

use super::plan::Exclusion;
use super::rank::{RankSettings, Ranked, rank};
use super::retrieve::{Deadline, query};

/// A search may take longer than a chat's branch: nobody's answer waits for it, and a partition may have to be loaded first.
const PATIENCE: Duration = Duration::from_secs(5);

/// The best `limit` memories for `text`, best first, each with its cosine.
///
/// # Errors
/// 503 when the memories cannot be read in time.
pub async fn search(
    app: &App,
    who: &Principal,
    text: &str,
    limit: usize,
    labels: &[Category],
) -> Result<Vec<(f32, Ranked)>, ApiError> {
    let began = Instant::now();
    let deadline = Deadline {
        began,
        wall: began + PATIENCE,
        end: began + PATIENCE,
    };
    let (question, _) = query(app, text, deadline).await;
    // Ranking may reorder and filters drop: candidates are found with room to spare.
    let candidates = if labels.is_empty() {
        limit.max(app.config.context.cold_limit)
    } else {
        limit.saturating_mul(10)
    };
    let hits = app
        .cold
        .cold(who.scope(), &question, candidates, deadline.wall)
        .await
        .map_err(|e| unavailable(&e))?;
    let wanted = |hit: &Hit| {
        hit.memory.partition.visible_to(who.scope())
            && (labels.is_empty() || hit.memory.labels.iter().any(|l| labels.contains(&l.label)))
    };
    let hits: Vec<Hit> = hits.into_iter().filter(wanted).collect();
    let similarities: HashMap<MemoryId, f32> = hits
        .iter()
        .map(|hit| (hit.memory.id, hit.similarity))
        .collect();
    let settings = RankSettings {
        gate: false,
        floor: 0.0,
        schema: app.config.context.score_schema,
        carried: Vec::new(),
    };
    let mut ranked = rank(hits, app.clock.now(), &settings);
    ranked.retain(|r| matches!(r.excluded, None | Some(Exclusion::Floor | Exclusion::Gate)));
    ranked.truncate(limit);
    Ok(ranked
        .into_iter()
        .map(|r| (similarities.get(&r.memory.id).copied().unwrap_or(0.0), r))
        .collect())
}

/// The members of the hot set, best first.
///
/// # Errors
/// 503 when they cannot be read in time.
pub async fn hot(app: &App, who: &Principal, limit: usize) -> Result<Vec<Arc<Memory>>, ApiError> {
    app.hot_set
        .members(who.scope(), limit, Instant::now() + PATIENCE)
        .await
        .map_err(|e| unavailable(&e))
}

fn unavailable(error: &BranchError) -> ApiError {
    tracing::warn!("memory search: {error}");
    ApiError::new(
        Code::ServiceDegraded,
        "the memories cannot be read right now",
    )
    .retry_after(1)
}
