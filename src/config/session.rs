//! `[session]`.

use serde::{Deserialize, Serialize};

/// How long and how much of a session is kept (`stable` layout).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionConfig {
    /// Frozen state that was not used for this long is dropped from memory, in seconds (contract, section 5: 45 minutes). It can be
    /// rendered again from the store.
    pub idle_s: u64,
    /// Most frozen lanes (a session with one model) in memory; the least recently used go first.
    pub max_lanes: u64,
    /// Most bytes of frozen state in memory.
    pub max_bytes: u64,
    /// Stored sessions that were not used for this long are deleted, in days.
    pub retention_days: u32,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            idle_s: 2_700,
            max_lanes: 100_000,
            max_bytes: 256 << 20,
            retention_days: 30,
        }
    }
}
