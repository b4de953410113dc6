//! Directive versions, and the stack of activations whose top is the active one.

use async_trait::async_trait;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::error::constraint;
use super::rows::{Columns, Statement, agent_uuid, composed, micros, org_uuid, stored_text};
use super::tx::Tx;
use crate::ids::{AgentId, OrgId};
use crate::store::{
    ChangeKind, DirectiveMode, DirectiveStore, DirectiveVersion, NewDirective, StoreError,
};

/// The version on top of an agent's stack.
const ACTIVE: &str = "(SELECT version FROM directive_activations WHERE org = $1 AND agent = $2 ORDER BY position DESC LIMIT 1)";
const COLUMNS: &str = "org, agent, version, content, mode, content_hash, created_at, revoked_at";
const ABSENT: StoreError = StoreError::Missing("directive version");

#[async_trait]
impl DirectiveStore for PostgresStore {
    async fn active_directive(
        &self,
        org: OrgId,
        agent: AgentId,
    ) -> Result<Option<DirectiveVersion>, StoreError> {
        let sql = "SELECT org, agent, version, content, mode, content_hash, created_at, revoked_at, TRUE FROM active_directive($1, $2)";
        let rows = self
            .links
            .ask(|| sqlx::query(sql).bind(org_uuid(org)).bind(agent_uuid(agent)))
            .await?;
        rows.first().map(directive).transpose()
    }

    async fn directive_versions(
        &self,
        org: OrgId,
        agent: AgentId,
    ) -> Result<Vec<DirectiveVersion>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, version IS NOT DISTINCT FROM {ACTIVE} FROM directives WHERE org = $1 AND agent = $2 ORDER BY version DESC"
        );
        let mut snapshot = self.snapshot(org).await?;
        let rows = snapshot.rows(of_agent(sql, org, agent)).await?;
        rows.iter().map(directive).collect()
    }

    async fn add_directive(&self, directive: NewDirective) -> Result<DirectiveVersion, StoreError> {
        let mut tx = self.tx(directive.org).await?;
        let added = add(&mut tx, directive).await?;
        tx.commit().await?;
        Ok(added)
    }

    async fn promote_directive(
        &self,
        org: OrgId,
        agent: AgentId,
        version: u32,
    ) -> Result<DirectiveVersion, StoreError> {
        let mut tx = self.tx(org).await?;
        let promoted = promote(&mut tx, org, agent, version).await?;
        tx.commit().await?;
        Ok(promoted)
    }

    async fn directive_version(
        &self,
        org: OrgId,
        agent: AgentId,
        version: u32,
    ) -> Result<Option<DirectiveVersion>, StoreError> {
        let mut snapshot = self.snapshot(org).await?;
        let row = snapshot.row(numbered(org, agent, version)).await?;
        row.as_ref().map(directive).transpose()
    }

    async fn revoke_directive(
        &self,
        org: OrgId,
        agent: AgentId,
        version: u32,
        at: Timestamp,
    ) -> Result<DirectiveVersion, StoreError> {
        let mut tx = self.tx(org).await?;
        let revoked = revoke(&mut tx, (org, agent), version, at).await?;
        tx.commit().await?;
        Ok(revoked)
    }

    async fn revoked_directives(&self, org: OrgId, agent: AgentId) -> Result<Vec<u32>, StoreError> {
        let sql = "SELECT version FROM revoked_directives($1, $2) AS r (version)";
        let rows = self
            .links
            .ask(|| sqlx::query(sql).bind(org_uuid(org)).bind(agent_uuid(agent)))
            .await?;
        rows.iter()
            .map(|row| Columns::of(row, "directive").number())
            .collect()
    }

    async fn rollback_directive(
        &self,
        org: OrgId,
        agent: AgentId,
    ) -> Result<DirectiveVersion, StoreError> {
        let mut tx = self.tx(org).await?;
        let active = rollback(&mut tx, org, agent).await?;
        tx.commit().await?;
        Ok(active)
    }
}

/// A statement whose first two parameters are an agent.
fn of_agent(sql: String, org: OrgId, agent: AgentId) -> Statement {
    composed(sql).bind(org_uuid(org)).bind(agent_uuid(agent))
}

fn numbered(org: OrgId, agent: AgentId, version: u32) -> Statement {
    let sql = format!(
        "SELECT {COLUMNS}, version IS NOT DISTINCT FROM {ACTIVE} FROM directives WHERE org = $1 AND agent = $2 AND version = $3"
    );
    of_agent(sql, org, agent).bind(i64::from(version))
}

async fn version_of(
    tx: &mut Tx,
    org: OrgId,
    agent: AgentId,
    version: u32,
) -> Result<Option<DirectiveVersion>, StoreError> {
    let row = tx.row(numbered(org, agent, version)).await?;
    row.as_ref().map(directive).transpose()
}

