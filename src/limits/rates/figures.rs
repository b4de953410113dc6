//! The configured figures of every level and identifier.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::ArcSwap;
use uuid::Uuid;

use crate::config::{LimitOverride, RateLimitConfig};

use super::{Counted, Level};

/// The configured figures: identifier, then level, then default. Copies share what [`Figures::replace`] puts in their place.
#[derive(Debug, Clone)]
pub struct Figures(Arc<ArcSwap<Read>>);

/// The figures as they were read.
#[derive(Debug)]
struct Read {
    config: RateLimitConfig,
    ids: HashMap<Uuid, LimitOverride>,
    limits_tokens: bool,
}

impl Figures {
    /// Reads the configuration. Keys of `ids` that are no UUIDs were refused by validation.
    #[must_use]
    pub fn new(config: &RateLimitConfig) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(Read::new(config))))
    }

    /// Other figures from now on. What was counted under a figure that changes is not carried over in this process; in Redis it is.
    pub fn replace(&self, config: &RateLimitConfig) {
        self.0.store(Arc::new(Read::new(config)));
    }

    /// The quota of `what`; none when it is not limited.
    pub(in crate::limits) fn quota(
        &self,
        what: Counted,
        level: Level,
        id: Uuid,
    ) -> Option<NonZeroU32> {
        let read = self.0.load();
        match what {
            Counted::Requests => read.rpm(level, id),
            Counted::Tokens => read.tpm(level, id),
        }
    }

    pub(in crate::limits) fn limits_tokens(&self) -> bool {
        self.0.load().limits_tokens
    }

    pub(in crate::limits) fn streams(&self, level: Level, id: Uuid) -> Option<u32> {
        self.0.load().streams(level, id)
    }
}

impl Read {
    fn new(config: &RateLimitConfig) -> Self {
        let levels = [config.global, config.org, config.agent, config.token];
        let mut overrides = levels.iter().chain(config.ids.values());
        let limits_tokens = config.default_tpm.is_some() || overrides.any(|o| o.tpm.is_some());
        let ids = config
            .ids
            .iter()
            .filter_map(|(id, figures)| Some((id.parse().ok()?, *figures)))
            .collect();
        Self {
            config: config.clone(),
            ids,
            limits_tokens,
        }
    }

    fn level(&self, level: Level) -> &LimitOverride {
        match level {
            Level::Token => &self.config.token,
            Level::Agent => &self.config.agent,
            Level::Org => &self.config.org,
            Level::Global => &self.config.global,
        }
    }

    fn rpm(&self, level: Level, id: Uuid) -> Option<NonZeroU32> {
        let own = self.ids.get(&id).and_then(|o| o.rpm);
        NonZeroU32::new(
            own.or(self.level(level).rpm)
                .unwrap_or(self.config.default_rpm),
        )
    }

    fn tpm(&self, level: Level, id: Uuid) -> Option<NonZeroU32> {
        let own = self.ids.get(&id).and_then(|o| o.tpm);
        own.or(self.level(level).tpm)
            .or(self.config.default_tpm)
            .and_then(NonZeroU32::new)
    }

    fn streams(&self, level: Level, id: Uuid) -> Option<u32> {
        let own = self.ids.get(&id).and_then(|o| o.streams);
        own.or(self.level(level).streams)
            .or(self.config.default_streams)
    }
}
