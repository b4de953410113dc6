//! Metrics whose label values come from the configuration: names of providers and patterns of models. A cell is made while the configuration
//! is read, and requests hold it; nothing that a client sends ever makes one.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;

use super::catalogue::Spec;
use super::cells::Cell;
use super::timings::Histogram;

/// Names with values.
type Labels = Vec<(&'static str, String)>;
type Row<C> = (Box<[Arc<str>]>, Arc<C>);

/// A family of cells; clones count together.
#[derive(Debug)]
pub(super) struct Named<C> {
    spec: &'static Spec,
    rows: Arc<RwLock<Vec<Row<C>>>>,
}

impl<C> Clone for Named<C> {
    fn clone(&self) -> Self {
        Self {
            spec: self.spec,
            rows: Arc::clone(&self.rows),
        }
    }
}

impl<C: Cell> Named<C> {
    pub(super) fn of(spec: &'static Spec) -> Self {
        Self {
            spec,
            rows: Arc::default(),
        }
    }

    /// The cell with these label values. One that was there before a reload is the same.
    pub(super) fn cell(&self, values: &[&str]) -> Arc<C> {
        debug_assert_eq!(self.spec.labels.len(), values.len(), "{}", self.spec.name);
        let mut rows = self.rows.write();
        let known = |row: &&Row<C>| row.0.iter().map(|v| &**v).eq(values.iter().copied());
        if let Some((_, cell)) = rows.iter().find(known) {
            return Arc::clone(cell);
        }
        let cell = Arc::new(C::make(self.spec));
        let values = values.iter().map(|v| Arc::from(*v)).collect();
        rows.push((values, Arc::clone(&cell)));
        cell
    }

    fn labels(&self, values: &[Arc<str>]) -> Labels {
        let names = self.spec.labels.iter().map(|label| label.name);
        names.zip(values.iter().map(|v| v.to_string())).collect()
    }
}

impl Named<Histogram> {
    /// Every cell with its labels.
    pub(super) fn each(&self) -> Vec<(Labels, Arc<Histogram>)> {
        let rows = self.rows.read();
        rows.iter()
            .map(|(values, cell)| (self.labels(values), Arc::clone(cell)))
            .collect()
    }
}

impl<C: Cell> EncodeMetric for Named<C> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        for (values, cell) in &*self.rows.read() {
            if !C::SHOWS_ZERO && cell.is_untouched() {
                continue;
            }
            let labels = self.labels(values);
            let mut encoder = encoder.encode_family(&labels)?;
            cell.write(&mut encoder)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        C::TYPE
    }
}
