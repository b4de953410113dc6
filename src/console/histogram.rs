//! Durations in buckets: eight to each doubling, so that a quantile is off by a sixteenth at most, and a record is one atomic addition.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of each doubling.
const PER_DOUBLING: u32 = 8;
/// From 1 microsecond to 2^28 of them, which is four and a half minutes; longer ones count as that.
const DOUBLINGS: u32 = 28;
/// All buckets.
pub(super) const BUCKETS: usize = (PER_DOUBLING * DOUBLINGS) as usize;

/// What was counted, bucket by bucket, at one moment.
pub(super) type Counts = [u64; BUCKETS];

/// A growing count of durations.
#[derive(Debug)]
pub(super) struct Histogram([AtomicU64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Histogram {
    pub(super) fn record(&self, took: Duration) {
        if let Some(bucket) = self.0.get(bucket_of(took)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn counts(&self) -> Counts {
        array::from_fn(|i| self.0.get(i).map_or(0, |b| b.load(Ordering::Relaxed)))
    }
}

fn bucket_of(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
    let doubling = micros.ilog2();
    if doubling >= DOUBLINGS {
        return BUCKETS - 1;
    }
    // The three bits below the highest one; shifted up first, as short durations have fewer.
    let eighth = ((micros << 3) >> doubling) & 7;
    (doubling * PER_DOUBLING) as usize + usize::try_from(eighth).unwrap_or(0)
}

/// The middle of a bucket, in milliseconds.
fn middle_ms(bucket: usize) -> f64 {
    let bucket = u32::try_from(bucket).unwrap_or(0);
    let (doubling, eighth) = (bucket / PER_DOUBLING, bucket % PER_DOUBLING);
    let part = (f64::from(eighth) + 0.5) / f64::from(PER_DOUBLING);
    f64::from(doubling).exp2() * (1.0 + part) / 1_000.0
}

/// The durations below which the shares `wanted` (ascending, 0 to 1) lie, in milliseconds; nothing when nothing was counted.
pub(super) fn quantiles<const N: usize>(counts: &Counts, wanted: [f64; N]) -> Option<[f64; N]> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    Some(wanted.map(|share| {
        let rank = (share * total as f64).ceil().max(1.0);
        let mut below = 0_u64;
        let reached = counts.iter().position(|count| {
            below += count;
            below as f64 >= rank
        });
        middle_ms(reached.unwrap_or(BUCKETS - 1))
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::{any, prop_assert, proptest};

    use super::{BUCKETS, Histogram, bucket_of, middle_ms, quantiles};

    proptest! {
        #[test]
        fn a_bucket_stands_for_what_is_in_it(micros in 8_u64..(1 << 28)) {
            let middle = middle_ms(bucket_of(Duration::from_micros(micros))) * 1_000.0;
            let off = (middle - micros as f64).abs() / micros as f64;
            prop_assert!(off <= 1.0 / 16.0 + 1e-9, "{micros} µs is shown as {middle}");
        }

        #[test]
        fn every_duration_has_a_bucket(micros in any::<u64>()) {
            prop_assert!(bucket_of(Duration::from_micros(micros)) < BUCKETS);
        }
    }

    #[test]
    fn quantiles_follow_the_ranks() {
        let histogram = Histogram::default();
        assert_eq!(quantiles(&histogram.counts(), [0.5]), None);
        for ms in 1..=100 {
            histogram.record(Duration::from_millis(ms));
        }
        let [p50, p95, p99] = quantiles(&histogram.counts(), [0.5, 0.95, 0.99]).unwrap();
        for (shown, true_ms) in [(p50, 50.0), (p95, 95.0), (p99, 99.0)] {
            assert!(
                (shown - true_ms).abs() / true_ms < 0.07,
                "{shown} for {true_ms}"
            );
        }
    }
}
