//! The fields of a change: what is absent stays as it is, `null` takes an optional field away.

use serde_json::value::RawValue;

use crate::app::App;
use crate::error::FieldError;
use crate::memory::Memory;

use super::{Fields, Members, content, end, labels, metadata, no_object, stored, time, unit};

/// The memory as it is to be, and the revision that the client changes.
///
/// # Errors
/// Every wrong field.
pub(in crate::memory::write) fn patched(
    app: &App,
    before: &Memory,
    patch: &RawValue,
) -> Result<(Memory, Option<i64>), Vec<FieldError>> {
    let limits = &app.config.memory;
    let Members(given) = serde_json::from_str(patch.get()).map_err(|_| no_object())?;
    let mut fields = Fields {
        given,
        faults: Vec::new(),
    };
    let has = |fields: &Fields<'_>, name: &str| fields.given.contains_key(name);
    let revision = fields.take("revision", "a whole number");
    if fields.given.is_empty() {
        fields.fault("memory", "REQUIRED", "must change at least one field");
    }
    let mut after = Memory {
        updated_at: stored(app.clock.now()).max(before.updated_at),
        ..before.clone()
    };
    if has(&fields, "content") {
        after.content = content(&mut fields, limits);
    }
    if has(&fields, "confidence") {
        after.confidence = unit(&mut fields, before.confidence);
    }
    if has(&fields, "labels") || has(&fields, "category") {
        after.labels = labels(&mut fields, after.confidence);
    }
    let dated = has(&fields, "valid_from");
    match time(&mut fields, "valid_from") {
        Some(time) => after.valid_from = time,
        None if dated && fields.faults.is_empty() => {
            fields.fault("valid_from", "REQUIRED", "cannot be taken away");
        }
        // A new text is said now, and does not lose against what was said between the old one and it.
        None if after.content != before.content && before.is_current(after.updated_at) => {
            after.valid_from = after.updated_at;
        }
        None => {}
    }
    if has(&fields, "valid_until") {
        after.valid_until = end(&mut fields);
    }
    if after.valid_until.is_some_and(|end| end <= after.valid_from) {
        fields.fault("valid_until", "RANGE_ERROR", "must be after valid_from");
    }
    if has(&fields, "observed_at") {
        after.observed_at = time(&mut fields, "observed_at");
    }
    if has(&fields, "metadata") {
        after.metadata = metadata(&mut fields, limits);
    }
    if let Some(pinned) = fields.take("pinned", "true or false") {
        after.pinned = pinned;
    }
    fields.unknown("is not a field that can be changed");
    if fields.faults.is_empty() {
        Ok((after, revision))
    } else {
        Err(fields.faults)
    }
}
