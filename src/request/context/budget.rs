//! Budget: takes a model's limits and the counts of everything that is already spoken for, yields what is left for memories.

use crate::tokens::{Count, Family, MixedFamilies};

/// Below this many usable tokens an assembly counts as constrained (contract, section 8).
pub const CONSTRAINED_BELOW: u32 = 256;

/// Percent of the window that is kept for the answer when neither the request nor the bounds say otherwise (contract, section 8).
const RESERVE_PERCENT: u32 = 15;

/// What a budget is made from. All tokens are of one family, the model's.
#[derive(Debug, Clone, Copy)]
pub struct BudgetInput {
    /// The model's window, in tokens.
    pub window: u32,
    /// The most tokens the model answers with.
    pub max_output: u32,
    /// The model's tokenizer family.
    pub family: Family,
    /// The request's own limit on its answer.
    pub requested_max: Option<u32>,
    /// The directive.
    pub directive: Count,
    /// The client's messages.
    pub messages: Count,
    /// The client's tool schemas.
    pub tool_schemas: Count,
    /// Wrappers, joins and the safety sentence, estimated before packing.
    pub formatter_overhead: Count,
    /// What `ibex` sent before and sends again: snapshot and blocks.
    pub frozen: Count,
    /// The least answer reserve, in tokens.
    pub reserve_min: u32,
    /// The greatest answer reserve that is taken without a request's own limit, in tokens.
    pub reserve_max: u32,
}

impl BudgetInput {
    /// The policy's share of the window, or what the request asks for if that is more; never above what the model can answer with.
    fn reserve(&self) -> u32 {
        let share = percent(self.window, RESERVE_PERCENT);
        let policy = share
            .min(self.max_output)
            .min(self.reserve_max)
            .max(self.reserve_min);
        policy
            .max(self.requested_max.unwrap_or(0))
            .min(self.max_output)
    }
}

/// The token budget of one request (contract, section 8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Budget {
    /// The model's window.
    pub context_window: u32,
    /// Kept for the answer.
    pub response_reserve: u32,
    /// Kept for counting errors.
    pub safety_buffer: u32,
    /// The directive.
    pub directive: u32,
    /// The client's messages.
    pub messages: u32,
    /// The client's tool schemas.
    pub tool_schemas: u32,
    /// Wrappers, joins and the safety sentence.
    pub formatter_overhead: u32,
    /// What was injected before and goes out again: the session's snapshot and its earlier blocks.
    pub frozen: u32,
    /// What is left for memories.
    pub usable: u32,
    /// Whether less than 256 tokens are left.
    pub constrained: bool,
    /// Whether all of this is more than the window. The request goes out nevertheless, and the client's messages in it are unchanged.
    pub over_budget: bool,
}

impl Budget {
    /// Subtracts every obligation from the window. An overdrawn window leaves nothing for memories and is no error: the request
    /// still goes out, and the provider says what it thinks of its length.
    ///
    /// # Errors
    /// [`MixedFamilies`] when a count is not of the model's family.
    pub fn plan(input: BudgetInput) -> Result<Self, MixedFamilies> {
        let reserve = input.reserve();
        let safety = percent(input.window, input.family.safety_percent());
        let spoken_for = Count::new(input.family, reserve.saturating_add(safety))
            .plus(input.directive)?
            .plus(input.messages)?
            .plus(input.tool_schemas)?
            .plus(input.formatter_overhead)?
            .plus(input.frozen)?;
        let usable = input.window.saturating_sub(spoken_for.tokens);
        Ok(Self {
            context_window: input.window,
            response_reserve: reserve,
            safety_buffer: safety,
            directive: input.directive.tokens,
            messages: input.messages.tokens,
            tool_schemas: input.tool_schemas.tokens,
            formatter_overhead: input.formatter_overhead.tokens,
            frozen: input.frozen.tokens,
            usable,
            constrained: usable < CONSTRAINED_BELOW,
            over_budget: spoken_for.tokens > input.window,
        })
    }
}

