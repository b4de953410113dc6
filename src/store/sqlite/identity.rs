//! Organisations, agents and tokens.

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, Params, Row, params};

use super::error::constraint;
use super::rows::{Columns, all, micros, one};
use super::{SqliteStore, feed};
use crate::auth::Permissions;
use crate::ids::{AgentId, OrgId, TokenId, UserId};
use crate::store::{
    Agent, AgentStatus, CaptureScope, ChangeKind, IdentityStore, Org, OrgStatus, StoreError,
    StoredToken,
};

#[async_trait]
impl IdentityStore for SqliteStore {
    async fn create_org(&self, org: Org) -> Result<(), StoreError> {
        self.write(move |conn| create_org(conn, &org)).await
    }

    async fn org(&self, id: OrgId) -> Result<Option<Org>, StoreError> {
        let sql = "SELECT id, name, status, created_at FROM orgs WHERE id = ?1";
        self.read(move |conn| one(conn, sql, [id.as_bytes()], org))
            .await
    }

    async fn orgs(&self) -> Result<Vec<Org>, StoreError> {
        let sql = "SELECT id, name, status, created_at FROM orgs ORDER BY created_at, id";
        self.read(move |conn| all(conn, sql, [], org)).await
    }

    async fn set_org_status(&self, id: OrgId, status: OrgStatus) -> Result<(), StoreError> {
        let sql = "UPDATE orgs SET status = ?2 WHERE id = ?1";
        self.write(move |conn| {
            update(
                conn,
                sql,
                params![id.as_bytes(), status.as_str()],
                "organisation",
                &ChangeKind::Org(id),
            )
        })
        .await
    }

    async fn create_agent(&self, agent: Agent) -> Result<(), StoreError> {
        self.write(move |conn| create_agent(conn, &agent)).await
    }

    async fn agent(&self, org: OrgId, id: AgentId) -> Result<Option<Agent>, StoreError> {
        let sql = "SELECT id, org, name, status, capture, created_at FROM agents WHERE org = ?1 AND id = ?2";
        self.read(move |conn| one(conn, sql, params![org.as_bytes(), id.as_bytes()], agent))
            .await
    }

    async fn agents(&self, org: OrgId) -> Result<Vec<Agent>, StoreError> {
        let sql = "SELECT id, org, name, status, capture, created_at FROM agents WHERE org = ?1 ORDER BY created_at, id";
        self.read(move |conn| all(conn, sql, [org.as_bytes()], agent))
            .await
    }

    async fn set_agent_status(
        &self,
        org: OrgId,
        id: AgentId,
        status: AgentStatus,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE agents SET status = ?3 WHERE org = ?1 AND id = ?2";
        let change = ChangeKind::Agent(org, id);
        self.write(move |conn| {
            update(
                conn,
                sql,
                params![org.as_bytes(), id.as_bytes(), status.as_str()],
                "agent",
                &change,
            )
        })
        .await
    }

    async fn set_agent_capture(
        &self,
        org: OrgId,
        id: AgentId,
        capture: CaptureScope,
    ) -> Result<(), StoreError> {
        let sql = "UPDATE agents SET capture = ?3 WHERE org = ?1 AND id = ?2";
        let change = ChangeKind::Agent(org, id);
        self.write(move |conn| {
            update(
                conn,
                sql,
                params![org.as_bytes(), id.as_bytes(), capture.as_str()],
                "agent",
                &change,
            )
        })
        .await
    }

    async fn create_token(&self, token: StoredToken) -> Result<(), StoreError> {
        self.write(move |conn| create_token(conn, &token)).await
    }

    async fn token(&self, id: TokenId) -> Result<Option<StoredToken>, StoreError> {
        let sql = "SELECT id, org, agent, user, name, permissions, digest, created_at, expires_at, revoked_at FROM tokens WHERE id = ?1";
        self.read(move |conn| one(conn, sql, [id.as_bytes()], token))
            .await
    }

    async fn tokens(&self, org: OrgId) -> Result<Vec<StoredToken>, StoreError> {
        let sql = "SELECT id, org, agent, user, name, permissions, digest, created_at, expires_at, revoked_at FROM tokens
                   WHERE org = ?1 ORDER BY created_at, id";
        self.read(move |conn| all(conn, sql, [org.as_bytes()], token))
            .await
    }

