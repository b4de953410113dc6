//! Raw scores of different kinds on one scale: each kind is measured over everything that was searched, so that two partitions agree.

use std::ops::Range;

use tokio::time::Instant;

use super::fusion::Weights;
use super::partition::{CHUNK_ROWS, Interrupted, in_time};
use super::pass::{Lexical, Pass};

/// One kind of raw score, brought to 0..1.
#[derive(Debug, Clone, Copy)]
struct Channel {
    low: f32,
    factor: f32,
}

/// Values whose sum is kept in `f32`.
const BLOCK: usize = 1_024;
/// Blocks between two looks at the deadline.
const BLOCKS_PER_LOOK: usize = CHUNK_ROWS / BLOCK;

impl Channel {
    fn new(low: f32, high: f32) -> Self {
        let factor = if high > low {
            (high - low).recip()
        } else {
            0.0
        };
        Self { low, factor }
    }

    /// The same range from `low` on, when that is lower.
    fn down_to(self, low: Option<f32>) -> Self {
        match low {
            Some(low) if low < self.low && self.factor > 0.0 => {
                Self::new(low, self.low + self.factor.recip())
            }
            Some(_) | None => self,
        }
    }

    /// Rows without a vector are exactly 0 and say nothing about the mean.
    fn between_mean_and_greatest<'a>(
        columns: impl Iterator<Item = &'a [f32]>,
        deadline: Instant,
    ) -> Result<Self, Interrupted> {
        let (mut sum, mut count, mut greatest) = (0f64, 0u32, f32::NEG_INFINITY);
        for (at, block) in columns.flat_map(|values| values.chunks(BLOCK)).enumerate() {
            if at % BLOCKS_PER_LOOK == 0 {
                in_time(deadline)?;
            }
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
        Ok(Self::new(mean, greatest))
    }

    fn up_to_greatest<'a>(
        columns: impl Iterator<Item = &'a [Lexical]>,
        deadline: Instant,
    ) -> Result<Self, Interrupted> {
        let mut greatest = 0.0;
        for chunk in columns.flat_map(|values| values.chunks(CHUNK_ROWS)) {
            in_time(deadline)?;
            let scores = chunk.iter().map(|lexical| lexical.score);
            greatest = scores.fold(greatest, |high, x| if x > high { x } else { high });
        }
        Ok(Self::new(0.0, greatest))
    }

    /// Adds `weight` x the scaled values of `column` to `sums`.
    fn add<T>(self, weight: f32, column: &[T], value: impl Fn(&T) -> f32, sums: &mut [f32]) {
        let Self { low, factor } = self;
        for (sum, raw) in sums.iter_mut().zip(column) {
            *sum += weight * ((value(raw) - low) * factor).max(0.0);
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
    pub(super) fn over(passes: &[Pass], deadline: Instant) -> Result<Self, Interrupted> {
        let cosines = |of: fn(&Pass) -> &[f32]| {
            Channel::between_mean_and_greatest(passes.iter().map(of), deadline)
        };
        let lexical =
            |of: fn(&Pass) -> &[Lexical]| Channel::up_to_greatest(passes.iter().map(of), deadline);
        // Candidates are the nearest: their own mean would be no measure of what is usual.
        let usual = passes.iter().filter_map(|pass| pass.mean_cosine);
        let usual = usual.reduce(f32::min);
        let cosines = |of| cosines(of).map(|channel: Channel| channel.down_to(usual));
        Ok(Self {
            cosine: cosines(|pass| &pass.cosines)?,
            pair_cosine: cosines(|pass| &pass.pair_cosines)?,
            lexical: lexical(|pass| &pass.lexical)?,
            pair_lexical: lexical(|pass| &pass.pair_lexical)?,
        })
    }

    /// The weighted sum of every row's channels.
    pub(super) fn sums(
        &self,
        weights: &Weights,
        pass: &Pass,
        deadline: Instant,
    ) -> Result<Vec<f32>, Interrupted> {
        let mut sums = vec![0.0; pass.rows];
        for (at, sums) in sums.chunks_mut(CHUNK_ROWS).enumerate() {
            in_time(deadline)?;
            self.sum_rows(weights, pass, at * CHUNK_ROWS, sums);
        }
        Ok(sums)
    }

    /// The weighted sums of the rows from `start` on. Outside dialogues a pair is its text.
    pub(super) fn sum_rows(&self, weights: &Weights, pass: &Pass, start: usize, sums: &mut [f32]) {
        let (mut cosine, mut lexical) = (weights.cosine, weights.lexical);
        if !pass.dialogue {
            cosine += weights.pair_cosine;
            lexical += weights.pair_lexical;
        }
        sums.fill(0.0);
        let rows = start..start + sums.len();
        self.cosine
            .add(cosine, part(&pass.cosines, &rows), |x| *x, sums);
        let score = |lexical: &Lexical| lexical.score;
        self.lexical
            .add(lexical, part(&pass.lexical, &rows), score, sums);
        if pass.dialogue {
            let pairs = part(&pass.pair_cosines, &rows);
            self.pair_cosine
                .add(weights.pair_cosine, pairs, |x| *x, sums);
            let pairs = part(&pass.pair_lexical, &rows);
            self.pair_lexical
                .add(weights.pair_lexical, pairs, score, sums);
        }
    }
}

/// The values of these rows; none of a column that is left out.
fn part<'a, T>(column: &'a [T], rows: &Range<usize>) -> &'a [T] {
    column.get(rows.clone()).unwrap_or_default()
}
