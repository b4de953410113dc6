//! The change feed, read. It is written by `tx`, at the end of each write.

use std::sync::atomic::Ordering;

use async_trait::async_trait;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::rows::{Columns, limit};
use crate::ids::{AgentId, MemoryId, OrgId, TokenId};
use crate::memory::PartitionKey;
use crate::store::{Change, ChangeFeed, ChangeKind, StoreError};

/// Both ends and the entries in between, of one state. Ahead of the store happens when an older copy of the database was put back under
/// a running server.
const CHANGES: &str = "
    WITH ends AS MATERIALIZED (
        SELECT f.revision AS newest, coalesce((SELECT min(c.revision) - 1 FROM changes c), f.revision) AS before FROM feed f)
    SELECT e.newest AS revision, 'everything' AS kind, NULL::uuid, NULL::uuid, NULL::text, NULL::uuid
    FROM ends e WHERE $1 > e.newest OR $1 < e.before
    UNION ALL
    (SELECT c.revision, c.kind, c.org, c.agent, c.user_id, c.ref FROM changes c
     WHERE c.revision > $1 AND EXISTS (SELECT 1 FROM ends e WHERE $1 <= e.newest AND $1 >= e.before)
     ORDER BY c.revision LIMIT $2)";

#[async_trait]
impl ChangeFeed for PostgresStore {
    async fn revision(&self) -> Result<i64, StoreError> {
        let rows = self
            .links
            .ask(|| sqlx::query("SELECT revision FROM feed"))
            .await?;
        let row = rows.first().ok_or(StoreError::Damaged("feed"))?;
        Columns::of(row, "feed").take()
    }

    async fn changes_after(&self, revision: i64, most: usize) -> Result<Vec<Change>, StoreError> {
        let changes = || sqlx::query(CHANGES).bind(revision).bind(limit(most));
        let rows = self.links.ask(changes).await?;
        rows.iter().map(change).collect()
    }

    async fn poll(&self) -> Result<bool, StoreError> {
        self.beat();
        let newest = self.revision().await?;
        Ok(self.told.swap(newest, Ordering::AcqRel) != newest)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let sql = "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean FROM feed";
        let rows = self.links.ask(|| sqlx::query(sql)).await?;
        let row = rows.first().ok_or(StoreError::Damaged("feed"))?;
        if Columns::of(row, "feed").take()? {
            return Err(StoreError::Unavailable(
                "the database is read-only".to_owned(),
            ));
        }
        Ok(())
    }
}

fn change(row: &PgRow) -> Result<Change, StoreError> {
    let mut columns = Columns::of(row, "change");
    let revision = columns.take()?;
    let kind: &str = columns.take()?;
    let org = columns.optional_id()?.map(OrgId::from_bytes);
    let agent = columns.optional_id()?.map(AgentId::from_bytes);
    let user = columns.user()?;
    let id = columns.optional_id()?;
    let kind = match (kind, org, agent, id) {
        ("everything", ..) => ChangeKind::Everything,
        ("org", Some(org), ..) => ChangeKind::Org(org),
        ("agent", Some(org), Some(agent), _) => ChangeKind::Agent(org, agent),
        ("token", _, _, Some(id)) => ChangeKind::Token(TokenId::from_bytes(id)),
        ("directive", Some(org), Some(agent), _) => ChangeKind::Directive(org, agent),
        ("memory", Some(org), Some(agent), Some(id)) => {
            ChangeKind::Memory(PartitionKey { org, agent, user }, MemoryId::from_bytes(id))
        }
        _ => return Err(columns.damaged()),
    };
    Ok(Change { revision, kind })
}
