//! Stage 2, redact pii: takes valid memories, yields them with personal data and secrets replaced by typed placeholders.
//!
//! Before hashing and embedding: the same text with and without an address is one text, and a vector must not stand for what may not be
//! stored. What is found without certainty leaves the text as it is and, where the configuration says so, sends the memory to review.

use serde::Serialize;

use crate::app::App;
use crate::config::Uncertain;
use crate::memory::pii::{self, Finding, Kind};
use crate::memory::{Status, strip};

use super::{Batch, Candidate, Member, WriteError};

/// Texts that are looked through without a pause: the greatest is ten thousand characters, tens of microseconds each.
const AT_ONCE: usize = 32;

/// How often something of one kind was taken out of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Redaction {
    /// What it was: `email_address`, `phone_number`, ...
    pub kind: &'static str,
    /// How often.
    pub count: usize,
}

/// Why a memory waits for review, without any of its text.
#[derive(Debug, Serialize)]
struct Review {
    reason: &'static str,
    findings: Vec<Doubt>,
}

#[derive(Debug, Serialize)]
struct Doubt {
    kind: &'static str,
    confidence: f32,
}

pub(super) async fn stage(app: &App, batch: &mut Batch) {
    for (at, member) in batch.members.iter_mut().enumerate() {
        if at % AT_ONCE == AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        let Member::Going(candidate) = member else {
            continue;
        };
        if let Err(refusal) = clean(app, candidate) {
            *member = Member::Refused(refusal);
        }
    }
}

/// Takes out what must not be stored: our own envelopes first, then what the detectors find.
pub(super) fn clean(app: &App, candidate: &mut Candidate) -> Result<(), WriteError> {
    let settings = &app.config.memory.pii;
    let memory = &mut candidate.memory;
    if let Some(rest) = strip::own_text(&memory.content) {
        if rest.trim().is_empty() {
            return Err(WriteError::OwnText);
        }
        memory.content = rest.into();
    }
    if !settings.enabled {
        return Ok(());
    }
    let redacted = pii::redact(&memory.content, settings.threshold, settings.kinds());
    for found in &redacted.redacted {
        let kind = found.kind.as_str();
        app.metrics.pii_finding(kind, "redacted");
        match candidate.redactions.iter_mut().find(|r| r.kind == kind) {
            Some(known) => known.count += 1,
            None => candidate.redactions.push(Redaction { kind, count: 1 }),
        }
    }
    if !redacted.below.is_empty() {
        let quarantined = settings.uncertain == Uncertain::Quarantine;
        let end = if quarantined { "quarantined" } else { "kept" };
        for found in &redacted.below {
            app.metrics.pii_finding(found.kind.as_str(), end);
        }
        if quarantined {
            memory.status = Status::Quarantined;
            candidate.review = review(&redacted.below);
        }
    }
    if !redacted.redacted.is_empty() {
        let text = redacted.text.into_owned();
        memory.content = text.into();
    }
    Ok(())
}

fn review(doubts: &[Finding]) -> Option<String> {
    let doubt = |found: &Finding| Doubt {
        kind: Kind::as_str(found.kind),
        confidence: (found.confidence * 100.0).round() / 100.0,
    };
    let review = Review {
        reason: "uncertain_pii",
        findings: doubts.iter().map(doubt).collect(),
    };
    serde_json::to_string(&review).ok()
}
