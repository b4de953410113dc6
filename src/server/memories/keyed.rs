//! Writes with and without an `Idempotency-Key`.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use serde_json::value::RawValue;

use crate::app::App;
use crate::auth::Principal;
use crate::error::ApiError;
use crate::ids::IdempotencyKey;
use crate::memory::PartitionKey;
use crate::memory::write::idempotency::{Keyed, claim};
use crate::memory::write::{WriteError, WriteOutcome, Written, faults, write, write_keyed};
use crate::request::idempotency::REPLAYED;
use crate::store::{LedgerOutcome, LedgerRow};

use super::super::json::{Asked, store_failed};

/// What became of each memory, and whether that was so before this request.
pub(super) struct KeyedOutcome {
    pub(super) outcomes: Vec<WriteOutcome>,
    replayed: bool,
}

impl KeyedOutcome {
    /// Says so in the answer.
    pub(super) fn mark(&self, headers: &mut HeaderMap) {
        if self.replayed {
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
    }
}

/// Writes, or tells what a write under this key came to.
///
/// # Errors
/// 409 and 503 of keyed writes.
pub(super) async fn run(
    app: &App,
    asked: &Asked,
    (key, route): (Option<IdempotencyKey>, &str),
    inputs: &[&RawValue],
) -> Result<KeyedOutcome, ApiError> {
    let who = asked.principal();
    let Some(key) = key else {
        return Ok(KeyedOutcome {
            outcomes: write(app, who, inputs).await,
            replayed: false,
        });
    };
    let row = match claim(app, who, key, (route, &asked.body)).await? {
        Keyed::Over(row) => row,
        Keyed::First(claim) => {
            let outcomes = write_keyed(app, who, inputs, &claim).await;
            let settled = |o: &Result<_, WriteError>| matches!(o, Err(WriteError::Settled));
            if !outcomes.iter().any(settled) {
                return Ok(KeyedOutcome {
                    outcomes,
                    replayed: false,
                });
            }
            claim.row(app).await?.ok_or(WriteError::LedgerUnavailable)?
        }
    };
    Ok(KeyedOutcome {
        outcomes: again(app, who, &row, inputs).await?,
        replayed: true,
    })
}

/// The outcomes of a write that is over, with the memories as they are now.
async fn again(
    app: &App,
    who: &Principal,
    row: &LedgerRow,
    inputs: &[&RawValue],
) -> Result<Vec<WriteOutcome>, ApiError> {
    let own = PartitionKey::for_write(who.scope());
    let stored = row.outcomes.iter().filter_map(|outcome| match outcome {
        LedgerOutcome::Stored(id) => Some(*id),
        LedgerOutcome::Duplicate(_) | LedgerOutcome::Invalid => None,
    });
    let ids: Vec<_> = stored.collect();
    let found = app.store.memories_by_id(std::slice::from_ref(&own), &ids);
    let found = found.await.map_err(|e| store_failed(&e))?;
    let mut outcomes = Vec::with_capacity(inputs.len());
    for (outcome, input) in row.outcomes.iter().zip(inputs) {
        outcomes.push(match outcome {
            LedgerOutcome::Stored(id) => found
                .iter()
                .find(|memory| memory.id == *id)
                .map(|memory| Arc::new(Written::plain(memory.clone())))
                .ok_or(WriteError::Forgotten),
            LedgerOutcome::Duplicate(id) => Err(WriteError::Duplicate(*id)),
            LedgerOutcome::Invalid => Err(WriteError::Invalid(faults(app, &own, input))),
        });
    }
    Ok(outcomes)
}
