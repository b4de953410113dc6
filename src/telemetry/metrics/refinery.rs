//! What the memory write path counts.

use crate::store::Effect;

use super::cells::{Cells, Count};
use super::{Book, Metrics, catalogue};

/// The counters of the write path.
#[derive(Debug)]
pub(super) struct Refinery {
    writes: Cells<Count>,
    near: Cells<Count>,
    findings: Cells<Count>,
    conflicts: Cells<Count>,
    classifier: Cells<Count>,
    capture: Cells<Count>,
}

impl Refinery {
    pub(super) fn new(book: &mut Book) -> Self {
        let this = Self {
            writes: Cells::of(&catalogue::MEMORY_WRITES),
            near: Cells::of(&catalogue::NEAR_DEDUP),
            findings: Cells::of(&catalogue::PII),
            conflicts: Cells::of(&catalogue::CONFLICTS),
            classifier: Cells::of(&catalogue::CLASSIFIER_CALLS),
            capture: Cells::of(&catalogue::CAPTURE_TURNS),
        };
        book.add(&catalogue::MEMORY_WRITES, this.writes.clone());
        book.add(&catalogue::NEAR_DEDUP, this.near.clone());
        book.add(&catalogue::PII, this.findings.clone());
        book.add(&catalogue::CONFLICTS, this.conflicts.clone());
        book.add(&catalogue::CLASSIFIER_CALLS, this.classifier.clone());
        book.add(&catalogue::CAPTURE_TURNS, this.capture.clone());
        this
    }
}

impl Metrics {
    /// Counts what became of a memory write or forget.
    pub fn memory_write(&self, result: &'static str) {
        self.refinery.writes.inc(&[result]);
    }

    /// Counts how many new memories were compared with what is there, and how many were not in time.
    pub fn near_dedup(&self, compared: usize, skipped: usize) {
        for (result, count) in [("compared", compared), ("skipped", skipped)] {
            self.refinery.near.add(&[result], count as u64);
        }
    }

    /// Counts a finding of personal data in a text that was written. `result`: `redacted`, `quarantined`, `kept`.
    pub fn pii_finding(&self, kind: &'static str, result: &'static str) {
        self.refinery.findings.inc(&[kind, result]);
    }

    /// Counts a question to the classifier.
    pub fn classifier(&self, result: &'static str) {
        self.refinery.classifier.inc(&[result]);
    }

    /// Counts a turn of an agent that captures. `result`: `queued`, `repeated`, `dropped`, then `captured`, `nothing` or `failed`.
    pub fn capture(&self, result: &'static str) {
        self.refinery.capture.inc(&[result]);
    }

    /// Counts what a write meant for another memory.
    pub fn memory_conflict(&self, effect: Effect) {
        let result = match effect {
            Effect::Retire { .. } => "superseded",
            Effect::Precedes { .. } => "arrived_late",
            Effect::Relate { relation, .. } => relation.as_str(),
            Effect::Escalate { .. } => "escalated",
        };
        self.refinery.conflicts.inc(&[result]);
    }
}
