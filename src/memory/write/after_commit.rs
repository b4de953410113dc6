//! Stage 5, after-commit effects: the index and the hot set learn of what is durable now. Both are derived and can be rebuilt.

use crate::app::App;
use crate::memory::Memory;

use super::{Batch, Member};

/// Up to this many memories are indexed where they stand, a few microseconds each.
const INLINE: usize = 16;

pub(super) async fn stage(app: &App, batch: &mut Batch) {
    let stored = batch.members.iter().filter_map(|member| match member {
        Member::Stored(memory) => Some(Memory::clone(memory)),
        Member::Going(_) | Member::Repeats(_) | Member::Refused(_) => None,
    });
    let stored: Vec<Memory> = stored.collect();
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
