//! What sessions stand on: the cache of what is frozen, the working states, and the records on their way to the store.

pub(in crate::app) mod records;
pub(in crate::app) mod states;

use std::sync::Arc;

use crate::config::SessionConfig;
use crate::request::context::sticky::{Flights, Renderings};
use crate::session::SessionSecret;
use crate::store::Store;
use crate::store::keys::ServerKeys;
use crate::store::shared::{InProcess, SessionCache};
use crate::telemetry::Metrics;

use records::Records;
use states::States;

/// The shared handles of sessions.
#[derive(Debug)]
pub struct Sessions {
    /// What is frozen.
    pub cache: Arc<dyn SessionCache>,
    /// The cache of this process, when it is the one in use: it has to be swept.
    pub in_process: Option<Arc<InProcess>>,
    /// Names, nonces and hashes.
    pub secret: SessionSecret,
    /// Single flight.
    pub flights: Flights,
    /// Text that sessions share.
    pub renderings: Renderings,
    /// Working states.
    pub states: States,
    /// Records on their way.
    pub records: Records,
}

impl Sessions {
    /// Sessions over `store`; with another cache than the process's own where one is given.
    pub(super) fn new(
        settings: &SessionConfig,
        keys: &ServerKeys,
        store: Arc<dyn Store>,
        other: Option<Arc<dyn SessionCache>>,
    ) -> Self {
        let in_process = other.is_none().then(|| Arc::new(InProcess::new(settings)));
        let own = || {
            in_process
                .clone()
                .map(|cache| cache as Arc<dyn SessionCache>)
        };
        let cache = other.or_else(own);
        Self {
            cache: cache.unwrap_or_else(|| Arc::new(InProcess::new(settings))),
            in_process,
            secret: SessionSecret::new(keys.session.as_bytes()),
            flights: Flights::default(),
            renderings: Renderings::default(),
            states: States::new(Arc::clone(&store)),
            records: Records::new(store),
        }
    }
}

impl Sessions {
    /// Drops every rendered text that no lane vouches for: a memory was forgotten, and its text must not stay.
    pub fn forget_texts(&self) {
        self.renderings.forget();
        self.cache.forget_texts();
    }

    /// Drops what is idle, and tells the metrics how much is held.
    pub(super) fn sweep(&self, metrics: &Metrics) {
        if let Some(cache) = &self.in_process {
            let (lanes, bytes) = cache.sweep();
            metrics.sessions_held(lanes, bytes);
        }
        metrics.session_records_lost(self.records.lost());
    }
}
