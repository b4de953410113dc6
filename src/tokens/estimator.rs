//! The estimator: corrects what was counted by what providers say they were sent.
//!
//! A count knows the texts of a request. It does not know the template that the provider puts around them, nor how it renders tools, and
//! for most models not even the vocabulary. The provider's usage tells the truth, after the fact; its ratio to the count is remembered
//! by model and applied to the next one. A count that was too low costs a request and one that was too high a little room, so the ratio
//! rises at once and falls slowly, and a margin comes on top.

use std::ops::RangeInclusive;

use moka::sync::Cache;

use crate::ids::OrgId;
use crate::session::Lane;

/// Whose counts for which model at which provider: no tenant's odd requests change what another one's cost.
pub type Counted = (OrgId, Lane);

/// Most models that are remembered.
const MODELS: u64 = 1_000;
/// The ratio of a model that nothing is known about.
const UNKNOWN: f64 = 1.0;
/// What is kept on top of every estimate (seed 001, point 11).
const MARGIN: f64 = 1.05;
/// How much of the old ratio stays when a lower one is seen.
const INERTIA: f64 = 0.9;
/// A ratio that is lower by so small a share teaches nothing beside the margin, and costs a write with every answer.
const ALIKE: f64 = 0.002;
/// No provider's template and vocabulary are further off than this; a usage that says so counts something else.
const RATIOS: RangeInclusive<f64> = 0.5..=4.0;
/// Counts below this say more about the template than about the ratio.
const TELLING: u32 = 64;

/// The ratios of reported to counted tokens, by model. A clone shares them.
#[derive(Debug, Clone)]
pub struct Estimator {
    ratios: Cache<Counted, f64, foldhash::fast::RandomState>,
}

impl Default for Estimator {
    fn default() -> Self {
        Self::new()
    }
}

impl Estimator {
    /// One that knows no model yet.
    #[must_use]
    pub fn new() -> Self {
        // The names come from clients.
        let ratios = Cache::builder()
            .max_capacity(MODELS)
            .build_with_hasher(foldhash::fast::RandomState::default());
        Self { ratios }
    }

    /// The tokens that `raw` counted ones will be to `model`: never too few as far as is known.
    #[must_use]
    pub fn estimate(&self, model: &Counted, raw: u32) -> u32 {
        let ratio = self.ratios.get(model).unwrap_or(UNKNOWN);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates on its way to an integer"
        )]
        let estimate = (f64::from(raw) * ratio * MARGIN).ceil() as u32;
        estimate
    }

    /// Learns that a prompt counted as `raw` tokens was `actual` to `model`; returns the ratio, or nothing when it tells nothing.
    pub fn observe(&self, model: &Counted, raw: u32, actual: u64) -> Option<f64> {
        if raw < TELLING || actual == 0 {
            return None;
        }
        let seen = actual as f64 / f64::from(raw);
        let within = seen.clamp(*RATIOS.start(), *RATIOS.end());
        let known = self.ratios.get(model);
        // A higher one is taken at once, however little higher it is.
        if known.is_some_and(|known| within <= known && known / within - 1.0 < ALIKE) {
            return Some(seen);
        }
        self.ratios.entry_by_ref(model).and_upsert_with(|old| {
            let old = old.map_or(UNKNOWN, moka::Entry::into_value);
            if within < old {
                INERTIA * old + (1.0 - INERTIA) * within
            } else {
                within
            }
        });
        Some(seen)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Counted, Estimator, MODELS};
    use crate::ids::OrgId;
    use crate::session::Lane;

    fn model(name: &str) -> Counted {
        (OrgId::from_bytes([7; 16]), Lane::new("p", name))
    }

    #[test]
    fn a_model_that_is_not_known_gets_the_margin() {
        let estimator = Estimator::new();
        assert_eq!(estimator.estimate(&model("m"), 0), 0);
        assert_eq!(estimator.estimate(&model("m"), 1), 2);
        assert_eq!(estimator.estimate(&model("m"), 1_000), 1_050);
        assert_eq!(estimator.estimate(&model("m"), u32::MAX), u32::MAX);
    }

    #[test]
    fn a_higher_ratio_is_taken_at_once_and_a_lower_one_slowly() {
        let estimator = Estimator::new();
        assert_eq!(estimator.observe(&model("m"), 1_000, 1_500), Some(1.5));
        assert_eq!(estimator.estimate(&model("m"), 1_000), 1_575);
        assert_eq!(estimator.observe(&model("m"), 1_000, 1_000), Some(1.0));
        assert_eq!(estimator.estimate(&model("m"), 1_000), 1_523);
        assert_eq!(estimator.estimate(&model("other"), 1_000), 1_050);
        assert_eq!(estimator.clone().estimate(&model("m"), 1_000), 1_523);
    }

    #[test]
    fn what_tells_nothing_teaches_nothing() {
        let estimator = Estimator::new();
        assert_eq!(estimator.observe(&model("m"), 63, 1_000), None);
        assert_eq!(estimator.observe(&model("m"), 1_000, 0), None);
        assert_eq!(estimator.estimate(&model("m"), 1_000), 1_050);
        assert_eq!(estimator.observe(&model("m"), 64, 128), Some(2.0));
    }

    #[test]
    fn a_ratio_beyond_belief_is_told_but_not_applied() {
        let estimator = Estimator::new();
        assert_eq!(estimator.observe(&model("m"), 100, 1_000), Some(10.0));
        assert_eq!(estimator.estimate(&model("m"), 100), 420);
        for _ in 0..200 {
            estimator.observe(&model("m"), 1_000, 1);
        }
        assert_eq!(estimator.estimate(&model("m"), 1_000), 526);
    }

    #[test]
    fn the_models_that_are_remembered_are_bounded() {
        let estimator = Estimator::new();
        for number in 0..5 * MODELS {
            estimator.observe(&model(&number.to_string()), 100, 200);
        }
        estimator.ratios.run_pending_tasks();
        assert!(estimator.ratios.entry_count() <= MODELS);
    }

    proptest! {
        #[test]
        fn an_estimate_covers_what_was_seen_last(seen in prop::collection::vec((64_u32..100_000, 50_u64..400), 1..20), raw in any::<u32>()) {
            let estimator = Estimator::new();
            for (counted, percent) in seen {
                let ratio = estimator.observe(&model("m"), counted, u64::from(counted) * percent / 100).unwrap();
                let least = (f64::from(raw) * ratio).min(f64::from(u32::MAX));
                prop_assert!(f64::from(estimator.estimate(&model("m"), raw)) >= least);
            }
        }

        #[test]
        fn a_steady_ratio_is_approached_and_never_passed(first in 500_000_u64..4_000_000, steady in 500_000_u64..4_000_000) {
            let estimator = Estimator::new();
            estimator.observe(&model("m"), 1_000_000, first);
            let mut last = u32::MAX;
            for _ in 0..150 {
                estimator.observe(&model("m"), 1_000_000, steady);
                let estimate = estimator.estimate(&model("m"), 1_000_000);
                prop_assert!(estimate <= last);
                last = estimate;
            }
            let exact = steady * 21 / 20;
            prop_assert!((exact..exact + exact / 400).contains(&u64::from(last)), "{last} for {exact}");
        }
    }
}
