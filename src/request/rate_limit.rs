//! Stages 5 and 7, request rate and token rate: a bound principal is counted before its body is read, and again when its size is known.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use crate::auth::Principal;
use crate::error::{ApiError, Code};
use crate::limits::{Limited, RateHeaders, Rates, SlotHeld, Slots, Subject};

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
}

/// A rate or concurrency limit was reached.
#[derive(Debug, thiserror::Error)]
#[error("rate limit of this {} reached: {} {}", .0.level.name(), .0.limit, unit(.0.what))]
pub struct RateLimitError(Limited, jiff::Timestamp);

fn unit(what: &str) -> &'static str {
    match what {
        "streams" => "streams at once",
        "tokens" => "tokens per minute",
        _ => "requests per minute",
    }
}

impl From<RateLimitError> for ApiError {
    fn from(error: RateLimitError) -> Self {
        let RateLimitError(limited, now) = &error;
        let Some(wait) = limited.retry_after() else {
            let text = format!(
                "this request may need more tokens than the {} tokens per minute of this {}; it can never pass",
                limited.limit,
                limited.level.name()
            );
            return Self::new(Code::InvalidRequest, text);
        };
        let mut refusal = Self::new(Code::RateLimited, error.to_string()).retry_after(wait);
        let spent = RateHeaders::spent(limited.limit, limited.wait.unwrap_or_default());
        refusal.headers = match limited.what {
            "tokens" => spent.tokens().into(),
            "requests" => spent.requests(*now).into(),
            _ => Vec::new(),
        };
        refusal
    }
}

/// Counts one request.
///
/// # Errors
/// When a level is over its rate.
pub fn requests(
    rates: &Rates,
    principal: &Principal,
    now: jiff::Timestamp,
) -> Result<CountedRequest, RateLimitError> {
    let subject = Subject::of(principal);
    let headers = rates
        .request(&subject)
        .map_err(|l| RateLimitError(l, now))?;
    Ok(CountedRequest { subject, headers })
}

/// Counts `tokens` and, for a stream, takes a slot.
///
/// # Errors
/// When a level is over its rate or has no free slot.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a proof is used up by the stage that takes it"
)]
pub fn tokens(
    rates: &Rates,
    slots: &Slots,
    counted: CountedRequest,
    ask: Ask,
) -> Result<CountedTokens, RateLimitError> {
    let CountedRequest { subject, headers } = counted;
    let tokens = rates
        .tokens(&subject, ask.tokens)
        .map_err(|l| RateLimitError(l.not_before(headers.again()), ask.now))?;
    let again = tokens.map_or(headers.again(), |t| t.again().max(headers.again()));
    let slot = if ask.stream {
        Some(
            slots
                .take(&subject)
                .map_err(|l| RateLimitError(l.not_before(again), ask.now))?,
        )
    } else {
        None
    };
    Ok(CountedTokens {
        headers: headers.requests(ask.now),
        tokens,
        slot,
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
    /// The rate headers, for a refusal that comes later.
    #[must_use]
    pub fn told(&self, now: jiff::Timestamp) -> [(HeaderName, HeaderValue); 6] {
        self.headers.requests(now)
    }

    /// Writes the rate headers of an answer that counts no tokens.
    pub fn write(&self, headers: &mut HeaderMap, now: jiff::Timestamp) {
        headers.extend(
            self.headers
                .requests(now)
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
        for (name, value) in self.headers.iter().cloned().chain(tokens) {
            headers.insert(name, value);
        }
    }

    /// Hands the slot to whoever holds the answer open.
    #[must_use]
    pub fn take_slot(&mut self) -> Option<SlotHeld> {
        self.slot.take()
    }
}
