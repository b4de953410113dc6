//! Metrics whose label values are closed sets: every cell is there from the start, so counting is a few atomic additions. There is no map to
//! look into and no lock to wait for, and what a label may say is decided here and nowhere else.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::catalogue::Spec;
use super::timings::Histogram;

/// A family of up to this many cells shows all of them from the start, so that an alert sees the first increment of each.
const SHOWN_FROM_THE_START: usize = 32;

/// What a cell holds.
pub(super) trait Cell: fmt::Debug + Send + Sync + 'static {
    /// How it is exposed.
    const TYPE: MetricType;
    /// Whether an untouched cell of a small family is worth its lines.
    const SHOWS_ZERO: bool = true;
    /// An untouched one.
    fn make(spec: &'static Spec) -> Self;
    /// Whether nothing was ever counted in it.
    fn is_untouched(&self) -> bool;
    /// Writes it.
    fn write(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result;
}

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Takes over a count that is kept elsewhere.
    pub(super) fn raise_to(&self, n: u64) {
        self.0.fetch_max(n, Ordering::Relaxed);
    }

    /// The count so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Cell for Count {
    const TYPE: MetricType = MetricType::Counter;

    fn make(_: &'static Spec) -> Self {
        Self::default()
    }

    fn is_untouched(&self) -> bool {
        self.get() == 0
    }

    fn write(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_counter::<NoLabelSet, u64, u64>(&self.get(), None)
    }
}

/// A value that rises and falls.
#[derive(Debug, Default)]
pub struct Level(AtomicI64);

impl Level {
    /// Adds `n`, which may be negative.
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Sets it.
    pub fn set(&self, n: i64) {
        self.0.store(n, Ordering::Relaxed);
    }

    fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Cell for Level {
    const TYPE: MetricType = MetricType::Gauge;

    fn make(_: &'static Spec) -> Self {
        Self::default()
    }

    fn is_untouched(&self) -> bool {
        self.get() == 0
    }

    fn write(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.get())
    }
}

impl Cell for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
    // Eighteen lines a cell.
    const SHOWS_ZERO: bool = false;

    fn make(spec: &'static Spec) -> Self {
        Self::new(spec.buckets())
    }

    fn is_untouched(&self) -> bool {
        self.count() == 0
    }

    fn write(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        self.encode(encoder)
    }
}

#[derive(Debug)]
struct Grid<C> {
    spec: &'static Spec,
    sets: Box<[Box<[&'static str]>]>,
    cells: Box<[C]>,
}

/// A family of cells; clones count together.
#[derive(Debug)]
pub(super) struct Cells<C>(Arc<Grid<C>>);

impl<C> Clone for Cells<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Cell> Cells<C> {
    /// The family that the catalogue describes. A label whose values are configured has no place in it.
    pub(super) fn of(spec: &'static Spec) -> Self {
        let sets: Box<[Box<[&'static str]>]> = spec
            .labels
            .iter()
            .map(|label| label.values.closed().unwrap_or_default().into())
            .collect();
        let size = sets.iter().map(|set| set.len()).product();
        let cells = (0..size).map(|_| C::make(spec)).collect();
        Self(Arc::new(Grid { spec, sets, cells }))
    }

    /// The cell with these label values, in the catalogue's order. A value outside its set has none: it is a defect, which tests find.
    pub(super) fn at(&self, values: &[&str]) -> Option<&C> {
        let Grid { spec, sets, cells } = &*self.0;
        let mut index = 0;
        for (set, value) in sets.iter().zip(values) {
            let Some(place) = set.iter().position(|known| known == value) else {
                debug_assert!(false, "{}: {value} is not in the catalogue", spec.name);
                return None;
            };
            index = index * set.len() + place;
        }
        debug_assert_eq!(sets.len(), values.len(), "{}", spec.name);
        cells.get(index)
    }

    /// Every cell with its labels.
    pub(super) fn each(&self) -> impl Iterator<Item = (Vec<(&'static str, &'static str)>, &C)> {
        let Grid { spec, sets, cells } = &*self.0;
        cells.iter().enumerate().map(move |(index, cell)| {
            let mut rest = index;
            let mut labels: Vec<_> = spec
                .labels
                .iter()
                .zip(sets.iter())
                .rev()
                .map(|(label, set)| {
                    let value = set.get(rest % set.len()).copied().unwrap_or_default();
                    rest /= set.len();
                    (label.name, value)
                })
                .collect();
            labels.reverse();
            (labels, cell)
        })
    }
}

impl Cells<Count> {
    /// Adds one to the cell with these label values.
    pub(super) fn inc(&self, values: &[&str]) {
        self.add(values, 1);
    }

    /// Adds `n`.
    pub(super) fn add(&self, values: &[&str], n: u64) {
        if let Some(cell) = self.at(values) {
            cell.add(n);
        }
    }
}

impl Cells<Level> {
    /// Sets the cell with these label values.
    pub(super) fn set(&self, values: &[&str], n: u64) {
        if let Some(cell) = self.at(values) {
            cell.set(i64::try_from(n).unwrap_or(i64::MAX));
        }
    }
}

impl Cells<Histogram> {
    /// Notes a value in the cell with these label values.
    pub(super) fn observe(&self, values: &[&str], value: f64) {
        if let Some(cell) = self.at(values) {
            cell.observe(value);
        }
    }
}

impl<C: Cell> EncodeMetric for Cells<C> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let all = C::SHOWS_ZERO && self.0.cells.len() <= SHOWN_FROM_THE_START;
        for (labels, cell) in self.each().filter(|(_, cell)| all || !cell.is_untouched()) {
            let mut encoder = encoder.encode_family(&labels)?;
            cell.write(&mut encoder)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        C::TYPE
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue;
    use super::{Cells, Count};

    #[test]
    fn every_combination_has_a_cell_of_its_own() {
        let family: Cells<Count> = Cells::of(&catalogue::CONTEXT_BRANCHES);
        let all: Vec<_> = family
            .each()
            .map(|(labels, _)| labels.iter().map(|(_, value)| *value).collect::<Vec<_>>())
            .collect();
        for (n, values) in all.iter().enumerate() {
            family.add(values, n as u64 + 1);
        }
        for (n, (labels, cell)) in family.each().enumerate() {
            assert_eq!(cell.get(), n as u64 + 1, "{labels:?}");
        }
        assert!(all.len() > 10);
    }
}
