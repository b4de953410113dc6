//! Leaves an embedder that keeps failing alone, so that it costs the request path nothing: after a number of failures in a row nobody asks
//! for a while, then one question tries.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::telemetry::BreakerFigures;

/// Failures in a row that open it.
const FAILURES: u32 = 5;
/// How long nobody asks. A question that tries in vain costs its chat the time for a vector, so not too often.
const REST: Duration = Duration::from_secs(10);

/// Counts failures in a row.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: Mutex<State>,
    figures: BreakerFigures,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Nobody asks before this time.
    rests_until: Option<Instant>,
    /// Somebody is trying whether it is back.
    trying: bool,
}

impl Breaker {
    /// Leave to ask, unless the embedder rests.
    pub(super) fn enter(&self) -> Option<Attempt<'_>> {
        let mut state = self.state.lock();
        let resting = state.rests_until.is_some();
        if resting {
            let early = state
                .rests_until
                .is_some_and(|until| Instant::now() < until);
            if early || state.trying {
                return None;
            }
            state.trying = true;
        }
        Some(Attempt {
            breaker: self,
            trying: resting,
        })
    }

    /// What it counts.
    pub(super) fn figures(&self) -> &BreakerFigures {
        &self.figures
    }

    /// The embedder has answered.
    pub(super) fn succeeded(&self) {
        let before = std::mem::take(&mut *self.state.lock());
        if before.rests_until.is_some() {
            self.figures.closed();
        }
    }

    fn failed(&self) {
        let mut state = self.state.lock();
        state.failures = state.failures.saturating_add(1);
        if state.failures >= FAILURES {
            if state.rests_until.is_none() {
                self.figures.opened();
            }
            state.rests_until = Some(Instant::now() + REST);
        }
    }
}

/// One question on its way. Dropping it says nothing about the embedder: whoever asked has gone.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    breaker: &'a Breaker,
    trying: bool,
}

impl Attempt<'_> {
    /// Notes how it ended.
    pub(super) fn ended(self, well: bool) {
        if well {
            self.breaker.succeeded();
        } else {
            self.breaker.failed();
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.trying {
            self.breaker.state.lock().trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Breaker, FAILURES, REST};

    fn broken() -> Breaker {
        let breaker = Breaker::default();
        for _ in 0..FAILURES {
            breaker.enter().expect("closed").ended(false);
        }
        breaker
    }

    #[tokio::test(start_paused = true)]
    async fn after_failures_in_a_row_nobody_asks_until_one_tries() {
        let breaker = broken();
        assert!(breaker.enter().is_none());
        tokio::time::advance(REST).await;
        let first = breaker.enter().expect("one tries");
        assert!(breaker.enter().is_none(), "and only one");
        first.ended(false);
        assert!(breaker.enter().is_none(), "it rests again");
        tokio::time::advance(REST).await;
        breaker.enter().expect("one tries").ended(true);
        assert!(breaker.enter().is_some() && breaker.enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_in_between_starts_the_count_anew() {
        let breaker = Breaker::default();
        for n in 0..FAILURES * 3 {
            breaker.enter().expect("closed").ended(n % 3 == 0);
        }
        assert!(breaker.enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_leaves_says_nothing_and_lets_the_next_one_try() {
        let breaker = broken();
        tokio::time::advance(REST + Duration::from_millis(1)).await;
        drop(breaker.enter().expect("one tries"));
        assert!(breaker.enter().is_some());
    }
}
