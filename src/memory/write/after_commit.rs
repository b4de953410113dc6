//! Stage 8, after-commit effects: the index and the hot set learn of what is durable now. Both are derived and can be rebuilt.

use crate::app::App;
use crate::memory::{Memory, Status};

use super::{Batch, Member};

/// Up to this many memories are indexed where they stand, a few microseconds each.
const INLINE: usize = 16;

pub(super) async fn stage(app: &App, batch: &mut Batch) {
    let mut stored: Vec<Memory> = batch
        .members
        .iter()
        .filter_map(|member| match member {
            Member::Stored(written) => Some(written.memory.clone()),
            Member::Going(_) | Member::Repeats(_) | Member::Refused(_) => None,
        })
        .collect();
    // What waits for review is nobody's to find. A memory that was changed into one leaves the index.
    if batch.change.is_none() {
        stored.retain(|memory| memory.status != Status::Quarantined);
    }
    stored.extend(replaced(app, batch).await);
    if batch.change.is_some_and(|change| change.forgets) && !stored.is_empty() {
        app.sessions.forget_texts();
    }
    let index = app.index.clone();
    if let Some(first) = stored.first() {
        index.warm(&first.partition);
    }
    let apply = move || stored.into_iter().for_each(|memory| index.upsert(memory));
    if batch.members.len() <= INLINE {
        return apply();
    }
    // A thread that is lost leaves the change feed to bring the index up to date.
    if tokio::task::spawn_blocking(apply).await.is_err() {
        tracing::error!("indexing after a write was broken off");
    }
}

/// The memories that the write changed besides its own.
async fn replaced(app: &App, batch: &mut Batch) -> Vec<Memory> {
    let ids = std::mem::take(&mut batch.changed);
    if ids.is_empty() {
        return Vec::new();
    }
    let partition = std::slice::from_ref(&batch.partition);
    match app.store.memories_by_id(partition, &ids).await {
        Ok(memories) => memories,
        Err(error) => {
            // The change feed tells the index too, a little later.
            tracing::warn!("what was replaced could not be read: {error}");
            Vec::new()
        }
    }
}