/// `percent` hundredths of `window`, rounded down.
fn percent(window: u32, percent: u32) -> u32 {
    u32::try_from(u64::from(window) * u64::from(percent) / 100).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::{Budget, BudgetInput};
    use crate::tokens::{Count, Family, MixedFamilies};

    fn input(family: Family, window: u32, max_output: u32) -> BudgetInput {
        let zero = Count::zero(family);
        BudgetInput {
            window,
            max_output,
            family,
            requested_max: None,
            directive: zero,
            messages: zero,
            tool_schemas: zero,
            formatter_overhead: zero,
            frozen: zero,
            reserve_min: 500,
            reserve_max: 4_096,
        }
    }

    fn reserve(window: u32, max_output: u32, requested_max: Option<u32>) -> u32 {
        Budget::plan(BudgetInput {
            requested_max,
            ..input(Family::O200kBase, window, max_output)
        })
        .unwrap()
        .response_reserve
    }

    #[test]
    fn every_obligation_is_subtracted() {
        let family = Family::O200kBase;
        let planned = Budget::plan(BudgetInput {
            directive: Count::new(family, 100),
            messages: Count::new(family, 2_000),
            tool_schemas: Count::new(family, 300),
            formatter_overhead: Count::new(family, 40),
            ..input(family, 16_385, 4_096)
        });
        let expected = Budget {
            context_window: 16_385,
            response_reserve: 2_457,
            safety_buffer: 327,
            directive: 100,
            messages: 2_000,
            tool_schemas: 300,
            formatter_overhead: 40,
            frozen: 0,
            usable: 11_161,
            constrained: false,
            over_budget: false,
        };
        assert_eq!(planned, Ok(expected));
    }

    #[test]
    fn the_reserve_is_bounded_by_policy_request_and_model() {
        assert_eq!(
            reserve(128_000, 16_384, None),
            4_096,
            "the greatest reserve"
        );
        assert_eq!(reserve(1_000, 4_096, None), 500, "the least reserve");
        assert_eq!(
            reserve(10_001, 4_096, None),
            1_500,
            "the share, rounded down"
        );
        assert_eq!(
            reserve(8_192, 200, None),
            200,
            "the least reserve yields to what the model can say"
        );
        assert_eq!(
            reserve(128_000, 16_384, Some(10_000)),
            10_000,
            "the request's own limit"
        );
        assert_eq!(
            reserve(128_000, 16_384, Some(1_000_000)),
            16_384,
            "the model's limit"
        );
        assert_eq!(
            reserve(128_000, 16_384, Some(5)),
            4_096,
            "a small request does not lower the policy"
        );
    }

    #[test]
    fn the_safety_buffer_depends_on_the_family() {
        let safety = |family| {
            Budget::plan(input(family, 12_345, 1_000))
                .unwrap()
                .safety_buffer
        };
        assert_eq!(Family::ALL.map(safety), [246, 246, 617, 1_234]);
    }

    #[test]
    fn an_overdrawn_window_leaves_nothing_and_is_constrained() {
        let messages = |tokens| BudgetInput {
            messages: Count::new(Family::Claude, tokens),
            ..input(Family::Claude, 4_000, 500)
        };
        let left = |tokens| {
            Budget::plan(messages(tokens))
                .map(|b| (b.usable, b.constrained))
                .unwrap()
        };
        assert_eq!(left(3_044), (256, false));
        assert_eq!(left(3_045), (255, true));
        assert_eq!(left(u32::MAX), (0, true));
    }

    #[test]
    fn a_count_of_another_family_is_refused_wherever_it_stands() {
        let base = input(Family::O200kBase, 10_000, 1_000);
        let foreign = Count::new(Family::Unknown, 1);
        let mixed = Err(MixedFamilies {
            left: Family::O200kBase,
            right: Family::Unknown,
        });
        assert_eq!(
            Budget::plan(BudgetInput {
                directive: foreign,
                ..base
            }),
            mixed
        );
        assert_eq!(
            Budget::plan(BudgetInput {
                messages: foreign,
                ..base
            }),
            mixed
        );
        assert_eq!(
            Budget::plan(BudgetInput {
                tool_schemas: foreign,
                ..base
            }),
            mixed
        );
        assert_eq!(
            Budget::plan(BudgetInput {
                formatter_overhead: foreign,
                ..base
            }),
            mixed
        );
    }

    proptest! {
        #[test]
        fn parts_never_exceed_the_window_unless_nothing_is_left(
            window in any::<u32>(), max_output in any::<u32>(), requested in any::<Option<u32>>(), spent in any::<[u32; 4]>(),
        ) {
            let count = |tokens| Count::new(Family::Unknown, tokens);
            let [directive, messages, tool_schemas, formatter_overhead] = spent.map(count);
            let base = input(Family::Unknown, window, max_output);
            let plan = Budget::plan(BudgetInput { requested_max: requested, directive, messages, tool_schemas, formatter_overhead, ..base }).unwrap();
            let parts: u64 = spent.iter().chain([&plan.response_reserve, &plan.safety_buffer]).map(|&t| u64::from(t)).sum();
            prop_assert_eq!(u64::from(plan.usable), u64::from(window).saturating_sub(parts));
            prop_assert!(plan.response_reserve <= max_output);
        }
    }
}
