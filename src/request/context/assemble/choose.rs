//! Choosing: the budget, and the memories that are worth most within it.

use super::super::budget::{Budget, BudgetInput};
use super::super::envelope;
use super::super::format::{estimate_overhead, wrapper_tokens};
use super::super::pack::{Item, Packed, pack};
use super::super::plan::PackReport;
use super::super::rank::Ranked;
use super::AssembleError;
use crate::config::ContextConfig;
use crate::memory::Memory;
use crate::providers::ModelProfile;
use crate::tokens::{Count, Family, MixedFamilies};

/// How memories will be written, which decides what their wrappers cost.
#[derive(Debug, Clone, Copy)]
pub(in crate::request::context) enum Form {
    /// ADR-0070: a nonce in every element, and the safety sentence.
    Assembled {
        /// Random bytes of the nonce.
        nonce_bytes: usize,
    },
    /// One envelope around all of them.
    Enveloped,
}

impl Form {
    /// The most that one memory's wrapper adds.
    fn wrapper(self, family: Family) -> u32 {
        match self {
            Self::Assembled { nonce_bytes } => wrapper_tokens(family, nonce_bytes),
            Self::Enveloped => envelope::ELEMENT_TOKENS,
        }
    }

    /// The most that this memory's wrapper adds to those of others.
    fn own(self, memory: &Memory) -> u32 {
        match self {
            Self::Assembled { .. } => 0,
            Self::Enveloped => envelope::named_tokens(memory),
        }
    }

    /// The most that writing `memories` of them adds.
    fn overhead(self, family: Family, memories: usize) -> Count {
        match self {
            Self::Assembled { nonce_bytes } => estimate_overhead(family, nonce_bytes, memories),
            Self::Enveloped if memories == 0 => Count::zero(family),
            Self::Enveloped => {
                let memories = u32::try_from(memories).unwrap_or(u32::MAX);
                let elements = envelope::ELEMENT_TOKENS.saturating_mul(memories);
                Count::new(family, elements.saturating_add(envelope::ENVELOPE_TOKENS))
            }
        }
    }
}

/// What the budget is made of, memories aside.
#[derive(Debug, Clone, Copy)]
pub(in crate::request::context) struct Room<'a> {
    pub(in crate::request::context) settings: &'a ContextConfig,
    pub(in crate::request::context) profile: ModelProfile,
    pub(in crate::request::context) form: Form,
    pub(in crate::request::context) directive: Count,
    pub(in crate::request::context) messages: Count,
    pub(in crate::request::context) tools: Count,
    pub(in crate::request::context) frozen: Count,
    pub(in crate::request::context) requested_max: Option<u32>,
}

/// The packed memories and the figures behind them.
pub(in crate::request::context) struct Chosen<'r> {
    pub(in crate::request::context) memories: Vec<&'r Ranked>,
    pub(in crate::request::context) budget: Budget,
    pub(in crate::request::context) report: PackReport,
}

/// Plans the budget and packs.
///
/// In a roomy window the capacity is `recall_tokens` of memory text, and the wrappers of everything that could be packed are set aside
/// before. In a tight one that reserve would leave nothing, so each candidate carries its own wrapper instead.
pub(in crate::request::context) fn choose<'r>(
    room: &Room<'_>,
    ranked: &'r [Ranked],
) -> Result<Chosen<'r>, AssembleError> {
    let family = room.profile.family;
    let open: Vec<&Ranked> = ranked.iter().filter(|r| r.excluded.is_none()).collect();
    let cap = room.settings.recall_tokens;
    let most = most_that_fit(open.iter().map(|r| r.memory.tokens.of(family)), cap);
    let roomy = plan_budget(room, most)?;
    let (budget, wrapper) = if roomy.usable >= cap {
        (roomy, 0)
    } else {
        (
            plan_budget(room, usize::from(most > 0))?,
            room.form.wrapper(family),
        )
    };
    let capacity = budget.usable.min(cap);
    let items: Vec<Item> = open
        .iter()
        .map(|r| Item {
            value: r.value,
            tokens: r
                .memory
                .tokens
                .of(family)
                .saturating_add(wrapper)
                .saturating_add(room.form.own(&r.memory)),
        })
        .collect();
    let packed: Packed = pack(&items, capacity, room.settings.packer_dp_cell_ceiling);
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

pub(in crate::request::context) fn plan_budget(
    room: &Room<'_>,
    memories: usize,
) -> Result<Budget, MixedFamilies> {
    Budget::plan(BudgetInput {
        window: room.profile.context_window,
        max_output: room.profile.max_output,
        family: room.profile.family,
        requested_max: room.requested_max,
        directive: room.directive,
        messages: room.messages,
        tool_schemas: room.tools,
        formatter_overhead: room.form.overhead(room.profile.family, memories),
        frozen: room.frozen,
        reserve_min: room.settings.reserve_min,
        reserve_max: room.settings.reserve_max,
    })
}
