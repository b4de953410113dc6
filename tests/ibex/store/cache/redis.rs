//! The contract over the cache that replicas share: each handle is a replica of its own.

use std::sync::Arc;

use ibex::config::SessionConfig;
use ibex::store::shared::SessionCache;
use ibex::store::shared::redis::session::RedisSessions;

use super::contract::{Caches, cache_contract};
use crate::redis::replica_at;
use crate::store::fixtures::lanes::secret;
use crate::support::services::{fresh_prefix, redis_url};

cache_contract!(Replicas);

/// Replicas whose keys begin alike.
struct Replicas(String);

impl Replicas {
    fn new() -> Self {
        Self(fresh_prefix())
    }
}

impl Caches for Replicas {
    fn open(&self) -> Arc<dyn SessionCache> {
        let redis = replica_at(redis_url(), &self.0);
        let settings = SessionConfig::default();
        Arc::new(RedisSessions::new(redis, &settings, &secret()))
    }
}
