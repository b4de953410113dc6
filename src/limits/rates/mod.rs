//! Request and token rates: one GCRA (the leaky bucket) per level and identifier, counted in this process by `governor` or, for all replicas
//! together, in Redis (`limits/shared`).
//!
//! Levels are asked from the narrowest to the widest, so that a noisy token is stopped at its own limit and costs its organisation
//! nothing. What the narrow levels have counted before a wide one refuses stays counted, and the refusal's wait covers it.

mod figures;
mod headers;
mod meter;

use std::num::NonZeroU32;
use std::time::Duration;

use uuid::Uuid;

pub use figures::Figures;
pub(in crate::limits) use headers::Tally;
pub use headers::{RateHeaders, SOURCE};

use crate::auth::Principal;
use crate::ids::OrgId;
use crate::store::shared::redis::Redis;
use crate::store::shared::redis::keys::Counted;
use crate::tasks::Tasks;

use super::shared::{Lease, OnOutage, Share, Shared, Want};
use super::slots::{SlotHeld, Slots};
use meter::Meter;

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

    pub(super) fn id(&self, level: Level) -> Uuid {
        match level {
            Level::Token => self.token,
            Level::Agent => self.agent,
            Level::Org => self.org,
            Level::Global => Uuid::nil(),
        }
    }

    pub(super) fn org(&self) -> OrgId {
        OrgId::from_bytes(*self.org.as_bytes())
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
    /// Whether `limit` is the share of this replica, because Redis could not be asked.
    pub local: bool,
}

impl Limited {
    /// One that can never pass.
    pub(super) fn new(what: &'static str, level: Level, limit: u32) -> Self {
        Self {
            what,
            level,
            limit,
            wait: None,
            local: false,
        }
    }

    pub(super) fn streams(level: Level, limit: u32) -> Self {
        Self {
            wait: Some(Duration::from_secs(1)),
            ..Self::new("streams", level, limit)
        }
    }

    pub(super) fn local(mut self, local: bool) -> Self {
        self.local = local;
        self
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

/// Why a request is not let on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A level has no more to give.
    Limited(Limited),
    /// The rates that replicas share cannot be asked, and nothing goes on uncounted.
    Unavailable,
}

impl Refusal {
    /// The same refusal, told with a wait of at least `again`.
    #[must_use]
    pub fn not_before(self, again: Duration) -> Self {
        match self {
            Self::Limited(limited) => Self::Limited(limited.not_before(again)),
            Self::Unavailable => Self::Unavailable,
        }
    }
}

impl From<Limited> for Refusal {
    fn from(limited: Limited) -> Self {
        Self::Limited(limited)
    }
}

/// What a request takes once its size is known.
#[derive(Debug)]
pub struct Taken {
    /// The figures of the tightest level that limits tokens, if any does.
    pub tokens: Option<RateHeaders>,
    /// The stream's slot.
    pub slot: Option<SlotHeld>,
    /// Whether this replica counted its share, because Redis could not be asked.
    pub local: bool,
}

/// Who has to count.
enum Counting {
    /// Nobody any more: the shared rates have.
    Done(Tally),
    /// This process; its share, in an outage.
    Here(Option<Share>),
}

/// Request and token rates.
#[derive(Debug)]
pub struct Rates {
    figures: Figures,
    requests: Meter,
    tokens: Meter,
    /// Counts for all replicas. The meters stand in while it cannot.
    shared: Option<Shared>,
}

impl Rates {
    /// Empty buckets of this process alone, with the configured figures.
    #[must_use]
    pub fn new(figures: Figures) -> Self {
        Self {
            figures,
            requests: Meter::new(Counted::Requests),
            tokens: Meter::new(Counted::Tokens),
            shared: None,
        }
    }

    /// Buckets that all replicas share. The slots of streams are shared as well; this process's own count stands in for them in an outage.
    #[must_use]
    pub fn shared(figures: Figures, redis: Redis, on_outage: OnOutage, tasks: Tasks) -> Self {
        Self::over(figures, Shared::new(redis, on_outage, tasks))
    }

    /// The configured figures.
    #[must_use]
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    pub(super) fn over(figures: Figures, shared: Shared) -> Self {
        Self {
            shared: Some(shared),
            ..Self::new(figures)
        }
    }

