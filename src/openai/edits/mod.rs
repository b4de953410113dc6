//! Changes to a request's body as spans at byte offsets. Everything between the spans is sent from the client's own buffer, uncopied.

mod body;

#[cfg(test)]
mod tests;

use std::ops::Range;

use bytes::Bytes;

pub use body::RewrittenBody;

#[derive(Debug, Clone)]
struct Span {
    /// The bytes it stands for; empty for an insertion.
    over: Range<usize>,
    text: Bytes,
}

/// Insertions and replacements over one body. Spans at the same offset keep the order in which they were added.
#[derive(Debug, Clone, Default)]
pub struct Edits {
    spans: Vec<Span>,
}

impl Edits {
    /// Puts `text` before the byte at `at`.
    pub fn insert(&mut self, at: usize, text: impl Into<Bytes>) {
        self.replace(at..at, text);
    }

    /// Puts `text` where the bytes of `over` stand. Replaced ranges must not overlap; where they do, the earlier one wins.
    pub fn replace(&mut self, over: Range<usize>, text: impl Into<Bytes>) {
        self.spans.push(Span {
            over,
            text: text.into(),
        });
    }

    /// Adds the changes of `others` behind these.
    pub fn append(&mut self, others: Self) {
        self.spans.extend(others.spans);
    }

    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The bytes that are put in, in total.
    #[must_use]
    pub fn added_bytes(&self) -> usize {
        self.spans.iter().map(|span| span.text.len()).sum()
    }

    /// How long the edited body is up to the byte at `end` of the client's, insertions there not included.
    #[must_use]
    pub fn length_up_to(&self, end: usize) -> u64 {
        let before = self.spans.iter().filter(|span| span.over.start < end);
        let (added, removed) = before.fold((0, 0), |(added, removed), span| {
            (added + span.text.len(), removed + span.over.len())
        });
        (end + added).saturating_sub(removed) as u64
    }

    /// Sends `model` under another name; `range` is where its value stands.
    pub fn set_model(&mut self, range: Range<usize>, model: &str) {
        self.replace(range, json_string(model));
    }

    /// The edited body in pieces: slices of `body` and the texts of the spans between them.
    #[must_use]
    pub fn into_frames(mut self, body: &Bytes) -> Vec<Bytes> {
        self.spans.sort_by_key(|span| span.over.start);
        let mut frames = Vec::with_capacity(2 * self.spans.len() + 1);
        let mut sent = 0;
        for span in self.spans {
            let start = span.over.start.clamp(sent, body.len());
            frames.push(body.slice(sent..start));
            frames.push(span.text);
            sent = span.over.end.clamp(start, body.len());
        }
        frames.push(body.slice(sent..));
        frames.retain(|frame| !frame.is_empty());
        frames
    }

    /// The edited body, ready to be sent.
    #[must_use]
    pub fn into_body(self, body: &Bytes) -> RewrittenBody {
        RewrittenBody::new(self.into_frames(body))
    }
}

/// `text` as the inside of a JSON string, without the quotes.
#[must_use]
pub fn json_inner(text: &str) -> String {
    let mut quoted = json_string(text);
    quoted.pop();
    if !quoted.is_empty() {
        quoted.remove(0);
    }
    quoted
}

/// `text` as a JSON string, quotes included.
#[must_use]
pub fn json_string(text: &str) -> String {
    // Serialising a `str` into a `String` has no way to fail; `Value` says so in its type.
    serde_json::Value::from(text).to_string()
}
