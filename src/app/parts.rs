//! The parts of an application, each made from the configuration.

use std::collections::HashMap;
use std::sync::Arc;

use crate::auth::Verifier;
use crate::auth::jwt::{KeySetError, KeySetSource};
use crate::auth::pat::TokenKey;
use crate::config::Config;
use crate::memory::embedder::{self, Embedder};
use crate::memory::search::{
    CandidateStore, ColdBranch, HotSet, Index, IndexSettings, Spaces, Staged,
};
use crate::policy::Policy;
use crate::providers::{Client, HttpKeySet, Registry};
use crate::seams::{Clock, Entropy, EntropyError};
use crate::store::Store;
use crate::tasks::Tasks;
use crate::telemetry::Metrics;
use crate::tokens::Counter;

use super::StartError;

/// Counts of message texts that are kept.
const COUNT_CACHE: u64 = 100_000;

pub(super) fn embedding(config: &Config, client: &Client) -> Result<Arc<dyn Embedder>, StartError> {
    embedder::configured(&config.embedder, client).map_err(StartError)
}

pub(super) fn failed(error: impl std::fmt::Display) -> StartError {
    StartError(error.to_string())
}

/// What a reload can change: policy, providers and models.
pub(super) fn rules(config: &Config) -> Result<(Policy, Registry), StartError> {
    let policy = Policy::new(config).map_err(|e| StartError(e.to_string()))?;
    let registry = Registry::new(config).map_err(|e| StartError(e.to_string()))?;
    Ok((policy, registry))
}

/// An index that does not know yet which partitions have all their vectors.
pub(super) fn index_settings(
    embedder: &dyn Embedder,
    config: &Config,
    metrics: &Metrics,
) -> IndexSettings {
    let model: Arc<str> = embedder.model().into();
    IndexSettings {
        spaces: Arc::new(Spaces::unknown(Arc::clone(&model))),
        // One connection stays for whoever does not wait for a load.
        loads: config.store.read_connections.saturating_sub(1),
        figures: metrics.index.clone(),
        ..IndexSettings::new(model, &config.memory)
    }
}

/// The index, and the hot sets of its partitions.
pub(super) fn searched(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    tasks: &Tasks,
    settings: IndexSettings,
) -> (Arc<Index>, Arc<HotSet>) {
    let index = Arc::new(Index::new(store, clock, tasks.clone(), settings));
    (index.clone(), Arc::new(HotSet::new(index)))
}

/// The cold branch: the index alone, or with a store that searches what is not in it.
pub(super) fn searching(
    index: &Arc<Index>,
    store: Option<Arc<dyn CandidateStore>>,
    config: &Config,
) -> Arc<dyn ColdBranch> {
    let staged = |store| Arc::new(Staged::new(index.clone(), store, &config.postgres));
    store.map_or_else(|| index.clone() as _, |store| staged(store) as _)
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
