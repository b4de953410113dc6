//! THE MEMORY WRITE PATH: from a client's object to an active row, the stages called in order.
//!
//! ```text
//! validate -> exact dedup -> embed -> persist -> after-commit effects
//! ```
//!
//! A batch takes the same path; its stages work on all of its members at once, and each member has an outcome of its own.

pub mod stage;
mod validate;
mod exact_dedup;
mod embed;
mod persist;
mod after_commit;
pub mod idempotency;

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::app::App;
use crate::auth::Principal;
use crate::error::{ApiError, Code, FieldError};
use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey};

pub use exact_dedup::content_hash;
use idempotency::Claim;
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
    /// The write was carried out, and what it stored was forgotten since.
    #[error("what was stored under this key was forgotten since")]
    Forgotten,
}

impl WriteError {
    fn label(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::Duplicate(_) => "duplicate",
            Self::EmbeddingFailed => "embedding_failed",
            Self::StoreUnavailable => "store_unavailable",
            Self::LedgerUnavailable => "ledger_unavailable",
            Self::Settled => "settled",
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
            WriteError::EmbeddingFailed => Self::new(Code::EmbeddingFailed, text).retry_after(1),
            WriteError::StoreUnavailable => Self::new(Code::ServiceDegraded, text).retry_after(1),
            WriteError::LedgerUnavailable | WriteError::Settled => {
                Self::new(Code::IdempotencyUnavailable, text).retry_after(1)
            }
            WriteError::Forgotten => Self::new(Code::NotFound, text),
        }
    }
}

/// Writes the memories of one request into the principal's write partition; an outcome for each, in order.
pub async fn write(
    app: &App,
    principal: &Principal,
    inputs: &[&RawValue],
) -> Vec<Result<Arc<Memory>, WriteError>> {
    refine(app, principal, inputs, None).await
}

/// The same, with the outcomes entered in the ledger under the claim's key.
pub async fn write_keyed(
    app: &App,
    principal: &Principal,
    inputs: &[&RawValue],
    claim: &Claim<'_>,
) -> Vec<Result<Arc<Memory>, WriteError>> {
    refine(app, principal, inputs, Some(claim)).await
}

async fn refine(
    app: &App,
    principal: &Principal,
    inputs: &[&RawValue],
    claim: Option<&Claim<'_>>,
) -> Vec<Result<Arc<Memory>, WriteError>> {
    let partition = PartitionKey::for_write(principal.scope());
    let mut batch = Batch::new(inputs.len());
    validate::stage(app, &partition, inputs, &mut batch);
    exact_dedup::stage(app, &partition, &mut batch).await;
    embed::stage(app, &mut batch).await;
    persist::stage(app, &mut batch, claim).await;
    after_commit::stage(app, &mut batch).await;
    let outcomes = batch.finish();
    for outcome in &outcomes {
        app.metrics.memory_write(
            outcome
                .as_ref()
                .map_or_else(WriteError::label, |_| "stored"),
        );
    }
    outcomes
}

/// One member on its way.
#[derive(Debug)]
enum Member {
    /// Still going: what the last stage made of it.
    Going(Box<Memory>),
    /// Says what the earlier member at this place says, and shares its end.
    Repeats(usize),
    /// Stored.
    Stored(Arc<Memory>),
    /// Out.
    Refused(WriteError),
}

/// The members of one write, in the client's order.
#[derive(Debug)]
struct Batch {
    members: Vec<Member>,
}

impl Batch {
    fn new(size: usize) -> Self {
        Self {
            members: Vec::with_capacity(size),
        }
    }

    /// The members that are still going.
    fn going(&mut self) -> impl Iterator<Item = &mut Member> {
        self.members
            .iter_mut()
            .filter(|m| matches!(m, Member::Going(_)))
    }

    fn finish(self) -> Vec<Result<Arc<Memory>, WriteError>> {
        let mut ends: Vec<Result<Arc<Memory>, WriteError>> = Vec::with_capacity(self.members.len());
        for member in self.members {
            let end = match member {
                Member::Stored(memory) => Ok(memory),
                Member::Refused(error) => Err(error),
                Member::Repeats(earlier) => match ends.get(earlier) {
                    Some(Ok(memory)) => Err(WriteError::Duplicate(memory.id)),
                    Some(Err(error)) => Err(error.clone()),
                    None => Err(WriteError::StoreUnavailable),
                },
                // Persist leaves nothing going: it stores or refuses.
                Member::Going(_) => Err(WriteError::StoreUnavailable),
            };
            ends.push(end);
        }
        ends
    }
}
