//! What the counters were at each of the last seconds, and the figures that follow from it.
//!
//! Requests add to atomic totals and nothing else. One task copies the totals once a second into a list that only it and the people who
//! look at the console lock, so a look never holds up a request.

use std::array;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use crate::error::Code;

use super::histogram::{self, Counts};
use super::totals::{Arrived, Copied, ENDS, LEVELS, Totals};

/// Seconds over which figures are summed.
pub const WINDOW_S: usize = 60;
/// Seconds behind one point of a line.
pub const STEP_S: usize = 5;
/// Points of a line: five minutes.
pub const STEPS: usize = 60;

/// Requests under way at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Open {
    /// Those whose answer has not begun.
    pub(super) waiting: u64,
    /// Answers that are being relayed.
    pub(super) relayed: u64,
}

/// What was seen at one look.
#[derive(Debug)]
struct Look {
    at: Instant,
    totals: Box<Copied>,
    open: Open,
}

/// The counters, and what they were at the end of each of the last steps.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) totals: Totals,
    pub(super) open: Arrived,
    looks: Mutex<Looks>,
}

#[derive(Debug)]
struct Looks {
    /// The ends of steps, oldest first; the first one is the start.
    steps: VecDeque<Look>,
    /// Looks since the last step ended.
    since: usize,
    most_open: Open,
}

impl Live {
    pub(super) fn new() -> Self {
        let totals = Totals::default();
        let start = Look {
            at: Instant::now(),
            totals: Box::new(totals.copy()),
            open: Open::default(),
        };
        Self {
            totals,
            open: Arrived::default(),
            looks: Mutex::new(Looks {
                steps: VecDeque::from([start]),
                since: 0,
                most_open: Open::default(),
            }),
        }
    }

    /// Looks at what is under way, and ends a step where it is time. Once a second.
    pub(super) fn look(&self, open: Open) {
        let mut looks = self.looks.lock();
        looks.most_open = Open {
            waiting: looks.most_open.waiting.max(open.waiting),
            relayed: looks.most_open.relayed.max(open.relayed),
        };
        looks.since += 1;
        if looks.since < STEP_S {
            return;
        }
        let ended = Look {
            at: Instant::now(),
            totals: Box::new(self.totals.copy()),
            open: looks.most_open,
        };
        looks.steps.push_back(ended);
        // A line of n points lies between n + 1 looks.
        while looks.steps.len() > STEPS + 1 {
            looks.steps.pop_front();
        }
        (looks.since, looks.most_open) = (0, Open::default());
    }

    /// The figures up to this moment.
    pub(super) fn figures(&self, open: Open, up: Duration) -> Figures {
        let now = Look {
            at: Instant::now(),
            totals: Box::new(self.totals.copy()),
            open,
        };
        let looks = self.looks.lock();
        let first = looks.steps.len().saturating_sub(WINDOW_S / STEP_S);
        let from = looks.steps.get(first).unwrap_or(&now);
        let mut figures = Figures::between(from, &now);
        figures.uptime_s = up.as_secs();
        (figures.open_waiting, figures.open_relayed) = (open.waiting, open.relayed);
        for (before, after) in looks.steps.iter().zip(looks.steps.iter().skip(1)) {
            figures.lines.push(before, after);
        }
        figures
    }
}

/// Counts of the window.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Counted {
    /// API requests that were answered.
    pub requests: u64,
    /// Those with a 4xx.
    pub refused: u64,
    /// Those with a 5xx.
    pub failed: u64,
    /// Calls of providers.
    pub provider_calls: u64,
    /// Those without a success.
    pub provider_failed: u64,
    /// Prompt tokens that providers reported.
    pub prompt_tokens: u64,
    /// Of them, read from the provider's cache.
    pub cached_tokens: u64,
    /// Completion tokens that they reported.
    pub completion_tokens: u64,
}

/// Durations below which half, 95 and 99 of a hundred lie, in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// 95 of a hundred.
    pub p95: f64,
    /// 99 of a hundred.
    pub p99: f64,
}

impl Quantiles {
    fn of(counts: &Counts) -> Option<Self> {
        let [p50, p95, p99] = histogram::quantiles(counts, [0.5, 0.95, 0.99])?;
        Some(Self { p50, p95, p99 })
    }
}

/// Counts by name.
pub type Bars = BTreeMap<&'static str, u64>;

/// The last minutes, a point every [`STEP_S`] seconds, oldest first.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Lines {
    /// Requests a second.
    pub requests: Vec<f64>,
    /// Refusals and failures a second.
    pub errors: Vec<f64>,
    /// Time of whole answers, p95 in milliseconds; nothing where there was none.
    pub whole_ms: Vec<Option<f64>>,
    /// Time to the answer's head, p95 in milliseconds.
    pub first_byte_ms: Vec<Option<f64>>,
    /// Time to the provider's head, p95 in milliseconds.
    pub provider_ms: Vec<Option<f64>>,
    /// The most requests under way.
    pub open: Vec<u64>,
}

impl Lines {
    fn push(&mut self, before: &Look, after: &Look) {
        let step = Figures::between(before, after);
        let a_second = |n: u64| n as f64 / step.window_s;
        self.requests.push(a_second(step.counted.requests));
        let errors = step.counted.refused + step.counted.failed;
        self.errors.push(a_second(errors));
        self.whole_ms.push(step.whole_ms.map(|q| q.p95));
        self.first_byte_ms.push(step.first_byte_ms.map(|q| q.p95));
        self.provider_ms.push(step.provider_ms.map(|q| q.p95));
        self.open.push(after.open.waiting + after.open.relayed);
    }
}