async fn add(tx: &mut Tx, new: NewDirective) -> Result<DirectiveVersion, StoreError> {
    let NewDirective {
        org,
        agent,
        content,
        mode,
        created_at,
    } = new;
    let content_hash: [u8; 32] = Sha256::digest(content.as_bytes()).into();
    let sql = format!(
        "INSERT INTO directives ({COLUMNS})
         SELECT $1, $2, coalesce(max(version), 0) + 1, $3, $4, $5, $6, NULL FROM directives WHERE org = $1 AND agent = $2 RETURNING version"
    );
    let insert = of_agent(sql, org, agent)
        .bind(stored_text(&content))
        .bind(mode.as_str())
        .bind(content_hash)
        .bind(micros(created_at));
    let inserted = tx.link.row(insert).await;
    let row = inserted.map_err(|fault| constraint(fault, "directive version", "agent"))?;
    let row = row.ok_or(StoreError::Damaged("directive"))?;
    tx.changed(ChangeKind::Directive(org, agent));
    Ok(DirectiveVersion {
        org,
        agent,
        version: Columns::of(&row, "directive").number()?,
        content,
        mode,
        content_hash,
        active: false,
        created_at,
        revoked_at: None,
    })
}

async fn promote(
    tx: &mut Tx,
    org: OrgId,
    agent: AgentId,
    version: u32,
) -> Result<DirectiveVersion, StoreError> {
    let wanted = version_of(tx, org, agent, version).await?.ok_or(ABSENT)?;
    // Promoting the active version again must not make a rollback return to that same version.
    if wanted.active {
        return Ok(wanted);
    }
    if wanted.revoked_at.is_some() {
        return Err(StoreError::Revoked("directive version"));
    }
    let sql = "INSERT INTO directive_activations (org, agent, version) VALUES ($1, $2, $3)";
    tx.execute(of_agent(sql.to_owned(), org, agent).bind(i64::from(version)))
        .await?;
    activated(tx, org, agent).await
}

async fn rollback(tx: &mut Tx, org: OrgId, agent: AgentId) -> Result<DirectiveVersion, StoreError> {
    let top_two = "SELECT position FROM directive_activations WHERE org = $1 AND agent = $2 ORDER BY position DESC LIMIT 2";
    let rows = tx.rows(of_agent(top_two.to_owned(), org, agent)).await?;
    let [top, _] = rows.as_slice() else {
        return Err(StoreError::Missing("earlier active directive version"));
    };
    let top: i64 = Columns::of(top, "directive").take()?;
    let sql = "DELETE FROM directive_activations WHERE org = $1 AND agent = $2 AND position = $3";
    tx.execute(of_agent(sql.to_owned(), org, agent).bind(top))
        .await?;
    activated(tx, org, agent).await
}

async fn revoke(
    tx: &mut Tx,
    (org, agent): (OrgId, AgentId),
    version: u32,
    at: Timestamp,
) -> Result<DirectiveVersion, StoreError> {
    let current = version_of(tx, org, agent, version).await?.ok_or(ABSENT)?;
    if current.revoked_at.is_some() {
        return Ok(current);
    }
    let sql =
        "UPDATE directives SET revoked_at = $4 WHERE org = $1 AND agent = $2 AND version = $3";
    tx.execute(
        of_agent(sql.to_owned(), org, agent)
            .bind(i64::from(version))
            .bind(micros(at)),
    )
    .await?;
    let sql = "DELETE FROM directive_activations WHERE org = $1 AND agent = $2 AND version = $3";
    tx.execute(of_agent(sql.to_owned(), org, agent).bind(i64::from(version)))
        .await?;
    // What stood below and above it may be the same version: a rollback must not return to that same version.
    let sql = "DELETE FROM directive_activations WHERE org = $1 AND agent = $2 AND position IN (
                 SELECT position FROM (SELECT position, version, lag(version) OVER (ORDER BY position) AS below
                                       FROM directive_activations WHERE org = $1 AND agent = $2) AS stack WHERE version = below)";
    tx.execute(of_agent(sql.to_owned(), org, agent)).await?;
    tx.changed(ChangeKind::Directive(org, agent));
    version_of(tx, org, agent, version)
        .await?
        .ok_or(StoreError::Damaged("directive"))
}

async fn activated(
    tx: &mut Tx,
    org: OrgId,
    agent: AgentId,
) -> Result<DirectiveVersion, StoreError> {
    tx.changed(ChangeKind::Directive(org, agent));
    let sql = format!(
        "SELECT {COLUMNS}, TRUE FROM directives WHERE org = $1 AND agent = $2 AND version = {ACTIVE}"
    );
    let row = tx.row(of_agent(sql, org, agent)).await?;
    row.as_ref()
        .map(directive)
        .transpose()?
        .ok_or(StoreError::Damaged("directive"))
}

fn directive(row: &PgRow) -> Result<DirectiveVersion, StoreError> {
    let mut columns = Columns::of(row, "directive");
    Ok(DirectiveVersion {
        org: OrgId::from_bytes(columns.id()?),
        agent: AgentId::from_bytes(columns.id()?),
        version: columns.number()?,
        content: columns.shared_text()?,
        mode: columns.parsed(DirectiveMode::parse)?,
        content_hash: columns.bytes()?,
        created_at: columns.time()?,
        revoked_at: columns.optional_time()?,
        active: columns.take()?,
    })
}
