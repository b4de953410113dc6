//! CAPTURE: what a user said becomes memory, for agents that ask for it. After an answer, in the background, never on the request path.
//!
//! ```text
//! turn      what is kept of a request until its answer ends: the user's own words, and whose they are
//! queue     bounded; what does not fit is dropped and counted
//! extract   "remember that ..." by its words, anything else by the configured model
//! write     the ordinary path: redaction, duplicates, conflicts
//! ```
//!
//! Only the user's message is read: what tools and the assistant said never becomes memory, and what `ibex` injected is stripped. A text
//! that was forgotten is not captured again. Turns wait in memory alone; what fails for good leaves a dead letter without any text.

mod extract;
mod remember;

use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use moka::sync::Cache;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{Mutex, mpsc};

use crate::app::App;
use crate::auth::{OperatorError, Principal, operator_principal};
use crate::config::CaptureConfig;
use crate::ids::SessionId;
use crate::memory::write::{WriteError, write};
use crate::memory::{Label, PartitionKey, Source, strip};
use crate::providers::AskError;
use crate::session::ChainHash;
use crate::store::{AgentStatus, CaptureScope, DeadLetter, StoreError};

pub use remember::asked_for;

use remember::speaks_of_self;

/// Turns whose capture is remembered, so that a client that tries again is not heard twice.
const KNOWN: u64 = 16_384;
/// Pause before the second attempt; each further one waits four times as long.
const PAUSE: Duration = Duration::from_secs(1);
/// Certainty of what a user asked to be remembered.
const ASKED_FOR: f32 = 0.9;

/// What is kept of a request until its answer has ended.
#[derive(Debug, Clone)]
pub struct Turn {
    /// Where it goes.
    pub partition: PartitionKey,
    /// Where what the user says of themselves goes: what every user reads says nothing of one of them.
    pub own: PartitionKey,
    /// The conversation.
    pub session: SessionId,
    /// The turn's place in it, from 0.
    pub index: u32,
    /// The conversation up to the user's message: the same one is captured once.
    pub chain: ChainHash,
    /// The user's words.
    pub text: String,
}

/// The queue of turns.
#[derive(Debug)]
pub struct Capture {
    queue: mpsc::Sender<Turn>,
    waiting: Arc<Mutex<mpsc::Receiver<Turn>>>,
    known: Cache<(PartitionKey, ChainHash), (), RandomState>,
}

/// Why a turn could not be captured.
#[derive(Debug, Clone, thiserror::Error)]
enum CaptureError {
    /// The agent is gone or not active any more.
    #[error("the agent cannot be used")]
    Agent,
    /// The model failed.
    #[error("the extractor: {0}")]
    Model(#[from] AskError),
    /// The store or embedder failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CaptureError {
    fn may_pass(&self) -> bool {
        match self {
            Self::Agent => false,
            Self::Model(error) => error.may_pass(),
            Self::Write(_) | Self::Store(_) => true,
        }
    }

    /// The reason in a dead letter.
    fn label(&self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Model(_) => "model",
            Self::Write(_) | Self::Store(_) => "store",
        }
    }
}

impl Capture {
    /// An empty queue.
    #[must_use]
    pub fn new(settings: &CaptureConfig) -> Self {
        let (queue, waiting) = mpsc::channel(settings.queue.max(1));
        Self {
            queue,
            waiting: Arc::new(Mutex::new(waiting)),
            known: Cache::builder()
                .max_capacity(KNOWN)
                .build_with_hasher(RandomState::default()),
        }
    }

    /// Whose memory a turn of this principal would become; nothing when the agent captures nothing, or only of users and there is none.
    #[must_use]
    pub fn partition(who: &Principal) -> Option<PartitionKey> {
        match who.capture() {
            CaptureScope::Off => None,
            CaptureScope::User => {
                who.scope().user()?;
                Some(PartitionKey::for_write(who.scope()))
            }
            CaptureScope::Agent => Some(PartitionKey {
                user: None,
                ..PartitionKey::for_write(who.scope())
            }),
        }
    }

    /// Queues a turn whose answer has ended. It never waits: a full queue drops it.
    pub fn offer(&self, app: &App, turn: Turn) {
        let key = (turn.partition.clone(), turn.chain);
        if self.known.contains_key(&key) {
            return app.metrics.capture("repeated");
        }
        match self.queue.try_send(turn) {
            Ok(()) => {
                self.known.insert(key, ());
                app.metrics.capture("queued");
            }
            Err(_) => app.metrics.capture("dropped"),
        }
    }

    /// Turns that wait.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }
}

/// Works on queued turns until shutdown; what waits then is dropped.
pub async fn work(app: App) {
    loop {
        let next = async { app.capture.waiting.lock().await.recv().await };
        let turn = tokio::select! {
            turn = next => turn,
            () = app.tasks.stopping() => return,
        };
        let Some(turn) = turn else { return };
        let settled = tokio::select! {
            settled = settle(&app, &turn) => settled,
            () = app.tasks.stopping() => return app.metrics.capture("dropped"),
        };
        app.metrics.capture(settled);
    }
}

