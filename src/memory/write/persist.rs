//! Stage 4, persist: takes embedded memories, yields stored ones; all of a batch in one transaction.

use std::sync::Arc;

use crate::app::App;
use crate::memory::Memory;
use crate::store::{InsertOutcome, Refined, StoreError};

use super::idempotency::Claim;
use super::{Batch, Member, WriteError};

pub(super) async fn stage(app: &App, batch: &mut Batch, claim: Option<&Claim<'_>>) {
    let ledger = claim.map(|claim| claim.entry(batch));
    if matches!(ledger, Some(None)) {
        // Some of it may be repeated and some may not: then none of it is stored.
        return refuse(batch, &WriteError::LedgerUnavailable, "a member failed");
    }
    let rows: Vec<Memory> = batch
        .going()
        .filter_map(|m| match m {
            Member::Going(memory) => Some((**memory).clone()),
            Member::Stored(_) | Member::Repeats(_) | Member::Refused(_) => None,
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let expected = rows.len();
    let failed = match claim {
        Some(_) => WriteError::LedgerUnavailable,
        None => WriteError::StoreUnavailable,
    };
    let ledger = ledger.flatten();
    let outcomes = match app.store.commit(Refined { rows, ledger }).await {
        Ok(outcomes) if outcomes.len() == expected => outcomes,
        Ok(_) => return refuse(batch, &failed, "an outcome is missing"),
        Err(StoreError::Conflict(_)) if claim.is_some() => {
            return refuse(batch, &WriteError::Settled, "the key was used elsewhere");
        }
        Err(error) => return refuse(batch, &failed, &error.to_string()),
    };
    for (member, outcome) in batch.going().zip(outcomes) {
        let Member::Going(memory) = member else {
            continue;
        };
        *member = match outcome {
            InsertOutcome::Inserted { revision } => Member::Stored(Arc::new(Memory {
                revision,
                ..(**memory).clone()
            })),
            InsertOutcome::Duplicate { existing } => {
                Member::Refused(WriteError::Duplicate(existing))
            }
        };
    }
}

fn refuse(batch: &mut Batch, error: &WriteError, reason: &str) {
    tracing::warn!("memory insert: {reason}");
    for member in batch.going() {
        *member = Member::Refused(error.clone());
    }
}
