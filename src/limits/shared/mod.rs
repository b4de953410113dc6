//! Rates and stream slots that all replicas share, in Redis. The scripts decide exactly as the meters of one process do.
//!
//! A call asks all levels at once. In a cluster the keys of an organisation lie in one slot and that of the whole service in another, so two
//! scripts run one after the other: the organisation's first. What it has counted stays counted when the service's refuses, like any narrow
//! level; a slot it has taken is given back.
//!
//! A stream's slot is a lease: it is renewed while the stream is open, given back when it ends, and runs out by itself when its replica dies.

mod lease;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::config::{Environment, RateLimitConfig, RedisOutage};
use crate::store::shared::redis::keys::{Counted, Key};
use crate::store::shared::redis::{Outage, Redis, Script};
use crate::tasks::Tasks;
use crate::telemetry::RedisCall;

use super::rates::{Figures, Level, Limited, RateHeaders, Subject, Tally};

pub(super) use lease::Lease;

/// For how long a lease holds without being renewed.
const LIFE: Duration = Duration::from_secs(30);

/// What a replica does while the shared rates cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnOutage {
    /// No request goes on uncounted.
    Refuse,
    /// It counts its share of every figure by itself.
    Local {
        /// The replicas that do so.
        replicas: NonZeroU32,
    },
}

impl OnOutage {
    /// What the configuration says; by default local in development only.
    #[must_use]
    pub fn of(config: &RateLimitConfig, environment: Environment) -> Self {
        let outage = config.redis_outage.unwrap_or(match environment {
            Environment::Development => RedisOutage::Local,
            Environment::Staging | Environment::Production => RedisOutage::Refuse,
        });
        match outage {
            RedisOutage::Refuse => Self::Refuse,
            RedisOutage::Local => Self::Local {
                replicas: NonZeroU32::new(config.replicas).unwrap_or(NonZeroU32::MIN),
            },
        }
    }
}

/// The part of every figure that one replica allows by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share(NonZeroU32);

impl Share {
    /// At least 1, so that no replica refuses everything.
    pub(super) fn of(self, figure: u32) -> u32 {
        figure.div_ceil(self.0.get()).max(1)
    }

    /// The part of a quota.
    pub(super) fn of_quota(self, quota: NonZeroU32) -> NonZeroU32 {
        NonZeroU32::new(self.of(quota.get())).unwrap_or(NonZeroU32::MIN)
    }
}

/// The two scripts.
#[derive(Debug)]
struct Scripts {
    admit: Script,
    lease: Script,
}

impl Scripts {
    /// `edit` stands between the texts and the server: tests set their clock with it.
    fn new(edit: impl Fn(&str) -> String) -> Self {
        Self {
            admit: Script::new(&edit(include_str!("admit.lua"))),
            lease: Script::new(&edit(include_str!("lease.lua"))),
        }
    }
}

/// Counts for all replicas.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    redis: Redis,
    on_outage: OnOutage,
    tasks: Tasks,
    scripts: Arc<Scripts>,
    /// For how long a lease holds without being renewed.
    life: Duration,
}

/// What a request wants to have counted.
pub(super) struct Want<'a> {
    /// Of what.
    pub(super) what: Counted,
    /// How many; nothing when only a slot is wanted.
    pub(super) cells: Option<NonZeroU32>,
    /// The slot.
    pub(super) lease: Option<&'a mut Lease>,
}

impl Shared {
    pub(super) fn new(redis: Redis, on_outage: OnOutage, tasks: Tasks) -> Self {
        Self {
            redis,
            on_outage,
            tasks,
            scripts: Arc::new(Scripts::new(str::to_owned)),
            life: LIFE,
        }
    }

