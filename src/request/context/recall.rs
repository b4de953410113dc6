//! Recall outside a chat: the search and hot routes ask the same branches and the same ranking, without gate, budget or injection.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::app::App;
use crate::auth::Principal;
use crate::config::ScoreSchema;
use crate::error::{ApiError, Code};
use crate::ids::MemoryId;
use crate::memory::search::{BranchError, Hit};
use crate::memory::{Category, Label, Memory};
use crate::store::Matching;

use super::plan::Exclusion;
use super::rank::{RankSettings, Ranked, Shares, rank};
use super::retrieve::{Deadline, query};

/// A search may take longer than a chat's branch: nobody's answer waits for it, and a partition may have to be loaded first.
const PATIENCE: Duration = Duration::from_secs(5);

/// Most candidates that a filter is held against: a filter may leave few of many.
const MOST_FILTERED: usize = 200_000;

/// What a search asks.
#[derive(Debug, Clone, Default)]
pub struct Asked<'a> {
    /// The question.
    pub text: &'a str,
    /// At most so many memories.
    pub limit: usize,
    /// Only what matches.
    pub filter: Filter,
    /// What the components count for, where it is not what is usual.
    pub shares: Option<Shares>,
}

/// Which memories a search may return; what is absent is not asked.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// With one of these labels.
    pub labels: Vec<Category>,
    /// Only the user's own, or only those that every user sees.
    pub own: Option<bool>,
    /// The other conditions, as a list has them.
    pub matching: Matching,
    /// Members of the client's own object that have these values.
    pub metadata: serde_json::Map<String, Value>,
}

impl Filter {
    fn is_open(&self) -> bool {
        self.labels.is_empty()
            && self.own.is_none()
            && self.metadata.is_empty()
            && self.matching == Matching::default()
    }

    fn admits(&self, memory: &Memory) -> bool {
        let Matching {
            pinned,
            session,
            source,
            from,
            until,
            ..
        } = &self.matching;
        let labelled = |label: &Label| self.labels.contains(&label.label);
        (self.labels.is_empty() || memory.labels.iter().any(labelled))
            && self
                .own
                .is_none_or(|own| memory.partition.user.is_some() == own)
            && pinned.is_none_or(|pinned| memory.pinned == pinned)
            && (session.is_none() || memory.source.session == *session)
            && source
                .as_ref()
                .is_none_or(|kind| memory.source.kind == *kind)
            && from.is_none_or(|from| memory.valid_from >= from)
            && until.is_none_or(|until| memory.valid_from < until)
            && self.has_members(memory)
    }

    fn has_members(&self, memory: &Memory) -> bool {
        if self.metadata.is_empty() {
            return true;
        }
        let object = memory.metadata.as_ref();
        let parsed = object.and_then(|json| serde_json::from_str::<Value>(json.get()).ok());
        let has = |(name, value)| parsed.as_ref().and_then(|p| p.get(name)) == Some(value);
        self.metadata.iter().all(has)
    }
}

/// The best memories for a question, best first, each with its cosine.
///
/// # Errors
/// 503 when the memories cannot be read in time.
pub async fn search(
    app: &App,
    who: &Principal,
    asked: &Asked<'_>,
) -> Result<Vec<(f32, Ranked)>, ApiError> {
    let began = Instant::now();
    let deadline = Deadline {
        began,
        wall: began + PATIENCE,
        end: began + PATIENCE,
    };
    let (question, _) = query(app, asked.text, deadline).await;
    // Ranking may reorder and filters drop: candidates are found with room to spare.
    let candidates = if asked.filter.is_open() {
        asked.limit.max(app.config.context.cold_limit)
    } else {
        MOST_FILTERED
    };
    let hits = app
        .cold
        .cold(who.scope(), &question, candidates, deadline.wall)
        .await
        .map_err(|e| unavailable(&e))?;
    let wanted = |hit: &Hit| {
        hit.memory.partition.visible_to(who.scope()) && asked.filter.admits(&hit.memory)
    };
    let hits: Vec<Hit> = hits.into_iter().filter(wanted).collect();
    let similarities: HashMap<MemoryId, f32> = hits
        .iter()
        .map(|hit| (hit.memory.id, hit.similarity))
        .collect();
    let settings = RankSettings {
        gate: false,
        floor: 0.0,
        schema: match asked.shares {
            Some(_) => ScoreSchema::Composite,
            None => app.config.context.score_schema,
        },
        shares: asked.shares.unwrap_or_default(),
        carried: Vec::new(),
    };
    let mut ranked = rank(hits, app.clock.now(), &settings);
    ranked.retain(|r| matches!(r.excluded, None | Some(Exclusion::Floor | Exclusion::Gate)));
    ranked.truncate(asked.limit);
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
    app.hot
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
