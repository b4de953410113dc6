//! The application: every shared handle, built once from the configuration; cheap to clone.

mod engines;
mod parts;
mod feed;
mod figures;
mod reembed;
mod retire;
mod rules;
mod sessions;
mod uses;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::auth::Verifier;
use crate::auth::pat::TokenKey;
use crate::config::Config;
use crate::console::{self, Console};
use crate::limits::{InFlight, Rates, Slots};
use crate::memory::capture::{self, Capture};
use crate::memory::embedder::Embedder;
use crate::memory::search::{CandidateStore, ColdBranch, HotBranch, Index, NearBranch};
use crate::memory::write::Turns;
use crate::memory::write::idempotency::Claims;
use crate::providers::{Client, client};
use crate::request::resolution::directive::{CachedDirectives, DirectiveBranch};
use crate::seams::{Clock, Entropy, SystemClock, SystemEntropy};
use crate::session::SessionSecret;
use crate::store::Store;
use crate::store::keys::ServerKeys;
use crate::store::shared::redis::Redis;
use crate::store::shared::redis::announce::listen;
use crate::store::shared::{Replies, SessionCache};
use crate::tasks::Tasks;
use crate::telemetry::otlp::export;
use crate::telemetry::{BreakerFigures, Metrics, Traces};
use crate::tokens::{Counter, Estimator};

use engines::Engines;
use parts::{Branches, counter, embedding, failed, index, signals, verifier};
use rules::need_restart;
pub use rules::{Configuration, Rules};

pub use sessions::{
    Sessions,
    records::Records,
    states::{LatestState, States},
};
pub use uses::Uses;

/// How far the process is on its way out.
#[derive(Debug, Default)]
struct Leaving {
    /// No new work is wanted.
    draining: AtomicBool,
    /// What is still open is cut.
    cut: AtomicBool,
}

/// The application could not be built.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

/// Everything a handler may need.
#[derive(Debug, Clone)]
pub struct App(Arc<Shared>);

/// The shared handles.
pub struct Shared {
    /// The configuration as resolved at start.
    pub config: Config,
    /// Time of day.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Everything durable.
    pub store: Arc<dyn Store>,
    /// Credentials and agents.
    pub verifier: Verifier,
    /// The key of token digests.
    pub token_key: TokenKey,
    /// The directive branch.
    pub directives: Arc<dyn DirectiveBranch>,
    /// The cache behind it.
    pub cached_directives: Arc<CachedDirectives>,
    /// The hot branch.
    pub hot: Arc<dyn HotBranch>,
    /// The cold branch.
    pub cold: Arc<dyn ColdBranch>,
    /// The index behind the cold branch.
    pub index: Arc<Index>,
    /// What is alike to a new memory.
    pub near: Arc<dyn NearBranch>,
    /// Text to vector.
    pub embedder: Arc<dyn Embedder>,
    /// Tokens.
    pub counter: Counter,
    /// Policy, providers and models in force.
    pub rules: ArcSwap<Rules>,
    /// The HTTP client of the provider side.
    pub client: Client,
    /// Request and token rates.
    pub rates: Rates,
    /// Open streams.
    pub slots: Slots,
    /// Bytes of request bodies.
    pub inflight: InFlight,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Traced requests, on their way to a collector.
    pub traces: Traces,
    /// What the console shows.
    pub console: Console,
    /// Background work.
    pub tasks: Tasks,
    /// Uses of memories, on their way to the store.
    pub uses: Uses,
    /// Frozen sessions.
    pub sessions: Sessions,
    /// Turns that become memory.
    pub capture: Capture,
    /// What replicas share, where there is one.
    pub redis: Option<Redis>,
    /// Answers of keyed chat requests.
    pub replies: Arc<dyn Replies>,
    /// Keyed writes that are under way.
    pub claims: Claims,
    /// Writes that state something about the same.
    pub turns: Turns,

