//! What a composition says about itself: the plan of one request.

use std::sync::Arc;

use crate::memory::Memory;
use crate::request::context::assemble::{Chosen, outcome, record};
use crate::request::context::plan::{
    ContextPlan, Decision, Level, Placement, PlannedMemory, TokenAccount,
};
use crate::request::context::rank::{Ranked, standing_components};
use crate::session::{Opening, Outcome, Turn};
use crate::store::shared::Known;

use super::compose::Inputs;

impl Inputs<'_> {
    /// The plan, and how the request went.
    pub(super) fn plan(
        &self,
        opening: &Opening,
        turns: &[(Turn, Outcome)],
        ranked: &[Ranked],
        chosen: &Chosen<'_>,
    ) -> ContextPlan {
        let family = self.measured.family;
        let nothing = chosen.memories.is_empty();
        let (status, level, mut reason) =
            outcome(&self.found, opening.directive.is_some(), nothing, ranked);
        let settled = self.held.turns.last().is_some_and(|k| *k != Known::No);
        let blocks: Vec<_> = turns.iter().filter_map(|(_, o)| o.block()).collect();
        if settled && reason.as_deref() == Some("no_question") {
            // Nothing was asked because the turn has what it has.
            reason = (blocks.is_empty() && opening.snapshot.is_none())
                .then(|| "turn_settled".to_owned());
        }
        if chosen.budget.over_budget && level == Level::L0 {
            reason = Some("over_budget".to_owned());
        }
        let memories = chosen
            .memories
            .iter()
            .map(|r| r.memory.tokens.of(family))
            .fold(0, u32::saturating_add);
        let directive = opening.cost.tokens(family);
        let injected = blocks
            .iter()
            .map(|b| b.tokens(family))
            .chain([opening.snapshot_tokens(family)])
            .fold(directive, u32::saturating_add);
        ContextPlan {
            status,
            level,
            reason,
            layout: self.press.settings.layout,
            branches: self.found.branches.clone(),
            budget: chosen.budget,
            memories: record(ranked, &chosen.memories, self.profile),
            pack: None,
            tokens: TokenAccount {
                injected,
                directive,
                memories,
                formatter: injected.saturating_sub(directive).saturating_sub(memories),
            },
            timings_ms: std::collections::BTreeMap::new(),
            session: None,
        }
    }

    /// Adds the memories that a new Region A opens with.
    pub(super) fn record_snapshot(&self, opened: &[Arc<Memory>], plan: &mut ContextPlan) {
        plan.memories.extend(opened.iter().map(|memory| {
            let (score, components) = standing_components(memory, self.now);
            PlannedMemory {
                id: memory.id,
                region: Placement::Snapshot,
                decision: Decision::Packed,
                reason: None,
                score,
                components,
                tokens: memory.tokens.of(self.measured.family),
            }
        }));
    }
}
