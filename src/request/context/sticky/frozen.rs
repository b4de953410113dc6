//! A request as it will go out: what is frozen for it, until the seal.

use std::sync::Arc;

use crate::app::App;
use crate::ids::MemoryId;
use crate::memory::PartitionKey;
use crate::request::context::plan::ContextPlan;
use crate::request::context::{Checkpoint, Estimate};
use crate::session::{Block, LaneKey, Opening, Outcome, Turn};
use crate::store::shared::Sent;

/// What goes out, before the last check.
#[derive(Debug)]
pub struct Frozen {
    pub(super) key: Arc<LaneKey>,
    /// Region A.
    pub(super) opening: Arc<Opening>,
    /// Every turn of the request with what it has.
    pub(super) turns: Vec<(Turn, Outcome)>,
    /// Memories that were recalled for this turn, and are sent for the first time.
    pub(super) used: Vec<(PartitionKey, MemoryId)>,
    /// What is rendered for the first time, with the revision of the text that was rendered.
    pub(super) texts: Vec<(MemoryId, i64)>,
    /// Whether the session was opened by this request: its snapshot is sent for the first time as well.
    pub(super) opened: bool,
    /// The record.
    pub plan: ContextPlan,
    /// The store's revision up to which everything here was checked.
    pub(super) checked: i64,
    /// The one that the index knew of before it was asked for what is new.
    pub(super) known: i64,
    pub(super) last: Option<Sent>,
    pub(super) trimmed: bool,
    /// Whether the session has rows in the store.
    pub(super) recorded: bool,
    /// Whether memories were left out because nobody could say which of them were forgotten.
    pub(super) stripped: bool,
    /// What the whole prompt was counted as.
    pub(super) counted: Option<Estimate>,
}

impl Frozen {
    /// The blocks with the places of their messages.
    pub(super) fn blocks(&self) -> Vec<(usize, &Block)> {
        self.turns
            .iter()
            .filter_map(|(turn, outcome)| Some((turn.message, &**outcome.block()?)))
            .collect()
    }

    /// The memories in it, as sent.
    pub(super) fn ids(&self) -> Vec<MemoryId> {
        let blocks = self.turns.iter().filter_map(|(_, o)| o.block());
        let mut ids: Vec<MemoryId> = self.opening.ids().collect();
        ids.extend(blocks.flat_map(|b| b.ids()));
        ids
    }

    /// The turn that the request belongs to, if the session leaves a record.
    pub(in crate::request::context) fn checkpoint(&self) -> Option<Checkpoint> {
        let (turn, _) = self.turns.last()?;
        if !self.recorded {
            return None;
        }
        Some(Checkpoint {
            lane: LaneKey::clone(&self.key),
            turn: turn.chain,
        })
    }

    /// What the whole prompt was counted as, to be held against what the provider reports.
    pub(in crate::request::context) fn counted(&self) -> Option<Estimate> {
        self.counted
    }

    /// How many memories are sent for the first time.
    pub(super) fn new_memories(&self) -> usize {
        let snapshot = if self.opened {
            self.opening.ids().count()
        } else {
            0
        };
        self.used.len() + snapshot
    }

    /// Counts what went out. Being recalled for a turn is a use; being sent again is none, and neither is a snapshot: nobody asked.
    pub(in crate::request::context) fn count(&self, app: &App) {
        let seconds = self
            .plan
            .timings_ms
            .get("total")
            .map_or(0.0, |ms| ms / 1_000.0);
        if self.stripped {
            app.metrics.fence_stripped();
        }
        app.metrics
            .assembled(&self.plan, self.new_memories() as u64, seconds);
        app.uses.note(self.used.iter().cloned());
    }
}

/// Tells of an epoch that replaced another one.
pub(super) fn announce(app: &App, opening: &Opening) {
    let Some(reason) = opening.reason else {
        return;
    };
    app.metrics.epoch_rotated(reason);
    tracing::info!(
        event = "context.epoch.rotated",
        session_id = opening.owner.id.as_str(),
        epoch = opening.epoch,
        reason = reason.as_str(),
        "the session's frozen prefix has a new epoch"
    );
}
