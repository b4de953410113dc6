//! The figures of the index in memory.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{ResultOnly, seconds};

/// How the load of a partition ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadEnd {
    /// Everything was read.
    Complete,
    /// The store failed.
    Failed,
    /// The partition was dropped and nobody waited for it any more.
    Abandoned,
}

impl LoadEnd {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}

/// What an index counts; clones count together.
#[derive(Debug, Clone)]
pub struct IndexFigures {
    /// Bytes of all partitions.
    pub bytes: Gauge,
    /// Partitions that are loaded or being loaded.
    pub partitions: Gauge,
    /// Partitions that left because others were used since.
    pub evictions: Counter,
    loads: Family<ResultOnly, Counter>,
    load_seconds: Histogram,
}

impl Default for IndexFigures {
    fn default() -> Self {
        Self {
            bytes: Gauge::default(),
            partitions: Gauge::default(),
            evictions: Counter::default(),
            loads: Family::default(),
            load_seconds: seconds(),
        }
    }
}

impl IndexFigures {
    /// Counts a load that has ended.
    pub fn loaded(&self, end: LoadEnd, took: Duration) {
        let result = end.as_str();
        self.loads.get_or_create(&ResultOnly { result }).inc();
        self.load_seconds.observe(took.as_secs_f64());
    }

    pub(super) fn register(&self, r: &mut Registry) {
        r.register(
            "index_bytes",
            "Bytes that the partitions in the index hold",
            self.bytes.clone(),
        );
        r.register(
            "index_partitions",
            "Partitions in the index, those being loaded included",
            self.partitions.clone(),
        );
        r.register(
            "index_evictions",
            "Partitions that left the index because it was over its budget",
            self.evictions.clone(),
        );
        r.register(
            "index_loads",
            "Loads of a partition from the store, by how they ended",
            self.loads.clone(),
        );
        r.register(
            "index_load_seconds",
            "Time of a load, waiting for its turn included",
            self.load_seconds.clone(),
        );
    }
}
