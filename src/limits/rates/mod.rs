//! Request and token rates: one GCRA (the leaky bucket of `governor`) per level and identifier.
//!
//! Levels are asked from the narrowest to the widest, so that a noisy token is stopped at its own limit and costs its organisation
//! nothing. What the narrow levels have counted before a wide one refuses stays counted, and the refusal's wait covers it.

mod headers;

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use foldhash::fast::RandomState;
use governor::clock::{Clock, Reference};
use governor::middleware::{NoOpMiddleware, StateInformationMiddleware};
use governor::nanos::Nanos;
use governor::state::keyed::DashMapStateStore;
use governor::{NotUntil, Quota, RateLimiter};
use uuid::Uuid;

pub use headers::RateHeaders;

use crate::auth::Principal;
use crate::config::{LimitOverride, RateLimitConfig};

/// A level at which rates are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// One credential.
    Token,
    /// One agent.
    Agent,
    /// One organisation.
    Org,
    /// The whole process.
    Global,
}

impl Level {
    /// The order in which levels are asked.
    pub const NARROW_TO_WIDE: [Self; 4] = [Self::Token, Self::Agent, Self::Org, Self::Global];

    /// The name in error texts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Agent => "agent",
            Self::Org => "organisation",
            Self::Global => "service",
        }
    }
}

/// A level with the identifier counted there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key(Level, Uuid);

/// Who is counted.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    token: Uuid,
    agent: Uuid,
    org: Uuid,
}

impl Subject {
    /// The identifiers of a principal.
    #[must_use]
    pub fn of(principal: &Principal) -> Self {
        Self {
            token: Uuid::from_bytes(*principal.token().as_bytes()),
            agent: Uuid::from_bytes(*principal.agent().as_bytes()),
            org: Uuid::from_bytes(*principal.org().as_bytes()),
        }
    }

    pub(super) fn key(&self, level: Level) -> Key {
        Key(
            level,
            match level {
                Level::Token => self.token,
                Level::Agent => self.agent,
                Level::Org => self.org,
                Level::Global => Uuid::nil(),
            },
        )
    }
}

/// The configured figures: identifier, then level, then default.
#[derive(Debug, Clone)]
pub struct Figures {
    config: Arc<RateLimitConfig>,
    ids: Arc<HashMap<Uuid, LimitOverride>>,
    limits_tokens: bool,
}

impl Figures {
    /// Reads the configuration. Keys of `ids` that are no UUIDs were refused by validation.
    #[must_use]
    pub fn new(config: &RateLimitConfig) -> Self {
        let levels = [config.global, config.org, config.agent, config.token];
        let mut overrides = levels.iter().chain(config.ids.values());
        let limits_tokens = config.default_tpm.is_some() || overrides.any(|o| o.tpm.is_some());
        let ids = config
            .ids
            .iter()
            .filter_map(|(id, figures)| Some((id.parse().ok()?, *figures)))
            .collect();
        Self {
            config: Arc::new(config.clone()),
            ids: Arc::new(ids),
            limits_tokens,
        }
    }

    fn level(&self, level: Level) -> &LimitOverride {
        match level {
            Level::Token => &self.config.token,
            Level::Agent => &self.config.agent,
            Level::Org => &self.config.org,
            Level::Global => &self.config.global,
        }
    }

    fn rpm(&self, level: Level, id: Option<Uuid>) -> Option<NonZeroU32> {
        let own = id.and_then(|id| self.ids.get(&id)).and_then(|o| o.rpm);
        NonZeroU32::new(
            own.or(self.level(level).rpm)
                .unwrap_or(self.config.default_rpm),
        )
    }

    fn tpm(&self, level: Level, id: Option<Uuid>) -> Option<NonZeroU32> {
        let own = id.and_then(|id| self.ids.get(&id)).and_then(|o| o.tpm);
        own.or(self.level(level).tpm)
            .or(self.config.default_tpm)
            .and_then(NonZeroU32::new)
    }

    pub(in crate::limits) fn streams(&self, level: Level, key: Key) -> Option<u32> {
        let own = self.ids.get(&key.1).and_then(|o| o.streams);
        own.or(self.level(level).streams)
            .or(self.config.default_streams)
    }
}

/// What was refused, and when to come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limited {
    /// `requests`, `tokens` or `streams`.
    pub what: &'static str,
    /// The level that refused.
    pub level: Level,
    /// Its limit.
    pub limit: u32,
    /// Time until the same request would pass, also at the levels that were charged before this one refused; for streams, which end when
    /// they end, at least a second.
    pub wait: Option<Duration>,
}

impl Limited {
    pub(super) fn streams(level: Level, limit: u32) -> Self {
        Self {
            what: "streams",
            level,
            limit,
            wait: Some(Duration::from_secs(1)),
        }
    }

    /// The same refusal, told with a wait of at least `again`. What can never pass still cannot.
    #[must_use]
    pub fn not_before(mut self, again: Duration) -> Self {
        self.wait = self.wait.map(|wait| wait.max(again));
        self
    }

    /// Whole seconds, rounded up, at least one: after them the request passes.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        self.wait
            .map(|w| (w.as_secs() + u64::from(w.subsec_nanos() > 0)).max(1))
    }
}

/// tokio's clock, so that tests can stand still.
#[derive(Debug, Clone)]
struct TokioClock(tokio::time::Instant);

