//! The figures of Redis, and of rates that a replica counts by itself while Redis is out of reach.

use std::time::Duration;

use super::breakers::BreakerFigures;
use super::cells::{Cells, Count, Level};
use super::labels::label;
use super::timings::Histogram;
use super::{Book, catalogue};

label! {
    /// What Redis was asked for.
    RedisCall {
        /// The readiness probe.
        Ping = "ping",
        /// Requests and tokens counted, slots taken.
        Rate = "rate",
        /// Slots kept for another while.
        LeaseRenew = "lease_renew",
        /// Slots given back.
        LeaseRelease = "lease_release",
        /// A change announced.
        Publish = "publish",
        /// A frozen session read.
        SessionRead = "session_read",
        /// A frozen session written.
        SessionWrite = "session_write",
        /// A directive read or written.
        Directive = "directive",
        /// A hot set read or written.
        Hot = "hot",
        /// A keyed chat request.
        Idempotency = "idempotency",
    }
}

/// What the connection counts; clones count together.
#[derive(Debug, Clone)]
pub struct RedisFigures {
    calls: Cells<Count>,
    call_seconds: Cells<Histogram>,
    local: Cells<Count>,
    listening: Cells<Level>,
    /// Whether it is left alone.
    pub breaker: BreakerFigures,
}

impl Default for RedisFigures {
    fn default() -> Self {
        Self {
            calls: Cells::of(&catalogue::REDIS_CALLS),
            call_seconds: Cells::of(&catalogue::REDIS_SECONDS),
            local: Cells::of(&catalogue::RATE_LOCAL),
            listening: Cells::of(&catalogue::REDIS_LISTENING),
            breaker: BreakerFigures::default(),
        }
    }
}

impl RedisFigures {
    /// Counts a call that ended with `outcome`, a fixed label.
    pub fn called(&self, call: RedisCall, outcome: &'static str, took: Duration) {
        let call = call.as_str();
        self.calls.inc(&[call, outcome]);
        self.call_seconds.observe(&[call], took.as_secs_f64());
    }

    /// Counts an answer about rates that this replica gave by itself.
    pub fn counted_locally(&self) {
        self.local.inc(&[]);
    }

    /// Tells whether announcements of other replicas are heard.
    pub fn listening(&self, heard: bool) {
        self.listening.set(&[], heard.into());
    }

    pub(super) fn registered(book: &mut Book) -> Self {
        let this = Self::default();
        book.add(&catalogue::REDIS_CALLS, this.calls.clone());
        book.add(&catalogue::REDIS_SECONDS, this.call_seconds.clone());
        book.add(&catalogue::RATE_LOCAL, this.local.clone());
        book.add(&catalogue::REDIS_LISTENING, this.listening.clone());
        this
    }
}
