//! The embedder: what its kind needs, and calibrations that mean something.

use super::super::{Config, EmbedderConfig, EmbedderKind, Environment};
use super::Faults;
use super::providers::check_url;

/// Longer vectors than any model's: a slip of the keyboard, and the store would take it.
const MOST_DIMENSIONS: u32 = 16_384;
/// OpenAI's own limit.
const MOST_IN_A_BATCH: usize = 2_048;

pub(super) fn embedder(config: &Config, faults: &mut Faults) {
    let embedder = &config.embedder;
    if embedder.kind == EmbedderKind::Http {
        http(embedder, config.env == Environment::Development, faults);
    }
    if embedder.kind == EmbedderKind::Onnx && !cfg!(feature = "onnx") {
        faults.add(
            "embedder.kind",
            "onnx is not part of this binary; build it with cargo build --release --features onnx",
        );
    }
    calibration(embedder, faults);
}

fn http(embedder: &EmbedderConfig, development: bool, faults: &mut Faults) {
    match embedder.base_url.as_deref() {
        Some(url) => {
            if let Err(reason) = check_url(url, development) {
                faults.add("embedder.base_url", reason);
            }
        }
        None => faults.add(
            "embedder.base_url",
            "is missing: an http embedder needs it, such as https://api.openai.com/v1",
        ),
    }
    let named = embedder
        .model
        .as_deref()
        .is_some_and(|name| !name.is_empty());
    faults.require(
        named,
        "embedder.model",
        "is missing: an http embedder needs it, such as text-embedding-3-small",
    );
    if let Some(key) = &embedder.api_key {
        faults.require(
            embedder.api_key_file.is_none(),
            "embedder.api_key_file",
            "stands beside api_key; one of them is enough",
        );
        let sendable = !key.is_empty() && key.bytes().all(|b| b.is_ascii_graphic());
        faults.require(
            sendable,
            "embedder.api_key",
            "is empty or has a character that no header can carry (a space or line break, perhaps)",
        );
    }
    let dimensions = embedder.dimensions.unwrap_or(1);
    faults.require(
        (1..=MOST_DIMENSIONS).contains(&dimensions),
        "embedder.dimensions",
        format!("must be between 1 and {MOST_DIMENSIONS}"),
    );
    faults.require(
        (1..=MOST_IN_A_BATCH).contains(&embedder.batch),
        "embedder.batch",
        format!("must be between 1 and {MOST_IN_A_BATCH}"),
    );
    faults.require(
        embedder.max_chars > 0,
        "embedder.max_chars",
        "0 would leave nothing to embed",
    );
    faults.require(
        embedder.timeout_ms > 0,
        "embedder.timeout_ms",
        "0 would leave no time for any answer",
    );
    faults.require(
        embedder.document_timeout_ms >= embedder.timeout_ms.max(1),
        "embedder.document_timeout_ms",
        "must not be below embedder.timeout_ms: a batch takes longer than a question",
    );
}

/// Keys that were written and mean nothing with this kind: probably `kind` was forgotten.
pub(super) fn unused(embedder: &EmbedderConfig) -> Option<String> {
    let (http, measured) = match embedder.kind {
        EmbedderKind::Http => (true, true),
        EmbedderKind::Onnx => (false, true),
        EmbedderKind::BuiltIn => (false, false),
    };
    let set = [
        ("base_url", embedder.base_url.is_some() && !http),
        ("api_key", embedder.api_key.is_some() && !http),
        ("model", embedder.model.is_some() && !http),
        ("dimensions", embedder.dimensions.is_some() && !http),
        ("unrelated", embedder.unrelated.is_some() && !measured),
        ("related", embedder.related.is_some() && !measured),
    ];
    let unused: Vec<&str> = set
        .iter()
        .filter(|(_, on)| *on)
        .map(|(key, _)| *key)
        .collect();
    (!unused.is_empty()).then(|| {
        format!(
            "embedder.kind is another than the one for which these mean something: {}",
            unused.join(", ")
        )
    })
}

fn calibration(embedder: &EmbedderConfig, faults: &mut Faults) {
    let near = embedder.near_duplicate.unwrap_or(1.0);
    faults.require(
        near > 0.0 && near <= 1.0,
        "embedder.near_duplicate",
        "must be above 0 and at most 1",
    );
    let anchors = [
        ("unrelated", embedder.unrelated),
        ("related", embedder.related),
    ];
    for (key, value) in anchors {
        let Some(value) = value else { continue };
        faults.require(
            (-1.0..=1.0).contains(&value),
            format!("embedder.{key}"),
            "must be a cosine, between -1 and 1",
        );
    }
    let low = embedder
        .unrelated
        .unwrap_or(super::super::embedder::UNRELATED);
    let high = embedder.related.unwrap_or(super::super::embedder::RELATED);
    faults.require(
        high - low >= 0.01,
        "embedder.related",
        "must be above embedder.unrelated by 0.01 at least, or no cosine says anything",
    );
}
