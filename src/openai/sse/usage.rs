//! Finding usage and errors in one JSON object, and reading the dialects in which providers report usage.

use std::fmt;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
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

/// A usage object, in the names of any of the APIs that pass here. Only these members are read: usage objects carry many more.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Counts {
    prompt_tokens: Count,
    input_tokens: Count,
    completion_tokens: Count,
    output_tokens: Count,
    total_tokens: Count,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
    prompt_cache_hit_tokens: Count,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Count,
}

/// A count, also where a server writes `7.0`; any other value is none.
#[derive(Clone, Copy, Default)]
struct Count(Option<u64>);

impl Count {
    fn or(self, other: Self) -> Self {
        Self(self.0.or(other.0))
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(CountVisitor)
    }
}

struct CountVisitor;

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_u64<E>(self, count: u64) -> Result<Count, E> {
        Ok(Count(Some(count)))
    }

    fn visit_f64<E>(self, count: f64) -> Result<Count, E> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates on its way to an integer"
        )]
        Ok(Count((count >= 0.0).then_some(count as u64)))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Count, E> {
        Ok(Count(None))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Count, E> {
        Ok(Count(None))
    }

    fn visit_str<E>(self, _: &str) -> Result<Count, E> {
        Ok(Count(None))
    }

    fn visit_unit<E>(self) -> Result<Count, E> {
        Ok(Count(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Count, A::Error> {
        IgnoredAny.visit_seq(seq).map(|_| Count(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Count, A::Error> {
        IgnoredAny.visit_map(map).map(|_| Count(None))
    }
}

/// Reads a usage object; nothing when it has no count.
pub(super) fn read(raw: &str) -> Option<Usage> {
    let counts: Counts = serde_json::from_str(raw).ok()?;
    let prompt = counts.prompt_tokens.or(counts.input_tokens).0;
    let completion = counts.completion_tokens.or(counts.output_tokens).0;
    let total = counts.total_tokens.0;
    prompt.or(completion).or(total)?;
    let (prompt_tokens, completion_tokens) = (prompt.unwrap_or(0), completion.unwrap_or(0));
    let details = counts.prompt_tokens_details.or(counts.input_tokens_details);
    let cached = details.unwrap_or_default().cached_tokens;
    Some(Usage {
        prompt_tokens,
        completion_tokens,
        total_tokens: total.unwrap_or(prompt_tokens.saturating_add(completion_tokens)),
        cached_tokens: cached.or(counts.prompt_cache_hit_tokens).0.unwrap_or(0),
    })
}
