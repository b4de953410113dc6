//! Turns from which nothing could be captured.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};

use crate::ids::{AgentId, OrgId};
use crate::memory::PartitionKey;
use crate::store::sqlite::error::constraint;
use crate::store::sqlite::rows::{Columns, all, limit, micros, user_column};
use crate::store::{DeadLetter, StoreError};

pub(super) fn insert(conn: &Connection, letter: &DeadLetter) -> Result<(), StoreError> {
    let sql = "INSERT INTO dead_letters (org, agent, user, session, turn, reason, attempts, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let PartitionKey { org, agent, user } = &letter.partition;
    let values = params![
        org.as_bytes(),
        agent.as_bytes(),
        user_column(user.as_ref()),
        letter.session.as_str(),
        letter.turn,
        letter.reason,
        letter.attempts,
        micros(letter.at)
    ];
    let inserted = conn.prepare_cached(sql)?.execute(values);
    inserted.map_err(|e| constraint(e, "dead letter", "agent"))?;
    Ok(())
}

pub(super) fn newest(
    conn: &Connection,
    partitions: &[PartitionKey],
    most: usize,
) -> Result<Vec<DeadLetter>, StoreError> {
    let sql = "SELECT org, agent, user, session, turn, reason, attempts, at FROM dead_letters
               WHERE org = ?1 AND agent = ?2 AND user = ?3 ORDER BY seq DESC LIMIT ?4";
    let mut found = Vec::new();
    for PartitionKey { org, agent, user } in partitions {
        let user = user_column(user.as_ref());
        let values = params![org.as_bytes(), agent.as_bytes(), user, limit(most)];
        found.extend(all(conn, sql, values, letter)?);
    }
    found.sort_by_key(|letter| std::cmp::Reverse(letter.at));
    found.truncate(most);
    Ok(found)
}

/// The partitions of an agent in which something waits for a person.
pub(super) fn waiting(
    conn: &Connection,
    (org, agent): (OrgId, AgentId),
    most: usize,
) -> Result<Vec<PartitionKey>, StoreError> {
    let sql = "SELECT user FROM memories WHERE org = ?1 AND agent = ?2 AND status = 'quarantined'
               UNION SELECT user FROM escalations WHERE org = ?1 AND agent = ?2 AND status = 'pending'
               UNION SELECT user FROM dead_letters WHERE org = ?1 AND agent = ?2
               ORDER BY user LIMIT ?3";
    let values = params![org.as_bytes(), agent.as_bytes(), limit(most)];
    let users = all(conn, sql, values, |row| {
        Columns::of(row, "partition").user()
    })?;
    let partition = |user| PartitionKey { org, agent, user };
    Ok(users.into_iter().map(partition).collect())
}

fn letter(row: &Row<'_>) -> Result<DeadLetter, StoreError> {
    let mut columns = Columns::of(row, "dead letter");
    Ok(DeadLetter {
        partition: PartitionKey {
            org: OrgId::from_bytes(columns.take()?),
            agent: AgentId::from_bytes(columns.take()?),
            user: columns.user()?,
        },
        session: columns.parsed(|text| text.parse().ok())?,
        turn: columns.take()?,
        reason: columns.take()?,
        attempts: columns.take()?,
        at: columns.time()?,
    })
}

pub(super) fn prune(conn: &Connection, before: Timestamp, most: usize) -> Result<u64, StoreError> {
    let sql = "DELETE FROM dead_letters WHERE seq IN (SELECT seq FROM dead_letters WHERE at < ?1 LIMIT ?2)";
    let deleted = conn
        .prepare_cached(sql)?
        .execute(params![micros(before), limit(most)])?;
    Ok(deleted as u64)
}
