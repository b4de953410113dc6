//! Composition: from what is held and what was found to what goes out. Pure: no clock, no randomness, no store.

use std::sync::Arc;

use jiff::Timestamp;

use crate::ids::MemoryId;
use crate::memory::Memory;
use crate::openai::ChatRequest;
use crate::providers::ModelProfile;
use crate::request::context::assemble::{
    AssembleError, Chosen, Form, Room, View, alone, choose, plan_budget,
};
use crate::request::context::measure::Measured;
use crate::request::context::place::takes_block;
use crate::request::context::plan::ContextPlan;
use crate::request::context::rank::{RankSettings, rank};
use crate::request::context::retrieve::Found;
use crate::session::{
    Block, Opening, OpeningParts, Outcome, RotationReason, SessionKey, StateDelta, Turn,
};
use crate::store::shared::{BlockFate, Held, Known};
use crate::tokens::Count;

use super::render::{Epoch, Pinned, Press, Snapshot};

/// What has to be done to Region A before the request goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// It is frozen already.
    None,
    /// It is to be frozen.
    Open,
    /// It replaces the one of this epoch.
    Rotate(u32, BlockFate),
    /// It is used for this request alone: opened degraded.
    Unfrozen,
}

/// Everything that a composition depends on.
#[derive(Debug)]
pub(super) struct Inputs<'a> {
    pub(super) press: Press<'a>,
    pub(super) owner: &'a Arc<SessionKey>,
    pub(super) chat: &'a ChatRequest,
    pub(super) turns: &'a [Turn],
    pub(super) profile: ModelProfile,
    pub(super) held: &'a Held,
    /// The last epoch that was used and is lost; 0 for none.
    pub(super) lost: u32,
    /// The number of the epoch that the lane opens with, if it has to be opened.
    pub(super) first: u32,
    pub(super) revoked: &'a [u32],
    pub(super) found: Found,
    /// The store's revision that the index knew of before it was asked.
    pub(super) known: i64,
    /// The client's share as the model will count it, margin included.
    pub(super) measured: Measured,
    /// The same as it was counted.
    pub(super) counted: Measured,
    pub(super) state: Option<StateDelta>,
    pub(super) view: &'a View,
    /// Whether somebody will read the plan in full.
    pub(super) explain: bool,
    pub(super) now: Timestamp,
}

/// What goes out.
#[derive(Debug)]
pub(super) struct Composed {
    pub(super) opening: Arc<Opening>,
    pub(super) change: Change,
    /// Every turn of the request with what it has.
    pub(super) turns: Vec<(Turn, Outcome)>,
    /// Memories that were recalled for this turn.
    pub(super) used: Vec<Arc<Memory>>,
    /// Every memory that is rendered for the first time, with the revision of the text that is rendered.
    pub(super) texts: Vec<(MemoryId, i64)>,
    /// The store's revision that they are known at.
    pub(super) known: i64,
    pub(super) plan: ContextPlan,
}