    /// The levels of each script that a call runs.
    fn scripts_of_levels(&self) -> &'static [&'static [Level]] {
        const NARROW: &[Level] = &[Level::Token, Level::Agent, Level::Org];
        if self.redis.is_cluster() {
            &[NARROW, &[Level::Global]]
        } else {
            &[&Level::NARROW_TO_WIDE]
        }
    }

    /// Counts, and takes the slot. The outer error says that nobody knows.
    pub(super) async fn ask(
        &self,
        figures: &Figures,
        subject: &Subject,
        mut want: Want<'_>,
    ) -> Result<Result<Tally, Limited>, Outage> {
        let mut tally = Tally::default();
        let scripts = self.scripts_of_levels();
        for levels in scripts {
            let call = Call::new(&self.redis, figures, subject, &want, levels);
            if call.keys.is_empty() {
                continue;
            }
            let args = call.args(&want, self.life);
            let new = want.lease.as_mut().is_some_and(|lease| lease.asked_for());
            let script = &self.scripts.admit;
            let said = self.redis.script(RedisCall::Rate, script, &call.keys, args);
            let said: Result<Vec<i64>, Outage> = said.await;
            if let (true, Err(Outage::Resting), Some(lease)) = (new, &said, &mut want.lease) {
                lease.refused();
            }
            let said = said?;
            if let Some(limited) = call.read(&said, &want, &mut tally)? {
                if let ([_], Some(lease)) = (scripts, want.lease) {
                    lease.refused();
                }
                return Ok(Err(limited.not_before(tally.again())));
            }
        }
        Ok(Ok(tally))
    }

    /// The slot of a stream to ask for; nothing when no level limits streams.
    pub(super) fn lease(&self, figures: &Figures, subject: &Subject) -> Option<Lease> {
        let keys = |levels: &&[Level]| {
            let limited = |level: &&Level| figures.streams(**level, subject.id(**level)).is_some();
            let key = |level: &Level| streams_key(&self.redis, subject, *level);
            let keys = levels.iter().filter(limited).map(key);
            keys.collect::<Vec<_>>()
        };
        let scripts = self.scripts_of_levels().iter().map(keys);
        let scripts: Vec<Vec<Key>> = scripts.filter(|keys| !keys.is_empty()).collect();
        (!scripts.is_empty()).then(|| Lease::new(self.clone(), scripts))
    }

    /// What to count by oneself in an outage.
    pub(super) fn share(&self) -> Option<Share> {
        match self.on_outage {
            OnOutage::Refuse => None,
            OnOutage::Local { replicas } => {
                self.redis.figures().counted_locally();
                Some(Share(replicas))
            }
        }
    }
}

fn streams_key(redis: &Redis, subject: &Subject, level: Level) -> Key {
    redis.keys().lease(level, subject.org(), subject.id(level))
}

/// One run of the script.
struct Call {
    keys: Vec<Key>,
    quotas: SmallVec<[(Level, NonZeroU32); 4]>,
    /// The most streams of each level.
    streams: SmallVec<[(Level, u32); 4]>,
}

impl Call {
    fn new(
        redis: &Redis,
        figures: &Figures,
        subject: &Subject,
        want: &Want<'_>,
        levels: &[Level],
    ) -> Self {
        let mut this = Self {
            keys: Vec::with_capacity(2 * levels.len()),
            quotas: SmallVec::new(),
            streams: SmallVec::new(),
        };
        let levels = || levels.iter().map(|level| (*level, subject.id(*level)));
        for (level, id) in levels().filter(|_| want.cells.is_some()) {
            if let Some(quota) = figures.quota(want.what, level, id) {
                this.quotas.push((level, quota));
                let keys = redis.keys();
                this.keys
                    .push(keys.rate(level, subject.org(), id, want.what));
            }
        }
        for (level, id) in levels().filter(|_| want.lease.is_some()) {
            if let Some(limit) = figures.streams(level, id) {
                this.streams.push((level, limit));
                this.keys.push(streams_key(redis, subject, level));
            }
        }
        this
    }

    fn args(&self, want: &Want<'_>, life: Duration) -> Vec<String> {
        let cells = want.cells.map_or(0, NonZeroU32::get);
        let mut args = vec![self.quotas.len().to_string(), cells.to_string()];
        args.extend(self.quotas.iter().map(|(_, quota)| quota.to_string()));
        args.extend(self.streams.iter().map(|(_, limit)| limit.to_string()));
        if let Some(lease) = &want.lease {
            args.extend([lease.name(), life.as_millis().to_string()]);
        }
        args
    }

    /// Reads the answer: the level that refused, if one did, and into `tally` those that have counted.
    fn read(
        &self,
        said: &[i64],
        want: &Want<'_>,
        tally: &mut Tally,
    ) -> Result<Option<Limited>, Outage> {
        let (verdict, said) = said.split_first().ok_or(Outage::Rejected)?;
        let refused_at = usize::try_from(*verdict).unwrap_or(0);
        let cells = want.cells.unwrap_or(NonZeroU32::MIN);
        for (n, (level, quota)) in self.quotas.iter().enumerate() {
            let value = *said.get(n).ok_or(Outage::Rejected)?;
            if n + 1 == refused_at {
                return Ok(Some(Limited {
                    wait: u64::try_from(value).ok().map(Duration::from_micros),
                    ..Limited::new(want.what.as_str(), *level, quota.get())
                }));
            }
            let remaining = u32::try_from(value).map_err(|_| Outage::Rejected)?;
            tally.add(RateHeaders::counted(*quota, cells, remaining));
        }
        let full_at = usize::try_from(verdict.unsigned_abs()).unwrap_or(0);
        let full = full_at.checked_sub(1).and_then(|n| self.streams.get(n));
        match full {
            Some((level, limit)) => Ok(Some(Limited::streams(*level, *limit))),
            None if *verdict == 0 => Ok(None),
            None => Err(Outage::Rejected),
        }
    }
}

#[cfg(test)]
mod tests;
