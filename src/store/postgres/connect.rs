//! How a connection is opened, what it is set to, and what is checked before the store is used.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};
use tokio::time::timeout;

use super::error::{Fault, OpenError};
use super::links::{Bounds, single};
use super::migrate;
use super::rows::Columns;
use crate::config::PostgresConfig;

/// Prepared statements kept for each connection: more than there are different statements.
const STATEMENTS: usize = 256;

/// Tables without content of tenants; every other one has to be protected.
const OPEN_TABLES: &str = "'{orgs,feed,changes,session_runs,schema_steps,imports}'";

/// The settings in the form in which they are used.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) options: PgConnectOptions,
    pub(super) connect: Duration,
    pub(super) bounds: Bounds,
    pub(super) role: String,
}

impl Settings {
    pub(super) fn of(config: &PostgresConfig) -> Result<Self, OpenError> {
        let is_ours =
            |url: &&str| url.starts_with("postgres://") || url.starts_with("postgresql://");
        let url = config
            .url
            .as_deref()
            .filter(is_ours)
            .ok_or(OpenError::Url)?;
        let options: PgConnectOptions = url.parse().map_err(|_| OpenError::Url)?;
        Ok(Self {
            options: options
                .application_name("ibex")
                .statement_cache_capacity(STATEMENTS)
                .disable_statement_logging(),
            connect: Duration::from_millis(config.connect_timeout_ms),
            bounds: Bounds {
                connect: Duration::from_millis(config.connect_timeout_ms),
                acquire: Duration::from_millis(config.acquire_timeout_ms),
                statement: Duration::from_millis(config.statement_timeout_ms),
            },
            role: config.role.clone(),
        })
    }

    /// A connection of its own, as the user of the URL.
    pub(super) async fn plain(&self) -> Result<PgConnection, OpenError> {
        Ok(single(&self.options, self.connect).await?)
    }

    /// A connection of its own, set up as those of the pool are.
    pub(super) async fn ready(&self) -> Result<PgConnection, Fault> {
        let mut conn = single(&self.options, self.connect).await?;
        let set_up = conn.execute(sqlx::raw_sql(AssertSqlSafe(self.setup())));
        let set_up = timeout(self.bounds.statement, set_up).await;
        set_up.map_err(|_| Fault::Late)??;
        Ok(conn)
    }

    /// What every connection runs first; a pooler in between has to keep whole sessions apart, because these settings belong to one. The server then gives up what takes too long, also for a client that is gone, and what it says
    /// besides answers is not sent. The role is taken on last, and for good.
    pub(super) fn setup(&self) -> Arc<str> {
        let (statement, role) = (self.bounds.statement.as_millis(), &self.role);
        format!(
            "SET client_min_messages = error; SET statement_timeout = {statement};
             SET idle_in_transaction_session_timeout = {statement}; SET jit = off;
             SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3;
             SET search_path = ibex, public;
             SELECT set_config('search_path', 'ibex, ' || quote_ident(n.nspname), FALSE)
             FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';
             SET ROLE \"{role}\""
        )
        .into()
    }

    /// Looks at the database with a connection as the store will have them: schema, role, and protection of the tables. Answers the
    /// newest revision.
    pub(super) async fn check(&self) -> Result<i64, OpenError> {
        let mut conn = self.plain().await?;
        let checked = timeout(self.bounds.statement, self.checked(&mut conn)).await;
        let closed = timeout(self.connect, conn.close()).await;
        drop(closed);
        checked.map_err(|_| Fault::Late)?
    }

    async fn checked(&self, conn: &mut PgConnection) -> Result<i64, OpenError> {
        let set_up = conn
            .execute(sqlx::raw_sql(AssertSqlSafe(self.setup())))
            .await;
        set_up.map_err(|error| self.refused_role(Fault::from(error)))?;
        migrate::require_current(conn).await?;
        self.require_bound_role(conn).await?;
        let row = sqlx::query("SELECT revision FROM feed")
            .fetch_one(conn)
            .await;
        Ok(Columns::of(&row.map_err(Fault::from)?, "feed").take()?)
    }

    fn refused_role(&self, fault: Fault) -> OpenError {
        match fault.code().as_deref() {
            // There is no such role: nobody has migrated this server yet.
            Some("22023" | "42704") => OpenError::OlderSchema {
                found: 0,
                known: migrate::known(),
            },
            Some("42501") => OpenError::NotGranted(self.role.clone()),
            _ => fault.into(),
        }
    }

    /// The role must be bound by row-level security on every table of tenants, without a way to switch it off.
    async fn require_bound_role(&self, conn: &mut PgConnection) -> Result<(), OpenError> {
        let sql = format!(
            "SELECT r.rolsuper, r.rolbypassrls, coalesce(bool_or(pg_has_role(r.oid, t.relowner, 'MEMBER')), FALSE),
                    coalesce(bool_and(t.relname = ANY ({OPEN_TABLES}) OR (t.relrowsecurity AND t.relforcerowsecurity)), FALSE)
             FROM pg_roles r LEFT JOIN (SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                                        WHERE n.nspname = 'ibex' AND c.relkind IN ('r', 'p')) AS t ON TRUE
             WHERE r.rolname = current_user GROUP BY r.rolsuper, r.rolbypassrls"
        );
        let row = sqlx::query(AssertSqlSafe(sql))
            .fetch_one(conn)
            .await
            .map_err(Fault::from)?;
        let mut columns = Columns::of(&row, "role");
        let faults = [
            (columns.take()?, "is a superuser"),
            (columns.take()?, "may bypass row-level security"),
            (columns.take()?, "owns the tables"),
        ];
        if let Some((_, fault)) = faults.into_iter().find(|(is, _)| *is) {
            return Err(OpenError::UnboundRole {
                role: self.role.clone(),
                fault,
            });
        }
        if columns.take()? {
            Ok(())
        } else {
            Err(OpenError::UnprotectedTables)
        }
    }
}
