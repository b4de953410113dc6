//! The parts of a memory's score that no query changes (contract, section 9).

use jiff::Timestamp;

use crate::memory::Memory;

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

/// Exponential decay since the start of validity, by the shortest half-life among all labels. 1 for what is not yet valid.
#[must_use]
pub fn recency(memory: &Memory, now: Timestamp) -> f32 {
    let half_life = memory
        .labels
        .iter()
        .map(|l| l.label.half_life_days())
        .fold(f32::INFINITY, f32::min);
    let half_life = if half_life.is_finite() {
        half_life
    } else {
        memory.category().half_life_days()
    };
    #[expect(
        clippy::cast_precision_loss,
        reason = "ages need no more than seven digits"
    )]
    let days = (now.as_second() - memory.valid_from.as_second()).max(0) as f32 / SECONDS_PER_DAY;
    (-std::f32::consts::LN_2 * days / half_life).exp()
}

/// Votes with Laplace smoothing, rounded half up to two decimals; 0.5 without votes.
#[must_use]
pub fn usefulness(memory: &Memory) -> f32 {
    let (useful, not) = (
        f64::from(memory.votes_useful),
        f64::from(memory.votes_not_useful),
    );
    let share = (useful + 1.0) / (useful + not + 2.0);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a value of two decimals between 0 and 1"
    )]
    let rounded = ((share * 100.0 + 0.5).floor() / 100.0) as f32;
    rounded.clamp(0.0, 1.0)
}

/// Uses, full at ten.
#[must_use]
pub fn frequency(memory: &Memory) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "at most ten")]
    let uses =
        memory.retrieval_count.min(USES_FOR_FULL_FREQUENCY) as f32 / USES_FOR_FULL_FREQUENCY as f32;
    uses
}

/// The composite score of a memory as if it were wholly relevant: what orders the hot set.
#[must_use]
pub fn standing(memory: &Memory, now: Timestamp) -> f32 {
    RELEVANCE_SHARE
        + RECENCY_SHARE * recency(memory, now)
        + USEFULNESS_SHARE * usefulness(memory)
        + CONFIDENCE_SHARE * memory.confidence.clamp(0.0, 1.0)
        + FREQUENCY_SHARE * frequency(memory)
}
