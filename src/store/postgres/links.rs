//! Connections: a pool whose every wait has an end.
//!
//! The pool itself bounds nothing but the wait for a connection. So each statement runs against the deadline of its [`Link`], and a
//! connection that missed one, or whose caller went away in the middle of a statement, is not given back as it is: it is rolled back
//! within [`RECOVERY`], or closed. After a lost connection the idle ones are asked whether they still live, so that a restarted server
//! costs one failure and not one a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Postgres};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::Fault;
use super::rows::Statement;
use crate::breaker::{Breaker, Rests, Turned};
use crate::store::StoreError;
use crate::tasks::Tasks;
use crate::telemetry::BreakerFigures;

/// How long a connection may take to show that it is of use.
const RECOVERY: Duration = Duration::from_secs(1);
/// What a client waits longer than the server is told to, so that the server's own answer comes first.
const GRACE: Duration = Duration::from_millis(250);

/// Times that a call may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Opening a connection.
    pub(super) connect: Duration,
    /// Waiting for one.
    pub(super) acquire: Duration,
    /// Everything that is done with it.
    pub(super) statement: Duration,
}

/// Connections for one kind of work; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Links {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pool: PgPool,
    bounds: Bounds,
    tasks: Tasks,
    sweeping: AtomicBool,
    breaker: Breaker,
}

impl Links {
    /// A pool that connects when it is asked to. `setup` is run on each new connection.
    pub(super) fn new(
        options: PgConnectOptions,
        setup: Arc<str>,
        connections: u32,
        bounds: Bounds,
        (tasks, figures): (Tasks, BreakerFigures),
    ) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .min_connections(1)
            // To open one costs more than a last look before a handoff may: those that are open stay.
            .idle_timeout(None)
            .max_lifetime(None)
            // Counted from the first wait on, so whoever came late would be broken off in the middle of a login.
            .acquire_timeout(bounds.acquire + bounds.connect)
            // It would cost a round trip; a dead connection is found out by its first statement.
            .test_before_acquire(false)
            .after_connect(move |conn, _| {
                let setup = Arc::clone(&setup);
                Box::pin(async move {
                    conn.execute(sqlx::raw_sql(AssertSqlSafe(setup))).await?;
                    Ok(())
                })
            })
            .connect_lazy_with(options);
        Self {
            shared: Arc::new(Shared {
                pool,
                bounds,
                tasks,
                sweeping: AtomicBool::new(false),
                breaker: Breaker::new(Rests::STORE, figures),
            }),
        }
    }

    /// The end of a call that begins now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.shared.bounds.acquire + self.shared.bounds.statement + GRACE
    }

    /// A connection, and the time for what is to be done with it.
    pub(super) async fn link(&self) -> Result<Link, Fault> {
        self.link_by(self.deadline()).await
    }

    /// One for a call that has to end by then.
    async fn link_by(&self, until: Instant) -> Result<Link, Fault> {
        let conn = self.acquire(until).await?;
        let statement = Instant::now() + self.shared.bounds.statement + GRACE;
        Ok(Link {
            conn: Some(conn),
            until: until.min(statement),
            dirty: false,
            began: false,
            shared: Arc::clone(&self.shared),
        })
    }

    async fn acquire(&self, until: Instant) -> Result<PoolConnection<Postgres>, Fault> {
        let pool = &self.shared.pool;
        if pool.is_closed() {
            return Err(Fault::Closed);
        }
        if let Some(conn) = pool.try_acquire() {
            return Ok(conn);
        }
        // In a task, because a caller with little time would break every connection off before it is open, for ever.
        let (give, take) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        self.shared
            .tasks
            .spawn(async move { shared.open(give).await });
        match timeout_at(until, take).await {
            Ok(Ok(conn)) => conn,
            Ok(Err(_)) => Err(Fault::Closed),
            Err(_) => Err(Fault::Late),
        }
    }

    /// The rows of one statement that only reads. It is asked once more when a connection turns out to be dead.
    pub(super) async fn ask(
        &self,
        statement: impl Fn() -> Statement + Send + Sync,
    ) -> Result<Vec<PgRow>, Fault> {
        let until = self.deadline();
        match self.link_by(until).await?.rows(statement()).await {
            Err(fault) if fault.lost_connection() => {
                self.link_by(until).await?.rows(statement()).await
            }
            answer => answer,
        }
    }

    /// A connection on which `sql` has begun a transaction that has to end by then. It is begun once more when a connection turns out to
    /// be dead.
    pub(super) async fn begin(&self, sql: &str, until: Instant) -> Result<Link, Fault> {
        let mut link = self.link_by(until).await?;
        match link.run(sql).await {
            Ok(()) => Ok(link),
            Err(fault) if fault.lost_connection() => {
                let mut link = self.link_by(until).await?;
                link.run(sql).await?;
                Ok(link)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Refuses further work and closes the connections; those in use when they come back, but it does not wait longer than a statement
    /// may take.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let patience = self.shared.bounds.statement + GRACE;
        timeout(patience, self.shared.pool.close())
            .await
            .map_err(|_| StoreError::Unavailable("a connection was not closed in time".to_owned()))
    }
}

impl Shared {
    /// Gives a connection that comes free or is opened. While none can be had nobody waits: a server that comes back is not held down by
    /// hundreds who log in and have gone before they are in.
    async fn open(&self, give: oneshot::Sender<Result<PoolConnection<Postgres>, Fault>>) {
        let Some(attempt) = self.breaker.enter() else {
            give.send(Err(Fault::Resting)).ok();
            return;
        };
        let mut acquiring = std::pin::pin!(self.pool.acquire());
        let conn = timeout(self.bounds.acquire, acquiring.as_mut()).await;
        let turned = attempt.ended(matches!(conn, Ok(Ok(_))));
        match turned {
            Turned::Open => tracing::warn!(
                "the database gives no connection; it is left alone for moments until it does"
            ),
            Turned::Closed => tracing::info!("the database gives connections again"),
            Turned::StaysOpen | Turned::Neither => {}
        }
        match conn {
            // One that nobody waits for any more goes to the pool.
            Ok(conn) => drop(give.send(conn.map_err(Fault::from))),
            Err(_) => {
                give.send(Err(Fault::Engine(sqlx::Error::PoolTimedOut)))
                    .ok();
                // It may be about to be open, for whoever comes next.
                if acquiring.await.is_ok() && self.breaker.mended() {
                    tracing::info!("the database gives connections again");
                }
            }
        }
    }

    /// Takes every idle connection out of the pool and gives back those that still answer.
    fn sweep(self: &Arc<Self>) {
        if self.sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let idle: Vec<_> = std::iter::from_fn(|| self.pool.try_acquire()).collect();
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            join_all(idle.into_iter().map(|conn| recovered(conn, false))).await;
            shared.sweeping.store(false, Ordering::Release);
        });
    }
}

