//! Writes of the refinery: everything that one write decides, in one transaction.

mod ledger;

use async_trait::async_trait;
use jiff::Timestamp;

use super::SqliteStore;
use super::memories;
use crate::store::{
    InsertOutcome, LedgerKey, LedgerOutcome, LedgerRow, Refined, RefineryStore, StoreError,
};

#[async_trait]
impl RefineryStore for SqliteStore {
    async fn commit(&self, write: Refined) -> Result<Vec<InsertOutcome>, StoreError> {
        self.write(move |conn| {
            if let Some(entry) = &write.ledger {
                ledger::ask(conn, entry)?;
            }
            let outcomes = memories::insert_all(conn, &write.rows)?;
            if let Some(entry) = &write.ledger {
                let rows = write.rows.iter().zip(&outcomes);
                let settled: Vec<LedgerOutcome> = rows
                    .map(|(memory, outcome)| match outcome {
                        InsertOutcome::Inserted { .. } => LedgerOutcome::Stored(memory.id),
                        InsertOutcome::Duplicate { existing } => {
                            LedgerOutcome::Duplicate(*existing)
                        }
                    })
                    .collect();
                ledger::settle(conn, entry, &settled)?;
            }
            Ok(outcomes)
        })
        .await
    }

    async fn ledger_row(
        &self,
        key: &LedgerKey,
        since: Timestamp,
    ) -> Result<Option<LedgerRow>, StoreError> {
        let key = key.clone();
        self.read(move |conn| ledger::row(conn, &key, since)).await
    }

    async fn prune_ledger(&self, before: Timestamp, most: usize) -> Result<u64, StoreError> {
        self.write(move |conn| ledger::prune(conn, before, most))
            .await
    }
}