/// What the console shows of the process.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// Seconds since the process started.
    pub uptime_s: u64,
    /// Seconds that the counts cover: a minute, or less at the start.
    pub window_s: f64,
    /// Counts of the window.
    pub counted: Counted,
    /// Time of whole chat answers.
    pub whole_ms: Option<Quantiles>,
    /// Time to the head of chat answers.
    pub first_byte_ms: Option<Quantiles>,
    /// Time to the provider's head.
    pub provider_ms: Option<Quantiles>,
    /// Context assemblies by level.
    pub levels: Bars,
    /// Answers by how they ended.
    pub ends: Bars,
    /// Errors of this service by code; those that did not occur are absent.
    pub errors: Bars,
    /// Requests whose answer has not begun.
    pub open_waiting: u64,
    /// Answers that are being relayed.
    pub open_relayed: u64,
    /// The last minutes.
    pub lines: Lines,
}

impl Figures {
    fn nothing() -> Self {
        Self {
            uptime_s: 0,
            window_s: 0.0,
            counted: Counted::default(),
            whole_ms: None,
            first_byte_ms: None,
            provider_ms: None,
            levels: Bars::new(),
            ends: Bars::new(),
            errors: Bars::new(),
            open_waiting: 0,
            open_relayed: 0,
            lines: Lines::default(),
        }
    }

    /// What happened between two looks.
    fn between(before: &Look, after: &Look) -> Self {
        let window = after.at.duration_since(before.at);
        let (was, is) = (&*before.totals, &*after.totals);
        let named = |names: &mut dyn Iterator<Item = &'static str>, is: &[u64], was: &[u64]| {
            let grown = is.iter().zip(was).map(|(is, was)| is.saturating_sub(*was));
            names.zip(grown).collect::<Bars>()
        };
        let mut errors = named(
            &mut Code::ALL.iter().map(|c| c.as_str()),
            &is.codes,
            &was.codes,
        );
        errors.retain(|_, count| *count > 0);
        let between = |is: &Counts, was: &Counts| Quantiles::of(&grown(is, was));
        let [
            requests,
            refused,
            failed,
            provider_calls,
            provider_failed,
            prompt_tokens,
            cached_tokens,
            completion_tokens,
        ] = grown(&is.numbers, &was.numbers);
        Self {
            // Two looks are never at the same time, but a division must not depend on it.
            window_s: window.as_secs_f64().max(0.001),
            counted: Counted {
                requests,
                refused,
                failed,
                provider_calls,
                provider_failed,
                prompt_tokens,
                cached_tokens,
                completion_tokens,
            },
            whole_ms: between(&is.whole, &was.whole),
            first_byte_ms: between(&is.first_byte, &was.first_byte),
            provider_ms: between(&is.provider_head, &was.provider_head),
            levels: named(
                &mut LEVELS.iter().map(|l| l.as_str()),
                &is.levels,
                &was.levels,
            ),
            ends: named(&mut ENDS.iter().map(|e| e.as_str()), &is.ends, &was.ends),
            errors,
            ..Self::nothing()
        }
    }
}

fn grown<const N: usize>(is: &[u64; N], was: &[u64; N]) -> [u64; N] {
    array::from_fn(|i| match (is.get(i), was.get(i)) {
        (Some(is), Some(was)) => is.saturating_sub(*was),
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::StatusCode;
    use tokio::time::advance;

    use super::{Live, Open, STEP_S, STEPS};
    use crate::error::Code;

    async fn seconds(live: &Live, n: usize, each: impl Fn(&Live)) {
        for _ in 0..n {
            each(live);
            advance(Duration::from_secs(1)).await;
            live.look(Open::default());
        }
    }

    fn request(live: &Live) {
        let took = Some(Duration::from_millis(8));
        live.totals.answered(StatusCode::OK, None, took);
    }

    #[tokio::test(start_paused = true)]
    async fn figures_are_of_the_last_minute_and_lines_of_five() {
        let live = Live::new();
        let figures = live.figures(Open::default(), Duration::ZERO);
        assert_eq!(figures.counted.requests, 0);
        assert!(figures.lines.requests.is_empty());

        seconds(&live, 60, request).await;
        let figures = live.figures(Open::default(), Duration::ZERO);
        let a_second = figures.counted.requests as f64 / figures.window_s;
        assert!((a_second - 1.0).abs() < 0.01, "{a_second}");
        assert!((figures.first_byte_ms.unwrap().p95 - 8.0).abs() < 0.5);
        assert_eq!(figures.lines.requests, vec![1.0; 60 / STEP_S]);

        seconds(&live, 600, |_| {}).await;
        let figures = live.figures(Open::default(), Duration::ZERO);
        assert_eq!(figures.counted.requests, 0);
        assert!(figures.first_byte_ms.is_none());
        assert_eq!(figures.lines.requests, vec![0.0; STEPS]);
    }

    #[tokio::test(start_paused = true)]
    async fn errors_are_told_by_code_and_the_most_requests_under_way_are_kept() {
        let live = Live::new();
        live.totals
            .answered(StatusCode::TOO_MANY_REQUESTS, Some(Code::RateLimited), None);
        live.totals
            .answered(StatusCode::BAD_GATEWAY, Some(Code::BadGateway), None);
        for waiting in [1, 7, 2, 0, 0] {
            advance(Duration::from_secs(1)).await;
            live.look(Open {
                waiting,
                relayed: 1,
            });
        }
        let figures = live.figures(Open::default(), Duration::ZERO);
        assert_eq!((figures.counted.refused, figures.counted.failed), (1, 1));
        let errors: Vec<_> = figures.errors.into_iter().collect();
        assert_eq!(errors, [("PROVIDER_BAD_RESPONSE", 1), ("RATE_LIMITED", 1)]);
        assert_eq!(figures.lines.open, [8]);
    }
}
