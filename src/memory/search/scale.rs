//! Raw scores of different kinds on one scale: each kind is measured over everything that was searched, so that two partitions agree.

use super::fusion::Weights;
use super::pass::{Lexical, Pass};

/// One raw score brought to 0..1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Channel {
    low: f32,
    high: f32,
}

impl Channel {
    pub(super) fn of(self, raw: f32) -> f32 {
        if self.high > self.low {
            ((raw - self.low) / (self.high - self.low)).max(0.0)
        } else {
            0.0
        }
    }

    /// Rows without a vector are exactly 0 and say nothing about the mean.
    fn between_mean_and_greatest(values: impl Iterator<Item = f32> + Clone) -> Self {
        let (sum, count) = values
            .clone()
            .filter(|x| *x != 0.0)
            .fold((0f64, 0u32), |(sum, count), x| {
                (sum + f64::from(x), count + 1)
            });
        #[expect(clippy::cast_possible_truncation, reason = "a mean of cosines")]
        let low = (sum / f64::from(count.max(1))) as f32;
        Self {
            low,
            high: values.fold(f32::NEG_INFINITY, f32::max),
        }
    }

    fn up_to_greatest(values: impl Iterator<Item = f32>) -> Self {
        Self {
            low: 0.0,
            high: values.fold(0.0, f32::max),
        }
    }
}

/// The channels' ranges over everything that was searched.
#[derive(Debug)]
pub(super) struct Scale {
    pub(super) cosine: Channel,
    pair_cosine: Channel,
    lexical: Channel,
    pair_lexical: Channel,
}

impl Scale {
    pub(super) fn over(passes: &[Pass]) -> Self {
        let lexical = || passes.iter().flat_map(|pass| pass.lexical.iter());
        let cosine = Channel::between_mean_and_greatest(
            passes.iter().flat_map(|pass| pass.cosines.iter().copied()),
        );
        Self {
            cosine,
            pair_cosine: Channel::between_mean_and_greatest(
                passes
                    .iter()
                    .flat_map(|pass| pass.pair_cosines.iter().copied()),
            ),
            lexical: Channel::up_to_greatest(lexical().map(|l| l.own)),
            pair_lexical: Channel::up_to_greatest(lexical().map(|l| l.pair)),
        }
    }

    /// The weighted sum of a row's own channels. Outside dialogues a pair is its text.
    pub(super) fn sum(&self, weights: &Weights, pass: &Pass, row: usize) -> f32 {
        let lexical = pass.lexical.get(row).copied().unwrap_or_default();
        let cosine = pass
            .cosines
            .get(row)
            .map_or(0.0, |&cosine| self.cosine.of(cosine));
        let own_lexical = self.lexical.of(lexical.own);
        let Lexical { pair, .. } = lexical;
        let pair_cosine = pass
            .pair_cosines
            .get(row)
            .map_or(cosine, |&pair| self.pair_cosine.of(pair));
        let pair_lexical = if pass.dialogue {
            self.pair_lexical.of(pair)
        } else {
            own_lexical
        };
        weights.cosine * cosine
            + weights.lexical * own_lexical
            + weights.pair_cosine * pair_cosine
            + weights.pair_lexical * pair_lexical
    }
}
