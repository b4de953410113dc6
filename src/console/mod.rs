//! What the console shows of this process: counters of the last minutes, and the context plans of the newest chat requests.
//!
//! Like all telemetry it is told what happened and decides nothing. The request path never waits for it: counters are atomic, and a plan
//! is dropped where the place that it would take is being read. No text of a user, a memory or a directive is kept here.

mod histogram;
mod live;
mod recent;
mod totals;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::app::App;
use crate::config::{ConsoleConfig, Environment};
use crate::error::Code;
use crate::openai::sse::Usage;
use crate::request::context::plan::{ContextStatus, Level};
use crate::telemetry::StreamEnd;

pub use live::{Bars, Counted, Figures, Quantiles, STEP_S, STEPS, WINDOW_S};
pub use recent::{About, Ended, Entry, Noted, Planned};

use live::{Live, Open};
use recent::Recent;

/// The route whose latencies are shown.
const CHAT: &str = "/v1/chat/completions";

/// What is kept for the console; nothing at all where it is switched off. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Console(Option<Arc<Kept>>);

#[derive(Debug)]
struct Kept {
    live: Live,
    recent: Option<Recent>,
    began: Instant,
}

impl Console {
    /// A console as configured.
    #[must_use]
    pub fn new(config: &ConsoleConfig, environment: Environment) -> Self {
        if !config.is_on(environment) {
            return Self(None);
        }
        Self(Some(Arc::new(Kept {
            live: Live::new(),
            recent: Recent::new(config.recent_requests),
            began: Instant::now(),
        })))
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Notes that a request has arrived, until the value is dropped.
    #[must_use]
    pub fn opened(&self) -> Option<Opened> {
        let kept = self.0.clone()?;
        kept.live.open.enter();
        Some(Opened(kept))
    }

    /// Counts the head of an answer.
    pub fn answered(&self, route: &str, status: StatusCode, code: Option<Code>, took: Duration) {
        let Some(kept) = &self.0 else { return };
        // The console's own polls and the probes are not what anybody looks for in it.
        if !route.starts_with("/v1/") {
            return;
        }
        let first_byte = (route == CHAT && status.is_success()).then_some(took);
        kept.live.totals.answered(status, code, first_byte);
    }

    /// Counts a provider call.
    pub fn provider(&self, ok: bool, took: Duration) {
        if let Some(kept) = &self.0 {
            kept.live.totals.provider(ok, took);
        }
    }

    /// Counts how the context of a chat request came out, and keeps its plan until the answer has ended. `about` is asked only if there is
    /// somewhere to keep it.
    #[must_use]
    pub fn note(
        &self,
        (status, level): (ContextStatus, Option<Level>),
        about: impl FnOnce() -> About,
    ) -> Option<Box<Noted>> {
        let kept = self.0.as_ref()?;
        if let Some(level) = level {
            kept.live.totals.level(level);
        }
        let recent = kept.recent.clone()?;
        Some(Box::new(recent.note(status, about())))
    }

    /// Counts the end of an answer. Its chat request, if it was one, is `noted`.
    pub fn ended(&self, end: StreamEnd, usage: Usage, took: Duration, noted: Option<Box<Noted>>) {
        let Some(kept) = &self.0 else { return };
        kept.live.totals.ended(end, usage, took);
        if let Some(noted) = noted {
            noted.end(end, usage, took);
        }
    }

    /// How many plans it keeps at most.
    #[must_use]
    pub fn room(&self) -> usize {
        let recent = self.0.as_ref().and_then(|kept| kept.recent.as_ref());
        recent.map_or(0, Recent::room)
    }

    /// The plans that `seen` lets through, newest first.
    pub fn recent(&self, seen: impl Fn(&Entry) -> bool) -> Vec<Arc<Entry>> {
        let recent = self.0.as_ref().and_then(|kept| kept.recent.as_ref());
        recent.map_or_else(Vec::new, |recent| recent.newest(seen))
    }

    /// The last minutes in figures, with `relayed` answers being relayed now; nothing where the console is off.
    #[must_use]
    pub fn figures(&self, relayed: i64) -> Option<Figures> {
        let kept = self.0.as_ref()?;
        let open = kept.open(relayed);
        Some(kept.live.figures(open, kept.began.elapsed()))
    }
}

impl Kept {
    fn open(&self, relayed: i64) -> Open {
        Open {
            waiting: self.live.open.count(),
            relayed: u64::try_from(relayed).unwrap_or(0),
        }
    }
}

/// A request that is under way.
#[derive(Debug)]
pub struct Opened(Arc<Kept>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.live.open.leave();
    }
}

/// Looks at the counters once a second, until the process stops. Whoever asks for figures reads what this has seen.
pub async fn sample(app: App) {
    let Some(kept) = app.console.0.clone() else {
        return;
    };
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = seconds.tick() => {}
            () = app.tasks.stopping() => return,
        }
        kept.live.look(kept.open(app.metrics.answers_open.get()));
    }
}
