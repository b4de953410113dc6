//! What is known of one request for logs, spans, metrics and headers: its identifiers, when each stage began, and what it came to.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use http::{HeaderName, HeaderValue};
use jiff::Timestamp;

use super::metrics::CallFigures;
use super::trace::Trace;
use crate::auth::Principal;
use crate::error::Code;
use crate::ids::{AgentId, OrgId, RequestId, TokenId};
use crate::limits::RateHeaders;
use crate::openai::is_model_name;
use crate::providers::{Provider, Route};
use crate::request::Stage;
use crate::request::context::plan::{ContextStatus, Level};
use crate::session::Lane;

/// What stands for a method that is none of HTTP's own.
pub const OTHER_METHOD: &str = "_OTHER";

/// Identifiers and start of a request; made by the outermost layer.
#[derive(Debug, Clone)]
pub struct RequestMeta {
    /// The client's `X-Request-ID` when it is a valid one, else minted.
    pub id: RequestId,
    /// Its place in its trace.
    pub trace: Trace,
    /// When the head arrived.
    pub started: Instant,
    /// The method's name, or [`OTHER_METHOD`].
    pub method: &'static str,
    /// The template of the route, once that is known.
    pub route: &'static str,
}

macro_rules! stage_ends {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// How a stage ended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum StageEnd {
            $($(#[$doc])* $name,)*
        }

        impl StageEnd {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The label.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

stage_ends! {
    /// The request went on.
    Passed = "passed",
    /// The request was refused there.
    Refused = "refused",
    /// The answer was whole there: the last stage of a route, or a repeated request.
    Answered = "answered",
    /// The client went away.
    ClientGone = "client_gone",
    /// The provider's answer broke off.
    Failed = "failed",
}

/// The stages a request has entered, in order, and what is to be told of it whatever comes of it.
#[derive(Debug, Default)]
pub struct Trail {
    entered: SmallVec<[(Stage, Instant); 12]>,
    carried: Vec<(HeaderName, HeaderValue)>,
    /// What the request rate came to, and when: only a refusal makes headers of it.
    pub rates: Option<(RateHeaders, Timestamp)>,
    who: Option<Who>,
    /// The provider call.
    pub call: Option<CallFacts>,
    /// What the context came to.
    pub context: Option<ContextFacts>,
    /// Why it was refused.
    pub code: Option<Code>,
    /// Whoever relays the answer tells its end.
    handed_over: bool,
}

/// Identifiers for the log line. Never the user's: that one is the client's own.
#[derive(Debug, Clone, Copy)]
pub struct Who {
    /// The tenant.
    pub org: OrgId,
    /// The agent.
    pub agent: AgentId,
    /// The credential's public part.
    pub token: TokenId,
}

/// Which provider is called, and for what.
#[derive(Debug, Clone)]
pub struct CallFacts {
    /// Whom.
    pub provider: Arc<Provider>,
    /// Provider and model as they are called; nothing where no model is named.
    pub lane: Option<Lane>,
    /// What the call is counted in.
    pub figures: Arc<CallFigures>,
    /// Whether events were asked for.
    pub stream: bool,
}

impl CallFacts {
    /// The call of a routed request.
    #[must_use]
    pub fn of(route: &Route, stream: bool) -> Self {
        Self {
            provider: Arc::clone(&route.provider),
            lane: Some(route.lane.clone()),
            figures: Arc::clone(&route.figures),
            stream,
        }
    }

    /// The model by the name that the provider knows. One that has not the form of a name is not repeated: it may be anything.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        let text = self.lane.as_ref()?.as_str();
        let model = text.strip_prefix(self.provider.name())?.strip_prefix('/')?;
        is_model_name(model).then_some(model)
    }
}

/// What the context of a chat request came to: numbers and fixed words.
#[derive(Debug, Clone)]
pub struct ContextFacts {
    /// Outcome.
    pub status: ContextStatus,
    /// Degradation; nothing when there was no assembly.
    pub level: Option<Level>,
    /// Why it is not simply full with memories.
    pub reason: Option<String>,
    /// The session's epoch; 0 where nothing is frozen.
    pub epoch: u32,
    /// Candidates.
    pub considered: usize,
    /// Memories in the request as sent.
    pub packed: usize,
    /// Tokens that were injected.
    pub tokens: u32,
    /// Bytes of the request as sent.
    pub sent_bytes: u64,
    /// Of them, those that repeat the session's last request.
    pub stable_bytes: u64,
}

impl ContextFacts {
    /// An outcome of which nothing more is known.
    #[must_use]
    pub const fn of(status: ContextStatus) -> Self {
        Self {
            status,
            level: None,
            reason: None,
            epoch: 0,
            considered: 0,
            packed: 0,
            tokens: 0,
            sent_bytes: 0,
            stable_bytes: 0,
        }
    }
}

impl Trail {
    /// Notes who asks, for the log.
    pub fn identify(&mut self, principal: &Principal) {
        self.who = Some(Who {
            org: principal.org(),
            agent: principal.agent(),
            token: principal.token(),
        });
    }

    /// Who asks, once that is known.
    #[must_use]
    pub fn who(&self) -> Option<Who> {
        self.who
    }

    /// Notes headers that a refusal from here on carries too.
    pub fn carry(&mut self, headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>) {
        self.carried.extend(headers);
    }

    /// What a refusal carries.
    pub fn carried(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let rates = self.rates.iter();
        rates
            .flat_map(|(rates, now)| rates.told(*now))
            .chain(self.carried.iter().cloned())
    }

    /// The same trail for whoever relays the answer and tells its end; what is left here only says so.
    #[must_use]
    pub fn hand_over(&mut self) -> Self {
        let whole = std::mem::take(self);
        self.handed_over = true;
        whole
    }

    /// Whether somebody else tells the end.
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        self.handed_over
    }

    /// When the request entered `stage`.
    #[must_use]
    pub fn began(&self, stage: Stage) -> Option<Instant> {
        let of = |(entered, at): &(Stage, Instant)| (*entered == stage).then_some(*at);
        self.entered.iter().find_map(of)
    }

    /// Each stage with its beginning and end; the last one ended at `end`.
    pub fn stages(&self, end: Instant) -> impl Iterator<Item = (Stage, Instant, Instant)> {
        let ends = self.entered.iter().skip(1).map(|(_, at)| *at).chain([end]);
        let entered = self.entered.iter().copied();
        entered.zip(ends).map(|((stage, at), end)| (stage, at, end))
    }

    /// Notes that `stage` begins now.
    pub fn enter(&mut self, stage: Stage) {
        self.entered.push((stage, Instant::now()));
    }

    /// The stage the request is in.
    #[must_use]
    pub fn current(&self) -> Option<Stage> {
        self.entered.last().map(|(stage, _)| *stage)
    }

    /// Every stage with its duration in milliseconds, up to `end`.
    #[must_use]
    pub fn stage_millis(&self, end: Instant) -> String {
        let mut text = String::with_capacity(self.entered.len() * 24);
        for (stage, began, ended) in self.stages(end) {
            if !text.is_empty() {
                text.push(' ');
            }
            text.push_str(stage.name());
            text.push('=');
            push_millis(&mut text, ended.duration_since(began));
        }
        text
    }

    /// The `Server-Timing` value: every stage entered so far with its duration in milliseconds; the last one has none yet.
    #[must_use]
    pub fn server_timing(&self) -> String {
        let mut text = String::with_capacity(self.entered.len() * 32);
        for (i, (stage, began)) in self.entered.iter().enumerate() {
            if i > 0 {
                text.push_str(", ");
            }
            text.push_str(stage.name());
            if let Some((_, ended)) = self.entered.get(i + 1) {
                text.push_str(";dur=");
                push_millis(&mut text, ended.duration_since(*began));
            }
        }
        text
    }
}

/// Appends milliseconds with three decimals. Written by hand: eleven of these stand in every answer, and `fmt` is ten times the work.
fn push_millis(text: &mut String, time: Duration) {
    let seconds = time.as_secs().saturating_mul(1_000_000);
    let micros = seconds.saturating_add(u64::from(time.subsec_micros()));
    let mut digits = [b'0'; 20];
    let (mut left, mut used) = (micros, 0);
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(left % 10).unwrap_or(0);
        left /= 10;
        used += 1;
        if left == 0 && used >= 4 {
            break;
        }
    }
    let shown = digits.get(digits.len() - used..).unwrap_or_default();
    for (i, digit) in shown.iter().enumerate() {
        if i + 3 == used {
            text.push('.');
        }
        text.push(char::from(*digit));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::push_millis;

    #[test]
    fn durations_read_as_milliseconds() {
        for (nanos, expected) in [
            (0, "0.000"),
            (999, "0.000"),
            (1_500, "0.001"),
            (999_999, "0.999"),
            (1_000_000, "1.000"),
            (40_000_123_456, "40000.123"),
        ] {
            let mut text = String::new();
            push_millis(&mut text, Duration::from_nanos(nanos));
            assert_eq!(text, expected);
        }
    }
}
