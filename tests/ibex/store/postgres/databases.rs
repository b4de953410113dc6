//! A database of one test's own, with the schema.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use ibex::config::PostgresConfig;
use ibex::ids::OrgId;
use ibex::store::StoreError;
use ibex::store::postgres::{PostgresStore, migrate};

use super::Engine;
use crate::support::services::{Database, migrated_database};

/// A database; every `connect` is a handle of its own, as another process would have.
pub(crate) struct Postgres(Database);

impl Postgres {
    pub(crate) fn new() -> Self {
        Self(migrated_database("ibex", |url| async move {
            migrate(&config(&url)).await.unwrap();
        }))
    }

    pub(crate) fn config(&self) -> PostgresConfig {
        config(self.0.url())
    }

    pub(crate) async fn connect(&self) -> Arc<PostgresStore> {
        connect(&self.config()).await
    }

    /// A plain connection beside the store, as the owner of the tables.
    pub(crate) async fn raw(&self) -> PgConnection {
        PgConnection::connect(self.0.url()).await.unwrap()
    }

    /// A plain connection that sees the rows of an organisation.
    pub(crate) async fn of(&self, org: OrgId) -> PgConnection {
        let mut raw = self.raw().await;
        let own = format!("SELECT set_config('ibex.org', '{org}', FALSE)");
        raw.execute(AssertSqlSafe(own)).await.unwrap();
        raw
    }

    /// One for each organisation: also the owner of the tables sees the rows of one at a time.
    pub(crate) async fn of_each(&self) -> Vec<PgConnection> {
        let orgs = sqlx::query("SELECT id FROM ibex.orgs ORDER BY id")
            .fetch_all(&mut self.raw().await)
            .await;
        let mut connections = Vec::new();
        for row in orgs.unwrap() {
            let id: uuid::Uuid = row.get(0);
            connections.push(self.of(OrgId::from_bytes(id.into_bytes())).await);
        }
        connections
    }
}

/// A handle with settings of its own.
pub(crate) async fn connect(config: &PostgresConfig) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::connect(config).await.unwrap())
}

/// The fences of a machine that runs many tests at once are slow.
pub(crate) fn config(url: &str) -> PostgresConfig {
    PostgresConfig {
        url: Some(url.to_owned()),
        fence_timeout_ms: 1_000,
        ..PostgresConfig::default()
    }
}

#[async_trait]
impl Engine for PostgresStore {
    async fn close(&self) -> Result<(), StoreError> {
        Self::close(self).await
    }
}
