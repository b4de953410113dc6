//! Choosing: the budget, and the memories that are worth most within it.

use super::super::budget::{Budget, BudgetInput};
use super::super::format::{estimate_overhead, wrapper_tokens};
use super::super::pack::{Item, Packed, pack};
use super::super::plan::PackReport;
use super::super::rank::Ranked;
use super::{AssembleError, Inputs};
use crate::tokens::MixedFamilies;

/// The packed memories and the figures behind them.
pub(super) struct Chosen<'r> {
    pub(super) memories: Vec<&'r Ranked>,
    pub(super) budget: Budget,
    pub(super) report: PackReport,
}

/// Plans the budget and packs.
///
/// In a roomy window the capacity is `recall_tokens` of memory text, and the wrappers of everything that could be packed are set aside
/// before. In a tight one that reserve would leave nothing, so each candidate carries its own wrapper instead.
pub(super) fn choose<'r>(
    inputs: &Inputs<'_>,
    ranked: &'r [Ranked],
) -> Result<Chosen<'r>, AssembleError> {
    let family = inputs.profile.family;
    let open: Vec<&Ranked> = ranked.iter().filter(|r| r.excluded.is_none()).collect();
    let cap = inputs.settings.recall_tokens;
    let most = most_that_fit(open.iter().map(|r| r.memory.tokens.of(family)), cap);
    let roomy = plan_budget(inputs, most)?;
    let (budget, wrapper) = if roomy.usable >= cap {
        (roomy, 0)
    } else {
        (
            plan_budget(inputs, usize::from(most > 0))?,
            wrapper_tokens(family, inputs.settings.formatter_nonce_bytes),
        )
    };
    let capacity = budget.usable.min(cap);
    let items: Vec<Item> = open
        .iter()
        .map(|r| Item {
            value: r.value,
            tokens: r.memory.tokens.of(family).saturating_add(wrapper),
        })
        .collect();
    let packed: Packed = pack(&items, capacity, inputs.settings.packer_dp_cell_ceiling);
    let memories = packed
        .chosen
        .iter()
        .filter_map(|i| open.get(*i).copied())
        .collect();
    Ok(Chosen {
        memories,
        budget,
        report: packed.report(capacity),
    })
}

/// How many candidates could be packed at most: the smallest ones first.
fn most_that_fit(tokens: impl Iterator<Item = u32>, cap: u32) -> usize {
    let mut sizes: Vec<u32> = tokens.collect();
    sizes.sort_unstable();
    let mut sum = 0_u32;
    sizes
        .iter()
        .take_while(|t| {
            sum = sum.saturating_add(**t);
            sum <= cap
        })
        .count()
}

fn plan_budget(inputs: &Inputs<'_>, memories: usize) -> Result<Budget, MixedFamilies> {
    let Inputs {
        profile,
        settings,
        measured,
        ..
    } = inputs;
    Budget::plan(BudgetInput {
        window: profile.context_window,
        max_output: profile.max_output,
        family: profile.family,
        requested_max: inputs.requested_max,
        directive: inputs.directive_tokens,
        messages: measured.messages,
        tool_schemas: measured.tools,
        formatter_overhead: estimate_overhead(
            profile.family,
            settings.formatter_nonce_bytes,
            memories,
        ),
        reserve_min: settings.reserve_min,
        reserve_max: settings.reserve_max,
    })
}
