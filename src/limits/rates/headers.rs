//! The rate headers: one level's figures in the two families that clients know.

use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

/// The tightest level's figures for the response headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateHeaders {
    pub(super) limit: u32,
    pub(super) remaining: u32,
    pub(super) reset: Duration,
    /// Time until as much can be counted again at every level, not the tightest alone.
    pub(super) again: Duration,
    local: bool,
}

const FAMILY: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];
const OPENAI_REQUESTS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const OPENAI_TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

/// Says that this replica counted its share by itself, because Redis could not be asked.
pub const SOURCE: (HeaderName, HeaderValue) = (
    HeaderName::from_static("x-ibex-rate-limit-source"),
    HeaderValue::from_static("local"),
);

impl RateHeaders {
    /// The figures of a level that has just counted `n` and has `remaining` left.
    pub(in crate::limits) fn counted(quota: NonZeroU32, n: NonZeroU32, remaining: u32) -> Self {
        let time_for = |cells: u32| {
            Duration::from_nanos(60_000_000_000 / u64::from(quota.get()) * u64::from(cells))
        };
        Self {
            limit: quota.get(),
            remaining,
            reset: time_for(quota.get().saturating_sub(remaining)),
            again: time_for(n.get().saturating_sub(remaining)),
            local: false,
        }
    }

    /// The same figures, counted by this replica for its share because Redis could not be asked.
    pub(super) fn local(self) -> Self {
        Self {
            local: true,
            ..self
        }
    }

    /// Whether they are those of this replica's share.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.local
    }

    /// The figures of a refusal: nothing left until `reset`.
    #[must_use]
    pub fn spent(limit: u32, reset: Duration) -> Self {
        Self {
            limit,
            remaining: 0,
            reset,
            again: reset,
            local: false,
        }
    }

    /// Time until the same could be counted once more: a later refusal of this request must not name an earlier one.
    #[must_use]
    pub fn again(&self) -> Duration {
        self.again
    }

    /// Both header families for requests: `X-RateLimit-*` (reset as Unix seconds) and OpenAI's (reset as a duration).
    #[must_use]
    pub fn requests(&self, now: jiff::Timestamp) -> [(HeaderName, HeaderValue); 6] {
        let [limit, remaining, reset] = FAMILY;
        let [a, b, c] = self.openai(OPENAI_REQUESTS);
        let reset_at = now.as_second()
            + i64::try_from(self.reset.as_secs()).unwrap_or(0)
            + i64::from(self.reset.subsec_nanos() > 0);
        [
            (limit, self.limit.into()),
            (remaining, self.remaining.into()),
            (reset, reset_at.into()),
            a,
            b,
            c,
        ]
    }

    /// The same, and who counted where that is not usual.
    pub fn told(
        &self,
        now: jiff::Timestamp,
    ) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
        let source = self.local.then_some(SOURCE);
        self.requests(now).into_iter().chain(source)
    }

    /// OpenAI's header family for tokens.
    #[must_use]
    pub fn tokens(&self) -> [(HeaderName, HeaderValue); 3] {
        self.openai(OPENAI_TOKENS)
    }

    fn openai(&self, names: [HeaderName; 3]) -> [(HeaderName, HeaderValue); 3] {
        let [limit, remaining, reset] = names;
        let duration = format!("{}ms", self.reset.as_millis());
        [
            (limit, self.limit.into()),
            (remaining, self.remaining.into()),
            (
                reset,
                HeaderValue::try_from(duration).unwrap_or(HeaderValue::from_static("0ms")),
            ),
        ]
    }
}

/// What the levels that have counted say together: the figures of the tightest, and the longest time until as much can be counted again.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::limits) struct Tally {
    tightest: Option<RateHeaders>,
    again: Duration,
}

impl Tally {
    /// One more level.
    pub(in crate::limits) fn add(&mut self, state: RateHeaders) {
        self.again = self.again.max(state.again);
        if self.tightest.is_none_or(|t| state.remaining < t.remaining) {
            self.tightest = Some(state);
        }
    }

    /// Time until as much can be counted again at every level so far.
    pub(in crate::limits) fn again(&self) -> Duration {
        self.again
    }

    /// The figures; nothing when no level has counted.
    pub(in crate::limits) fn headers(self) -> Option<RateHeaders> {
        let again = self.again;
        self.tightest.map(|t| RateHeaders { again, ..t })
    }
}

#[cfg(test)]
impl RateHeaders {
    pub(in crate::limits) fn figures(&self) -> (u32, u32) {
        (self.limit, self.remaining)
    }

    pub(in crate::limits) fn without_times(self) -> Self {
        Self {
            reset: Duration::ZERO,
            again: Duration::ZERO,
            ..self
        }
    }
}
