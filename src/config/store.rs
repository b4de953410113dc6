//! `[store]` and `[keys]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The embedded store.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// The SQLite file; its folder also holds the server keys.
    pub path: PathBuf,
    /// Connections for reads.
    pub read_connections: usize,
    /// How long a statement waits for another process's lock, in milliseconds.
    pub busy_timeout_ms: u64,
    /// How often the change feed is polled for writes of other processes, in milliseconds.
    pub poll_interval_ms: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::from("ibex-data/ibex.db"),
            read_connections: 2,
            busy_timeout_ms: 5_000,
            poll_interval_ms: 250,
        }
    }
}

/// Server keys, base64 of 32 bytes each. Unset keys are created beside the embedded store on the first start.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeysConfig {
    /// Keys the digests of stored tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_digest: Option<String>,
    /// Keys session names, nonces and chain hashes; derived from the token digest key when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

impl std::fmt::Debug for KeysConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeysConfig")
            .field("token_digest", &self.token_digest.as_ref().map(|_| "<set>"))
            .field("session", &self.session.as_ref().map(|_| "<set>"))
            .finish()
    }
}
