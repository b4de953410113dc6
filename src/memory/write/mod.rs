//! THE MEMORY WRITE PATH: from a client's object to an active row, the stages called in order.
//!
//! ```text
//! validate -> redact pii -> exact dedup -> embed -> near dedup -> conflict -> persist -> after-commit effects
//! ```
//!
//! A batch takes the same path; its stages work on all of its members at once, and each member has an outcome of its own. So does a
//! change of a memory that is there, and one that is released from review: they differ in how they begin and in what is persisted.

pub mod stage;
mod validate;
mod redact_pii;
mod exact_dedup;
mod embed;
mod near_dedup;
mod conflict;
mod persist;
mod after_commit;
mod batch;
mod change;
mod turns;
pub mod idempotency;

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::app::App;
use crate::auth::Principal;
use crate::error::{ApiError, Code, FieldError};
use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey, Status};

use batch::{Batch, Candidate, Member};
pub use change::{ChangeError, changeable, edit, release};
pub use exact_dedup::content_hash;
use idempotency::Claim;
pub use near_dedup::Similar;
pub use redact_pii::Redaction;
pub use turns::Turns;
pub use validate::{ListItem, faults, objects};

/// Why a memory was not stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// Wrong fields.
    #[error("the memory is not valid")]
    Invalid(Vec<FieldError>),
    /// An active memory says the same.
    #[error("an active memory has the same content")]
    Duplicate(MemoryId),
    /// It was captured, and a memory with this text was forgotten.
    #[error("a memory with this text was forgotten; it is not captured again")]
    Tombstoned,
    /// There is nothing in it but what this service had injected.
    #[error("the text is nothing but what was injected from memory")]
    OwnText,
    /// The embedder failed; nothing was stored.
    #[error("the memory could not be embedded; nothing was stored")]
    EmbeddingFailed,
    /// The store failed; nothing was stored.
    #[error("the memory store is unavailable; nothing was stored")]
    StoreUnavailable,
    /// The write has a key, and the ledger failed; nothing was stored.
    #[error("the write cannot be told from its repetition at the moment; nothing was stored")]
    LedgerUnavailable,
    /// The write has a key, and another process carried it out first.
    #[error("the write was carried out already")]
    Settled,
    /// The memory to change changed meanwhile, or is gone.
    #[error("the memory changed meanwhile")]
    Stale,
    /// The write was carried out, and what it stored was forgotten since.
    #[error("what was stored under this key was forgotten since")]
    Forgotten,
}

impl WriteError {
    fn label(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::Duplicate(_) => "duplicate",
            Self::Tombstoned => "tombstoned",
            Self::OwnText => "own_text",
            Self::EmbeddingFailed => "embedding_failed",
            Self::StoreUnavailable => "store_unavailable",
            Self::LedgerUnavailable => "ledger_unavailable",
            Self::Settled => "settled",
            Self::Stale => "stale",
            Self::Forgotten => "forgotten_since",
        }
    }
}

impl From<WriteError> for ApiError {
    fn from(error: WriteError) -> Self {
        let text = error.to_string();
        match error {
            WriteError::Invalid(fields) => Self::new(Code::ValidationError, text).fields(fields),
            WriteError::Duplicate(id) => {
                let mut refusal = Self::new(Code::DuplicateContent, text).param("content");
                refusal.existing_memory_id = Some(id);
                refusal
            }
            WriteError::OwnText => Self::new(Code::ValidationError, text).param("content"),
            WriteError::EmbeddingFailed => Self::new(Code::EmbeddingFailed, text).retry_after(1),
            WriteError::StoreUnavailable => Self::new(Code::ServiceDegraded, text).retry_after(1),
            WriteError::LedgerUnavailable | WriteError::Settled => {
                Self::new(Code::IdempotencyUnavailable, text).retry_after(1)
            }
            WriteError::Tombstoned => Self::new(Code::Conflict, text).param("content"),
            WriteError::Stale => Self::new(Code::Conflict, text),
            WriteError::Forgotten => Self::new(Code::NotFound, text),
        }
    }
}

/// A memory that was written, and what the refinery noticed about it.
#[derive(Debug)]
pub struct Written {
    /// The memory.
    pub memory: Memory,
    /// What was taken out of its text.
    pub redactions: Vec<Redaction>,
    /// Memories that are much alike, most alike first: a signal, not a verdict.
    pub similar: Vec<Similar>,
    /// Memories that it may contradict: somebody has to decide.
    pub undecided: Vec<MemoryId>,
}

impl Written {
    /// A memory about which nothing was noticed.
    #[must_use]
    pub fn plain(memory: Memory) -> Self {
        Self {
            memory,
            redactions: Vec::new(),
            similar: Vec::new(),
            undecided: Vec::new(),
        }
    }
}

/// What became of one member of a write.
pub type WriteOutcome = Result<Arc<Written>, WriteError>;

/// Writes the memories of one request into the principal's write partition; an outcome for each, in order.
pub async fn write(app: &App, principal: &Principal, inputs: &[&RawValue]) -> Vec<WriteOutcome> {
    write_all(app, principal, inputs, None).await
}

/// The same, with the outcomes entered in the ledger under the claim's key.
pub async fn write_keyed(
    app: &App,
    principal: &Principal,
    inputs: &[&RawValue],
    claim: &Claim<'_>,
) -> Vec<WriteOutcome> {
    write_all(app, principal, inputs, Some(claim)).await
}

async fn write_all(
    app: &App,
    principal: &Principal,
    inputs: &[&RawValue],
    claim: Option<&Claim<'_>>,
) -> Vec<WriteOutcome> {
    let partition = PartitionKey::for_write(principal.scope());
    let mut batch = Batch::new(partition, inputs.len());
    validate::stage(app, inputs, &mut batch);
    redact_pii::stage(app, &mut batch).await;
    refine(app, batch, claim).await
}

/// The stages that every memory passes once its text is the one that may be stored.
async fn refine(app: &App, mut batch: Batch, claim: Option<&Claim<'_>>) -> Vec<WriteOutcome> {
    exact_dedup::stage(app, &mut batch).await;
    embed::stage(app, &mut batch).await;
    let _turn = app.turns.of_statements(&mut batch).await;
    near_dedup::stage(app, &mut batch).await;
    conflict::stage(app, &mut batch).await;
    keep(app, batch, claim).await
}

/// The last stages, which all there is passes.
async fn keep(app: &App, mut batch: Batch, claim: Option<&Claim<'_>>) -> Vec<WriteOutcome> {
    persist::stage(app, &mut batch, claim).await;
    after_commit::stage(app, &mut batch).await;
    let outcomes = batch.finish();
    for outcome in &outcomes {
        app.metrics.memory_write(label(outcome));
    }
    outcomes
}

fn label(outcome: &WriteOutcome) -> &'static str {
    match outcome {
        Ok(written) if written.memory.status == Status::Quarantined => "quarantined",
        Ok(_) => "stored",
        Err(error) => error.label(),
    }
}
