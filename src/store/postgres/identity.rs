//! Organisations, agents and tokens.

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresStore;
use super::error::{Fault, constraint};
use super::rows::{Columns, Statement, agent_uuid, micros, org_uuid, stored_text, user_column};
use crate::auth::Permissions;
use crate::ids::{AgentId, OrgId, TokenId};
use crate::store::{
    Agent, AgentStatus, CaptureScope, ChangeKind, IdentityStore, Org, OrgStatus, StoreError,
    StoredToken,
};

#[async_trait]
impl IdentityStore for PostgresStore {
    async fn create_org(&self, org: Org) -> Result<(), StoreError> {
        let insert =
            sqlx::query("INSERT INTO orgs (id, name, status, created_at) VALUES ($1, $2, $3, $4)")
                .bind(org_uuid(org.id))
                .bind(stored_text(&org.name))
                .bind(org.status.as_str())
                .bind(micros(org.created_at));
        self.insert(
            org.id,
            insert,
            ChangeKind::Org(org.id),
            ("organisation", "organisation"),
        )
        .await
    }

    async fn org(&self, id: OrgId) -> Result<Option<Org>, StoreError> {
        let sql = "SELECT id, name, status, created_at FROM orgs WHERE id = $1";
        let rows = self
            .links
            .ask(|| sqlx::query(sql).bind(org_uuid(id)))
            .await?;
        rows.first().map(org).transpose()
    }

    async fn orgs(&self) -> Result<Vec<Org>, StoreError> {
        let sql = "SELECT id, name, status, created_at FROM orgs ORDER BY created_at, id";
        let rows = self.links.ask(|| sqlx::query(sql)).await?;
        rows.iter().map(org).collect()
    }

    async fn set_org_status(&self, id: OrgId, status: OrgStatus) -> Result<(), StoreError> {
        let update = sqlx::query("UPDATE orgs SET status = $2 WHERE id = $1")
            .bind(org_uuid(id))
            .bind(status.as_str());
        self.update(id, update, ChangeKind::Org(id), "organisation")
            .await
    }

    async fn create_agent(&self, agent: Agent) -> Result<(), StoreError> {
        let sql = "INSERT INTO agents (id, org, name, status, capture, created_at) VALUES ($1, $2, $3, $4, $5, $6)";
        let insert = sqlx::query(sql)
            .bind(agent_uuid(agent.id))
            .bind(org_uuid(agent.org))
            .bind(stored_text(&agent.name))
            .bind(agent.status.as_str())
            .bind(agent.capture.as_str())
            .bind(micros(agent.created_at));
        let kind = ChangeKind::Agent(agent.org, agent.id);
        self.insert(agent.org, insert, kind, ("agent", "organisation"))
            .await
    }

    async fn agent(&self, org: OrgId, id: AgentId) -> Result<Option<Agent>, StoreError> {
        let sql = "SELECT id, org, name, status, capture, created_at FROM agent_by_id($1, $2)";
        let agents = || sqlx::query(sql).bind(org_uuid(org)).bind(agent_uuid(id));
        let rows = self.links.ask(agents).await?;
        rows.first().map(agent).transpose()
    }

    async fn agents(&self, org: OrgId) -> Result<Vec<Agent>, StoreError> {
        let sql = "SELECT id, org, name, status, capture, created_at FROM agents WHERE org = $1 ORDER BY created_at, id";
        let mut snapshot = self.snapshot(org).await?;
        let rows = snapshot.rows(sqlx::query(sql).bind(org_uuid(org))).await?;
        rows.iter().map(agent).collect()
    }

    async fn set_agent_status(
        &self,
        org: OrgId,
        id: AgentId,
        status: AgentStatus,
    ) -> Result<(), StoreError> {
        let update = sqlx::query("UPDATE agents SET status = $3 WHERE org = $1 AND id = $2")
            .bind(org_uuid(org))
            .bind(agent_uuid(id))
            .bind(status.as_str());
        self.update(org, update, ChangeKind::Agent(org, id), "agent")
            .await
    }

    async fn set_agent_capture(
        &self,
        org: OrgId,
        id: AgentId,
        capture: CaptureScope,
    ) -> Result<(), StoreError> {
        let update = sqlx::query("UPDATE agents SET capture = $3 WHERE org = $1 AND id = $2")
            .bind(org_uuid(org))
            .bind(agent_uuid(id))
            .bind(capture.as_str());
        self.update(org, update, ChangeKind::Agent(org, id), "agent")
            .await
    }

