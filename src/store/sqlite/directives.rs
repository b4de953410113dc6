//! Directive versions, and the stack of activations whose top is the active one.

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use sha2::{Digest, Sha256};

use super::error::constraint;
use super::rows::{Columns, all, micros, one};
use super::{SqliteStore, feed};
use crate::ids::{AgentId, OrgId};
use crate::store::{
    ChangeKind, DirectiveMode, DirectiveStore, DirectiveVersion, NewDirective, StoreError,
};

/// The version on top of an agent's stack.
const ACTIVE: &str = "(SELECT version FROM directive_activations WHERE org = ?1 AND agent = ?2 ORDER BY position DESC LIMIT 1)";
const COLUMNS: &str = "org, agent, version, content, mode, content_hash, created_at, revoked_at";
const ABSENT: StoreError = StoreError::Missing("directive version");

#[async_trait]
impl DirectiveStore for SqliteStore {
    async fn active_directive(
        &self,
        org: OrgId,
        agent: AgentId,
    ) -> Result<Option<DirectiveVersion>, StoreError> {
        self.read(move |conn| active(conn, org, agent)).await
    }

    async fn directive_versions(
        &self,
        org: OrgId,
        agent: AgentId,
    ) -> Result<Vec<DirectiveVersion>, StoreError> {
        self.read(move |conn| versions(conn, org, agent)).await
    }

    async fn add_directive(&self, directive: NewDirective) -> Result<DirectiveVersion, StoreError> {
        self.write(move |conn| add(conn, directive)).await
    }

    async fn promote_directive(
        &self,
        org: OrgId,
        agent: AgentId,
        version: u32,
    ) -> Result<DirectiveVersion, StoreError> {
        self.write(move |conn| promote(conn, org, agent, version))
            .await
    }

    async fn directive_version(
        &self,
        org: OrgId,
        agent: AgentId,
        version: u32,
    ) -> Result<Option<DirectiveVersion>, StoreError> {
        self.read(move |conn| numbered(conn, org, agent, version))
            .await
    }

    async fn revoke_directive(
        &self,
        org: OrgId,
        agent: AgentId,
        version: u32,
        at: Timestamp,
    ) -> Result<DirectiveVersion, StoreError> {
        self.write(move |conn| revoke(conn, org, agent, version, at))
            .await
    }

    async fn revoked_directives(&self, org: OrgId, agent: AgentId) -> Result<Vec<u32>, StoreError> {
        let sql = "SELECT version FROM directives WHERE org = ?1 AND agent = ?2 AND revoked_at IS NOT NULL ORDER BY version";
        let number = |row: &Row<'_>| Columns::of(row, "directive").take();
        self.read(move |conn| all(conn, sql, params![org.as_bytes(), agent.as_bytes()], number))
            .await
    }

    async fn rollback_directive(
        &self,
        org: OrgId,
        agent: AgentId,
    ) -> Result<DirectiveVersion, StoreError> {
        self.write(move |conn| rollback(conn, org, agent)).await
    }
}

fn active(
    conn: &Connection,
    org: OrgId,
    agent: AgentId,
) -> Result<Option<DirectiveVersion>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS}, TRUE FROM directives WHERE org = ?1 AND agent = ?2 AND version = {ACTIVE}"
    );
    one(
        conn,
        &sql,
        params![org.as_bytes(), agent.as_bytes()],
        directive,
    )
}

fn numbered(
    conn: &Connection,
    org: OrgId,
    agent: AgentId,
    version: u32,
) -> Result<Option<DirectiveVersion>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS}, version IS {ACTIVE} FROM directives WHERE org = ?1 AND agent = ?2 AND version = ?3"
    );
    let values = params![org.as_bytes(), agent.as_bytes(), version];
    one(conn, &sql, values, directive)
}

fn versions(
    conn: &Connection,
    org: OrgId,
    agent: AgentId,
) -> Result<Vec<DirectiveVersion>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS}, version IS {ACTIVE} FROM directives WHERE org = ?1 AND agent = ?2 ORDER BY version DESC"
    );
    all(
        conn,
        &sql,
        params![org.as_bytes(), agent.as_bytes()],
        directive,
    )
}

