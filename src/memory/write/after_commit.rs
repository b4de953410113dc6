//! Stage 5, after-commit effects: the index and the hot set learn of what is durable now. Both are derived and can be rebuilt.

use crate::app::App;

use super::{Batch, Member};

pub(super) fn stage(app: &App, batch: &mut Batch) {
    for member in &batch.members {
        if let Member::Stored(memory) = member {
            app.index.upsert((**memory).clone());
        }
    }
}
