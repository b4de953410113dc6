//! Stage 1, validate: takes the client's objects, yields memories with every field inside its limit, before anything expensive.
//!
//! Limits and defaults: contract, section 12. Every wrong field is reported at once. The scope comes from the principal; a body that
//! names one has an unknown field.

mod patch;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::app::App;
use crate::config::MemoryConfig;
use crate::error::{FieldError, shown};
use crate::ids::MemoryId;
use crate::memory::pii::is_invisible;
use crate::memory::{Category, Label, Memory, PartitionKey, Source, Status};
use crate::openai::json::{JsonFault, MAX_DEPTH, Scanner};
use crate::tokens::TokenCounts;

pub(super) use patch::patched;

use super::{Batch, Candidate, Member, WriteError};

/// Most labels of one memory.
const MAX_LABELS: usize = 5;
/// Confidence of a memory whose writer gave none.
const DEFAULT_CONFIDENCE: f32 = 0.80;
/// Longest provenance text (kind, session) in bytes.
const MAX_SOURCE: usize = 256;
/// Most faults that are listed of one memory; a client with more has sent something else than a memory.
const MAX_LISTED: usize = 20;

pub(super) fn stage(app: &App, inputs: &[&RawValue], batch: &mut Batch) {
    let now = stored(app.clock.now());
    for (later, input) in (0i64..inputs.len().try_into().unwrap_or(i64::MAX))
        .rev()
        .zip(inputs)
    {
        let member = match memory(&app.config.memory, &batch.partition, input, now) {
            Ok(mut memory) => {
                // What stands first in a batch was said first.
                let undated = memory.valid_from == now && memory.valid_until.is_none();
                if undated {
                    memory.valid_from = now - SignedDuration::from_micros(later);
                }
                Member::Going(Box::new(Candidate {
                    undated,
                    ..Candidate::new(memory)
                }))
            }
            Err(faults) => Member::Refused(WriteError::Invalid(faults)),
        };
        batch.members.push(member);
    }
}

/// What is wrong with an object's fields.
#[must_use]
pub fn faults(app: &App, partition: &PartitionKey, input: &RawValue) -> Vec<FieldError> {
    let now = stored(app.clock.now());
    memory(&app.config.memory, partition, input, now)
        .err()
        .unwrap_or_default()
}

/// The time as the store keeps it, to the microsecond: an answer tells what a later read will.
pub(super) fn stored(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

/// A batch's list of objects, each kept as raw text.
pub type ListItem<'a> = &'a RawValue;

/// Splits the `memories` array of a batch body.
///
/// # Errors
/// When the body is not `{"memories": [...]}`.
pub fn objects(body: &[u8]) -> Result<Vec<ListItem<'_>>, serde_json::Error> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct BatchBody<'a> {
        #[serde(borrow)]
        memories: Vec<&'a RawValue>,
    }
    serde_json::from_slice::<BatchBody<'_>>(body).map(|b| b.memories)
}

/// The members of an object. Two parsers may disagree about one that stands there twice, so that is refused.
struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut members = BTreeMap::new();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a member stands there twice"));
            }
        }
        Ok(Members(members))
    }
}

/// The fields of one object, taken one by one; what is left at the end is unknown.
struct Fields<'a> {
    given: BTreeMap<String, &'a RawValue>,
    faults: Vec<FieldError>,
}

impl<'a> Fields<'a> {
    fn take<T: DeserializeOwned>(
        &mut self,
        name: &'static str,
        expected: &'static str,
    ) -> Option<T> {
        let raw = self.given.remove(name)?;
        if raw.get() == "null" {
            return None;
        }
        match serde_json::from_str(raw.get()) {
            Ok(value) => Some(value),
            Err(_) => {
                self.fault(name, "INVALID_FORMAT", format!("must be {expected}"));
                None
            }
        }
    }

    /// Refuses what nobody took.
    fn unknown(&mut self, message: &'static str) {
        let room = MAX_LISTED.saturating_sub(self.faults.len());
        for name in std::mem::take(&mut self.given).into_keys().take(room) {
            self.fault(shown(&name), "UNKNOWN_FIELD", message);
        }
    }

    fn fault(&mut self, field: &str, code: &'static str, message: impl Into<String>) {
        self.faults.push(FieldError {
            field: field.to_owned(),
            code,
            message: message.into(),
        });
    }
}

fn memory(
    limits: &MemoryConfig,
    partition: &PartitionKey,
    input: &RawValue,
    now: Timestamp,
) -> Result<Memory, Vec<FieldError>> {
    let Members(given) = serde_json::from_str(input.get()).map_err(|_| no_object())?;
    let mut fields = Fields {
        given,
        faults: Vec::new(),
    };
    let content = content(&mut fields, limits);
    let confidence = unit(&mut fields, DEFAULT_CONFIDENCE);
    let labels = labels(&mut fields, confidence);
    let valid_from = time(&mut fields, "valid_from").unwrap_or(now);
    let (valid_until, observed_at) = (end(&mut fields), time(&mut fields, "observed_at"));
    if valid_until.is_some_and(|end| end <= valid_from) {
        fields.fault("valid_until", "RANGE_ERROR", "must be after valid_from");
    }
    let metadata = metadata(&mut fields, limits);
    let pinned = fields.take("pinned", "true or false").unwrap_or(false);
    let source = source(&mut fields);
    fields.unknown("is not a field of a memory");
    if !fields.faults.is_empty() {
        return Err(fields.faults);
    }
    Ok(Memory {
        id: MemoryId::new(),
        partition: partition.clone(),
        content,
        labels,
        confidence,
        valid_from,
        valid_until,
        observed_at,
        source,
        metadata,
        pinned,
        status: Status::Active,
        revision: 0,
        text_revision: 0,
        supersedes: Box::default(),
        content_hash: [0; 32],
        retrieval_count: 0,
        votes_useful: 0,
        votes_not_useful: 0,
        created_at: now,
        updated_at: now,
        embedding: None,
        tokens: TokenCounts::default(),
    })
}

