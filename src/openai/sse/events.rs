//! Event-stream framing (WHATWG HTML, section 9.2) without decoding: lines end in LF, CRLF or CR, and may be cut anywhere.

use memchr::memchr2;

use super::usage::{find_in, mentions};
use super::{KEPT_CAPACITY, TapReport, push_bounded};
use crate::openai::inflate::Sink;

/// The state between two pieces of a stream.
#[derive(Debug)]
pub(super) struct Events {
    cap: usize,
    /// The start of a line whose end has not come yet.
    line: Vec<u8>,
    /// The data lines of the current event, joined by line feeds.
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a CR, so that a LF now belongs to it.
    after_cr: bool,
    report: TapReport,
}

impl Sink for Events {
    fn take(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let Some((line, tail)) =
                memchr2(b'\n', b'\r', rest).and_then(|end| rest.split_at_checked(end))
            else {
                return push_bounded(
                    &mut self.line,
                    rest,
                    self.cap.saturating_sub(self.data.len()),
                );
            };
            self.after_cr = tail.first() == Some(&b'\r');
            rest = tail.get(1..).unwrap_or_default();
            if !self.take_line(line) {
                return false;
            }
        }
        true
    }
}

impl Events {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            cap,
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            after_cr: false,
            report: TapReport::default(),
        }
    }

    /// Ends the stream. An event that was cut before its blank line is looked at all the same: its usage was spent.
    pub(super) fn finish(mut self) -> TapReport {
        if !self.line.is_empty() && !self.take_line(b"") {
            self.report.lost = true;
        }
        self.end_event();
        self.report
    }

    /// Takes the end of a line, which completes it.
    fn take_line(&mut self, end: &[u8]) -> bool {
        if self.line.is_empty() {
            return self.whole_line(end);
        }
        if !push_bounded(
            &mut self.line,
            end,
            self.cap.saturating_sub(self.data.len()),
        ) {
            return false;
        }
        let mut line = std::mem::take(&mut self.line);
        if self.has_data || line.len() < KEPT_CAPACITY {
            let fits = self.whole_line(&line);
            line.clear();
            self.line = line;
            return fits;
        }
        // A long line becomes the event's data where it is; a copy would hold it twice.
        if let Some(value) = data_of(&line) {
            let prefix = line.len() - value.len();
            line.drain(..prefix);
            self.data = line;
            self.has_data = true;
        }
        true
    }

    fn whole_line(&mut self, line: &[u8]) -> bool {
        if line.is_empty() {
            self.end_event();
            return true;
        }
        let Some(value) = data_of(line) else {
            return true;
        };
        let room = self.cap.saturating_sub(self.line.len());
        let joined = !self.has_data || push_bounded(&mut self.data, b"\n", room);
        self.has_data = true;
        joined && push_bounded(&mut self.data, value, room)
    }

    fn end_event(&mut self) {
        if !std::mem::take(&mut self.has_data) {
            return;
        }
        self.report.events += 1;
        if self.data.trim_ascii() == b"[DONE]" {
            self.report.saw_done = true;
        } else if mentions(&self.data) {
            let found = find_in(&self.data);
            self.report.usage = found.usage.or(self.report.usage);
            self.report.error_event |= found.error;
        }
        self.data.clear();
        if self.data.capacity() > KEPT_CAPACITY {
            self.data = Vec::new();
        }
    }
}

/// The value of a `data` line; nothing for comments and other fields.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let rest = line
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(line)
        .strip_prefix(b"data")?;
    if rest.is_empty() {
        return Some(rest);
    }
    let value = rest.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}
