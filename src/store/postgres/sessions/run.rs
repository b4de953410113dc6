//! Which processes keep sessions here. Several replicas do at once, so each has a row, a connection that holds the row's lock for as long
//! as the process lives, and says now and then that it does. A row whose lock nobody holds, or that was not heard of for a minute (a host
//! that vanished keeps its connections for a while), is of a process that died, and the newest records may have died with it: whoever
//! begins within the next day is told so. To lose that connection for a moment can make another one believe so for nothing, which costs
//! it a new epoch for some sessions.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgConnection;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::store::StoreError;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connect::Settings;
use crate::store::postgres::error::Fault;
use crate::store::postgres::rows::Columns;
use crate::store::postgres::tx::lock_key_of;

/// How often a process says that it lives.
const BEAT: Duration = Duration::from_secs(10);

/// This process, among those that keep sessions.
#[derive(Debug)]
pub(in crate::store::postgres) struct Run {
    id: Uuid,
    settings: Settings,
    /// When it last said that it lives; nothing while it keeps no sessions.
    beaten: Mutex<Option<Instant>>,
    /// Holds the lock. It goes with the store.
    keeper: tokio::sync::Mutex<Option<PgConnection>>,
}

impl Run {
    pub(in crate::store::postgres) fn new(settings: Settings) -> Self {
        Self {
            id: Uuid::new_v4(),
            settings,
            beaten: Mutex::new(None),
            keeper: tokio::sync::Mutex::default(),
        }
    }

    /// Whether it is time to say so, which is then taken as said.
    fn is_due(&self) -> bool {
        let mut beaten = self.beaten.lock();
        let due = beaten.is_some_and(|last| last.elapsed() >= BEAT);
        if due {
            *beaten = Some(Instant::now());
        }
        due
    }

    /// Asks something over the connection that holds the lock, which is opened where it is missing.
    async fn ask(&self, sql: &'static str) -> Result<bool, StoreError> {
        let mut keeper = self.keeper.lock().await;
        // Put back only when all went well: a connection in doubt is closed, and the lock with it.
        let mut conn = match keeper.take() {
            Some(conn) => conn,
            None => self.held().await?,
        };
        let asked = sqlx::query(sql).bind(self.id).fetch_one(&mut conn);
        let row = timeout(self.settings.bounds.statement, asked).await;
        let row = row.map_err(|_| Fault::Late)?.map_err(Fault::from)?;
        *keeper = Some(conn);
        Columns::of(&row, "run").take()
    }

    /// Gives up the lock.
    pub(in crate::store::postgres) async fn release(&self) {
        *self.beaten.lock() = None;
        drop(self.keeper.lock().await.take());
    }

    /// A connection that holds the lock.
    async fn held(&self) -> Result<PgConnection, StoreError> {
        let mut conn = self.settings.ready().await?;
        let lock = sqlx::query("SELECT pg_advisory_lock($1)").bind(lock_key_of(self.id));
        let locked = timeout(self.settings.bounds.statement, lock.execute(&mut conn)).await;
        locked.map_err(|_| Fault::Late)?.map_err(Fault::from)?;
        Ok(conn)
    }
}

impl PostgresStore {
    /// Says that this process lives, if it has not lately, without keeping the caller waiting.
    pub(in crate::store::postgres) fn beat(&self) {
        if !self.run.is_due() {
            return;
        }
        let run = Arc::clone(&self.run);
        self.tasks.spawn(async move {
            if let Err(error) = run.ask("SELECT beat_run($1)").await {
                tracing::debug!(%error, "this process could not say that it lives");
            }
        });
    }

    pub(super) async fn begin(&self) -> Result<bool, StoreError> {
        let whole = self.run.ask("SELECT begin_run($1)").await?;
        *self.run.beaten.lock() = Some(Instant::now());
        Ok(whole)
    }

    pub(super) async fn end(&self) -> Result<(), StoreError> {
        *self.run.beaten.lock() = None;
        let ended = sqlx::query("DELETE FROM session_runs WHERE id = $1").bind(self.run.id);
        self.links.link().await?.execute(ended).await?;
        self.run.release().await;
        Ok(())
    }
}
