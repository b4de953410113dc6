//! Questions that no rule could answer, until somebody does.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use super::relations;
use crate::ids::{AgentId, EscalationId, MemoryId, OrgId};
use crate::memory::{Memory, PartitionKey, Status};
use crate::store::Effect;
use crate::store::sqlite::memories;
use crate::store::sqlite::rows::{Columns, all, limit, micros, one, user_column};
use crate::store::{
    Decider, Escalation, EscalationStatus, Relation, Settlement, StoreError, Verdict,
};

const COLUMNS: &str = "id, org, agent, user, newer, older, guess, status, created_at";

pub(super) fn insert(
    conn: &Connection,
    partition: &PartitionKey,
    (newer, older): (MemoryId, MemoryId),
    guess: Relation,
    at: Timestamp,
) -> Result<(), StoreError> {
    let sql =
        "INSERT INTO escalations (id, org, agent, user, newer, older, guess, status, created_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'pending', ?8) ON CONFLICT DO NOTHING";
    let PartitionKey { org, agent, user } = partition;
    conn.prepare_cached(sql)?.execute(params![
        EscalationId::new().as_bytes(),
        org.as_bytes(),
        agent.as_bytes(),
        user_column(user.as_ref()),
        newer.as_bytes(),
        older.as_bytes(),
        guess.as_str(),
        micros(at)
    ])?;
    Ok(())
}

/// The newest of each partition, merged: identifiers are time-ordered.
pub(super) fn pending(
    conn: &Connection,
    partitions: &[PartitionKey],
    after: Option<EscalationId>,
    most: usize,
) -> Result<Vec<Escalation>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM escalations WHERE org = ?1 AND agent = ?2 AND user = ?3 AND status = 'pending' AND id < ?4
         ORDER BY id DESC LIMIT ?5"
    );
    let after = after.map_or([0xff; 16], |id| *id.as_bytes());
    let mut found = Vec::new();
    for PartitionKey { org, agent, user } in partitions {
        let user = user_column(user.as_ref());
        let values = params![org.as_bytes(), agent.as_bytes(), user, after, limit(most)];
        found.extend(all(conn, &sql, values, escalation)?);
    }
    found.sort_unstable_by_key(|e| std::cmp::Reverse(e.id));
    found.truncate(most);
    Ok(found)
}

pub(super) fn held(
    conn: &Connection,
    partitions: &[PartitionKey],
    id: EscalationId,
) -> Result<Option<Escalation>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM escalations WHERE id = ?1");
    let found = one(conn, &sql, params![id.as_bytes()], escalation)?;
    Ok(found.filter(|e| partitions.contains(&e.partition)))
}

fn escalation(row: &Row<'_>) -> Result<Escalation, StoreError> {
    let mut columns = Columns::of(row, "escalation");
    Ok(Escalation {
        id: EscalationId::from_bytes(columns.take()?),
        partition: PartitionKey {
            org: OrgId::from_bytes(columns.take()?),
            agent: AgentId::from_bytes(columns.take()?),
            user: columns.user()?,
        },
        newer: MemoryId::from_bytes(columns.take()?),
        older: MemoryId::from_bytes(columns.take()?),
        guess: columns.parsed(Relation::parse)?,
        status: columns.parsed(EscalationStatus::parse)?,
        created_at: columns.time()?,
    })
}

/// Both memories have to be there still: a decision about one that was forgotten or replaced changes nothing.
pub(super) fn settle(
    conn: &Connection,
    escalation: &Escalation,
    decision: Option<(Relation, Decider)>,
    at: Timestamp,
) -> Result<Settlement, StoreError> {
    let partition = std::slice::from_ref(&escalation.partition);
    let Some(current) = held(conn, partition, escalation.id)? else {
        return Ok(Settlement::Void);
    };
    if current.status != EscalationStatus::Pending {
        return Ok(Settlement::Over);
    }
    let active = |id| {
        let found = memories::held(conn, partition, id)?;
        Ok::<_, StoreError>(found.filter(|memory| memory.status == Status::Active))
    };
    let pair = active(current.newer)?.zip(active(current.older)?);
    let status = match (&pair, decision) {
        (Some(_), Some(_)) => EscalationStatus::Resolved,
        _ => EscalationStatus::Dismissed,
    };
    if let (Some((newer, older)), Some((relation, by))) = (&pair, decision) {
        carry_out(conn, (newer, older), (relation, by), at)?;
    }
    let sql = "UPDATE escalations SET status = ?2, decision = ?3, settled_at = ?4 WHERE id = ?1";
    let decision = decision.map(|(relation, _)| relation.as_str());
    conn.prepare_cached(sql)?.execute(params![
        current.id.as_bytes(),
        status.as_str(),
        decision,
        micros(at)
    ])?;
    Ok(match pair {
        Some(_) => Settlement::Settled,
        None => Settlement::Void,
    })
}

/// What supersedes ends the older one where the newer one begins; where they began together, now.
fn carry_out(
    conn: &Connection,
    (newer, older): (&Memory, &Memory),
    (relation, by): (Relation, Decider),
    at: Timestamp,
) -> Result<(), StoreError> {
    let pair = (newer.id, older.id);
    relations::insert(conn, &newer.partition, pair, (relation, by), at)?;
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
    relations::retire(conn, &now, &verdict, end)?;
    Ok(())
}