    /// What counted tokens come to at each model.
    pub estimator: Estimator,
    feed: feed::Progress,
    leaving: Leaving,
    configuration: AtomicU8,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// What an application stands on, and what a test may replace.
pub struct Seams {
    /// Time of day.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Everything durable.
    pub store: Arc<dyn Store>,
    /// The store as one that searches by itself.
    pub candidates: Option<Arc<dyn CandidateStore>>,
    /// The server's keys.
    pub keys: ServerKeys,
    /// Another directive branch than the store's.
    pub directives: Option<Arc<dyn DirectiveBranch>>,
    /// Another hot branch than the hot set.
    pub hot: Option<Arc<dyn HotBranch>>,
    /// Another cold branch than the index.
    pub cold: Option<Arc<dyn ColdBranch>>,
    /// Another embedder than the configured one.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// Another session cache than the process's own.
    pub sessions: Option<Arc<dyn SessionCache>>,
    /// What the breakers before the store's connections count, if it has any.
    pub breaker: Option<BreakerFigures>,
}

impl std::fmt::Debug for Seams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seams").finish_non_exhaustive()
    }
}

impl Seams {
    /// The system's clock and randomness over `store`.
    #[must_use]
    pub fn over(store: Arc<dyn Store>, keys: ServerKeys) -> Self {
        Self {
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            store,
            candidates: None,
            keys,
            directives: None,
            hot: None,
            cold: None,
            embedder: None,
            sessions: None,
            breaker: None,
        }
    }
}

impl App {
    /// Builds the application.
    ///
    /// # Errors
    /// When a part cannot be built from the configuration; the text names its key.
    pub fn build(config: Config, seams: Seams) -> Result<Self, StartError> {
        let Seams {
            clock,
            entropy,
            store,
            candidates,
            keys,
            directives,
            hot,
            cold,
            embedder,
            sessions,
            breaker,
        } = seams;
        let (tasks, secret) = (Tasks::new(), SessionSecret::new(keys.session.as_bytes()));
        let (metrics, traces, store) = signals(&config, &clock, store, breaker)?;
        let client = client(&config.upstream).map_err(failed)?;
        let token_key = TokenKey::new(keys.token_digest.as_bytes()).map_err(failed)?;
        let verifier = verifier(&config, &client, &store, &token_key, &clock)?;
        let embedder = embedding(embedder, &config, &client, &metrics)?;
        let index = index(&*embedder, &config, &metrics, (&store, &clock, &tasks));
        let shared = Engines::new(&config, (&secret, &store), &metrics, &tasks)?;
        let branches = Branches::new(&index, candidates, shared.hot, &config);
        let other = sessions.or(shared.sessions);
        let sessions = Sessions::new(&config.session, secret, store.clone(), other);
        Ok(Self(Arc::new(Shared {
            directives: directives.unwrap_or_else(|| shared.directives.clone()),
            cached_directives: shared.directives,
            hot: hot.unwrap_or(branches.hot),
            cold: cold.unwrap_or(branches.cold),
            near: branches.near,
            uses: Uses::new(store.clone(), index.clone(), clock.clone()),
            counter: counter(&*entropy).map_err(failed)?,
            rules: ArcSwap::from_pointee(Rules::new(&config, &metrics, 0)?),
            slots: Slots::new(shared.rates.figures().clone()),
            rates: shared.rates,
            inflight: InFlight::new(&config.server),
            metrics,
            redis: shared.redis,
            replies: shared.replies,
            claims: Claims::default(),
            turns: Turns::default(),
            capture: Capture::new(&config.capture),
            console: Console::new(&config.console, config.env),
            estimator: Estimator::new(),
            feed: feed::Progress::default(),
            traces,
            leaving: Leaving::default(),
            configuration: AtomicU8::default(),
            sessions,
            config,
            clock,
            entropy,
            store: shared.store,
            verifier,
            token_key,
            index,
            embedder,
            client,
            tasks,
        })))
    }

