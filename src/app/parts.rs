//! The parts of an application, each made from the configuration.

use std::collections::HashMap;
use std::sync::Arc;

use crate::auth::Verifier;
use crate::auth::jwt::{KeySetError, KeySetSource};
use crate::auth::pat::TokenKey;
use crate::config::Config;
use crate::memory::embedder::{self, Embedder};
use crate::memory::search::{
    CandidateStore, ColdBranch, HotBranch, HotSet, Index, IndexSettings, NearBranch, Spaces,
    Staged, StandingIds,
};
use crate::providers::{Client, HttpKeySet};
use crate::seams::{Clock, Entropy, EntropyError};
use crate::store::{Counted, Store};
use crate::tasks::Tasks;
use crate::telemetry::{Breaker, BreakerFigures, Metrics, Traces};
use crate::tokens::Counter;

use super::StartError;

/// Counts of message texts that are kept.
const COUNT_CACHE: u64 = 100_000;

/// The embedder that was given, else the configured one.
pub(super) fn embedding(
    given: Option<Arc<dyn Embedder>>,
    config: &Config,
    client: &Client,
    metrics: &Metrics,
) -> Result<Arc<dyn Embedder>, StartError> {
    let configured = || embedder::configured(&config.embedder, client).map_err(StartError);
    let embedder = given.map_or_else(configured, Ok)?;
    if let Some(figures) = embedder.breaker() {
        metrics.watch(Breaker::Embedder, figures.clone());
    }
    Ok(embedder)
}

pub(super) fn failed(error: impl std::fmt::Display) -> StartError {
    StartError(error.to_string())
}

/// What tells of the service, and the store, which counts what is asked of it.
type Signals = (Arc<Metrics>, Traces, Arc<dyn Store>);

/// The metrics, the traces on their way to a collector, and the store as one that counts. `breaker` is what those before its connections count.
pub(super) fn signals(
    config: &Config,
    clock: &Arc<dyn Clock>,
    store: Arc<dyn Store>,
    breaker: Option<BreakerFigures>,
) -> Result<Signals, StartError> {
    let metrics = Arc::new(Metrics::new());
    if let Some(figures) = breaker {
        metrics.watch(Breaker::Postgres, figures);
    }
    let traces = Traces::new(&config.telemetry, clock.clone(), metrics.clone());
    let store = Arc::new(Counted::new(store, metrics.store.clone()));
    Ok((metrics, traces.map_err(failed)?, store))
}

/// An index that does not know yet which partitions have all their vectors.
pub(super) fn index(
    embedder: &dyn Embedder,
    config: &Config,
    metrics: &Metrics,
    (store, clock, tasks): (&Arc<dyn Store>, &Arc<dyn Clock>, &Tasks),
) -> Arc<Index> {
    let model: Arc<str> = embedder.model().into();
    let settings = IndexSettings {
        spaces: Arc::new(Spaces::unknown(Arc::clone(&model))),
        // One connection stays for whoever does not wait for a load.
        loads: config.store.read_connections.saturating_sub(1),
        figures: metrics.index.clone(),
        ..IndexSettings::new(model, &config.memory)
    };
    Arc::new(Index::new(
        store.clone(),
        clock.clone(),
        tasks.clone(),
        settings,
    ))
}

/// Who is asked for memories.
pub(super) struct Branches {
    pub(super) hot: Arc<dyn HotBranch>,
    pub(super) cold: Arc<dyn ColdBranch>,
    pub(super) near: Arc<dyn NearBranch>,
}

impl Branches {
    /// The index alone, or with a store that searches what is not in it, and replicas that share its hot sets.
    pub(super) fn new(
        index: &Arc<Index>,
        store: Option<Arc<dyn CandidateStore>>,
        shared: Option<Arc<dyn StandingIds>>,
        config: &Config,
    ) -> Self {
        let Some(store) = store else {
            return Self {
                hot: Arc::new(HotSet::new(index.clone())),
                cold: index.clone(),
                near: index.clone(),
            };
        };
        let staged = Staged::new(index.clone(), store, &config.postgres);
        let staged = match shared {
            Some(with) => Arc::new(staged.sharing(with)),
            None => Arc::new(staged),
        };
        Self {
            hot: staged.clone(),
            cold: staged.clone(),
            near: staged,
        }
    }
}

/// A counter whose cache keys nobody can guess.
pub(super) fn counter(entropy: &dyn Entropy) -> Result<Counter, EntropyError> {
    let mut hash_key = [0; 32];
    entropy.fill(&mut hash_key)?;
    Ok(Counter::new(hash_key, COUNT_CACHE))
}

pub(super) fn verifier(
    config: &Config,
    client: &Client,
    store: &Arc<dyn Store>,
    key: &TokenKey,
    clock: &Arc<dyn Clock>,
) -> Result<Verifier, StartError> {
    let sources = key_sets(config, client)?;
    Verifier::new(
        store.clone(),
        key.clone(),
        &config.auth,
        clock.clone(),
        &sources,
    )
    .map_err(|e| StartError(e.to_string()))
}

/// The key sets of the configured issuers, by issuer.
fn key_sets(
    config: &Config,
    client: &Client,
) -> Result<HashMap<String, Arc<dyn KeySetSource>>, StartError> {
    let fetched = config
        .auth
        .issuers
        .iter()
        .filter_map(|i| i.jwks_url.as_deref().map(|url| (&i.issuer, url)));
    fetched
        .map(|(issuer, url)| {
            let set = HttpKeySet::new(client.clone(), url)
                .map_err(|e| StartError(format!("auth.issuers.jwks_url: {e}")))?;
            Ok((issuer.clone(), Arc::new(set) as Arc<dyn KeySetSource>))
        })
        .collect()
}

#[async_trait::async_trait]
impl KeySetSource for HttpKeySet {
    async fn fetch(&self) -> Result<bytes::Bytes, KeySetError> {
        self.get()
            .await
            .map_err(|e| KeySetError::Fetch(e.to_string()))
    }
}
