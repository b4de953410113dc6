//! The account: what every candidate came to, what was spent, and how the whole is to be called.

use super::super::format::estimate_overhead;
use super::super::missing;
use super::super::plan::{
    ContextStatus, Decision, Exclusion, Level, Placement, PlannedMemory, TokenAccount,
};
use super::super::rank::Ranked;
use super::super::retrieve::Found;
use super::choose::Chosen;
use super::{Inputs, alone};
use crate::providers::ModelProfile;

/// What the injected text costs.
pub(super) fn account(inputs: &Inputs<'_>, chosen: &Chosen<'_>) -> TokenAccount {
    let family = inputs.profile.family;
    let memories = chosen
        .memories
        .iter()
        .map(|r| r.memory.tokens.of(family))
        .fold(0, u32::saturating_add);
    let formatter = if chosen.memories.is_empty() {
        0
    } else {
        estimate_overhead(
            family,
            inputs.settings.formatter_nonce_bytes,
            chosen.memories.len(),
        )
        .tokens
    };
    let directive = inputs.directive_tokens.tokens;
    TokenAccount {
        injected: directive.saturating_add(memories).saturating_add(formatter),
        directive,
        memories,
        formatter,
    }
}

/// Every candidate's fate, in rank order.
pub(in crate::request::context) fn record(
    ranked: &[Ranked],
    chosen: &[&Ranked],
    profile: ModelProfile,
) -> Vec<PlannedMemory> {
    let mut packed = chosen.iter().map(|r| r.memory.id).peekable();
    ranked
        .iter()
        .map(|r| {
            // Both lists are in rank order.
            let taken = packed.next_if_eq(&r.memory.id).is_some();
            PlannedMemory {
                id: r.memory.id,
                region: Placement::Recall,
                decision: if taken {
                    Decision::Packed
                } else {
                    Decision::Excluded
                },
                reason: if taken {
                    None
                } else {
                    Some(r.excluded.unwrap_or(Exclusion::Budget))
                },
                score: r.score,
                components: r.components,
                tokens: r.memory.tokens.of(profile.family),
            }
        })
        .collect()
}

/// Status, level and reason by the table of outcomes (design, section 2).
pub(in crate::request::context) fn outcome(
    found: &Found,
    directive: bool,
    nothing_chosen: bool,
    ranked: &[Ranked],
) -> (ContextStatus, Level, Option<String>) {
    let without = alone(directive);
    if let Some(reason) = found.given_up {
        return (without, Level::L3, Some(reason.to_owned()));
    }
    let gone: Vec<String> = ["directive", "snapshot", "embedding", "hot", "cold"]
        .into_iter()
        .filter_map(|name| {
            found
                .branches
                .get(name)
                .filter(|b| missing(b.outcome))
                .map(|b| format!("{name}={}", b.outcome.as_str()))
        })
        .collect();
    let memory_gone = ["hot", "cold"]
        .into_iter()
        .filter(|name| found.branches.get(name).is_some_and(|b| missing(b.outcome)))
        .count();
    let reason = if gone.is_empty() {
        nothing_chosen.then(|| nothing(found, ranked).to_owned())
    } else {
        Some(gone.join(","))
    };
    match (memory_gone, gone.len()) {
        (2, _) => (without, Level::L2, reason),
        (0, 0) => (ContextStatus::Full, Level::L0, reason),
        _ => (ContextStatus::Partial, Level::L1, reason),
    }
}

/// Why a whole assembly injected nothing.
fn nothing(found: &Found, ranked: &[Ranked]) -> &'static str {
    if !found.asked {
        "no_question"
    } else if ranked.is_empty() && !found.stored {
        "none_stored"
    } else if ranked.iter().any(|r| r.excluded.is_none()) {
        "no_room"
    } else if ranked
        .iter()
        .any(|r| r.excluded == Some(Exclusion::AlreadyInContext))
    {
        "already_in_context"
    } else {
        "none_relevant"
    }
}