/// Composes.
///
/// # Errors
/// When counts of two tokenizers meet, which no configuration brings about.
pub(super) fn compose(mut inputs: Inputs<'_>) -> Result<Composed, AssembleError> {
    let hits = std::mem::take(&mut inputs.found.hits);
    let (mut opening, mut change, mut opened) = inputs.opening();
    let mut turns = inputs.known();
    let mut room = inputs.room(&opening, &turns);
    // By what was counted: a margin, or a ratio that some other request taught, may keep new memories out, but never takes frozen ones.
    let sure = Room {
        messages: inputs.counted.messages,
        tools: inputs.counted.tools,
        ..room
    };
    if plan_budget(&sure, 0)?.over_budget && room.frozen.tokens > 0 {
        // New recall has yielded already: there is no room for any. What was injected before yields next; the prefix never does.
        let slimmer = OpeningParts {
            snapshot: None,
            ..opening.parts()
        };
        (opening, change) = inputs.slimmed(slimmer, change);
        opened.clear();
        turns
            .iter_mut()
            .for_each(|(_, outcome)| *outcome = Outcome::Nothing);
        // A change says nothing without what it changes: the whole state is told in a later turn.
        inputs.state = None;
        room = inputs.room(&opening, &turns);
    }
    let any = !hits.is_empty();
    let mut settings = RankSettings::new(inputs.press.settings);
    settings.carried = carried(&opening, &turns);
    let ranked = rank(hits, inputs.now, &settings);
    let chosen = choose(&room, &ranked)?;
    let block = inputs.block(&opening, &chosen);
    if let Some((_, outcome)) = inputs.open_turn(&mut turns) {
        *outcome = block.map_or(Outcome::Nothing, Outcome::Block);
    }
    let mut plan = inputs.plan(&opening, &turns, &ranked, &chosen);
    plan.pack = any.then_some(chosen.report);
    if inputs.explain {
        inputs.record_snapshot(&opened, &mut plan);
    }
    let rendered = opened.iter().map(|m| (m.id, m.text_revision));
    let recalled = chosen.memories.iter().map(|r| &r.memory);
    Ok(Composed {
        texts: rendered
            .chain(recalled.map(|m| (m.id, m.text_revision)))
            .collect(),
        used: chosen
            .memories
            .iter()
            .map(|r| Arc::clone(&r.memory))
            .collect(),
        known: inputs.known,
        opening,
        change,
        turns,
        plan,
    })
}

/// The memories that the request carries already.
fn carried(opening: &Opening, turns: &[(Turn, Outcome)]) -> Vec<MemoryId> {
    let blocks = turns.iter().filter_map(|(_, o)| o.block());
    opening
        .ids()
        .chain(blocks.flat_map(|b| b.ids().collect::<Vec<_>>()))
        .collect()
}