/// Captures a turn, trying again while that may help.
async fn settle(app: &App, turn: &Turn) -> &'static str {
    let mut pause = PAUSE;
    let most = app.config.capture.attempts.max(1);
    for attempt in 1..=most {
        let error = match capture(app, turn).await {
            Ok(0) => return "nothing",
            Ok(_) => return "captured",
            Err(error) => error,
        };
        tracing::warn!(
            attempt,
            session_id = turn.session.as_str(),
            "capture: {error}"
        );
        if attempt == most || !error.may_pass() {
            bury(app, turn, (&error, attempt)).await;
            return "failed";
        }
        tokio::time::sleep(pause).await;
        pause = pause.saturating_mul(4);
    }
    "failed"
}

/// Leaves a dead letter.
async fn bury(app: &App, turn: &Turn, (error, attempts): (&CaptureError, u32)) {
    let letter = DeadLetter {
        partition: turn.partition.clone(),
        session: turn.session.clone(),
        turn: turn.index,
        reason: error.label().to_owned(),
        attempts,
        at: app.clock.now(),
    };
    if let Err(error) = app.store.add_dead_letter(letter).await {
        tracing::warn!("capture: a dead letter was lost: {error}");
    }
}

/// A memory as the write path takes it.
#[derive(Debug, Serialize)]
struct Candidate<'a> {
    content: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    labels: &'a [Label],
    confidence: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    valid_from: Option<jiff::Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    valid_until: Option<jiff::Timestamp>,
    observed_at: jiff::Timestamp,
    source: Source,
}

/// Takes what is worth remembering from a turn and writes it; how many memories came of it.
async fn capture(app: &App, turn: &Turn) -> Result<usize, CaptureError> {
    let stripped = strip::own_text(&turn.text);
    let text = stripped.as_deref().unwrap_or(&turn.text);
    let found = candidates(app, turn, text).await?;
    if found.is_empty() {
        return Ok(0);
    }
    let PartitionKey { org, agent, user } = turn.partition.clone();
    // The turn may have waited: whether the agent may be used and captures is asked again.
    let row = app.store.agent(org, agent).await?;
    let scope = if user.is_some() {
        CaptureScope::User
    } else {
        CaptureScope::Agent
    };
    let open = row.is_some_and(|row| row.status == AgentStatus::Active && row.capture == scope);
    if !open {
        return Err(CaptureError::Agent);
    }
    let (own, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| found.of_self);
    Ok(keep(app, &turn.own, &own).await? + keep(app, &turn.partition, &others).await?)
}

/// Writes what was found into one partition; how many memories came of it.
async fn keep(app: &App, into: &PartitionKey, found: &[Found]) -> Result<usize, CaptureError> {
    if found.is_empty() {
        return Ok(0);
    }
    let PartitionKey { org, agent, user } = into.clone();
    let who = operator_principal(&*app.store, org, agent, user).await;
    let who = who.map_err(|error| match error {
        OperatorError::NoSuchAgent => CaptureError::Agent,
        OperatorError::Store(error) => CaptureError::Store(error),
    })?;
    let objects: Vec<&RawValue> = found.iter().map(|found| &*found.object).collect();
    let mut written = 0;
    for outcome in write(app, &who, &objects).await {
        match outcome {
            Ok(_) => written += 1,
            // What is known, forgotten, malformed or our own is no failure of the turn.
            Err(
                WriteError::Duplicate(_)
                | WriteError::Tombstoned
                | WriteError::Invalid(_)
                | WriteError::OwnText,
            ) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(written)
}

/// A memory that a text holds.
struct Found {
    object: Box<RawValue>,
    /// The user speaks of themselves in it.
    of_self: bool,
}

/// The memories that a text holds.
async fn candidates(app: &App, turn: &Turn, text: &str) -> Result<Vec<Found>, CaptureError> {
    let now = app.clock.now();
    let candidate = |content, labels, confidence| Candidate {
        content,
        labels,
        confidence,
        valid_from: None,
        valid_until: None,
        observed_at: now,
        source: Source {
            kind: Source::CAPTURE.to_owned(),
            session: Some(turn.session.as_str().to_owned()),
            turn: Some(turn.index),
        },
    };
    let asked = asked_for(text);
    let mut found: Vec<Candidate<'_>> =
        asked.iter().map(|c| candidate(c, &[], ASKED_FOR)).collect();
    let extracted = if asked.is_empty() && !app.config.capture.model.is_empty() {
        extract::extract(app, text).await?
    } else {
        Vec::new()
    };
    found.extend(extracted.iter().map(|e| Candidate {
        valid_from: e.valid_from,
        valid_until: e.valid_until,
        ..candidate(&e.content, &e.labels, e.confidence)
    }));
    let found = found.iter().filter_map(|candidate| {
        Some(Found {
            object: to_raw_value(candidate).ok()?,
            of_self: speaks_of_self(candidate.content),
        })
    });
    Ok(found.collect())
}
