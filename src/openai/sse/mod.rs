//! The taps: they see a copy of an answer's bytes as those pass, and find the usage and the end in it. They never delay or change a byte;
//! when an answer outgrows their bounds the tap is lost, the answer is not.

mod events;
mod json;
mod usage;

#[cfg(test)]
mod tests;

use super::inflate::Inflating;

pub use super::inflate::ContentCoding;
pub use usage::Usage;

use events::Events;
use json::Collected;

/// Most bytes that a tap holds of one event or one JSON answer, unless configured otherwise.
pub const DEFAULT_CAP: usize = 8 << 20;

/// A buffer that grew beyond this for one event is given back after it.
const KEPT_CAPACITY: usize = 64 << 10;

/// What a tap saw of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TapReport {
    /// The last usage that was reported.
    pub usage: Option<Usage>,
    /// Whether the stream ended with `[DONE]`.
    pub saw_done: bool,
    /// Whether an error object came in the answer.
    pub error_event: bool,
    /// Whether the tap gave up before the end, so that everything else here may be incomplete.
    pub lost: bool,
    /// How many events with data came.
    pub events: u64,
}

impl TapReport {
    const LOST: Self = Self {
        usage: None,
        saw_done: false,
        error_event: false,
        lost: true,
        events: 0,
    };
}

/// The tap of an event stream.
#[derive(Debug)]
pub struct UsageTap {
    inner: Inflating<Events>,
}

impl UsageTap {
    /// A tap that holds at most `cap` bytes of one event.
    #[must_use]
    pub fn new(coding: ContentCoding, cap: usize) -> Self {
        Self {
            inner: Inflating::new(coding, Events::new(cap)),
        }
    }

    /// Looks at the next bytes, cut wherever the network cut them.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.inner.feed(bytes);
    }

    /// Ends the stream, whole or cut.
    #[must_use]
    pub fn finish(self) -> TapReport {
        self.inner.finish().map_or(TapReport::LOST, Events::finish)
    }
}

/// The tap of an answer that is one JSON document.
#[derive(Debug)]
pub struct JsonTap {
    inner: Inflating<Collected>,
}

impl JsonTap {
    /// A tap that holds at most `cap` bytes.
    #[must_use]
    pub fn new(coding: ContentCoding, cap: usize) -> Self {
        Self {
            inner: Inflating::new(coding, Collected::new(cap)),
        }
    }

    /// Takes a copy of the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.inner.feed(bytes);
    }

    /// Ends the answer and reads it.
    #[must_use]
    pub fn finish(self) -> TapReport {
        self.inner
            .finish()
            .map_or(TapReport::LOST, |collected| collected.finish())
    }
}

/// Appends within `cap`; false when there is no room. The buffer never reserves more than the cap.
fn push_bounded(buffer: &mut Vec<u8>, bytes: &[u8], cap: usize) -> bool {
    let needed = buffer.len().saturating_add(bytes.len());
    if needed > cap {
        return false;
    }
    if needed > buffer.capacity() {
        let target = buffer
            .capacity()
            .saturating_mul(2)
            .clamp(needed, cap.max(needed));
        buffer.reserve_exact(target - buffer.len());
    }
    buffer.extend_from_slice(bytes);
    true
}
