//! Finding usage and errors in one JSON object, and reading the dialects in which providers report usage.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Tokens that the provider counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Of the request.
    pub prompt_tokens: u64,
    /// Of the answer.
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// Of the request, those that the provider took from its prompt cache.
    pub cached_tokens: u64,
}

/// What one object says.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) usage: Option<Usage>,
    pub(super) error: bool,
}

pub(super) static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"usage\""));
pub(super) static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"error\""));

/// Whether `data` has a `usage` or `error` that says something. Most events have neither, or `null`, and need not be parsed. A quoted word
/// cannot stand inside a JSON string, where its quotes would be escaped.
pub(super) fn mentions(data: &[u8]) -> bool {
    has_value(&USAGE, data) || has_value(&ERROR, data)
}

pub(super) fn has_value(key: &Finder<'_>, data: &[u8]) -> bool {
    key.find_iter(data).any(|at| {
        let behind = data
            .get(at + key.needle().len()..)
            .unwrap_or_default()
            .trim_ascii_start();
        match behind.strip_prefix(b":") {
            Some(value) => !value.trim_ascii_start().starts_with(b"null"),
            // A value that happens to be this word, such as the type of an event.
            None => key.needle() == b"\"error\"",
        }
    })
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// The events of the responses API wrap the whole answer.
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
}

/// Reads an object; anything else says nothing.
pub(super) fn find_in(json: &[u8]) -> Found {
    let Ok(wire) = serde_json::from_slice::<Wire<'_>>(json) else {
        return Found::default();
    };
    let inner = wire
        .response
        .and_then(|raw| serde_json::from_str::<Wire<'_>>(raw.get()).ok());
    let inner_usage = inner.as_ref().and_then(|inner| inner.usage);
    let errors = [wire.error, inner.and_then(|inner| inner.error)];
    let is_error = errors.into_iter().flatten().any(says_something)
        || wire.kind.is_some_and(|kind| kind.get() == "\"error\"");
    Found {
        usage: wire.usage.or(inner_usage).and_then(|raw| read(raw.get())),
        error: is_error,
    }
}

/// Some servers send `"error": false` or an empty text with every event.
fn says_something(error: &RawValue) -> bool {
    !matches!(error.get(), "false" | "\"\"" | "{}")
}

/// Reads a usage object in the names of any of the APIs that pass here; nothing when it has no count.
pub(super) fn read(raw: &str) -> Option<Usage> {
    let usage: Value = serde_json::from_str(raw).ok()?;
    let count = |names: &[&str]| {
        names
            .iter()
            .find_map(|name| usage.pointer(name).and_then(tokens))
    };
    let prompt = count(&["/prompt_tokens", "/input_tokens"]);
    let completion = count(&["/completion_tokens", "/output_tokens"]);
    let total = count(&["/total_tokens"]);
    prompt.or(completion).or(total)?;
    let (prompt_tokens, completion_tokens) = (prompt.unwrap_or(0), completion.unwrap_or(0));
    let cached = count(&[
        "/prompt_tokens_details/cached_tokens",
        "/input_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
    ]);
    Some(Usage {
        prompt_tokens,
        completion_tokens,
        total_tokens: total.unwrap_or(prompt_tokens.saturating_add(completion_tokens)),
        cached_tokens: cached.unwrap_or(0),
    })
}

/// A count, also where a server writes `7.0`.
fn tokens(value: &Value) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float saturates on its way to an integer"
    )]
    value.as_u64().or_else(|| {
        value
            .as_f64()
            .filter(|count| *count >= 0.0)
            .map(|count| count as u64)
    })
}
