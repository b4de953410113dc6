//! Raw scores of different kinds on one scale: each kind is measured over everything that was searched, so that two partitions agree.

use super::fusion::Weights;
use super::pass::{Lexical, Pass};

/// One kind of raw score, brought to 0..1.
#[derive(Debug, Clone, Copy)]
struct Channel {
    low: f32,
    factor: f32,
}

/// Values whose sum is kept in `f32`.
const BLOCK: usize = 1_024;

impl Channel {
    fn new(low: f32, high: f32) -> Self {
        let factor = if high > low {
            (high - low).recip()
        } else {
            0.0
        };
        Self { low, factor }
    }

    /// Rows without a vector are exactly 0 and say nothing about the mean.
    fn between_mean_and_greatest<'a>(columns: impl Iterator<Item = &'a [f32]>) -> Self {
        let (mut sum, mut count, mut greatest) = (0f64, 0u32, f32::NEG_INFINITY);
        for block in columns.flat_map(|values| values.chunks(BLOCK)) {
            // Eight of each, because the compiler may not reorder one sum of floats.
            let (mut sums, mut counts, mut highs) = ([0f32; 8], [0u32; 8], [greatest; 8]);
            let mut add = |values: &[f32]| {
                let lanes = sums.iter_mut().zip(&mut counts).zip(&mut highs);
                for (((sum, count), high), &value) in lanes.zip(values) {
                    *sum += value;
                    *count += u32::from(value != 0.0);
                    *high = if value > *high { value } else { *high };
                }
            };
            let (eights, rest) = block.as_chunks::<8>();
            eights.iter().for_each(|eight| add(eight));
            add(rest);
            sum += f64::from(sums.iter().sum::<f32>());
            count += counts.iter().sum::<u32>();
            greatest = highs.into_iter().fold(greatest, f32::max);
        }
        #[expect(clippy::cast_possible_truncation, reason = "a mean of cosines")]
        let mean = (sum / f64::from(count.max(1))) as f32;
        Self::new(mean, greatest)
    }

    fn up_to_greatest<'a>(columns: impl Iterator<Item = &'a [Lexical]>) -> Self {
        let scores = columns.flatten().map(|lexical| lexical.score);
        Self::new(
            0.0,
            scores.fold(0.0, |high, x| if x > high { x } else { high }),
        )
    }

    /// Adds `weight` x the scaled `values` to `sums`.
    fn add(self, weight: f32, values: impl Iterator<Item = f32>, sums: &mut [f32]) {
        let Self { low, factor } = self;
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += weight * ((value - low) * factor).max(0.0);
        }
    }
}

/// The channels' ranges over everything that was searched.
#[derive(Debug)]
pub(super) struct Scale {
    cosine: Channel,
    pair_cosine: Channel,
    lexical: Channel,
    pair_lexical: Channel,
}

impl Scale {
    pub(super) fn over(passes: &[Pass]) -> Self {
        Self {
            cosine: Channel::between_mean_and_greatest(passes.iter().map(|pass| &*pass.cosines)),
            pair_cosine: Channel::between_mean_and_greatest(
                passes.iter().map(|pass| &*pass.pair_cosines),
            ),
            lexical: Channel::up_to_greatest(passes.iter().map(|pass| &*pass.lexical)),
            pair_lexical: Channel::up_to_greatest(passes.iter().map(|pass| &*pass.pair_lexical)),
        }
    }

    /// The weighted sum of every row's channels. Outside dialogues a pair is its text.
    pub(super) fn sums(&self, weights: &Weights, pass: &Pass) -> Vec<f32> {
        let mut sums = vec![0.0; pass.rows];
        let cosines = pass.cosines.iter().copied();
        let lexical = pass.lexical.iter().map(|lexical| lexical.score);
        if pass.dialogue {
            self.cosine.add(weights.cosine, cosines, &mut sums);
            let pairs = pass.pair_cosines.iter().copied();
            self.pair_cosine.add(weights.pair_cosine, pairs, &mut sums);
            self.lexical.add(weights.lexical, lexical, &mut sums);
            let pairs = pass.pair_lexical.iter().map(|lexical| lexical.score);
            self.pair_lexical
                .add(weights.pair_lexical, pairs, &mut sums);
        } else {
            let weight = weights.cosine + weights.pair_cosine;
            self.cosine.add(weight, cosines, &mut sums);
            let weight = weights.lexical + weights.pair_lexical;
            self.lexical.add(weight, lexical, &mut sums);
        }
        sums
    }
}
