//! Stage 7, persist: takes judged memories, yields stored ones; all of a batch in one transaction with what it means for others.

use std::sync::Arc;

use crate::app::App;
use crate::memory::Memory;
use crate::store::{Committed, Draft, Edit, Edited, Refined, StoreError};

use super::idempotency::Claim;
use super::{Batch, Member, WriteError};

pub(super) async fn stage(app: &App, batch: &mut Batch, claim: Option<&Claim<'_>>) {
    let ledger = claim.map(|claim| claim.entry(batch));
    if matches!(ledger, Some(None)) {
        // Some of it may be repeated and some may not: then none of it is stored.
        return refuse(batch, &WriteError::LedgerUnavailable, "a member failed");
    }
    let rows: Vec<Draft> = batch.going().map(|candidate| candidate.draft()).collect();
    // A keyed write of which nothing is stored is remembered all the same.
    if rows.is_empty() && ledger.is_none() {
        return;
    }
    let expected = rows.len();
    let failed = match claim {
        Some(_) => WriteError::LedgerUnavailable,
        None => WriteError::StoreUnavailable,
    };
    let ledger = ledger.flatten();
    let outcomes = match store(app, batch, Refined { rows, ledger }).await {
        Ok(Some(outcomes)) if outcomes.len() == expected => outcomes,
        Ok(Some(_)) => return refuse(batch, &failed, "an outcome is missing"),
        Ok(None) => return batch.refuse(&WriteError::Stale),
        Err(StoreError::Conflict(_)) if claim.is_some() => {
            return refuse(batch, &WriteError::Settled, "the key was used elsewhere");
        }
        Err(error) => return refuse(batch, &failed, &error.to_string()),
    };
    let mut outcomes = outcomes.into_iter();
    let mut all_changed = Vec::new();
    let at = batch.change;
    batch.settle(|candidate| match outcomes.next() {
        Some(Committed::Inserted {
            revision,
            supersedes,
            changed,
        }) => {
            all_changed.extend(changed);
            let before = &candidate.memory;
            let memory = Memory {
                revision,
                text_revision: match at {
                    Some(change) if change.forgets => revision,
                    _ => before.text_revision,
                },
                supersedes: if supersedes.is_empty() {
                    before.supersedes.clone()
                } else {
                    supersedes.into()
                },
                ..before.clone()
            };
            Member::Stored(Arc::new(candidate.written(memory)))
        }
        Some(Committed::Duplicate { existing }) => Member::Refused(WriteError::Duplicate(existing)),
        None => Member::Refused(failed.clone()),
    });
    batch.changed = all_changed;
}

/// Writes new rows, or the change of one; nothing when that one is not what it was.
async fn store(
    app: &App,
    batch: &Batch,
    mut write: Refined,
) -> Result<Option<Vec<Committed>>, StoreError> {
    let Some(change) = batch.change else {
        return app.store.commit(write).await.map(Some);
    };
    let Some(draft) = write.rows.pop() else {
        return Ok(Some(Vec::new()));
    };
    let edit = Edit {
        draft,
        read_at: change.read_at,
        forgets: change.forgets,
    };
    Ok(match app.store.edit(edit).await? {
        Edited::Done(committed) => Some(vec![committed]),
        Edited::Stale => None,
    })
}

fn refuse(batch: &mut Batch, error: &WriteError, reason: &str) {
    tracing::warn!("memory insert: {reason}");
    batch.refuse(error);
}