    /// Counts one request at every level; answers with the tightest level's figures.
    ///
    /// # Errors
    /// When a level is over its rate, or the shared rates cannot be asked.
    pub async fn request(&self, subject: &Subject) -> Result<RateHeaders, Refusal> {
        let one = NonZeroU32::MIN;
        let want = Want {
            what: Counted::Requests,
            cells: Some(one),
            lease: None,
        };
        let tally = match self.ask(subject, want).await? {
            Counting::Done(tally) => tally,
            Counting::Here(share) => self.spend(&self.requests, subject, one, share)?,
        };
        let nothing = Limited::new(Counted::Requests.as_str(), Level::Global, 0);
        tally.headers().ok_or(Refusal::Limited(nothing))
    }

    /// Whether any level or identifier limits tokens. Otherwise nobody needs to know how many a request may take.
    #[must_use]
    pub fn limits_tokens(&self) -> bool {
        self.figures.limits_tokens()
    }

    /// Counts `tokens` at every level that limits tokens and, for a stream, takes one of `slots`.
    ///
    /// # Errors
    /// When a level is over its rate or has no free slot, or the shared rates cannot be asked. Tokens stay counted when there is no slot.
    /// Without `wait` the request is larger than a whole minute's allowance and can never pass.
    pub async fn take(
        &self,
        slots: &Slots,
        subject: &Subject,
        tokens: u32,
        stream: bool,
    ) -> Result<Taken, Refusal> {
        let cells = NonZeroU32::new(tokens).filter(|_| self.limits_tokens());
        let shared = self.shared.as_ref().filter(|_| stream);
        let mut lease = shared.and_then(|shared| shared.lease(&self.figures, subject));
        let want = Want {
            what: Counted::Tokens,
            cells,
            lease: lease.as_mut(),
        };
        let (tally, slot, local) = match self.ask(subject, want).await? {
            Counting::Done(tally) => (tally, stream.then(|| slots.count(subject)), false),
            Counting::Here(share) => {
                let tally = match cells {
                    Some(cells) => self.spend(&self.tokens, subject, cells, share)?,
                    None => Tally::default(),
                };
                let take = || slots.take_share(subject, share);
                let slot = stream.then(take).transpose();
                let slot = slot.map_err(|limited| limited.not_before(tally.again()))?;
                (tally, slot, share.is_some())
            }
        };
        Ok(Taken {
            tokens: tally.headers(),
            slot: slot.map(|slot| slot.with(lease.map(Lease::hold))),
            local,
        })
    }

    /// Asks the shared rates, if there are any.
    async fn ask(&self, subject: &Subject, want: Want<'_>) -> Result<Counting, Refusal> {
        let Some(shared) = &self.shared else {
            return Ok(Counting::Here(None));
        };
        match shared.ask(&self.figures, subject, want).await {
            Ok(tally) => Ok(Counting::Done(tally?)),
            Err(_) => {
                let share = shared.share().ok_or(Refusal::Unavailable)?;
                Ok(Counting::Here(Some(share)))
            }
        }
    }

    /// Counts in this process.
    fn spend(
        &self,
        meter: &Meter,
        subject: &Subject,
        n: NonZeroU32,
        share: Option<Share>,
    ) -> Result<Tally, Limited> {
        let mut tally = Tally::default();
        for level in Level::NARROW_TO_WIDE {
            let id = subject.id(level);
            let Some(quota) = self.figures.quota(meter.what(), level, id) else {
                continue;
            };
            let state = match share {
                None => meter.check(level, id, quota, n),
                Some(_) if n > quota => {
                    Err(Limited::new(meter.what().as_str(), level, quota.get()))
                }
                // What is larger than the share alone takes all of it.
                Some(share) => {
                    let quota = share.of_quota(quota);
                    meter
                        .check(level, id, quota, n.min(quota))
                        .map(RateHeaders::local)
                }
            };
            let again = tally.again();
            let in_outage = |limited: Limited| limited.not_before(again).local(share.is_some());
            tally.add(state.map_err(in_outage)?);
        }
        Ok(tally)
    }

    /// Forgets identifiers whose bucket is full again.
    pub fn sweep(&self) {
        self.requests.sweep();
        self.tokens.sweep();
    }
}

#[cfg(test)]
impl Subject {
    pub(super) fn new(token: Uuid, agent: Uuid, org: Uuid) -> Self {
        Self { token, agent, org }
    }

    pub(super) fn with_token(self, token: Uuid) -> Self {
        Self { token, ..self }
    }
}

#[cfg(test)]
mod tests;
