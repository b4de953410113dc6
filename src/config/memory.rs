//! `[memory]`.

use serde::{Deserialize, Serialize};

/// Memory limits (contract, section 12).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// Greatest content in characters.
    pub max_content_chars: usize,
    /// Greatest metadata object in bytes.
    pub max_metadata_bytes: usize,
    /// Most memories in one batch.
    pub max_batch: usize,
    /// Members of the hot set of one partition.
    pub hot_set_size: usize,
    /// Partitions up to this many memories are searched on the request's own thread; larger ones on a worker thread.
    pub inline_search_rows: usize,
    /// Bytes of memory for the partitions that are searched; the ones used least recently leave when it is exceeded.
    pub index_bytes: usize,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            max_content_chars: 10_000,
            max_metadata_bytes: 10_240,
            max_batch: 1_000,
            hot_set_size: 50,
            inline_search_rows: 4_096,
            index_bytes: 1 << 30,
        }
    }
}
