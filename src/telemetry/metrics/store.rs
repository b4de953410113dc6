//! What the durable store counts.

use std::time::Duration;

use super::cells::{Cells, Count};
use super::timings::Histogram;
use super::{Book, catalogue};
use crate::store::{Operation, StoreError};

/// The figures; clones count together.
#[derive(Debug, Clone)]
pub struct StoreFigures {
    seconds: Cells<Histogram>,
    errors: Cells<Count>,
}

impl Default for StoreFigures {
    fn default() -> Self {
        Self {
            seconds: Cells::of(&catalogue::STORE_SECONDS),
            errors: Cells::of(&catalogue::STORE_ERRORS),
        }
    }
}

impl StoreFigures {
    pub(super) fn registered(book: &mut Book) -> Self {
        let this = Self::default();
        book.add(&catalogue::STORE_SECONDS, this.seconds.clone());
        book.add(&catalogue::STORE_ERRORS, this.errors.clone());
        this
    }

    /// Counts an operation that has ended.
    pub fn ended<T>(&self, operation: Operation, answer: &Result<T, StoreError>, took: Duration) {
        let operation = operation.as_str();
        self.seconds.observe(&[operation], took.as_secs_f64());
        if let Err(error) = answer {
            self.errors.inc(&[operation, error.label()]);
        }
    }
}