fn no_object() -> Vec<FieldError> {
    vec![FieldError {
        field: "memory".to_owned(),
        code: "INVALID_FORMAT",
        message: "must be a JSON object without repeated members".to_owned(),
    }]
}

fn unit(fields: &mut Fields<'_>, otherwise: f32) -> f32 {
    let confidence = fields
        .take::<f32>("confidence", "a number from 0 to 1")
        .unwrap_or(otherwise);
    if !(0.0..=1.0).contains(&confidence) {
        fields.fault("confidence", "RANGE_ERROR", "must be a number from 0 to 1");
    }
    confidence
}

fn time(fields: &mut Fields<'_>, name: &'static str) -> Option<Timestamp> {
    fields.take(name, "an RFC 3339 time").map(stored)
}

/// The end of validity. The usual way to write "for ever" lies past the calendar's last instant: it means an open end.
fn end(fields: &mut Fields<'_>) -> Option<Timestamp> {
    let forever = |raw: &&RawValue| raw.get().starts_with("\"9999-12-31");
    if fields.given.get("valid_until").is_some_and(forever) {
        fields.given.remove("valid_until");
    }
    time(fields, "valid_until")
}

fn content(fields: &mut Fields<'_>, limits: &MemoryConfig) -> Arc<str> {
    let missing = !fields.given.contains_key("content");
    let before = fields.faults.len();
    let text: String = fields.take("content", "a text").unwrap_or_default();
    if missing {
        fields.fault("content", "REQUIRED", "is required");
    } else if fields.faults.len() > before {
        // No text at all: that is fault enough.
    } else if text.chars().all(|c| c.is_whitespace() || is_invisible(c)) {
        fields.fault("content", "REQUIRED", "must not be empty");
    } else if text.chars().count() > limits.max_content_chars {
        fields.fault(
            "content",
            "TOO_LONG",
            format!("must be at most {} characters", limits.max_content_chars),
        );
    }
    text.into()
}

/// Labels are validated as a set; without any, one is made from `category` and `confidence`. The primary label comes first.
fn labels(fields: &mut Fields<'_>, confidence: f32) -> Vec<Label> {
    let category = fields.take::<Category>(
        "category",
        "procedural, factual, preference, behavioral or episodic",
    );
    let Some(mut labels) = fields.take::<Vec<Label>>("labels", "an array of {label, confidence}")
    else {
        return vec![Label {
            label: category.unwrap_or(Category::Factual),
            confidence,
        }];
    };
    if labels.is_empty() || labels.len() > MAX_LABELS {
        fields.fault(
            "labels",
            "TOO_MANY",
            format!("must hold 1 to {MAX_LABELS} labels; leave it out for none"),
        );
    }
    if labels.iter().any(|l| !(0.0..=1.0).contains(&l.confidence)) {
        fields.fault(
            "labels",
            "RANGE_ERROR",
            "a label's confidence must be a number from 0 to 1",
        );
    }
    labels.sort_by(|a, b| {
        b.confidence
            .total_cmp(&a.confidence)
            .then_with(|| a.label.as_str().cmp(b.label.as_str()))
    });
    let mut names: Vec<_> = labels.iter().map(|l| l.label).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() != labels.len() {
        fields.fault("labels", "DUPLICATE", "must not repeat a label");
    }
    if category.is_some_and(|c| labels.first().is_some_and(|l| l.label != c)) {
        fields.fault(
            "category",
            "INVALID_ENUM",
            "contradicts the label with the highest confidence",
        );
    }
    labels
}

fn metadata(fields: &mut Fields<'_>, limits: &MemoryConfig) -> Option<Arc<RawValue>> {
    let raw = fields
        .given
        .remove("metadata")
        .filter(|raw| raw.get() != "null")?;
    if !raw.get().starts_with('{') {
        fields.fault("metadata", "INVALID_FORMAT", "must be a JSON object");
    }
    // It is JSON; how deep, nobody has looked yet.
    let scanned = Scanner::resume(raw.get().as_bytes(), 0).skip();
    if scanned == Err(JsonFault::TooDeep) {
        let text = format!("must be nested at most {MAX_DEPTH} levels deep");
        fields.fault("metadata", "TOO_LONG", text);
    }
    if raw.get().len() > limits.max_metadata_bytes {
        fields.fault(
            "metadata",
            "TOO_LONG",
            format!("must be at most {} bytes", limits.max_metadata_bytes),
        );
    }
    Some(raw.to_owned().into())
}

fn source(fields: &mut Fields<'_>) -> Source {
    let source: Source = fields
        .take("source", "{kind, session?, turn?}")
        .unwrap_or_default();
    let long = |text: &str| text.is_empty() || text.len() > MAX_SOURCE;
    if long(&source.kind) || source.session.as_deref().is_some_and(long) {
        fields.fault(
            "source",
            "TOO_LONG",
            format!("kind and session must be 1 to {MAX_SOURCE} bytes"),
        );
    }
    source
}
