//! Which processes keep sessions here. Several replicas do at once, so each has a row, and says now and then that it lives. One that says
//! nothing for a minute and has not ended has died, and the newest records may have died with it: whoever begins within the next day is
//! told so. One that begins again within the minute is not.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use crate::store::StoreError;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::rows::{Columns, Statement};

/// How often a process says that it lives.
const BEAT: Duration = Duration::from_secs(10);

/// This process, among those that keep sessions.
#[derive(Debug)]
pub(in crate::store::postgres) struct Run {
    id: Uuid,
    /// When it last said that it lives; nothing while it keeps no sessions.
    beaten: Mutex<Option<Instant>>,
}

impl Run {
    pub(in crate::store::postgres) fn new() -> Self {
        Self {
            id: Uuid::new_v4(),
            beaten: Mutex::new(None),
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
}

impl PostgresStore {
    /// Says that this process lives, if it has not lately, without keeping the caller waiting.
    pub(in crate::store::postgres) fn beat(&self) {
        if !self.run.is_due() {
            return;
        }
        let (links, run) = (self.links.clone(), self.run.id);
        self.tasks.spawn(async move {
            let sql = "INSERT INTO session_runs (id, seen_at) VALUES ($1, micros_now()) ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at";
            let said = match links.link().await {
                Ok(mut link) => link.execute(sqlx::query(sql).bind(run)).await,
                Err(fault) => Err(fault),
            };
            if let Err(fault) = said {
                tracing::debug!(error = %StoreError::from(fault), "this process could not say that it lives");
            }
        });
    }

    pub(super) async fn begin(&self) -> Result<bool, StoreError> {
        let row = self
            .links
            .link()
            .await?
            .row(self.of_run("SELECT begin_run($1)"))
            .await?;
        let row = row.ok_or(StoreError::Damaged("run"))?;
        *self.run.beaten.lock() = Some(Instant::now());
        Columns::of(&row, "run").take()
    }

    pub(super) async fn end(&self) -> Result<(), StoreError> {
        *self.run.beaten.lock() = None;
        let ended = self.of_run("DELETE FROM session_runs WHERE id = $1");
        self.links.link().await?.execute(ended).await?;
        Ok(())
    }

    fn of_run(&self, sql: &'static str) -> Statement {
        sqlx::query(sql).bind(self.run.id)
    }
}