impl Clock for TokioClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}

type Buckets =
    RateLimiter<Uuid, DashMapStateStore<Uuid, RandomState>, TokioClock, StateInformationMiddleware>;

/// The buckets of one figure (requests or tokens) at every level.
#[derive(Debug)]
struct Meter {
    what: &'static str,
    clock: TokioClock,
    /// One limiter per level and quota: identifiers with a figure of their own have a limiter of their own.
    buckets: DashMap<(Level, NonZeroU32), Arc<Buckets>, RandomState>,
}

impl Meter {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            clock: TokioClock(tokio::time::Instant::now()),
            buckets: DashMap::default(),
        }
    }

    fn buckets(&self, level: Level, quota: NonZeroU32) -> Arc<Buckets> {
        if let Some(found) = self.buckets.get(&(level, quota)) {
            return Arc::clone(&found);
        }
        let make = || {
            let store = DashMapStateStore::default();
            let plain = RateLimiter::<_, _, _, NoOpMiddleware<Nanos>>::new(
                Quota::per_minute(quota),
                store,
                self.clock.clone(),
            );
            Arc::new(plain.with_middleware())
        };
        Arc::clone(&self.buckets.entry((level, quota)).or_insert_with(make))
    }

    fn check(
        &self,
        level: Level,
        id: Uuid,
        quota: NonZeroU32,
        n: NonZeroU32,
    ) -> Result<RateHeaders, Limited> {
        let refused = |wait| Limited {
            what: self.what,
            level,
            limit: quota.get(),
            wait,
        };
        let outcome = self
            .buckets(level, quota)
            .check_key_n(&id, n)
            .map_err(|_| refused(None))?;
        match outcome {
            Ok(state) => {
                let remaining = state.remaining_burst_capacity();
                let time_for = |cells: u32| {
                    Duration::from_nanos(60_000_000_000 / u64::from(quota.get()) * u64::from(cells))
                };
                Ok(RateHeaders {
                    limit: quota.get(),
                    remaining,
                    reset: time_for(quota.get().saturating_sub(remaining)),
                    again: time_for(n.get().saturating_sub(remaining)),
                })
            }
            Err(not_until) => Err(refused(Some(wait(&not_until, &self.clock)))),
        }
    }
}

fn wait(refusal: &NotUntil<Nanos>, clock: &TokioClock) -> Duration {
    refusal
        .earliest_possible()
        .duration_since(clock.now())
        .into()
}

/// Request and token rates of the process.
#[derive(Debug)]
pub struct Rates {
    figures: Figures,
    requests: Meter,
    tokens: Meter,
}

impl Rates {
    /// Empty buckets with the configured figures.
    #[must_use]
    pub fn new(figures: Figures) -> Self {
        Self {
            figures,
            requests: Meter::new("requests"),
            tokens: Meter::new("tokens"),
        }
    }

    /// Counts one request at every level; answers with the tightest level's figures.
    ///
    /// # Errors
    /// When a level is over its rate.
    pub fn request(&self, subject: &Subject) -> Result<RateHeaders, Limited> {
        let figure = |level, id| self.figures.rpm(level, id);
        self.spend(&self.requests, subject, NonZeroU32::MIN, figure)?
            .ok_or(Limited {
                what: "requests",
                level: Level::Global,
                limit: 0,
                wait: None,
            })
    }

    /// Whether any level or identifier limits tokens. Otherwise nobody needs to know how many a request may take.
    #[must_use]
    pub fn limits_tokens(&self) -> bool {
        self.figures.limits_tokens
    }

    /// Counts `tokens` at every level that limits tokens; `None` when none does.
    ///
    /// # Errors
    /// When a level is over its rate. Without `wait` the request is larger than a whole minute's allowance and can never pass.
    pub fn tokens(&self, subject: &Subject, tokens: u32) -> Result<Option<RateHeaders>, Limited> {
        let Some(n) = NonZeroU32::new(tokens) else {
            return Ok(None);
        };
        self.spend(&self.tokens, subject, n, |level, id| {
            self.figures.tpm(level, id)
        })
    }

    fn spend(
        &self,
        meter: &Meter,
        subject: &Subject,
        n: NonZeroU32,
        figure: impl Fn(Level, Option<Uuid>) -> Option<NonZeroU32>,
    ) -> Result<Option<RateHeaders>, Limited> {
        let mut tightest: Option<RateHeaders> = None;
        let mut again = Duration::ZERO;
        for level in Level::NARROW_TO_WIDE {
            let Key(_, id) = subject.key(level);
            let Some(quota) = figure(level, Some(id)) else {
                continue;
            };
            let state = meter
                .check(level, id, quota, n)
                .map_err(|limited| limited.not_before(again))?;
            again = again.max(state.again);
            if tightest.is_none_or(|t| state.remaining < t.remaining) {
                tightest = Some(state);
            }
        }
        Ok(tightest.map(|t| RateHeaders { again, ..t }))
    }

    /// Forgets identifiers whose bucket is full again.
    pub fn sweep(&self) {
        for meter in [&self.requests, &self.tokens] {
            for buckets in &meter.buckets {
                buckets.retain_recent();
                buckets.shrink_to_fit();
            }
        }
    }
}

#[cfg(test)]
mod tests;
