//! Leaves a server alone that keeps failing, so that it does not add its timeout to every request, and so that it is not kept down by all who
//! try: after some failures in a row calls fail at once for a while, then one of them tries.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::telemetry::BreakerFigures;

/// Failures in a row that open it.
pub(crate) const FAILURES: u32 = 5;
/// How long it is left alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rests {
    /// The first rest; each that follows is twice as long.
    pub(crate) first: Duration,
    /// The longest one.
    pub(crate) longest: Duration,
}

impl Rests {
    /// For a store on the request path: most stalls are short (a fork, a failover), and one of a few milliseconds must not become a second
    /// of refusals.
    pub(crate) const STORE: Self = Self {
        first: Duration::from_millis(100),
        longest: Duration::from_secs(1),
    };
}

/// Counts failures in a row.
#[derive(Debug)]
pub(crate) struct Breaker {
    rests: Rests,
    state: Mutex<State>,
    figures: BreakerFigures,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// How long it rests and until when; nothing while it is closed.
    rest: Option<(Duration, Instant)>,
    /// A call is trying whether the server is back.
    trying: bool,
}

/// What an outcome changed, for the one log line about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turned {
    /// From now on calls fail at once.
    Open,
    /// The one that tried has failed, too.
    StaysOpen,
    /// The server is back.
    Closed,
    /// Nothing.
    Neither,
}

impl Breaker {
    /// One that is counted in `figures`.
    pub(crate) fn new(rests: Rests, figures: BreakerFigures) -> Self {
        Self {
            rests,
            state: Mutex::default(),
            figures,
        }
    }

    /// What it counts.
    pub(crate) fn figures(&self) -> &BreakerFigures {
        &self.figures
    }

    /// Leave to call, unless the server rests.
    pub(crate) fn enter(&self) -> Option<Attempt<'_>> {
        let mut state = self.state.lock();
        let trial = match state.rest {
            None => false,
            Some((_, until)) if state.trying || Instant::now() < until => return None,
            Some(_) => true,
        };
        state.trying = trial;
        Some(Attempt {
            breaker: self,
            trial,
        })
    }

    /// A call that was given up has ended well after all. Answers whether calls were failing at once until now.
    pub(crate) fn mended(&self) -> bool {
        let rested = std::mem::take(&mut *self.state.lock()).rest.is_some();
        if rested {
            self.figures.closed();
        }
        rested
    }
}

/// One call on its way. Dropping it says nothing about the server: whoever asked has gone.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    breaker: &'a Breaker,
    trial: bool,
}

impl Attempt<'_> {
    /// Notes how it ended.
    pub(crate) fn ended(self, well: bool) -> Turned {
        let rests = self.breaker.rests;
        let mut state = self.breaker.state.lock();
        let resting = state.rest;
        if well {
            *state = State::default();
            return if resting.is_some() {
                self.breaker.figures.closed();
                Turned::Closed
            } else {
                Turned::Neither
            };
        }
        state.failures = state.failures.saturating_add(1);
        match resting {
            None if state.failures >= FAILURES => {
                let first = rests.first;
                state.rest = Some((first, Instant::now() + first));
                self.breaker.figures.opened();
                Turned::Open
            }
            // Calls that began before it opened tell nothing new.
            Some((rest, _)) if self.trial => {
                let rest = (rest * 2).min(rests.longest);
                state.rest = Some((rest, Instant::now() + rest));
                Turned::StaysOpen
            }
            None | Some(_) => Turned::Neither,
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.trial {
            self.breaker.state.lock().trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::telemetry::BreakerFigures;

    use super::{Breaker, FAILURES, Rests, Turned};

    const FIRST_REST: Duration = Rests::STORE.first;
    const LONGEST_REST: Duration = Rests::STORE.longest;

    fn broken() -> Breaker {
        let breaker = Breaker::new(Rests::STORE, BreakerFigures::default());
        for n in 1..=FAILURES {
            let turned = breaker.enter().expect("closed").ended(false);
            assert_eq!(turned == Turned::Open, n == FAILURES);
        }
        breaker
    }

    #[tokio::test(start_paused = true)]
    async fn after_failures_in_a_row_calls_fail_at_once_until_one_tries() {
        let breaker = broken();
        assert!(breaker.enter().is_none());
        tokio::time::advance(FIRST_REST).await;
        let first = breaker.enter().expect("one tries");
        assert!(breaker.enter().is_none(), "and only one");
        assert_eq!(first.ended(false), Turned::StaysOpen);
        tokio::time::advance(FIRST_REST).await;
        assert!(breaker.enter().is_none(), "the second rest is longer");
        tokio::time::advance(FIRST_REST).await;
        let turned = breaker.enter().expect("one tries").ended(true);
        assert_eq!(turned, Turned::Closed);
        assert!(breaker.enter().is_some() && breaker.enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn rests_grow_to_a_bound() {
        let breaker = broken();
        for _ in 0..20 {
            tokio::time::advance(LONGEST_REST).await;
            breaker.enter().expect("one tries").ended(false);
        }
        tokio::time::advance(LONGEST_REST).await;
        assert!(breaker.enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_in_between_starts_the_count_anew() {
        let breaker = Breaker::new(Rests::STORE, BreakerFigures::default());
        for n in 0..FAILURES * 3 {
            breaker.enter().expect("closed").ended(n % 3 == 0);
        }
        assert!(breaker.enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_well_late_counts_as_well() {
        let breaker = broken();
        assert!(breaker.mended() && !breaker.mended());
        assert!(breaker.enter().is_some() && breaker.enter().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_leaves_says_nothing_and_lets_the_next_one_try() {
        let breaker = broken();
        tokio::time::advance(FIRST_REST + Duration::from_millis(1)).await;
        drop(breaker.enter().expect("one tries"));
        assert!(breaker.enter().is_some());
    }
}
