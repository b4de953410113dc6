//! Retrieve: the directive, hot and cold branches at once, each inside its own limit and all inside one wall.
//!
//! A slow branch is cancelled, a finished one is kept, a panic is a failure of its branch alone; each leaves its outcome, its time and its
//! number of hits.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};

use crate::app::App;
use crate::auth::Scope;
use crate::config::ContextConfig;
use crate::memory::Memory;
use crate::memory::embedder::EmbedError;
use crate::memory::search::{BranchError, Hit, Query, query_text};
use crate::request::resolution::directive::Lookup;
use crate::store::DirectiveVersion;

use super::Subject;
use super::plan::{BranchReport, Outcome};

/// The absolute times of one assembly, taken when it begins.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    /// When it began.
    pub began: Instant,
    /// When retrieval stops.
    pub wall: Instant,
    /// When the whole assembly is given up.
    pub end: Instant,
}

impl Deadline {
    /// The times of an assembly that begins at `began`.
    #[must_use]
    pub fn new(began: Instant, settings: &ContextConfig) -> Self {
        let end = began + Duration::from_millis(settings.timeout_ms);
        Self {
            began,
            wall: (began + Duration::from_millis(settings.deadline_ms)).min(end),
            end,
        }
    }

    /// The limit of a branch that begins now, clamped to the wall.
    fn branch(&self, limit_ms: u64) -> Instant {
        (Instant::now() + Duration::from_millis(limit_ms)).min(self.wall)
    }
}

/// What the branches brought.
#[derive(Debug)]
pub struct Found {
    /// The directive.
    pub directive: Option<Arc<DirectiveVersion>>,
    /// Hits, hot first, then cold.
    pub hits: Vec<Hit>,
    /// Each branch's record.
    pub branches: BTreeMap<&'static str, BranchReport>,
    /// Why assembly was given up, if it was (L3).
    pub given_up: Option<&'static str>,
    /// Whether there was a question to search for.
    pub asked: bool,
    /// Whether the scope has any memories.
    pub stored: bool,
    /// What a session may open with, best first; nothing when it was not asked for, or in vain.
    pub snapshot: Option<Vec<Arc<Memory>>>,
}

/// What is asked for besides the directive.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Memories for the question.
    pub recall: bool,
    /// At most so many memories to open the session with.
    pub snapshot: usize,
    /// Whether the session is being opened: what comes of that is frozen, so it may take all the time there is.
    pub opens: bool,
}

impl Wanted {
    /// Recall alone.
    pub const RECALL: Self = Self {
        recall: true,
        snapshot: 0,
        opens: false,
    };
}

impl Found {
    /// Nothing at all: the start of an assembly without recall.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            directive: None,
            hits: Vec::new(),
            branches: BTreeMap::new(),
            given_up: None,
            asked: false,
            stored: false,
            snapshot: None,
        }
    }

    /// The same without memories, for an assembly that is given up for `reason`.
    #[must_use]
    pub fn given_up(self, reason: &'static str) -> Self {
        Self {
            hits: Vec::new(),
            given_up: Some(reason),
            ..self
        }
    }
}

/// Asks the branches.
pub async fn retrieve(
    app: &App,
    subject: &Subject<'_>,
    directive: &Lookup,
    wanted: Wanted,
    deadline: Deadline,
) -> Found {
    let settings = &app.config.context;
    let scope = subject.who.scope();
    let question = if wanted.recall {
        subject.chat.last_user_text().unwrap_or_default()
    } else {
        Cow::Borrowed("")
    };
    let resolve = async {
        match directive {
            Lookup::AtHand(active) => Ok(active.clone()),
            Lookup::ToLoad => app.directives.load(scope).await,
        }
    };
    let directive_end = if wanted.opens {
        deadline.wall
    } else {
        deadline.branch(settings.directive_timeout_ms)
    };
    let resolve = branch(directive_end, true, resolve);
    let recall = recall(app, scope, &question, deadline);
    let snapshot = app.hot.standing(scope, wanted.snapshot, deadline.wall);
    let snapshot = branch(deadline.wall, wanted.snapshot > 0, snapshot);
    let (directive, snapshot, recalled) = tokio::join!(resolve, snapshot, recall);
    let Recalled {
        asked,
        embedding,
        hot,
        cold,
    } = recalled;
    let known = directive.value.as_ref().is_some_and(Option::is_some);
    let found = |branch: &Ended<Vec<Hit>>| branch.report(branch.value.as_ref().map_or(0, Vec::len));
    let mut branches = BTreeMap::from([
        ("directive", directive.report(usize::from(known))),
        ("hot", found(&hot)),
        ("cold", found(&cold)),
    ]);
    if wanted.snapshot > 0 {
        let hits = snapshot.value.as_ref().map_or(0, Vec::len);
        branches.insert("snapshot", snapshot.report(hits));
    }
    branches.extend(embedding.map(|report| ("embedding", report)));
    let mut hits = hot.value.unwrap_or_default();
    hits.extend(cold.value.unwrap_or_default());
    // Branches answer only for the scope they were given; this is the check that does not trust them.
    hits.retain(|hit| hit.memory.partition.visible_to(scope));
    Found {
        directive: directive.value.flatten(),
        hits,
        branches,
        given_up: None,
        asked,
        stored: app.index.rows(scope) > 0,
        snapshot: snapshot.value.map(|mut members| {
            members.retain(|memory| memory.partition.visible_to(scope));
            members
        }),
    }
}

