//! The counters: each a number that grows, added to by requests and by nothing else.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;

use crate::error::Code;
use crate::openai::sse::Usage;
use crate::request::context::plan::Level;
use crate::telemetry::StreamEnd;

use super::histogram::{Counts, Histogram};

pub(super) const LEVELS: [Level; 4] = [Level::L0, Level::L1, Level::L2, Level::L3];
pub(super) const ENDS: [StreamEnd; 7] = [
    StreamEnd::Complete,
    StreamEnd::ClientGone,
    StreamEnd::Stopped,
    StreamEnd::UpstreamError,
    StreamEnd::ErrorEvent,
    StreamEnd::IdleTimeout,
    StreamEnd::TotalTimeout,
];
const CODES: usize = Code::ALL.len();

/// Requests between their arrival and the head of their answer.
#[derive(Debug, Default)]
pub(super) struct Arrived(AtomicU64);

impl Arrived {
    pub(super) fn enter(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything that is counted, since the start.
#[derive(Debug)]
pub(super) struct Totals {
    requests: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    provider_calls: AtomicU64,
    provider_failed: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    levels: [AtomicU64; LEVELS.len()],
    ends: [AtomicU64; ENDS.len()],
    codes: [AtomicU64; CODES],
    first_byte: Histogram,
    whole: Histogram,
    provider_head: Histogram,
}

impl Default for Totals {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            requests: zero(),
            refused: zero(),
            failed: zero(),
            provider_calls: zero(),
            provider_failed: zero(),
            prompt_tokens: zero(),
            cached_tokens: zero(),
            completion_tokens: zero(),
            levels: array::from_fn(|_| zero()),
            ends: array::from_fn(|_| zero()),
            codes: array::from_fn(|_| zero()),
            first_byte: Histogram::default(),
            whole: Histogram::default(),
            provider_head: Histogram::default(),
        }
    }
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Counts under the place that `wanted` has in `all`.
fn add_at<T: PartialEq>(counters: &[AtomicU64], all: &[T], wanted: &T) {
    let place = all.iter().position(|one| one == wanted);
    if let Some(counter) = place.and_then(|i| counters.get(i)) {
        add(counter, 1);
    }
}

impl Totals {
    pub(super) fn answered(
        &self,
        status: StatusCode,
        code: Option<Code>,
        first_byte: Option<Duration>,
    ) {
        add(&self.requests, 1);
        if status.is_client_error() {
            add(&self.refused, 1);
        } else if status.is_server_error() {
            add(&self.failed, 1);
        }
        if let Some(code) = code {
            add_at(&self.codes, Code::ALL, &code);
        }
        if let Some(took) = first_byte {
            self.first_byte.record(took);
        }
    }

    pub(super) fn provider(&self, ok: bool, took: Duration) {
        add(&self.provider_calls, 1);
        if !ok {
            add(&self.provider_failed, 1);
        }
        self.provider_head.record(took);
    }

    pub(super) fn level(&self, level: Level) {
        add_at(&self.levels, &LEVELS, &level);
    }

    pub(super) fn ended(&self, end: StreamEnd, usage: Usage, took: Duration) {
        add_at(&self.ends, &ENDS, &end);
        add(&self.prompt_tokens, usage.prompt_tokens);
        add(&self.cached_tokens, usage.cached_tokens);
        add(&self.completion_tokens, usage.completion_tokens);
        if end == StreamEnd::Complete {
            self.whole.record(took);
        }
    }

    pub(super) fn copy(&self) -> Copied {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let all = |counters: &[AtomicU64]| counters.iter().map(of).collect();
        Copied {
            numbers: [
                &self.requests,
                &self.refused,
                &self.failed,
                &self.provider_calls,
                &self.provider_failed,
                &self.prompt_tokens,
                &self.cached_tokens,
                &self.completion_tokens,
            ]
            .map(of),
            levels: all(&self.levels),
            ends: all(&self.ends),
            codes: all(&self.codes),
            first_byte: self.first_byte.counts(),
            whole: self.whole.counts(),
            provider_head: self.provider_head.counts(),
        }
    }
}

/// The totals at one moment.
#[derive(Debug, Clone)]
pub(super) struct Copied {
    /// In the order of the fields of [`super::Counted`].
    pub(super) numbers: [u64; 8],
    pub(super) levels: Vec<u64>,
    pub(super) ends: Vec<u64>,
    pub(super) codes: Vec<u64>,
    pub(super) first_byte: Counts,
    pub(super) whole: Counts,
    pub(super) provider_head: Counts,
}
