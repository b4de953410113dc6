//! What is known of one request for logs and headers: its identifiers and when each stage began.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use http::{HeaderName, HeaderValue};

use crate::auth::Principal;
use crate::ids::{AgentId, OrgId, RequestId, TokenId};
use crate::request::Stage;

/// Identifiers and start of a request; made by the outermost layer.
#[derive(Debug, Clone)]
pub struct RequestMeta {
    /// The client's `X-Request-ID` when it is a valid one, else minted.
    pub id: RequestId,
    /// The trace id of `traceparent`, else a new one: 32 lower-case hex digits.
    pub trace: Arc<str>,
    /// When the head arrived.
    pub started: Instant,
}

/// The stages a request has entered, in order, and what is to be told of it whatever comes of it.
#[derive(Debug, Default)]
pub struct Trail {
    entered: SmallVec<[(Stage, Instant); 12]>,
    carried: Vec<(HeaderName, HeaderValue)>,
    who: Option<Who>,
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
    #[must_use]
    pub fn carried(&self) -> &[(HeaderName, HeaderValue)] {
        &self.carried
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
                push_millis(&mut text, ended.duration_since(*began).as_nanos());
            }
        }
        text
    }
}

/// Appends milliseconds with three decimals. Written by hand: eleven of these stand in every answer, and `fmt` is ten times the work.
fn push_millis(text: &mut String, nanos: u128) {
    let micros = u64::try_from(nanos / 1_000).unwrap_or(u64::MAX);
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
            push_millis(&mut text, nanos);
            assert_eq!(text, expected);
        }
    }
}
