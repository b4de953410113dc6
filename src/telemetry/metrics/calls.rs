//! What provider calls count, by provider and model. The cells of a route are found once, when the configuration is read.

use std::sync::Arc;
use std::time::Duration;

use super::catalogue::sets::{CLASSES, DIRECTIONS};
use super::cells::Count;
use super::labels::CALL_RESULTS;
use super::named::Named;
use super::timings::Histogram;
use super::{Book, Direction, catalogue};
use crate::telemetry::trace::Trace;

/// The families.
#[derive(Debug, Clone)]
pub struct CallMetrics {
    requests: Named<Count>,
    responses: Named<Count>,
    first_byte: Named<Histogram>,
    first_chunk: Named<Histogram>,
    seconds: Named<Histogram>,
    tokens: Named<Count>,
}

impl Default for CallMetrics {
    fn default() -> Self {
        Self {
            requests: Named::of(&catalogue::PROVIDER_REQUESTS),
            responses: Named::of(&catalogue::PROVIDER_RESPONSES),
            first_byte: Named::of(&catalogue::PROVIDER_FIRST_BYTE),
            first_chunk: Named::of(&catalogue::PROVIDER_FIRST_CHUNK),
            seconds: Named::of(&catalogue::PROVIDER_SECONDS),
            tokens: Named::of(&catalogue::TOKENS),
        }
    }
}

impl CallMetrics {
    pub(super) fn registered(book: &mut Book) -> Self {
        let this = Self::default();
        book.add(&catalogue::PROVIDER_REQUESTS, this.requests.clone());
        book.add(&catalogue::PROVIDER_RESPONSES, this.responses.clone());
        book.add(&catalogue::PROVIDER_FIRST_BYTE, this.first_byte.clone());
        book.add(&catalogue::PROVIDER_FIRST_CHUNK, this.first_chunk.clone());
        book.add(&catalogue::PROVIDER_SECONDS, this.seconds.clone());
        book.add(&catalogue::TOKENS, this.tokens.clone());
        this
    }

    /// The cells for calls of `provider` with a model of this entry; nothing is any other model.
    #[must_use]
    pub fn route(&self, provider: &str, entry: Option<&str>) -> CallFigures {
        let model = entry.unwrap_or(catalogue::sets::OTHER);
        CallFigures {
            results: CALL_RESULTS.map(|r| self.requests.cell(&[provider, model, r])),
            classes: CLASSES.map(|c| self.responses.cell(&[provider, c])),
            first_byte: self.first_byte.cell(&[provider, model]),
            first_chunk: self.first_chunk.cell(&[provider, model]),
            seconds: self.seconds.cell(&[provider, model]),
            tokens: DIRECTIONS.map(|d| self.tokens.cell(&[provider, model, d])),
        }
    }

    /// The families with exemplars.
    pub(super) fn traced(&self) -> [(&'static str, &Named<Histogram>); 2] {
        [
            (catalogue::PROVIDER_FIRST_BYTE.name, &self.first_byte),
            (catalogue::PROVIDER_SECONDS.name, &self.seconds),
        ]
    }
}

/// The cells of one route.
#[derive(Debug)]
pub struct CallFigures {
    results: [Arc<Count>; CALL_RESULTS.len()],
    classes: [Arc<Count>; CLASSES.len()],
    first_byte: Arc<Histogram>,
    first_chunk: Arc<Histogram>,
    seconds: Arc<Histogram>,
    tokens: [Arc<Count>; DIRECTIONS.len()],
}

/// One call as it is counted when its head has come, or will not.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// One of [`CALL_RESULTS`].
    pub result: &'static str,
    /// The provider's status, where there was one.
    pub status: Option<u16>,
    /// Since the handoff.
    pub took: Duration,
}

impl CallFigures {
    /// Counts a call.
    pub fn called(&self, call: &Call, trace: &Trace) {
        let place = CALL_RESULTS.iter().position(|known| *known == call.result);
        debug_assert!(place.is_some(), "{}", call.result);
        if let Some(count) = place.and_then(|n| self.results.get(n)) {
            count.inc();
        }
        let class = call.status.map(|s| usize::from(s / 100).saturating_sub(2));
        if let Some(count) = class.and_then(|n| self.classes.get(n)) {
            count.inc();
        }
        let seconds = call.took.as_secs_f64();
        self.first_byte.observe_traced(seconds, trace);
    }

    /// Notes when the first bytes of an answer's body came, since the handoff.
    pub fn first_chunk(&self, took: Duration) {
        self.first_chunk.observe(took.as_secs_f64());
    }

    /// Notes the end of an answer, since the handoff.
    pub fn ended(&self, took: Duration, trace: &Trace) {
        self.seconds.observe_traced(took.as_secs_f64(), trace);
    }

    /// Counts tokens that the provider reported.
    pub fn tokens(&self, direction: Direction, count: u64) {
        let place = DIRECTIONS.iter().position(|d| *d == direction.as_str());
        if let Some(cell) = place.and_then(|n| self.tokens.get(n)) {
            cell.add(count);
        }
    }
}
