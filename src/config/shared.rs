//! `[postgres]` and `[redis]`: the engines that replicas share.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the cold branch looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchIn {
    /// In this process while a partition is loaded and small enough, else in the database.
    #[default]
    Auto,
    /// In this process only.
    Process,
    /// In the database only.
    Database,
}

/// PostgreSQL with pgvector as the durable store, in the place of the file of `[store]`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PostgresConfig {
    /// `postgres://user:password@host:port/database`; unset, the embedded store is used. `sslmode=verify-full` in its query asks for TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A file with the URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// The role that every connection acts as. It must be bound by row-level security; `ibex migrate` creates it.
    pub role: String,
    /// Connections of this replica.
    pub max_connections: u32,
    /// Time to open a connection, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Time to wait for a free connection, in milliseconds.
    pub acquire_timeout_ms: u64,
    /// Time for one statement, in milliseconds.
    pub statement_timeout_ms: u64,
    /// Time for the last look before a handoff at what was forgotten, in milliseconds. A forget returns only after so long, when no answer
    /// from before it can be in use any more.
    pub fence_timeout_ms: u64,
    /// Where the cold branch looks: `auto`, `process` or `database`.
    pub search: SearchIn,
    /// `auto`: memories of a partition up to which it is loaded into the process.
    pub process_rows: usize,
    /// Memories of a partition up to which the database compares every vector; beyond it asks the HNSW index.
    pub exact_rows: usize,
    /// Candidates that the HNSW index looks at (`hnsw.ef_search`).
    pub ef_search: u32,
}

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            url: None,
            url_file: None,
            role: "ibex_app".to_owned(),
            max_connections: 16,
            connect_timeout_ms: 2_000,
            acquire_timeout_ms: 2_000,
            statement_timeout_ms: 5_000,
            fence_timeout_ms: 25,
            search: SearchIn::Auto,
            process_rows: 100_000,
            exact_rows: 20_000,
            ef_search: 200,
        }
    }
}

impl std::fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("url", &self.url.as_ref().map(|_| "<set>"))
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// How a Redis is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedisMode {
    /// One server, or one address that always leads to the primary.
    #[default]
    Single,
    /// Sentinels, which are asked for the primary.
    Sentinel,
    /// A cluster.
    Cluster,
}

/// Redis: what replicas share and may lose.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisConfig {
    /// `redis://` or `rediss://` URLs: the server, the sentinels, or nodes of the cluster. Empty, this replica shares nothing.
    pub urls: Vec<String>,
    /// A file with the URLs, one a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urls_file: Option<PathBuf>,
    /// `single`, `sentinel` or `cluster`.
    pub mode: RedisMode,
    /// `sentinel`: the name of the primary.
    pub master: String,
    /// What every key begins with.
    pub prefix: String,
    /// Time for one call on the request path, in milliseconds.
    pub timeout_ms: u64,
    /// Time to open a connection, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Whether changes are announced and listened for. Without it they are found by `store.poll_interval_ms`.
    pub pubsub: bool,
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            urls_file: None,
            mode: RedisMode::Single,
            master: "mymaster".to_owned(),
            prefix: "ibex".to_owned(),
            timeout_ms: 50,
            connect_timeout_ms: 1_000,
            pubsub: true,
        }
    }
}

impl std::fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConfig")
            .field("urls", &self.urls.len())
            .field("mode", &self.mode)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
