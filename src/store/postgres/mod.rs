//! The engine that replicas share: PostgreSQL with pgvector.
//!
//! ```text
//! connect      settings of every connection; what is checked before the store is used
//! migrate      the schema in numbered steps, the role and its rights
//! links        the pool: every wait has an end                  tx           transactions of one organisation
//! identity     directives     memories     refinery     sessions     feed       one trait each
//! fences       what requests ask before a handoff               uses         use counts, written behind
//! search       candidates for the cold branch                   vectors      indexes over vectors of a dimension
//! transfer     the whole of it, out and in
//! rows         columns to values                                error        engine errors to store errors
//! ```
//!
//! Rows of tenants are kept apart twice: every statement names its organisation, and row-level security shows a transaction the rows of
//! the organisation that it was begun for and no others (`migrations/0004_row_security.sql`). What a request asks on its way is one
//! round trip: a function that sets the organisation and reads. Everything else is a transaction (`tx`).
//!
//! A forgotten memory's text is overwritten by none in the table: the engine keeps the old version of the row until it is vacuumed, and
//! in its log as long as it keeps that.

mod connect;
mod migrate;
mod links;
mod tx;
mod rows;
mod identity;
mod directives;
mod memories;
mod refinery;
mod fences;
mod uses;
mod sessions;
mod feed;
mod search;
mod vectors;
mod transfer;
mod error;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

pub use error::OpenError;
pub use migrate::{MigrationReport, migrate};
pub use search::Candidates;
pub use vectors::ensure_vector_index;

use futures_util::future::join_all;

use super::{IdentityStore, StoreError};
use crate::config::PostgresConfig;
use crate::ids::{AgentId, OrgId};
use crate::memory::PartitionKey;
use crate::session::SessionKey;
use crate::tasks::Tasks;
use crate::telemetry::BreakerFigures;
use error::Fault;
use links::{Link, Links};
use tx::Tx;

/// What a forget waits longer than an answer may be old, for the moment between an answer and its use.
const HANDOFF: Duration = Duration::from_millis(5);

/// The first round opens the connections, which may take longer than such a question has; the next ones find them.
const WARM_ROUNDS: usize = 3;

/// How long background work is waited for when the store is closed.
const DRAIN: Duration = Duration::from_secs(5);

/// The shared store. Cheap to share behind an `Arc`; it must live inside a Tokio runtime.
pub struct PostgresStore {
    links: Links,
    /// Connections of their own for what requests ask before a handoff: a long search must not stand in its way.
    fences: Links,
    turns: tx::Turns,
    fence_timeout: Duration,
    large: search::Large,
    exact_rows: usize,
    ef_search: u32,
    /// The newest revision that [`poll`](super::ChangeFeed::poll) has told of.
    told: AtomicI64,
    uses: Arc<uses::Uses>,
    run: Arc<sessions::Run>,
    tasks: Tasks,
    breaker: BreakerFigures,
}

impl PostgresStore {
    /// Looks at the database and makes a store of it. Later outages are errors of single calls: connections are opened when they are
    /// needed, and every call ends within `acquire_timeout_ms` and `statement_timeout_ms`.
    ///
    /// # Errors
    /// When the database cannot be reached, its schema is not this program's, or the role would not be bound by row-level security.
    pub async fn connect(config: &PostgresConfig) -> Result<Self, OpenError> {
        let settings = connect::Settings::of(config)?;
        let newest = settings.check().await?;
        let (tasks, breaker) = (Tasks::new(), BreakerFigures::default());
        let pool = |connections| {
            let options = settings.options.clone();
            Links::new(
                options,
                settings.setup(),
                connections,
                settings.bounds,
                (tasks.clone(), breaker.clone()),
            )
        };
        let for_fences = (config.max_connections / 4).clamp(1, 4);
        let links = pool(config.max_connections.saturating_sub(for_fences).max(1));
        let store = Self {
            fences: pool(for_fences),
            turns: tx::Turns::default(),
            fence_timeout: Duration::from_millis(config.fence_timeout_ms),
            large: search::large(),
            exact_rows: config.exact_rows,
            ef_search: config.ef_search,
            told: AtomicI64::new(newest),
            uses: Arc::new(uses::Uses::new(links.clone(), tasks.clone())),
            run: Arc::new(sessions::Run::new(settings)),
            links,
            tasks,
            breaker,
        };
        store.warm(for_fences).await;
        Ok(store)
    }

    /// Opens connections and has the engine plan what every request asks, so that the first requests do not have to wait for it within their
    /// few milliseconds. Nothing rests on it.
    async fn warm(&self, connections: u32) {
        let nobody = PartitionKey {
            org: OrgId::from_bytes([0; 16]),
            agent: AgentId::from_bytes([0; 16]),
            user: None,
        };
        let session = "warm".parse().ok().map(|id| SessionKey {
            org: nobody.org,
            agent: nobody.agent,
            user: None,
            id,
        });
        let ask = async || {
            let _fence = self.newest_fence(std::slice::from_ref(&nobody)).await;
            if let Some(session) = &session {
                let _known = self.has_session(session).await;
            }
            let _org = IdentityStore::org(self, nobody.org).await;
        };
        for _ in 0..WARM_ROUNDS {
            // As many at once as there are connections for the last look before a handoff.
            join_all((0..connections).map(|_| ask())).await;
        }
    }

    /// What the breakers before its connections count.
    #[must_use]
    pub fn breaker(&self) -> &BreakerFigures {
        &self.breaker
    }

    /// Stores the use counts that wait, and closes the connections; whatever comes later is refused.
    ///
    /// # Errors
    /// When a connection could not be closed in time.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.uses.close().await;
        self.run.release().await;
        let (links, fences) = tokio::join!(self.links.close(), self.fences.close());
        self.tasks.drain(DRAIN).await;
        links.and(fences)
    }

    /// A transaction that reads one state of an organisation.
    async fn snapshot(&self, org: OrgId) -> Result<Link, Fault> {
        tx::snapshot(&self.links, org).await
    }

    /// A transaction that writes.
    async fn tx(&self, org: OrgId) -> Result<Tx, Fault> {
        Tx::begin(&self.links, &self.turns, org).await
    }

    /// Waits until no answer of [`forget_fence`](super::MemoryStore::forget_fence) that was asked before now can be in use any more: such
    /// an answer is younger than `fence_timeout_ms` or was thrown away, here and at every other replica with the same setting. To be
    /// called after the commit of what takes a memory out of circulation.
    async fn outlast_answers(&self) {
        tokio::time::sleep(self.fence_timeout + HANDOFF).await;
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}
