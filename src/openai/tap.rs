//! The tap of any answer: chosen once by the answer's head.

use http::{HeaderMap, header};

use super::inflate::ContentCoding;
use super::sse::{DEFAULT_CAP, JsonTap, TapReport, UsageTap};

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
