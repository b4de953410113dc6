//! A memory that is there changes: an edit, or a release from review. Both pass the stages of a write.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::value::RawValue;

use crate::app::App;
use crate::auth::{Principal, ReviewRight};
use crate::error::{ApiError, Code, FieldError};
use crate::ids::MemoryId;
use crate::memory::claims::SlotKey;
use crate::memory::{Category, Memory, PartitionKey, Status};
use crate::store::StoreError;

use super::batch::Change;
use super::conflict::slot_of;
use super::{
    Batch, Candidate, WriteError, WriteOutcome, Written, keep, redact_pii, refine, validate,
};

/// How often an edit that names no revision is tried again when the memory changed under it. In this process they wait for each other;
/// what is left are votes, and other processes.
const ATTEMPTS: usize = 16;

/// Why a memory was not changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ChangeError {
    /// There is none, or not for this principal.
    #[error("no such resource")]
    Missing,
    /// It is not in a state in which it can be changed so.
    #[error("a memory that is {} cannot be changed", .0.as_str())]
    State(Status),
    /// Wrong fields.
    #[error("the change is not valid")]
    Invalid(Vec<FieldError>),
    /// It could not be read.
    #[error("the memory store is unavailable; nothing was changed")]
    Store(StoreError),
    /// Refused by a stage.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        let text = error.to_string();
        match error {
            ChangeError::Missing => Self::new(Code::NotFound, text),
            ChangeError::State(_) => Self::new(Code::Conflict, text),
            ChangeError::Invalid(fields) => Self::new(Code::ValidationError, text).fields(fields),
            ChangeError::Store(error) => {
                tracing::warn!("memory change: {error}");
                Self::new(Code::ServiceDegraded, text).retry_after(1)
            }
            ChangeError::Write(error) => error.into(),
        }
    }
}

/// The partitions in which a principal may change memories: what every user sees belongs to whoever may write it.
#[must_use]
pub fn changeable(principal: &Principal) -> Vec<PartitionKey> {
    let shared = principal.may(crate::auth::Permissions::MEMORY_WRITE_SHARED);
    PartitionKey::for_read(principal.scope())
        .into_iter()
        .filter(|partition| partition.user.is_some() || shared)
        .collect()
}

async fn held(app: &App, principal: &Principal, id: MemoryId) -> Result<Memory, ChangeError> {
    let found = app.store.memory(&changeable(principal), id).await;
    found
        .map_err(ChangeError::Store)?
        .ok_or(ChangeError::Missing)
}

/// Changes fields of an active memory. A new text counts as a forgotten one and a written one: it passes every stage, and the old one
/// leaves rows, index, sessions and exports.
///
/// # Errors
/// When there is no such memory, the fields are wrong, the revision that the client named is over, or a stage refuses.
pub async fn edit(
    app: &App,
    principal: &Principal,
    id: MemoryId,
    patch: &RawValue,
) -> Result<Arc<Written>, ChangeError> {
    let _turn = app.turns.of_memory(id).await;
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        let before = held(app, principal, id).await?;
        if before.status != Status::Active {
            return Err(ChangeError::State(before.status));
        }
        let (after, expected) =
            validate::patched(app, &before, patch).map_err(ChangeError::Invalid)?;
        if expected.is_some_and(|revision| revision != before.revision) {
            return Err(WriteError::Stale.into());
        }
        let outcome = changed(app, &before, after).await;
        match outcome {
            Err(WriteError::Stale) if expected.is_none() && attempts > 0 => {}
            outcome => return Ok(outcome?),
        }
    }
}

async fn changed(app: &App, before: &Memory, after: Memory) -> WriteOutcome {
    let read_at = before.revision;
    let mut candidate = Candidate::new(after);
    if candidate.memory.content != before.content {
        redact_pii::clean(app, &mut candidate)?;
    }
    // The text as it would be stored decides: an address that is redacted to what stands there already changes nothing.
    let forgets = candidate.memory.content != before.content;
    let says_more = forgets || states(before) != states(&candidate.memory);
    let change = Change { read_at, forgets };
    if !says_more {
        candidate.slot = slot_of(&candidate.memory).map(|SlotKey(slot)| slot);
    }
    let batch = Batch::of_change(candidate, change);
    // A note on a memory is no statement: it needs no vector, and settles no question anew.
    first(match says_more {
        true => refine(app, batch, None).await,
        false => keep(app, batch, None).await,
    })
}

/// What a memory states besides its text: when it holds, and of what kind it is.
fn states(memory: &Memory) -> (Timestamp, Option<Timestamp>, Category) {
    (memory.valid_from, memory.valid_until, memory.category())
}

/// Lets a memory out of review as it is: somebody has looked at it. It is compared with the others as if it were written now.
///
/// # Errors
/// When it does not wait for review, or says what another one says.
pub async fn release(
    app: &App,
    principal: &Principal,
    _right: ReviewRight,
    id: MemoryId,
) -> Result<Arc<Written>, ChangeError> {
    let before = held(app, principal, id).await?;
    if before.status != Status::Quarantined {
        return Err(ChangeError::State(before.status));
    }
    let read_at = before.revision;
    let candidate = Candidate::new(Memory {
        status: Status::Active,
        updated_at: validate::stored(app.clock.now()),
        ..before
    });
    let change = Change {
        read_at,
        forgets: false,
    };
    let outcomes = refine(app, Batch::of_change(candidate, change), None).await;
    Ok(first(outcomes)?)
}

fn first(mut outcomes: Vec<WriteOutcome>) -> WriteOutcome {
    outcomes.pop().unwrap_or(Err(WriteError::StoreUnavailable))
}
