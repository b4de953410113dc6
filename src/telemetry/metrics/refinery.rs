//! What the memory write path counts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::store::Effect;

use super::{KindResult, Metrics, ResultOnly};

/// The counters of the write path.
#[derive(Debug, Default)]
pub(super) struct Refinery {
    writes: Family<ResultOnly, Counter>,
    near: Family<ResultOnly, Counter>,
    findings: Family<KindResult, Counter>,
    conflicts: Family<ResultOnly, Counter>,
    classifier: Family<ResultOnly, Counter>,
    capture: Family<ResultOnly, Counter>,
}

impl Refinery {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register(
            "memory_writes",
            "Memory writes, by outcome",
            self.writes.clone(),
        );
        r.register(
            "memory_near_dedup",
            "New memories that were compared with what is there, and that were not in time",
            self.near.clone(),
        );
        r.register(
            "memory_pii_findings",
            "Personal data and secrets found in new memories, by kind and what became of them",
            self.findings.clone(),
        );
        r.register(
            "memory_conflicts",
            "What new memories meant for others",
            self.conflicts.clone(),
        );
        r.register(
            "memory_classifier_calls",
            "Questions to the model about two memories",
            self.classifier.clone(),
        );
        r.register(
            "capture_turns",
            "Turns of agents that capture, by what became of them",
            self.capture.clone(),
        );
    }
}

impl Metrics {
    /// Counts what became of a memory write or forget.
    pub fn memory_write(&self, result: &'static str) {
        let writes = &self.refinery.writes;
        writes.get_or_create(&ResultOnly { result }).inc();
    }

    /// Counts how many new memories were compared with what is there, and how many were not in time.
    pub fn near_dedup(&self, compared: usize, skipped: usize) {
        for (result, count) in [("compared", compared), ("skipped", skipped)] {
            let near = &self.refinery.near;
            near.get_or_create(&ResultOnly { result })
                .inc_by(count as u64);
        }
    }

    /// Counts a finding of personal data in a text that was written. `result`: `redacted`, `quarantined`, `kept`.
    pub fn pii_finding(&self, kind: &'static str, result: &'static str) {
        let findings = &self.refinery.findings;
        findings.get_or_create(&KindResult { kind, result }).inc();
    }

    /// Counts a question to the classifier.
    pub fn classifier(&self, result: &'static str) {
        let classifier = &self.refinery.classifier;
        classifier.get_or_create(&ResultOnly { result }).inc();
    }

    /// Counts a turn of an agent that captures. `result`: `queued`, `repeated`, `dropped`, then `captured`, `nothing` or `failed`.
    pub fn capture(&self, result: &'static str) {
        let capture = &self.refinery.capture;
        capture.get_or_create(&ResultOnly { result }).inc();
    }

    /// Counts what a write meant for another memory.
    pub fn memory_conflict(&self, effect: Effect) {
        let result = match effect {
            Effect::Retire { .. } => "superseded",
            Effect::Precedes { .. } => "arrived_late",
            Effect::Relate { relation, .. } => relation.as_str(),
            Effect::Escalate { .. } => "escalated",
        };
        let conflicts = &self.refinery.conflicts;
        conflicts.get_or_create(&ResultOnly { result }).inc();
    }
}
