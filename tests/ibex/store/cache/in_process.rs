//! The contract over the cache of one process.

use std::sync::Arc;

use ibex::config::SessionConfig;
use ibex::store::shared::{InProcess, SessionCache};

use super::contract::{Caches, cache_contract};

cache_contract!(OneProcess);

/// A process.
struct OneProcess(Arc<InProcess>);

impl OneProcess {
    fn new() -> Self {
        Self(Arc::new(InProcess::new(&SessionConfig::default())))
    }
}

impl Caches for OneProcess {
    fn open(&self) -> Arc<dyn SessionCache> {
        Arc::clone(&self.0) as Arc<dyn SessionCache>
    }
}
