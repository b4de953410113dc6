//! Stages 5 and 7, request rate and token rate: a bound principal is counted before its body is read, and again when its size is known.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::app::App;
use crate::auth::Principal;
use crate::error::{ApiError, Code};
use crate::limits::{Limited, RateHeaders, Refusal, SOURCE, SlotHeld, Subject, Taken};

/// Proof that the request itself was counted.
#[derive(Debug)]
pub struct CountedRequest {
    subject: Subject,
    headers: RateHeaders,
}

/// Proof that the tokens were counted; holds the stream's slot.
#[derive(Debug)]
pub struct CountedTokens {
    headers: [(HeaderName, HeaderValue); 6],
    tokens: Option<RateHeaders>,
    slot: Option<SlotHeld>,
    /// Whether this replica counted its share by itself.
    local: bool,
}

/// Why the request is not let on.
#[derive(Debug, thiserror::Error)]
pub enum RateLimitError {
    /// A rate or concurrency limit was reached, at this time of day.
    #[error("rate limit of this {} reached: {} {}", .0.level.name(), .0.limit, unit(.0.what))]
    Reached(Limited, jiff::Timestamp),
    /// Nobody can say whether one is.
    #[error("the rates that all replicas share cannot be counted now")]
    Unavailable,
}

impl RateLimitError {
    /// The refusal at this time of day, counted.
    fn counted(app: &App, refusal: Refusal, now: jiff::Timestamp) -> Self {
        match refusal {
            Refusal::Limited(limited) => {
                app.metrics.rate_limited(&limited);
                Self::Reached(limited, now)
            }
            Refusal::Unavailable => Self::Unavailable,
        }
    }
}

fn unit(what: &str) -> &'static str {
    match what {
        "streams" => "streams at once",
        "tokens" => "tokens per minute",
        _ => "requests per minute",
    }
}

impl From<RateLimitError> for ApiError {
    fn from(error: RateLimitError) -> Self {
        let text = error.to_string();
        let (limited, now) = match error {
            RateLimitError::Reached(limited, now) => (limited, now),
            RateLimitError::Unavailable => {
                return Self::new(Code::ServiceDegraded, text).retry_after(1);
            }
        };
        let Some(wait) = limited.retry_after() else {
            let text = format!(
                "this request may need more tokens than the {} tokens per minute of this {}; it can never pass",
                limited.limit,
                limited.level.name()
            );
            return Self::new(Code::InvalidRequest, text);
        };
        let mut refusal = Self::new(Code::RateLimited, text).retry_after(wait);
        let spent = RateHeaders::spent(limited.limit, limited.wait.unwrap_or_default());
        refusal.headers = match limited.what {
            "tokens" => spent.tokens().into(),
            "requests" => spent.requests(now).into(),
            _ => Vec::new(),
        };
        refusal.headers.extend(limited.local.then_some(SOURCE));
        refusal
    }
}

/// Counts one request.
///
/// # Errors
/// When a level is over its rate, or the shared rates cannot be asked.
pub async fn requests(app: &App, principal: &Principal) -> Result<CountedRequest, RateLimitError> {
    let subject = Subject::of(principal);
    let now = app.clock.now();
    let headers = app.rates.request(&subject).await;
    let headers = headers.map_err(|refusal| RateLimitError::counted(app, refusal, now))?;
    Ok(CountedRequest { subject, headers })
}

/// Counts `tokens` and, for a stream, takes a slot.
///
/// # Errors
/// When a level is over its rate or has no free slot, or the shared rates cannot be asked.
pub async fn tokens(
    app: &App,
    counted: CountedRequest,
    ask: Ask,
) -> Result<CountedTokens, RateLimitError> {
    let CountedRequest { subject, headers } = counted;
    let (rates, slots) = (&app.rates, &app.slots);
    let taken = rates.take(slots, &subject, ask.tokens, ask.stream).await;
    let again = headers.again();
    let Taken {
        tokens,
        slot,
        local,
    } = taken
        .map_err(|refusal| RateLimitError::counted(app, refusal.not_before(again), ask.now))?;
    Ok(CountedTokens {
        headers: headers.requests(ask.now),
        tokens,
        slot,
        local: local || headers.is_local(),
    })
}

