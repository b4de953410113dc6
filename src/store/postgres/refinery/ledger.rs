//! The ledger of keyed writes.

use jiff::Timestamp;

use crate::store::postgres::error::constraint;
use crate::store::postgres::links::Link;
use crate::store::postgres::rows::{Columns, Statement, agent_uuid, micros, org_uuid};
use crate::store::postgres::tx::Tx;
use crate::store::{LedgerEntry, LedgerKey, LedgerMember, LedgerOutcome, LedgerRow, StoreError};

/// What [`StoreError::Conflict`] names.
const KEY: &str = "idempotency key";

/// A statement whose first three parameters are a key.
fn keyed(sql: &'static str, key: &LedgerKey) -> Statement {
    let LedgerKey { org, agent, key } = key;
    sqlx::query(sql)
        .bind(org_uuid(*org))
        .bind(agent_uuid(*agent))
        .bind(key.as_str().to_owned())
}

/// Refuses a key that was used, and frees one whose time is over. The organisation's lock is held from here to the entry.
pub(super) async fn ask(tx: &mut Tx, entry: &LedgerEntry) -> Result<(), StoreError> {
    if row(&mut tx.link, &entry.key, entry.since).await?.is_some() {
        return Err(StoreError::Conflict(KEY));
    }
    let sql = "DELETE FROM ledger WHERE org = $1 AND agent = $2 AND key = $3";
    tx.execute(keyed(sql, &entry.key)).await?;
    Ok(())
}

/// Enters what became of the members.
pub(super) async fn settle(
    tx: &mut Tx,
    entry: &LedgerEntry,
    rows: &[LedgerOutcome],
) -> Result<(), StoreError> {
    let outcomes = entry
        .members
        .iter()
        .map(|member| match member {
            LedgerMember::Known(outcome) => Some(*outcome),
            LedgerMember::Row(row) => rows.get(*row).copied(),
            LedgerMember::Repeats(row) => rows.get(*row).map(|outcome| outcome.repeated()),
        })
        .collect::<Option<Vec<LedgerOutcome>>>();
    let json = outcomes
        .and_then(|o| serde_json::to_string(&o).ok())
        .ok_or(StoreError::Missing("row"))?;
    let sql =
        "INSERT INTO ledger (org, agent, key, asked, outcomes, at) VALUES ($1, $2, $3, $4, $5, $6)";
    let insert = keyed(sql, &entry.key)
        .bind(entry.asked)
        .bind(json)
        .bind(micros(entry.at));
    let entered = tx.link.execute(insert).await;
    entered.map_err(|fault| constraint(fault, KEY, "agent"))?;
    Ok(())
}

pub(super) async fn row(
    link: &mut Link,
    key: &LedgerKey,
    since: Timestamp,
) -> Result<Option<LedgerRow>, StoreError> {
    let sql = "SELECT asked, outcomes FROM ledger WHERE org = $1 AND agent = $2 AND key = $3 AND at >= $4";
    let Some(row) = link.row(keyed(sql, key).bind(micros(since))).await? else {
        return Ok(None);
    };
    let mut columns = Columns::of(&row, "ledger entry");
    Ok(Some(LedgerRow {
        asked: columns.bytes()?,
        outcomes: columns.parsed(|text| serde_json::from_str(text).ok())?,
    }))
}
