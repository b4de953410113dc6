//! A partition's part of the index's size.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;

/// What all partitions take together.
#[derive(Debug, Default)]
pub(super) struct Total {
    bytes: AtomicI64,
    /// Told of it.
    shown: Gauge,
}

impl Total {
    pub(super) fn new(shown: Gauge) -> Arc<Self> {
        Arc::new(Self {
            bytes: AtomicI64::new(0),
            shown,
        })
    }

    pub(super) fn bytes(&self) -> usize {
        usize::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn add(&self, difference: i64) {
        if difference != 0 {
            self.bytes.fetch_add(difference, Ordering::Relaxed);
            self.shown.inc_by(difference);
        }
    }
}

/// What one partition has added to the total; it is taken off again once.
#[derive(Debug)]
pub(super) struct Share {
    total: Arc<Total>,
    /// Nothing once the partition has left.
    counted: Mutex<Option<usize>>,
}

impl Share {
    pub(super) const fn new(total: Arc<Total>) -> Self {
        Self {
            total,
            counted: Mutex::new(Some(0)),
        }
    }

    /// The partition takes `bytes` now.
    pub(super) fn settle(&self, bytes: usize) {
        if let Some(counted) = self.counted.lock().as_mut() {
            self.total.add(signed(bytes) - signed(*counted));
            *counted = bytes;
        }
    }

    /// The partition belongs to the index no more.
    pub(super) fn leave(&self) {
        if let Some(counted) = self.counted.lock().take() {
            self.total.add(-signed(counted));
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.counted.lock().unwrap_or(0)
    }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