/// What the question brought.
struct Recalled {
    asked: bool,
    embedding: Option<BranchReport>,
    hot: Ended<Vec<Hit>>,
    cold: Ended<Vec<Hit>>,
}

/// Asks both memory branches. Only they wait for the question's vector, and their limits begin when it is there.
async fn recall(app: &App, scope: &Scope, question: &str, deadline: Deadline) -> Recalled {
    let settings = &app.config.context;
    let (query, embedding) = query(app, question, deadline).await;
    let asked = !query.is_empty();
    let (hot_end, cold_end) = (
        deadline.branch(settings.hot_timeout_ms),
        deadline.branch(settings.cold_timeout_ms),
    );
    let hot = app.hot.hot(scope, &query, settings.hot_limit, hot_end);
    let cold = app.cold.cold(scope, &query, settings.cold_limit, cold_end);
    let (hot, cold) = tokio::join!(branch(hot_end, asked, hot), branch(cold_end, asked, cold));
    Recalled {
        asked,
        embedding,
        hot,
        cold,
    }
}

/// The question, embedded once, and how that ended; nothing when there is no question. Without a vector the search is lexical.
pub(super) async fn query(
    app: &App,
    question: &str,
    deadline: Deadline,
) -> (Query, Option<BranchReport>) {
    let text = query_text(question);
    let model: Arc<str> = app.embedder.model().into();
    if text.trim().is_empty() {
        return (Query::new("", None, model), None);
    }
    let began = Instant::now();
    // Half of the wall: a slow embedder must leave the branches time to search by words.
    let half = deadline.began + deadline.wall.duration_since(deadline.began) / 2;
    let embedding = AssertUnwindSafe(app.embedder.embed_query(&text, half)).catch_unwind();
    let (vector, outcome) = match timeout_at(half, embedding).await {
        Ok(Ok(Ok(vector))) => (Some(vector), Outcome::Ok),
        Err(_) | Ok(Ok(Err(EmbedError::TIMEOUT))) => (None, Outcome::Timeout),
        Ok(Ok(Err(_))) => (None, Outcome::Error),
        Ok(Err(_)) => {
            tracing::error!("the embedder panicked");
            (None, Outcome::Error)
        }
    };
    app.metrics.query_embedded(outcome.as_str());
    let calibration = app.embedder.calibration();
    let query = Query::calibrated(&text, vector.as_deref(), model, calibration);
    let report = BranchReport {
        outcome,
        ms: began.elapsed().as_secs_f64() * 1_000.0,
        hits: 0,
    };
    (query, Some(report))
}

/// How one branch ended.
pub(super) struct Ended<T> {
    /// What it brought, if it ended well.
    pub(super) value: Option<T>,
    outcome: Outcome,
    ms: f64,
}

impl<T> Ended<T> {
    fn report(&self, hits: usize) -> BranchReport {
        BranchReport {
            outcome: self.outcome,
            ms: self.ms,
            hits,
        }
    }
}

/// One branch inside its limit.
pub(super) async fn branch<T>(
    limit: Instant,
    wanted: bool,
    work: impl Future<Output = Result<T, BranchError>>,
) -> Ended<T> {
    if !wanted {
        return Ended {
            value: None,
            outcome: Outcome::Skipped,
            ms: 0.0,
        };
    }
    let began = Instant::now();
    let work = AssertUnwindSafe(work).catch_unwind();
    let (value, outcome) = match timeout_at(limit, work).await {
        Ok(Ok(Ok(value))) => (Some(value), Outcome::Ok),
        Ok(Ok(Err(BranchError::Deadline))) | Err(_) => (None, Outcome::Timeout),
        Ok(Ok(Err(BranchError::Store(_) | BranchError::Interrupted))) => (None, Outcome::Error),
        Ok(Err(_)) => {
            tracing::error!("a retrieval branch panicked");
            (None, Outcome::Error)
        }
    };
    Ended {
        value,
        outcome,
        ms: began.elapsed().as_secs_f64() * 1_000.0,
    }
}
