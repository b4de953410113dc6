//! Turns from which nothing could be captured.

use sqlx::postgres::PgRow;

use crate::ids::{AgentId, OrgId};
use crate::memory::PartitionKey;
use crate::store::postgres::error::constraint;
use crate::store::postgres::links::Link;
use crate::store::postgres::memories::in_partition;
use crate::store::postgres::rows::{
    Columns, OfOrg, agent_uuid, limit, micros, org_uuid, stored_text,
};
use crate::store::postgres::tx::Tx;
use crate::store::{DeadLetter, StoreError};

pub(super) async fn insert(tx: &mut Tx, letter: &DeadLetter) -> Result<(), StoreError> {
    let sql = "INSERT INTO dead_letters (org, agent, user_id, session, turn, reason, attempts, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let insert = in_partition(sqlx::query(sql), &letter.partition)
        .bind(letter.session.as_str().to_owned())
        .bind(i64::from(letter.turn))
        .bind(stored_text(&letter.reason))
        .bind(i64::from(letter.attempts))
        .bind(micros(letter.at));
    let inserted = tx.link.execute(insert).await;
    inserted.map_err(|fault| constraint(fault, "dead letter", "agent"))?;
    Ok(())
}

/// The newest of each partition.
pub(super) async fn newest(
    link: &mut Link,
    group: &OfOrg<'_>,
    most: usize,
) -> Result<Vec<DeadLetter>, StoreError> {
    let sql = "SELECT newest.* FROM unnest($2, $3) WITH ORDINALITY AS p (agent, user_id, place) CROSS JOIN LATERAL
               (SELECT org, agent, user_id, session, turn, reason, attempts, at, seq FROM dead_letters l
                WHERE l.org = $1 AND l.agent = p.agent AND l.user_id = p.user_id ORDER BY seq DESC LIMIT $4) AS newest
               ORDER BY p.place, newest.seq DESC";
    let statement = sqlx::query(sql)
        .bind(org_uuid(group.org))
        .bind(group.agents.as_slice())
        .bind(group.users.as_slice())
        .bind(limit(most));
    link.rows(statement).await?.iter().map(letter).collect()
}

/// The partitions of an agent in which something waits for a person.
pub(super) async fn waiting(
    link: &mut Link,
    (org, agent): (OrgId, AgentId),
    most: usize,
) -> Result<Vec<PartitionKey>, StoreError> {
    let sql = "SELECT user_id FROM memories WHERE org = $1 AND agent = $2 AND status = 'quarantined'
               UNION SELECT user_id FROM escalations WHERE org = $1 AND agent = $2 AND status = 'pending'
               UNION SELECT user_id FROM dead_letters WHERE org = $1 AND agent = $2
               ORDER BY user_id LIMIT $3";
    let statement = sqlx::query(sql)
        .bind(org_uuid(org))
        .bind(agent_uuid(agent))
        .bind(limit(most));
    let rows = link.rows(statement).await?;
    let partition = |row| {
        let user = Columns::of(row, "partition").user()?;
        Ok(PartitionKey { org, agent, user })
    };
    rows.iter().map(partition).collect()
}

fn letter(row: &PgRow) -> Result<DeadLetter, StoreError> {
    let mut columns = Columns::of(row, "dead letter");
    Ok(DeadLetter {
        partition: columns.partition()?,
        session: columns.parsed(|text| text.parse().ok())?,
        turn: columns.number()?,
        reason: columns.text()?,
        attempts: columns.number()?,
        at: columns.time()?,
    })
}
