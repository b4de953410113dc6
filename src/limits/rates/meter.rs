//! The buckets of one process: a limiter of `governor` for each level and quota.

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

use super::{Counted, Level, Limited, RateHeaders};

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
pub(super) struct Meter {
    what: Counted,
    clock: TokioClock,
    /// One limiter per level and quota: identifiers with a figure of their own have a limiter of their own.
    buckets: DashMap<(Level, NonZeroU32), Arc<Buckets>, RandomState>,
}

impl Meter {
    pub(super) fn new(what: Counted) -> Self {
        Self {
            what,
            clock: TokioClock(tokio::time::Instant::now()),
            buckets: DashMap::default(),
        }
    }

    pub(super) fn what(&self) -> Counted {
        self.what
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

    /// Counts `n` against the bucket of `id`.
    pub(super) fn check(
        &self,
        level: Level,
        id: Uuid,
        quota: NonZeroU32,
        n: NonZeroU32,
    ) -> Result<RateHeaders, Limited> {
        let refused = |wait| Limited {
            wait,
            ..Limited::new(self.what.as_str(), level, quota.get())
        };
        let outcome = self
            .buckets(level, quota)
            .check_key_n(&id, n)
            .map_err(|_| refused(None))?;
        match outcome {
            Ok(state) => {
                let remaining = state.remaining_burst_capacity();
                Ok(RateHeaders::counted(quota, n, remaining))
            }
            Err(not_until) => Err(refused(Some(wait(&not_until, &self.clock)))),
        }
    }

    /// Forgets identifiers whose bucket is full again.
    pub(super) fn sweep(&self) {
        for buckets in &self.buckets {
            buckets.retain_recent();
            buckets.shrink_to_fit();
        }
    }
}

fn wait(refusal: &NotUntil<Nanos>, clock: &TokioClock) -> Duration {
    refusal
        .earliest_possible()
        .duration_since(clock.now())
        .into()
}