    async fn revoke_token(&self, id: TokenId, at: Timestamp) -> Result<(), StoreError> {
        let sql = "UPDATE tokens SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1";
        self.write(move |conn| {
            update(
                conn,
                sql,
                params![id.as_bytes(), micros(at)],
                "token",
                &ChangeKind::Token(id),
            )
        })
        .await
    }
}

fn create_org(conn: &Connection, org: &Org) -> Result<(), StoreError> {
    let sql = "INSERT INTO orgs (id, name, status, created_at) VALUES (?1, ?2, ?3, ?4)";
    let values = params![
        org.id.as_bytes(),
        org.name,
        org.status.as_str(),
        micros(org.created_at)
    ];
    conn.prepare_cached(sql)?
        .execute(values)
        .map_err(|e| constraint(e, "organisation", "organisation"))?;
    feed::append(conn, &ChangeKind::Org(org.id)).map(|_| ())
}

fn create_agent(conn: &Connection, agent: &Agent) -> Result<(), StoreError> {
    let sql = "INSERT INTO agents (id, org, name, status, capture, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let values = params![
        agent.id.as_bytes(),
        agent.org.as_bytes(),
        agent.name,
        agent.status.as_str(),
        agent.capture.as_str(),
        micros(agent.created_at)
    ];
    conn.prepare_cached(sql)?
        .execute(values)
        .map_err(|e| constraint(e, "agent", "organisation"))?;
    feed::append(conn, &ChangeKind::Agent(agent.org, agent.id)).map(|_| ())
}

fn create_token(conn: &Connection, token: &StoredToken) -> Result<(), StoreError> {
    let sql = "INSERT INTO tokens (id, org, agent, user, name, permissions, digest, created_at, expires_at, revoked_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let values = params![
        token.id.as_bytes(),
        token.org.as_bytes(),
        token.agent.as_ref().map(AgentId::as_bytes),
        token.user.as_ref().map(UserId::as_str),
        token.name,
        token.permissions.bits().cast_signed(),
        token.digest,
        micros(token.created_at),
        token.expires_at.map(micros),
        token.revoked_at.map(micros),
    ];
    let parent = if token.agent.is_some() {
        "agent"
    } else {
        "organisation"
    };
    conn.prepare_cached(sql)?
        .execute(values)
        .map_err(|e| constraint(e, "token", parent))?;
    feed::append(conn, &ChangeKind::Token(token.id)).map(|_| ())
}

/// Changes the one row that `sql` names, or says that there is no such `what`.
fn update(
    conn: &Connection,
    sql: &str,
    values: impl Params,
    what: &'static str,
    change: &ChangeKind,
) -> Result<(), StoreError> {
    if conn.prepare_cached(sql)?.execute(values)? == 0 {
        return Err(StoreError::Missing(what));
    }
    feed::append(conn, change).map(|_| ())
}

fn org(row: &Row<'_>) -> Result<Org, StoreError> {
    let mut columns = Columns::of(row, "organisation");
    Ok(Org {
        id: OrgId::from_bytes(columns.take()?),
        name: columns.take()?,
        status: columns.parsed(OrgStatus::parse)?,
        created_at: columns.time()?,
    })
}

fn agent(row: &Row<'_>) -> Result<Agent, StoreError> {
    let mut columns = Columns::of(row, "agent");
    Ok(Agent {
        id: AgentId::from_bytes(columns.take()?),
        org: OrgId::from_bytes(columns.take()?),
        name: columns.take()?,
        status: columns.parsed(AgentStatus::parse)?,
        capture: columns.parsed(CaptureScope::parse)?,
        created_at: columns.time()?,
    })
}

fn token(row: &Row<'_>) -> Result<StoredToken, StoreError> {
    let mut columns = Columns::of(row, "token");
    Ok(StoredToken {
        id: TokenId::from_bytes(columns.take()?),
        org: OrgId::from_bytes(columns.take()?),
        agent: columns.take::<Option<[u8; 16]>>()?.map(AgentId::from_bytes),
        user: columns.user()?,
        name: columns.take()?,
        permissions: Permissions::from_bits(columns.take::<i64>()?.cast_unsigned()),
        digest: columns.take()?,
        created_at: columns.time()?,
        expires_at: columns.optional_time()?,
        revoked_at: columns.optional_time()?,
    })
}
