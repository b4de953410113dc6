//! Stage 4, persist: takes embedded memories, yields stored ones; all of a batch in one transaction.

use std::sync::Arc;

use crate::app::App;
use crate::memory::Memory;
use crate::store::InsertOutcome;

use super::{Batch, Member, WriteError};

pub(super) async fn stage(app: &App, batch: &mut Batch) {
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
    let outcomes = match app.store.insert_memories(rows).await {
        Ok(outcomes) if outcomes.len() == expected => outcomes,
        Ok(_) => return refuse(batch, "an outcome is missing"),
        Err(error) => return refuse(batch, &error.to_string()),
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

fn refuse(batch: &mut Batch, reason: &str) {
    tracing::warn!("memory insert: {reason}");
    for member in batch.going() {
        *member = Member::Refused(WriteError::StoreUnavailable);
    }
}
