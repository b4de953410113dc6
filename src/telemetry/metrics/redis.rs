//! The figures of Redis, and of rates that a replica counts by itself while Redis is out of reach.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{CallOnly, CallOutcome, seconds};

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What Redis was asked for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum RedisCall {
            $($(#[$doc])* $name,)*
        }

        impl RedisCall {
            /// The label.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

calls! {
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

/// What the connection counts; clones count together.
#[derive(Debug, Clone)]
pub struct RedisFigures {
    calls: Family<CallOutcome, Counter>,
    call_seconds: Family<CallOnly, Histogram, fn() -> Histogram>,
    local: Counter,
}

impl Default for RedisFigures {
    fn default() -> Self {
        let make: fn() -> Histogram = seconds;
        Self {
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(make),
            local: Counter::default(),
        }
    }
}

impl RedisFigures {
    /// Counts a call that ended with `outcome`, a fixed label.
    pub fn called(&self, call: RedisCall, outcome: &'static str, took: Duration) {
        let call = call.as_str();
        self.calls
            .get_or_create(&CallOutcome { call, outcome })
            .inc();
        self.call_seconds
            .get_or_create(&CallOnly { call })
            .observe(took.as_secs_f64());
    }

    /// Counts a request whose rates this replica counted by itself.
    pub fn counted_locally(&self) {
        self.local.inc();
    }

    pub(super) fn register(&self, r: &mut Registry) {
        r.register(
            "redis_calls",
            "Calls to Redis, by what was asked and how it ended",
            self.calls.clone(),
        );
        r.register(
            "redis_call_seconds",
            "Time of a call to Redis, waiting for a connection included",
            self.call_seconds.clone(),
        );
        r.register(
            "rate_limit_local",
            "Requests whose rates a replica counted by itself, because Redis could not be asked",
            self.local.clone(),
        );
    }
}
