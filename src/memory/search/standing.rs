//! The parts of a memory's score that no query changes (contract, section 9).

use jiff::Timestamp;

use crate::memory::{Category, Label, Memory};

/// Share of each part in the composite score; with relevance at `RELEVANCE_SHARE` they sum to 1.
pub const RELEVANCE_SHARE: f32 = 0.40;
/// See [`recency`].
pub const RECENCY_SHARE: f32 = 0.25;
/// See [`usefulness`].
pub const USEFULNESS_SHARE: f32 = 0.20;
/// The writer's confidence.
pub const CONFIDENCE_SHARE: f32 = 0.10;
/// See [`frequency`].
pub const FREQUENCY_SHARE: f32 = 0.05;

const SECONDS_PER_DAY: f32 = 86_400.0;
const USES_FOR_FULL_FREQUENCY: u32 = 10;

/// What of a memory its standing depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Merits {
    /// The shortest among all labels.
    pub(super) half_life_days: f32,
    /// Start of validity, in seconds.
    pub(super) valid_from: i64,
    pub(super) votes_useful: u32,
    pub(super) votes_not_useful: u32,
    pub(super) confidence: f32,
    pub(super) retrieval_count: u32,
}

impl Merits {
    /// The half-life of a memory with these labels.
    pub(super) fn half_life<'a>(labels: impl Iterator<Item = &'a Label>) -> f32 {
        let shortest = labels
            .map(|l| l.label.half_life_days())
            .fold(f32::INFINITY, f32::min);
        if shortest.is_finite() {
            shortest
        } else {
            Category::Factual.half_life_days()
        }
    }

    fn of(memory: &Memory) -> Self {
        Self {
            half_life_days: Self::half_life(memory.labels.iter()),
            valid_from: memory.valid_from.as_second(),
            votes_useful: memory.votes_useful,
            votes_not_useful: memory.votes_not_useful,
            confidence: memory.confidence,
            retrieval_count: memory.retrieval_count,
        }
    }

    pub(super) fn standing(&self, now: Timestamp) -> f32 {
        RELEVANCE_SHARE
            + RECENCY_SHARE * self.recency(now)
            + USEFULNESS_SHARE * self.usefulness()
            + CONFIDENCE_SHARE * self.confidence.clamp(0.0, 1.0)
            + FREQUENCY_SHARE * self.frequency()
    }

    fn recency(&self, now: Timestamp) -> f32 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "ages need no more than seven digits"
        )]
        let days = (now.as_second() - self.valid_from).max(0) as f32 / SECONDS_PER_DAY;
        (-std::f32::consts::LN_2 * days / self.half_life_days).exp()
    }

    fn usefulness(&self) -> f32 {
        let (useful, not) = (
            f64::from(self.votes_useful),
            f64::from(self.votes_not_useful),
        );
        let share = (useful + 1.0) / (useful + not + 2.0);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a value of two decimals between 0 and 1"
        )]
        let rounded = ((share * 100.0 + 0.5).floor() / 100.0) as f32;
        rounded.clamp(0.0, 1.0)
    }

    fn frequency(&self) -> f32 {
        #[expect(clippy::cast_precision_loss, reason = "at most ten")]
        let uses = self.retrieval_count.min(USES_FOR_FULL_FREQUENCY) as f32
            / USES_FOR_FULL_FREQUENCY as f32;
        uses
    }
}

/// Exponential decay since the start of validity, by the shortest half-life among all labels. 1 for what is not yet valid.
#[must_use]
pub fn recency(memory: &Memory, now: Timestamp) -> f32 {
    Merits::of(memory).recency(now)
}

/// Votes with Laplace smoothing, rounded half up to two decimals; 0.5 without votes.
#[must_use]
pub fn usefulness(memory: &Memory) -> f32 {
    Merits::of(memory).usefulness()
}

/// Uses, full at ten.
#[must_use]
pub fn frequency(memory: &Memory) -> f32 {
    Merits::of(memory).frequency()
}

/// The composite score of a memory as if it were wholly relevant: what orders the hot set.
#[must_use]
pub fn standing(memory: &Memory, now: Timestamp) -> f32 {
    Merits::of(memory).standing(now)
}