    async fn create_token(&self, token: StoredToken) -> Result<(), StoreError> {
        let sql = "INSERT INTO tokens (id, org, agent, user_id, name, permissions, digest, created_at, expires_at, revoked_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        let insert = sqlx::query(sql)
            .bind(token_uuid(token.id))
            .bind(org_uuid(token.org))
            .bind(token.agent.map(agent_uuid))
            .bind(user_column(token.user.as_ref()))
            .bind(stored_text(&token.name))
            .bind(token.permissions.bits().cast_signed())
            .bind(token.digest)
            .bind(micros(token.created_at))
            .bind(token.expires_at.map(micros))
            .bind(token.revoked_at.map(micros));
        let parent = if token.agent.is_some() {
            "agent"
        } else {
            "organisation"
        };
        self.insert(
            token.org,
            insert,
            ChangeKind::Token(token.id),
            ("token", parent),
        )
        .await
    }

    async fn token(&self, id: TokenId) -> Result<Option<StoredToken>, StoreError> {
        let sql = "SELECT id, org, agent, user_id, name, permissions, digest, created_at, expires_at, revoked_at FROM token_by_id($1)";
        let rows = self
            .links
            .ask(|| sqlx::query(sql).bind(token_uuid(id)))
            .await?;
        rows.first().map(token).transpose()
    }

    async fn tokens(&self, org: OrgId) -> Result<Vec<StoredToken>, StoreError> {
        let sql = "SELECT id, org, agent, user_id, name, permissions, digest, created_at, expires_at, revoked_at FROM tokens
                   WHERE org = $1 ORDER BY created_at, id";
        let mut snapshot = self.snapshot(org).await?;
        let rows = snapshot.rows(sqlx::query(sql).bind(org_uuid(org))).await?;
        rows.iter().map(token).collect()
    }

    async fn revoke_token(&self, id: TokenId, at: Timestamp) -> Result<(), StoreError> {
        // Only the token itself says whose it is.
        let token = self.token(id).await?.ok_or(StoreError::Missing("token"))?;
        let sql =
            "UPDATE tokens SET revoked_at = coalesce(revoked_at, $3) WHERE org = $1 AND id = $2";
        let update = sqlx::query(sql)
            .bind(org_uuid(token.org))
            .bind(token_uuid(id))
            .bind(micros(at));
        self.update(token.org, update, ChangeKind::Token(id), "token")
            .await
    }
}

impl PostgresStore {
    /// Inserts a row; `names` are what is taken when its key exists, and what is missing when its parent does not.
    async fn insert(
        &self,
        org: OrgId,
        insert: Statement,
        kind: ChangeKind,
        (taken, missing): (&'static str, &'static str),
    ) -> Result<(), StoreError> {
        let mut tx = self.tx(org).await?;
        let inserted = tx.link.execute(insert).await;
        inserted.map_err(|fault: Fault| constraint(fault, taken, missing))?;
        tx.changed(kind);
        tx.commit().await.map(drop)
    }

    /// Changes the one row that `update` names, or says that there is no such `what`.
    async fn update(
        &self,
        org: OrgId,
        update: Statement,
        kind: ChangeKind,
        what: &'static str,
    ) -> Result<(), StoreError> {
        let mut tx = self.tx(org).await?;
        if tx.execute(update).await? == 0 {
            return Err(StoreError::Missing(what));
        }
        tx.changed(kind);
        tx.commit().await.map(drop)
    }
}

fn token_uuid(id: TokenId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

fn org(row: &PgRow) -> Result<Org, StoreError> {
    let mut columns = Columns::of(row, "organisation");
    Ok(Org {
        id: OrgId::from_bytes(columns.id()?),
        name: columns.text()?,
        status: columns.parsed(OrgStatus::parse)?,
        created_at: columns.time()?,
    })
}

fn agent(row: &PgRow) -> Result<Agent, StoreError> {
    let mut columns = Columns::of(row, "agent");
    Ok(Agent {
        id: AgentId::from_bytes(columns.id()?),
        org: OrgId::from_bytes(columns.id()?),
        name: columns.text()?,
        status: columns.parsed(AgentStatus::parse)?,
        capture: columns.parsed(CaptureScope::parse)?,
        created_at: columns.time()?,
    })
}

fn token(row: &PgRow) -> Result<StoredToken, StoreError> {
    let mut columns = Columns::of(row, "token");
    Ok(StoredToken {
        id: TokenId::from_bytes(columns.id()?),
        org: OrgId::from_bytes(columns.id()?),
        agent: columns.optional_id()?.map(AgentId::from_bytes),
        user: columns.user()?,
        name: columns.text()?,
        permissions: Permissions::from_bits(columns.take::<i64>()?.cast_unsigned()),
        digest: columns.bytes()?,
        created_at: columns.time()?,
        expires_at: columns.optional_time()?,
        revoked_at: columns.optional_time()?,
    })
}
