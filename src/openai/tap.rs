//! The tap of any answer: chosen once by the answer's head.

use http::{HeaderMap, header};

use super::inflate::ContentCoding;
use super::sse::{DEFAULT_CAP, JsonTap, TapReport, UsageTap};

/// The model that an answer names, from its first bytes: an object's or an event's beginning. One that has not the form of a name is none. A quoted
/// word cannot stand inside a JSON string, where its quotes would be escaped.
#[must_use]
pub fn named_model(first: &[u8]) -> Option<String> {
    const KEY: &[u8] = b"\"model\"";
    let at = memchr::memmem::find(first, KEY)?;
    let rest = first.get(at + KEY.len()..)?.trim_ascii_start();
    let rest = rest.strip_prefix(b":")?.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"")?;
    let name = rest.get(..memchr::memchr(b'"', rest)?)?;
    let name = str::from_utf8(name).ok()?;
    is_model_name(name).then(|| name.to_owned())
}

/// Whether a text has the form of a model's name. What has not may be anything, and is not repeated in logs and traces.
#[must_use]
pub fn is_model_name(text: &str) -> bool {
    let of_names = |b: u8| b.is_ascii_alphanumeric() || b"-_./:@+".contains(&b);
    !text.is_empty() && text.len() <= 128 && text.bytes().all(of_names)
}

/// Reads along with an answer.
#[derive(Debug)]
pub enum Tap {
    /// An event stream.
    Events(Box<UsageTap>),
    /// One JSON document.
    Json(Box<JsonTap>),
}

impl Tap {
    /// The tap for an answer with these headers.
    #[must_use]
    pub fn new(events: bool, headers: &HeaderMap) -> Self {
        let coding = ContentCoding::of(headers.get(header::CONTENT_ENCODING));
        if events {
            Self::Events(Box::new(UsageTap::new(coding, DEFAULT_CAP)))
        } else {
            Self::Json(Box::new(JsonTap::new(coding, DEFAULT_CAP)))
        }
    }

    /// Looks at the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        match self {
            Self::Events(tap) => tap.feed(bytes),
            Self::Json(tap) => tap.feed(bytes),
        }
    }

    /// Ends the answer and tells what was seen.
    #[must_use]
    pub fn finish(self) -> TapReport {
        match self {
            Self::Events(tap) => tap.finish(),
            Self::Json(tap) => tap.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::named_model;

    #[test]
    fn the_model_of_an_answer_is_read_from_its_beginning() {
        for (first, expected) in [
            (
                &b"{\"id\":\"c\",\"model\":\"gpt-4o-2024\",\"choices\":["[..],
                Some("gpt-4o-2024"),
            ),
            (b"data: {\"model\" : \"vendor/m:1\"}", Some("vendor/m:1")),
            (b"data: {\"content\":\"\\\"model\\\":\\\"x\\\"\"}", None),
            (b"{\"model\":\"a sentence of somebody\"}", None),
            (b"{\"model\":\"cut of", None),
            (b"{\"model\":null}", None),
            (b"{}", None),
        ] {
            assert_eq!(named_model(first).as_deref(), expected);
        }
    }
}
