//! The whole store out and in: see [`crate::store::transfer`]. One organisation at a time, because row-level security shows no more.

mod rows;

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::error::constraint;
use super::links::Link;
use super::rows::{Columns, composed, org_uuid};
use super::{PostgresStore, tx};
use crate::ids::OrgId;
use crate::store::transfer::{BATCH, Batch, ExportId, Row, Standing, TABLES, Table, TransferStore};
use crate::store::{ChangeKind, StoreError};
use rows::{cells, inserts, select_sql};

/// One organisation is read in one transaction, and the largest takes a while.
const PATIENCE: Duration = Duration::from_secs(6 * 3_600);

#[async_trait]
impl TransferStore for PostgresStore {
    async fn dump(&self, orgs: Vec<OrgId>, to: mpsc::Sender<Batch>) -> Result<i64, StoreError> {
        let orgs = if orgs.is_empty() {
            self.every_org().await?
        } else {
            orgs
        };
        let mut revision = crate::store::ChangeFeed::revision(self).await?;
        for org in orgs {
            let mut link = tx::long_snapshot(&self.links, org, PATIENCE).await?;
            revision = revision.max(revision_of(&mut link).await?);
            for table in TABLES {
                if !dump_table(&mut link, org, table, &to).await? {
                    return Ok(revision);
                }
            }
        }
        Ok(revision)
    }

    async fn load_standing(&self, export: ExportId) -> Result<Option<Standing>, StoreError> {
        let sql = "SELECT batches, finished FROM imports WHERE export = $1";
        let ask = || sqlx::query(sql).bind(Uuid::from_bytes(export));
        let rows = self.links.ask(ask).await?;
        rows.first().map(standing).transpose()
    }

    async fn load(&self, export: ExportId, number: u64, batch: Batch) -> Result<(), StoreError> {
        let mut tx = self.tx(batch.org).await?;
        // Every row is a round trip or two, and the way may be long.
        tx.link.extend(PATIENCE);
        let sql = "SELECT batches, finished FROM imports WHERE export = $1 FOR UPDATE";
        let known = tx
            .row(sqlx::query(sql).bind(Uuid::from_bytes(export)))
            .await?;
        let known = known.as_ref().map(standing).transpose()?;
        if known.is_some_and(|known| number < known.batches) {
            return Ok(());
        }
        for row in &batch.rows {
            for statement in inserts(batch.table, row)? {
                let inserted = tx.link.execute(statement).await;
                inserted.map_err(|fault| constraint(fault, batch.table.name, "parent"))?;
            }
        }
        let sql = "INSERT INTO imports (export, batches, finished) VALUES ($1, $2, FALSE)
                   ON CONFLICT (export) DO UPDATE SET batches = excluded.batches";
        let next = i64::try_from(number).unwrap_or(i64::MAX).saturating_add(1);
        tx.execute(sqlx::query(sql).bind(Uuid::from_bytes(export)).bind(next))
            .await?;
        tx.commit().await?;
        Ok(())
    }

    async fn end_load(&self, export: ExportId, revision: i64) -> Result<(), StoreError> {
        let Some(org) = self.every_org().await?.first().copied() else {
            return self.note_end(export).await;
        };
        let mut tx = self.tx(org).await?;
        tx.link.extend(PATIENCE);
        // A revision is never below those that the rows carry; the gap tells every follower to read anew.
        let raise = "UPDATE feed SET revision = greatest(revision, $1)";
        tx.execute(sqlx::query(raise).bind(revision)).await?;
        tx.execute(sqlx::query("DELETE FROM changes")).await?;
        let places = "SELECT setval(pg_get_serial_sequence('directive_activations', 'position'),
                      greatest((SELECT coalesce(max(position), 0) FROM directive_activations), $1) + 1)";
        // Activations of every organisation count: their numbers are larger than none that was exported.
        tx.row(sqlx::query(places).bind(revision)).await?;
        tx.changed(ChangeKind::Org(org));
        tx.commit().await?;
        self.note_end(export).await
    }
}

impl PostgresStore {
    async fn every_org(&self) -> Result<Vec<OrgId>, StoreError> {
        let rows = self
            .links
            .ask(|| sqlx::query("SELECT id FROM orgs ORDER BY id"))
            .await?;
        rows.iter()
            .map(|row| Ok(OrgId::from_bytes(Columns::of(row, "organisation").id()?)))
            .collect()
    }

    async fn note_end(&self, export: ExportId) -> Result<(), StoreError> {
        let sql = "INSERT INTO imports (export, batches, finished) VALUES ($1, 0, TRUE)
                   ON CONFLICT (export) DO UPDATE SET finished = TRUE";
        let mut link = self.links.link().await?;
        link.execute(sqlx::query(sql).bind(Uuid::from_bytes(export)))
            .await?;
        Ok(())
    }
}

fn standing(row: &PgRow) -> Result<Standing, StoreError> {
    let mut columns = Columns::of(row, "import");
    Ok(Standing {
        batches: columns.number()?,
        finished: columns.take()?,
    })
}

async fn revision_of(link: &mut Link) -> Result<i64, StoreError> {
    let row = link
        .row(sqlx::query("SELECT revision FROM feed"))
        .await?
        .ok_or(StoreError::Damaged("feed"))?;
    Columns::of(&row, "feed").take()
}

/// Sends the rows of one organisation. Answers whether anybody still receives.
async fn dump_table(
    link: &mut Link,
    org: OrgId,
    table: &'static Table,
    to: &mpsc::Sender<Batch>,
) -> Result<bool, StoreError> {
    let name = table.name;
    let declare = format!(
        "DECLARE dump_{name} NO SCROLL CURSOR FOR {}",
        select_sql(table)
    );
    link.execute(composed(declare).bind(org_uuid(org))).await?;
    let fetch = format!("FETCH {BATCH} FROM dump_{name}");
    loop {
        let rows = link.rows(composed(fetch.clone())).await?;
        let last = rows.len() < BATCH;
        let rows = rows
            .iter()
            .map(|row| cells(row, table))
            .collect::<Result<Vec<Row>, StoreError>>()?;
        if !rows.is_empty() && to.send(Batch { org, table, rows }).await.is_err() {
            return Ok(false);
        }
        if last {
            link.execute(composed(format!("CLOSE dump_{name}"))).await?;
            return Ok(true);
        }
    }
}
