//! Questions that no rule could answer, until somebody does.

use jiff::Timestamp;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::relations;
use crate::ids::{EscalationId, MemoryId, OrgId};
use crate::memory::{Memory, PartitionKey, Status};
use crate::store::postgres::links::Link;
use crate::store::postgres::memories::{self, in_partition};
use crate::store::postgres::rows::{
    Columns, OfOrg, composed, limit, memory_uuid, micros, org_uuid,
};
use crate::store::postgres::tx::Tx;
use crate::store::{
    Decider, Effect, Escalation, EscalationStatus, Relation, Settlement, StoreError, Verdict,
};

const COLUMNS: &str = "id, org, agent, user_id, newer, older, guess, status, created_at";

fn escalation_uuid(id: EscalationId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

pub(super) async fn insert(
    tx: &mut Tx,
    partition: &PartitionKey,
    (newer, older): (MemoryId, MemoryId),
    guess: Relation,
    at: Timestamp,
) -> Result<(), StoreError> {
    let sql =
        "INSERT INTO escalations (org, agent, user_id, id, newer, older, guess, status, created_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', $8) ON CONFLICT DO NOTHING";
    let insert = in_partition(sqlx::query(sql), partition)
        .bind(escalation_uuid(EscalationId::new()))
        .bind(memory_uuid(newer))
        .bind(memory_uuid(older))
        .bind(guess.as_str())
        .bind(micros(at));
    tx.execute(insert).await?;
    Ok(())
}

/// The newest of each partition: identifiers are time-ordered.
pub(super) async fn pending(
    link: &mut Link,
    group: &OfOrg<'_>,
    after: Option<EscalationId>,
    most: usize,
) -> Result<Vec<Escalation>, StoreError> {
    let sql = format!(
        "SELECT pending.* FROM unnest($2, $3) AS p (agent, user_id) CROSS JOIN LATERAL
         (SELECT {COLUMNS} FROM escalations e WHERE e.org = $1 AND e.agent = p.agent AND e.user_id = p.user_id
          AND e.status = 'pending' AND e.id < $4 ORDER BY e.id DESC LIMIT $5) AS pending"
    );
    let statement = composed(sql)
        .bind(org_uuid(group.org))
        .bind(group.agents.as_slice())
        .bind(group.users.as_slice())
        .bind(after.map_or_else(Uuid::max, escalation_uuid))
        .bind(limit(most));
    link.rows(statement).await?.iter().map(escalation).collect()
}

/// One escalation of an organisation, whatever its status.
pub(super) async fn held(
    link: &mut Link,
    org: OrgId,
    id: EscalationId,
) -> Result<Option<Escalation>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM escalations WHERE org = $1 AND id = $2");
    let row = link
        .row(composed(sql).bind(org_uuid(org)).bind(escalation_uuid(id)))
        .await?;
    row.as_ref().map(escalation).transpose()
}

fn escalation(row: &PgRow) -> Result<Escalation, StoreError> {
    let mut columns = Columns::of(row, "escalation");
    Ok(Escalation {
        id: EscalationId::from_bytes(columns.id()?),
        partition: columns.partition()?,
        newer: MemoryId::from_bytes(columns.id()?),
        older: MemoryId::from_bytes(columns.id()?),
        guess: columns.parsed(Relation::parse)?,
        status: columns.parsed(EscalationStatus::parse)?,
        created_at: columns.time()?,
    })
}

/// Both memories have to be there still: a decision about one that was forgotten or replaced changes nothing.
pub(super) async fn settle(
    tx: &mut Tx,
    escalation: &Escalation,
    decision: Option<(Relation, Decider)>,
    at: Timestamp,
) -> Result<Settlement, StoreError> {
    let partition = &escalation.partition;
    let current = held(&mut tx.link, partition.org, escalation.id).await?;
    let Some(current) = current.filter(|current| current.partition == *partition) else {
        return Ok(Settlement::Void);
    };
    if current.status != EscalationStatus::Pending {
        return Ok(Settlement::Over);
    }
    let newer = active(tx, partition, current.newer).await?;
    let pair = newer.zip(active(tx, partition, current.older).await?);
    let status = match (&pair, decision) {
        (Some(_), Some(_)) => EscalationStatus::Resolved,
        _ => EscalationStatus::Dismissed,
    };
    if let (Some((newer, older)), Some((relation, by))) = (&pair, decision) {
        carry_out(tx, (newer, older), (relation, by), at).await?;
    }
    let sql = "UPDATE escalations SET status = $3, decision = $4, settled_at = $5 WHERE org = $1 AND id = $2";
    let update = sqlx::query(sql)
        .bind(org_uuid(partition.org))
        .bind(escalation_uuid(current.id))
        .bind(status.as_str())
        .bind(decision.map(|(relation, _)| relation.as_str()))
        .bind(micros(at));
    tx.execute(update).await?;
    Ok(match pair {
        Some(_) => Settlement::Settled,
        None => Settlement::Void,
    })
}

async fn active(
    tx: &mut Tx,
    partition: &PartitionKey,
    id: MemoryId,
) -> Result<Option<Memory>, StoreError> {
    let found = memories::held_in(tx, partition, id).await?;
    Ok(found.filter(|memory| memory.status == Status::Active))
}

/// What supersedes ends the older one where the newer one begins; where they began together, now.
async fn carry_out(
    tx: &mut Tx,
    (newer, older): (&Memory, &Memory),
    (relation, by): (Relation, Decider),
    at: Timestamp,
) -> Result<(), StoreError> {
    let pair = (newer.id, older.id);
    relations::insert(tx, &newer.partition, pair, (relation, by), at).await?;
    if relation != Relation::Supersedes {
        return Ok(());
    }
    let end = if newer.valid_from > older.valid_from {
        newer.valid_from
    } else {
        at.max(older.valid_from)
    };
    let verdict = Verdict {
        existing: older.id,
        judged: older.text_revision,
        effect: Effect::Retire { at: end, by },
    };
    let now = Memory {
        updated_at: at,
        ..newer.clone()
    };
    relations::retire(tx, &now, &verdict, end).await?;
    Ok(())
}