/// Gives a connection back to its pool once it is in no transaction, or closes it.
async fn recovered(mut conn: PoolConnection<Postgres>, began: bool) {
    let statement = if began { "ROLLBACK" } else { "SELECT 1" };
    let answer = timeout(RECOVERY, conn.execute(statement)).await;
    if matches!(answer, Ok(Ok(_))) {
        returned(conn).await;
    } else {
        drop(conn.detach());
    }
}

/// The pool asks a connection before it keeps it. Should the server have stopped answering, that would hold a place in the pool for ever.
async fn returned(mut conn: PoolConnection<Postgres>) {
    timeout(RECOVERY, conn.return_to_pool()).await.ok();
}

/// A connection in use, with a deadline for all that is done with it.
pub(super) struct Link {
    conn: Option<PoolConnection<Postgres>>,
    until: Instant,
    /// In a transaction, or in the middle of a statement.
    dirty: bool,
    /// A transaction was begun on it.
    began: bool,
    shared: Arc<Shared>,
}

impl Link {
    /// The rows of a statement.
    pub(super) async fn rows(&mut self, statement: Statement) -> Result<Vec<PgRow>, Fault> {
        let (until, was, conn) = self.start()?;
        let answer = timeout_at(until, statement.fetch_all(conn)).await;
        self.end(answer, was)
    }

    /// The first row of a statement.
    pub(super) async fn row(&mut self, statement: Statement) -> Result<Option<PgRow>, Fault> {
        let (until, was, conn) = self.start()?;
        let answer = timeout_at(until, statement.fetch_optional(conn)).await;
        self.end(answer, was)
    }

    /// How many rows a statement changed.
    pub(super) async fn execute(&mut self, statement: Statement) -> Result<u64, Fault> {
        let (until, was, conn) = self.start()?;
        let answer = timeout_at(until, statement.execute(conn)).await;
        self.end(answer, was).map(|done| done.rows_affected())
    }

    /// Statements without values that begin a transaction.
    async fn run(&mut self, sql: &str) -> Result<(), Fault> {
        self.began = true;
        let (until, _, conn) = self.start()?;
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        let answer = timeout_at(until, conn.execute(sql)).await;
        self.end(answer, true).map(drop)
    }

    /// Gives what is done from now on so much time.
    pub(super) fn extend(&mut self, patience: Duration) {
        self.until = Instant::now() + patience;
    }

    /// Ends the transaction and keeps what it did.
    pub(super) async fn commit(mut self) -> Result<(), Fault> {
        let (until, _, conn) = self.start()?;
        let answer = timeout_at(until, conn.execute("COMMIT")).await;
        self.end(answer, false).map(drop)
    }

    /// Until the statement has its answer, the connection is in no state to be given back.
    fn start(&mut self) -> Result<(Instant, bool, &mut PgConnection), Fault> {
        let was = std::mem::replace(&mut self.dirty, true);
        let conn = self.conn.as_mut().ok_or(Fault::Late)?;
        Ok((self.until, was, &mut **conn))
    }

    fn end<T>(
        &mut self,
        answer: Result<Result<T, sqlx::Error>, tokio::time::error::Elapsed>,
        in_transaction: bool,
    ) -> Result<T, Fault> {
        let answer = answer
            .map_err(|_| Fault::Late)
            .and_then(|answer| answer.map_err(Fault::from));
        match &answer {
            Ok(_) => self.dirty = in_transaction,
            Err(fault) if fault.breaks_connection() => {
                drop(self.conn.take().map(PoolConnection::detach));
                self.shared.sweep();
            }
            Err(_) => {}
        }
        answer
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take() else {
            return;
        };
        if self.dirty {
            self.shared.tasks.spawn(recovered(conn, self.began));
        } else {
            self.shared.tasks.spawn(returned(conn));
        }
    }
}

/// One connection outside any pool, opened within `patience`.
pub(super) async fn single(
    options: &PgConnectOptions,
    patience: Duration,
) -> Result<PgConnection, Fault> {
    timeout(patience, PgConnection::connect_with(options))
        .await
        .map_err(|_| Fault::Late)?
        .map_err(Fault::from)
}