    /// Starts the background work: the change feed, the sweeps, the use counts, the vocabularies, vectors that are missing.
    pub fn start(&self) {
        self.tasks.spawn(feed::follow(self.clone()));
        let (traces, client) = (self.traces.clone(), self.client.clone());
        self.tasks.spawn(export(traces, client, self.tasks.clone()));
        self.listen();
        self.tasks.spawn(sweep(self.clone()));
        self.tasks.spawn(uses::flush(self.clone()));
        self.tasks.spawn(sessions::records::write(self.clone()));
        self.tasks.spawn(retire::retire(self.clone()));
        for _ in 0..self.config.capture.workers {
            self.tasks.spawn(capture::work(self.clone()));
        }
        self.tasks.spawn(reembed::follow(self.clone()));
        self.tasks.spawn(console::sample(self.clone()));
        let counter = self.counter.clone();
        // Hundreds of milliseconds of work: on a thread of its own, so that the first requests are not behind it.
        let warming = tokio::task::spawn_blocking(move || counter.warm());
        self.tasks.spawn(async move {
            if warming.await.is_err() {
                tracing::error!("the token vocabularies could not be loaded");
            }
        });
    }

    /// Hears of changes as other replicas make them, where that is wanted.
    fn listen(&self) {
        let Some(redis) = self.redis.clone().filter(|_| self.config.redis.pubsub) else {
            return;
        };
        let app = self.clone();
        let heard = move |_| app.read_changes();
        self.tasks.spawn(listen(redis, self.tasks.clone(), heard));
    }

    /// Takes what can change while the process runs from a new configuration, all or nothing; requests under way keep what they began
    /// with. Answers with the keys that have changed and need a restart.
    ///
    /// # Errors
    /// When the new configuration cannot be used; the old one stays.
    pub fn reload(&self, config: &Config) -> Result<BTreeSet<String>, StartError> {
        let rules = Rules::new(config, &self.metrics, self.rules.load().generation + 1)?;
        self.rules.store(Arc::new(rules));
        self.rates.figures().replace(&config.rate_limit);
        let left = need_restart(&self.config, config);
        self.set_configuration(if left.is_empty() {
            Configuration::Current
        } else {
            Configuration::NeedsRestart
        });
        Ok(left)
    }

    /// Says how the configuration in force stands to the one that was read last.
    pub fn set_configuration(&self, standing: Configuration) {
        self.configuration.store(standing as u8, Ordering::Relaxed);
    }

    /// How it stands.
    #[must_use]
    pub fn configuration(&self) -> Configuration {
        Configuration::from(self.configuration.load(Ordering::Relaxed))
    }

    /// The store's revision up to which the index and the other caches know of every change.
    #[must_use]
    pub fn applied(&self) -> i64 {
        self.feed.applied.load(Ordering::Acquire)
    }

    /// Has the change feed read before its next poll is due: somebody has said that there is something in it.
    pub fn read_changes(&self) {
        self.feed.announced.notify_one();
    }

    /// Says that no new work is wanted: `/ready` answers 503 from now on.
    pub fn set_draining(&self) {
        self.leaving.draining.store(true, Ordering::Relaxed);
    }

    /// Says that what is still open is cut now.
    pub fn set_cut(&self) {
        self.leaving.cut.store(true, Ordering::Relaxed);
    }

    /// Whether open answers are being cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.leaving.cut.load(Ordering::Relaxed)
    }

    /// Whether the process is on its way out.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.leaving.draining.load(Ordering::Relaxed)
    }
}

/// How often idle limiter entries are dropped.
const SWEEP: Duration = Duration::from_secs(30);

async fn sweep(app: App) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(SWEEP) => {}
            () = app.tasks.stopping() => return,
        }
        app.rates.sweep();
        app.inflight.sweep();
        app.sessions.sweep(&app.metrics);
    }
}
