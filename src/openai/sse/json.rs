//! The copy of an answer that is one JSON document, and reading it from the end, where `usage` stands.

use super::usage::{ERROR, USAGE, find_in, has_value, read};
use super::{TapReport, push_bounded};
use crate::openai::inflate::Sink;
use crate::openai::json::Scanner;

/// The bytes so far.
#[derive(Debug)]
pub(super) struct Collected {
    cap: usize,
    bytes: Vec<u8>,
}

impl Sink for Collected {
    fn take(&mut self, bytes: &[u8]) -> bool {
        push_bounded(&mut self.bytes, bytes, self.cap)
    }
}

impl Collected {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            cap,
            bytes: Vec::new(),
        }
    }

    pub(super) fn finish(&self) -> TapReport {
        let bytes = &self.bytes;
        if has_value(&ERROR, bytes) {
            let found = find_in(bytes);
            return TapReport {
                usage: found.usage,
                error_event: found.error,
                ..TapReport::default()
            };
        }
        if !has_value(&USAGE, bytes) {
            return TapReport::default();
        }
        let usage = match usage_at_the_end(bytes) {
            Some(raw) => std::str::from_utf8(raw).ok().and_then(read),
            None => find_in(bytes).usage,
        };
        TapReport {
            usage,
            ..TapReport::default()
        }
    }
}

/// The value of the last `"usage"` when that is a member of the outermost object: then nothing but further members and the end of the
/// text follows. Spares the parse of a long answer, whose usage mostly stands at its end.
fn usage_at_the_end(bytes: &[u8]) -> Option<&[u8]> {
    let at = memchr::memmem::rfind(bytes, USAGE.needle())?;
    let mut scanner = Scanner::resume(bytes, at);
    scanner.string().ok()?;
    scanner.expect(b':').ok()?;
    let value = scanner.skip().ok()?;
    while !scanner.separator(b'}').ok()? {
        scanner.string().ok()?;
        scanner.expect(b':').ok()?;
        scanner.skip().ok()?;
    }
    scanner.end().ok()?;
    bytes.get(value)
}