fn add(conn: &Connection, new: NewDirective) -> Result<DirectiveVersion, StoreError> {
    let NewDirective {
        org,
        agent,
        content,
        mode,
        created_at,
    } = new;
    let next = "SELECT coalesce(max(version), 0) + 1 FROM directives WHERE org = ?1 AND agent = ?2";
    let version: u32 = conn
        .prepare_cached(next)?
        .query_row(params![org.as_bytes(), agent.as_bytes()], |row| row.get(0))?;
    let content_hash: [u8; 32] = Sha256::digest(content.as_bytes()).into();
    let sql =
        format!("INSERT INTO directives ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL)");
    let values = params![
        org.as_bytes(),
        agent.as_bytes(),
        version,
        content,
        mode.as_str(),
        content_hash,
        micros(created_at)
    ];
    conn.prepare_cached(&sql)?
        .execute(values)
        .map_err(|e| constraint(e, "directive version", "agent"))?;
    feed::append(conn, &ChangeKind::Directive(org, agent))?;
    Ok(DirectiveVersion {
        org,
        agent,
        version,
        content,
        mode,
        content_hash,
        active: false,
        created_at,
        revoked_at: None,
    })
}

fn promote(
    conn: &Connection,
    org: OrgId,
    agent: AgentId,
    version: u32,
) -> Result<DirectiveVersion, StoreError> {
    let wanted = numbered(conn, org, agent, version)?.ok_or(ABSENT)?;
    // Promoting the active version again must not make a rollback return to that same version.
    if wanted.active {
        return Ok(wanted);
    }
    if wanted.revoked_at.is_some() {
        return Err(StoreError::Revoked("directive version"));
    }
    let sql = "INSERT INTO directive_activations (org, agent, version) VALUES (?1, ?2, ?3)";
    conn.prepare_cached(sql)?
        .execute(params![org.as_bytes(), agent.as_bytes(), version])?;
    activated(conn, org, agent)
}

fn rollback(conn: &Connection, org: OrgId, agent: AgentId) -> Result<DirectiveVersion, StoreError> {
    let top_two = "SELECT position FROM directive_activations WHERE org = ?1 AND agent = ?2 ORDER BY position DESC LIMIT 2";
    let mut select = conn.prepare_cached(top_two)?;
    let positions = select
        .query_map(params![org.as_bytes(), agent.as_bytes()], |row| row.get(0))?
        .collect::<Result<Vec<i64>, _>>()?;
    let &[top, _] = positions.as_slice() else {
        return Err(StoreError::Missing("earlier active directive version"));
    };
    conn.prepare_cached("DELETE FROM directive_activations WHERE position = ?1")?
        .execute([top])?;
    activated(conn, org, agent)
}

fn revoke(
    conn: &Connection,
    org: OrgId,
    agent: AgentId,
    version: u32,
    at: Timestamp,
) -> Result<DirectiveVersion, StoreError> {
    let current = numbered(conn, org, agent, version)?.ok_or(ABSENT)?;
    if current.revoked_at.is_some() {
        return Ok(current);
    }
    let sql =
        "UPDATE directives SET revoked_at = ?4 WHERE org = ?1 AND agent = ?2 AND version = ?3";
    conn.prepare_cached(sql)?.execute(params![
        org.as_bytes(),
        agent.as_bytes(),
        version,
        micros(at)
    ])?;
    let sql = "DELETE FROM directive_activations WHERE org = ?1 AND agent = ?2 AND version = ?3";
    conn.prepare_cached(sql)?
        .execute(params![org.as_bytes(), agent.as_bytes(), version])?;
    // What stood below and above it may be the same version: a rollback must not return to that same version.
    let sql = "DELETE FROM directive_activations WHERE org = ?1 AND agent = ?2 AND position IN (
                 SELECT position FROM (SELECT position, version, lag(version) OVER (ORDER BY position) AS below
                                       FROM directive_activations WHERE org = ?1 AND agent = ?2) WHERE version = below)";
    conn.prepare_cached(sql)?
        .execute(params![org.as_bytes(), agent.as_bytes()])?;
    feed::append(conn, &ChangeKind::Directive(org, agent))?;
    numbered(conn, org, agent, version)?.ok_or(StoreError::Damaged("directive"))
}

fn activated(
    conn: &Connection,
    org: OrgId,
    agent: AgentId,
) -> Result<DirectiveVersion, StoreError> {
    feed::append(conn, &ChangeKind::Directive(org, agent))?;
    active(conn, org, agent)?.ok_or(StoreError::Damaged("directive"))
}

fn directive(row: &Row<'_>) -> Result<DirectiveVersion, StoreError> {
    let mut columns = Columns::of(row, "directive");
    Ok(DirectiveVersion {
        org: OrgId::from_bytes(columns.take()?),
        agent: AgentId::from_bytes(columns.take()?),
        version: columns.take()?,
        content: columns.take()?,
        mode: columns.parsed(DirectiveMode::parse)?,
        content_hash: columns.take()?,
        created_at: columns.time()?,
        revoked_at: columns.optional_time()?,
        active: columns.take()?,
    })
}