impl Inputs<'_> {
    /// Region A, what has to be done to it, and the memories that a new one opens with.
    fn opening(&self) -> (Arc<Opening>, Change, Vec<Arc<Memory>>) {
        let pinned = self
            .found
            .directive
            .as_ref()
            .map(|d| (d.version, self.view.text(d)));
        let pinned = pinned.as_ref().map(|(version, text)| Pinned {
            version: *version,
            text,
            hidden: self.view.hide_directive,
        });
        if let Some(held) = &self.held.opening {
            let revoked = held.directive.is_some_and(|v| self.revoked.contains(&v));
            if !revoked {
                return (self.shown(held), Change::None, Vec::new());
            }
            let epoch = Epoch {
                number: held.epoch.saturating_add(1),
                nonce: held.nonce_epoch,
                reason: Some(RotationReason::Revoked),
            };
            // A directive that is not known is better than one that was revoked.
            let pinned = pinned.filter(|p| !self.revoked.contains(&p.version));
            let next = self.press.redirected(held, epoch, pinned);
            let change = Change::Rotate(held.epoch, BlockFate::Keep);
            return (Arc::new(next), change, Vec::new());
        }
        let missing = |branch: &str| {
            let report = self.found.branches.get(branch);
            report.is_some_and(|b| crate::request::context::missing(b.outcome))
        };
        let degraded = self.found.given_up.is_some() || missing("directive") || missing("snapshot");
        let epoch = Epoch {
            number: if degraded { 0 } else { self.first },
            nonce: self.first,
            reason: (self.lost > 0).then_some(RotationReason::StateLost),
        };
        let opened = if degraded {
            Snapshot::default()
        } else {
            let offered = self.found.snapshot.iter().flatten();
            let current = offered.filter(|memory| memory.is_current(self.now));
            self.press.snapshot(&current.collect::<Vec<_>>())
        };
        let opening = self
            .press
            .opening(self.owner, epoch, pinned, opened.elements);
        let change = if degraded {
            Change::Unfrozen
        } else {
            Change::Open
        };
        (Arc::new(opening), change, opened.memories)
    }

    /// Region A as this reader may see it: a preview for somebody who may not read directives names the version instead.
    fn shown(&self, held: &Arc<Opening>) -> Arc<Opening> {
        let (true, Some(version)) = (self.view.hide_directive, held.directive) else {
            return Arc::clone(held);
        };
        let known = self
            .found
            .directive
            .as_ref()
            .filter(|d| d.version == version);
        let text = known.map_or_else(
            || format!("[directive version {version}]"),
            |d| self.view.text(d),
        );
        let epoch = Epoch {
            number: held.epoch,
            nonce: held.nonce_epoch,
            reason: held.reason,
        };
        let pinned = Pinned {
            version,
            text: &text,
            hidden: true,
        };
        Arc::new(self.press.redirected(held, epoch, Some(pinned)))
    }

    /// An opening that lost its snapshot for want of room, and how it comes into force.
    fn slimmed(&self, slimmer: OpeningParts, change: Change) -> (Arc<Opening>, Change) {
        let Some(held) = &self.held.opening else {
            return (Arc::new(Opening::new(slimmer)), change);
        };
        let next = Opening::new(OpeningParts {
            epoch: held.epoch.saturating_add(1),
            reason: Some(RotationReason::OverBudget),
            ..slimmer
        });
        let change = Change::Rotate(held.epoch, BlockFate::Drop);
        (Arc::new(next), change)
    }

    /// The turns as they are held. A turn that is not known got nothing, and stays so; the last one may still get something.
    fn known(&self) -> Vec<(Turn, Outcome)> {
        let held = self.held.turns.iter().map(|known| match known {
            Known::Chain(outcome) | Known::Anchor(outcome) => outcome.clone(),
            Known::No => Outcome::Nothing,
        });
        self.turns.iter().copied().zip(held).collect()
    }

    /// The turn that may get something now: the last one, if it is not settled and its message can take a block.
    fn open_turn<'t>(&self, turns: &'t mut [(Turn, Outcome)]) -> Option<&'t mut (Turn, Outcome)> {
        if self.held.turns.last() != Some(&Known::No) {
            return None;
        }
        let last = turns.last_mut()?;
        let message = self.chat.messages().get(last.0.message)?;
        takes_block(message, self.profile).then_some(last)
    }

    fn block(&self, opening: &Opening, chosen: &Chosen<'_>) -> Option<Arc<Block>> {
        let anchor = self.turns.last()?.anchor;
        let memories: Vec<&Memory> = chosen.memories.iter().map(|r| &*r.memory).collect();
        let recall = self.press.recall(&opening.nonce, &anchor, &memories);
        let (nonce_epoch, state) = (opening.nonce_epoch, self.state.clone());
        Press::block(self.owner, nonce_epoch, self.known, recall, state)
    }

    fn room(&self, opening: &Opening, turns: &[(Turn, Outcome)]) -> Room<'_> {
        let family = self.measured.family;
        let blocks = turns.iter().filter_map(|(_, o)| o.block());
        let frozen = blocks
            .map(|b| b.tokens(family))
            .fold(opening.snapshot_tokens(family), u32::saturating_add);
        Room {
            settings: self.press.settings,
            profile: ModelProfile {
                family,
                ..self.profile
            },
            form: Form::Enveloped,
            directive: Count::new(family, opening.cost.tokens(family)),
            messages: self.measured.messages,
            tools: self.measured.tools,
            frozen: Count::new(family, frozen),
            requested_max: self.chat.max_tokens(),
        }
    }
}

/// The directive and nothing else, when what is frozen cannot be known or may not be sent: for one request, and never kept.
pub(super) fn bare(
    press: &Press<'_>,
    owner: &Arc<SessionKey>,
    directive: Option<Pinned<'_>>,
) -> Opening {
    let epoch = Epoch {
        number: 0,
        nonce: 1,
        reason: None,
    };
    press.opening(owner, epoch, directive, None)
}

/// The status of a request that goes out with the directive alone.
pub(super) fn bare_status(opening: &Opening) -> crate::request::context::plan::ContextStatus {
    alone(opening.directive.is_some())
}