/// What a request asks for.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// Prompt estimate plus the greatest answer asked for; 0 when nothing limits tokens.
    pub tokens: u32,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// The time of day.
    pub now: jiff::Timestamp,
}

impl CountedRequest {
    /// The figures, for a refusal that comes later.
    #[must_use]
    pub fn figures(&self) -> RateHeaders {
        self.headers
    }

    /// Writes the rate headers of an answer that counts no tokens.
    pub fn write(&self, headers: &mut HeaderMap, now: jiff::Timestamp) {
        headers.extend(
            self.headers
                .told(now)
                .map(|(name, value)| (Some(name), value)),
        );
    }
}

impl CountedTokens {
    /// Writes the rate headers, over those of the provider: a client's limits are ours. But a provider that refuses speaks of its own,
    /// and those are what the client has to wait for.
    pub fn write(&self, status: StatusCode, headers: &mut HeaderMap) {
        let theirs = |name: &HeaderName| name.as_str().starts_with("x-ratelimit-");
        // All or nothing: half of theirs beside half of ours would describe no limit at all.
        if !status.is_success() && headers.keys().any(theirs) {
            return;
        }
        let tokens = self.tokens.iter().flat_map(RateHeaders::tokens);
        let source = self.local.then_some(SOURCE);
        for (name, value) in self.headers.iter().cloned().chain(tokens).chain(source) {
            headers.insert(name, value);
        }
    }

    /// Hands the slot to whoever holds the answer open.
    #[must_use]
    pub fn take_slot(&mut self) -> Option<SlotHeld> {
        self.slot.take()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ApiError, CountedTokens, RateLimitError};
    use http::{HeaderMap, StatusCode};

    use crate::error::Code;
    use crate::limits::{Level, Limited};

    #[test]
    fn rates_that_nobody_can_count_are_no_fault_of_the_client() {
        let error = ApiError::from(RateLimitError::Unavailable);
        assert_eq!(error.code, Code::ServiceDegraded);
        assert_eq!(error.code.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(error.retry_after, Some(1));
        assert_eq!(
            error.message,
            "the rates that all replicas share cannot be counted now"
        );
        assert!(error.headers.is_empty());
    }

    #[test]
    fn a_replica_that_counts_by_itself_says_so() {
        let refused = |local| {
            let limited = Limited {
                what: "requests",
                level: Level::Org,
                limit: 4,
                wait: Some(Duration::from_secs(3)),
                local,
            };
            let error = ApiError::from(RateLimitError::Reached(
                limited,
                jiff::Timestamp::UNIX_EPOCH,
            ));
            assert_eq!(error.code, Code::RateLimited);
            assert_eq!(
                error.message,
                "rate limit of this organisation reached: 4 requests per minute"
            );
            let headers: HeaderMap = error.headers.iter().cloned().collect();
            source(&headers)
        };
        assert_eq!(refused(true).as_deref(), Some("local"));
        assert_eq!(refused(false), None);

        let answered = |local, status| {
            let counted = CountedTokens {
                headers: crate::limits::RateHeaders::spent(1, Duration::ZERO)
                    .requests(jiff::Timestamp::UNIX_EPOCH),
                tokens: None,
                slot: None,
                local,
            };
            let mut headers = HeaderMap::new();
            headers.insert("x-ratelimit-limit", 7.into());
            counted.write(status, &mut headers);
            source(&headers)
        };
        assert_eq!(answered(true, StatusCode::OK).as_deref(), Some("local"));
        assert_eq!(answered(false, StatusCode::OK), None);
        let theirs = answered(true, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(theirs, None, "the provider's own figures are not ours");
    }

    fn source(headers: &HeaderMap) -> Option<String> {
        let value = headers.get("x-ibex-rate-limit-source")?;
        Some(value.to_str().expect("text").to_owned())
    }
}
