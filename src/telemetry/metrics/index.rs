//! The figures of the index in memory.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::cells::{Cells, Count};
use super::labels::label;
use super::timings::Histogram;
use super::{Book, catalogue};

label! {
    /// How the load of a partition ended.
    LoadEnd {
        /// Everything was read.
        Complete = "complete",
        /// The store failed.
        Failed = "failed",
        /// The partition was dropped and nobody waited for it any more.
        Abandoned = "abandoned",
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
    loads: Cells<Count>,
    load_seconds: Cells<Histogram>,
}

impl Default for IndexFigures {
    fn default() -> Self {
        Self {
            bytes: Gauge::default(),
            partitions: Gauge::default(),
            evictions: Counter::default(),
            loads: Cells::of(&catalogue::INDEX_LOADS),
            load_seconds: Cells::of(&catalogue::INDEX_LOAD_SECONDS),
        }
    }
}

impl IndexFigures {
    /// Counts a load that has ended.
    pub fn loaded(&self, end: LoadEnd, took: Duration) {
        self.loads.inc(&[end.as_str()]);
        self.load_seconds.observe(&[], took.as_secs_f64());
    }

    pub(super) fn registered(book: &mut Book) -> Self {
        let this = Self::default();
        book.add(&catalogue::INDEX_BYTES, this.bytes.clone());
        book.add(&catalogue::INDEX_PARTITIONS, this.partitions.clone());
        book.add(&catalogue::INDEX_EVICTIONS, this.evictions.clone());
        book.add(&catalogue::INDEX_LOADS, this.loads.clone());
        book.add(&catalogue::INDEX_LOAD_SECONDS, this.load_seconds.clone());
        this
    }
}
