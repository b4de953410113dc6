//! What replicas share, as the configuration asks for it: over Redis where there is one, else in this process.

use std::sync::Arc;

use crate::config::Config;
use crate::limits::{Figures, OnOutage, Rates};
use crate::memory::search::StandingIds;
use crate::request::resolution::directive::{CachedDirectives, Others};
use crate::session::SessionSecret;
use crate::store::Store;
use crate::store::shared::redis::announced::Announced;
use crate::store::shared::redis::directives::SharedDirectives;
use crate::store::shared::redis::hot::SharedHotSets;
use crate::store::shared::redis::session::RedisSessions;
use crate::store::shared::redis::{Redis, RedisReplies};
use crate::store::shared::{OwnReplies, Replies, SessionCache};
use crate::tasks::Tasks;
use crate::telemetry::Metrics;

use super::StartError;

/// The shared state of one application.
pub(super) struct Engines {
    /// The connection, where one is configured.
    pub(super) redis: Option<Redis>,
    /// Frozen sessions; nothing for the process's own.
    pub(super) sessions: Option<Arc<dyn SessionCache>>,
    /// Which memories stand highest.
    pub(super) hot: Option<Arc<dyn StandingIds>>,
    /// Answers of keyed chat requests.
    pub(super) replies: Arc<dyn Replies>,
    /// Directives, with what other replicas have read for when the store is away.
    pub(super) directives: Arc<CachedDirectives>,
    /// Request and token rates.
    pub(super) rates: Rates,
    /// The store, which announces what is written to it.
    pub(super) store: Arc<dyn Store>,
}

impl Engines {
    /// Prepares them. No server is waited for: one that is away is an outage like any other.
    pub(super) fn new(
        config: &Config,
        (secret, store): (&SessionSecret, &Arc<dyn Store>),
        metrics: &Metrics,
        tasks: &Tasks,
    ) -> Result<Self, StartError> {
        let directives = CachedDirectives::new(store.clone(), tasks.clone());
        let figures = Figures::new(&config.rate_limit);
        if config.redis.urls.is_empty() {
            return Ok(Self {
                redis: None,
                sessions: None,
                hot: None,
                replies: Arc::new(OwnReplies::default()),
                directives: Arc::new(directives),
                rates: Rates::new(figures),
                store: store.clone(),
            });
        }
        let redis = Redis::new(&config.redis, metrics.redis.clone(), tasks.clone())
            .map_err(|e| StartError(e.to_string()))?;
        let on_outage = OnOutage::of(&config.rate_limit, config.env);
        let sessions = RedisSessions::new(redis.clone(), &config.session, secret);
        Ok(Self {
            sessions: Some(Arc::new(sessions)),
            hot: Some(Arc::new(SharedHotSets::new(redis.clone(), secret))),
            replies: Arc::new(RedisReplies::new(redis.clone(), secret)),
            directives: Arc::new(directives.with(Others {
                shared: Arc::new(SharedDirectives::new(redis.clone(), secret)),
                feed: store.clone(),
            })),
            rates: Rates::shared(figures, redis.clone(), on_outage, tasks.clone()),
            store: if config.redis.pubsub {
                let announced = Announced::new(store.clone(), redis.clone(), tasks.clone());
                Arc::new(announced)
            } else {
                store.clone()
            },
            redis: Some(redis),
        })
    }
}
