//! Histograms: an atomic for each bucket and one for the sum. For requests that are traced the last one in each bucket is remembered as its
//! exemplar; everything else takes no lock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

use crate::telemetry::trace::{Trace, TraceId};

/// The sum is kept in billionths: of a second, or of whatever is measured.
const PARTS: f64 = 1e9;

/// A measured request that was traced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Exemplar {
    /// Its trace.
    pub(super) trace: TraceId,
    /// What was measured.
    pub(super) value: f64,
}

/// Buckets with counts.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one beyond the last.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
    exemplars: Mutex<Vec<Option<Exemplar>>>,
}

impl Histogram {
    /// An empty one with buckets up to and with each of `bounds`.
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            exemplars: Mutex::default(),
        }
    }

    fn bucket(&self, value: f64) -> usize {
        self.bounds.partition_point(|bound| *bound < value)
    }

    /// Notes a value.
    pub fn observe(&self, value: f64) {
        if let Some(count) = self.counts.get(self.bucket(value)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates on its way to an integer, and nothing negative is measured"
        )]
        let parts = (value * PARTS) as u64;
        self.sum.fetch_add(parts, Ordering::Relaxed);
    }

    /// Notes a value of a request, as the exemplar of its bucket when the request is traced.
    pub fn observe_traced(&self, value: f64, trace: &Trace) {
        self.observe(value);
        // Whoever comes while it is being read leaves it as it is.
        if trace.is_sampled()
            && let Some(mut exemplars) = self.exemplars.try_lock()
        {
            exemplars.resize(self.counts.len(), None);
            if let Some(place) = exemplars.get_mut(self.bucket(value)) {
                let trace = trace.id();
                *place = Some(Exemplar { trace, value });
            }
        }
    }

    /// How many values were noted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// The exemplars with the bounds of their buckets.
    pub(super) fn exemplars(&self) -> Vec<(f64, Exemplar)> {
        let noted = self.exemplars.lock();
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds
            .zip(noted.iter())
            .filter_map(|(bound, exemplar)| Some((bound, (*exemplar)?)))
            .collect()
    }

    pub(super) fn encode(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|n| n.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        // From what is written, so that the buckets of one scrape always sum to its count.
        let count = buckets.iter().map(|(_, n)| n).sum();
        #[expect(clippy::cast_precision_loss, reason = "a sum of durations")]
        let sum = self.sum.load(Ordering::Relaxed) as f64 / PARTS;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use super::Histogram;
    use crate::telemetry::trace::{Sampler, Trace};

    #[test]
    fn a_value_on_a_bound_belongs_to_it() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        for value in [0.0, 0.5, 0.500_1, 1.0, 1.1, 1e6] {
            histogram.observe(value);
        }
        let counts: Vec<u64> = histogram
            .counts
            .iter()
            .map(|n| n.load(std::sync::atomic::Ordering::Relaxed))
            .collect();
        assert_eq!(counts, [2, 2, 2]);
        assert_eq!(histogram.count(), 6);
    }

    #[test]
    fn only_traced_requests_are_remembered() {
        let histogram = Histogram::new(&[0.5]);
        let (all, none) = (Sampler::new(1.0), Sampler::off());
        let headers = http::HeaderMap::new();
        histogram.observe_traced(0.1, &Trace::of(&headers, none));
        assert_eq!(histogram.exemplars(), []);
        let trace = Trace::of(&headers, all);
        histogram.observe_traced(0.2, &trace);
        histogram.observe_traced(9.0, &trace);
        let exemplars = histogram.exemplars();
        assert_eq!(
            exemplars
                .iter()
                .map(|(b, e)| (*b, e.value))
                .collect::<Vec<_>>(),
            [(0.5, 0.2), (f64::INFINITY, 9.0)]
        );
        assert!(exemplars.iter().all(|(_, e)| e.trace == trace.id()));
    }
}
