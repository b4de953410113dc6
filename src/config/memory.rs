//! `[memory]`.

use serde::{Deserialize, Serialize};

use crate::memory::pii::{DEFAULT_THRESHOLD, Kind, KindSet};

/// Memory limits and rules (contract, section 12).
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
    /// Personal data and secrets in what is written.
    pub pii: PiiConfig,
    /// The model that says what two memories are to each other.
    pub classifier: ClassifierConfig,
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
            pii: PiiConfig::default(),
            classifier: ClassifierConfig::default(),
        }
    }
}

/// `[memory.classifier]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClassifierConfig {
    /// The model, routed as a client's would be; empty = none: what the rules cannot tell waits for a person.
    pub model: String,
    /// How long one answer may take, in milliseconds; the write waits for it.
    pub timeout_ms: u64,
}

impl Default for ClassifierConfig {
    fn default() -> Self {
        Self {
            model: String::new(),
            timeout_ms: 5_000,
        }
    }
}

/// What becomes of a memory in which something may be personal data, but is not certain to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Uncertain {
    /// It is stored as it is.
    #[default]
    Keep,
    /// It waits for review.
    Quarantine,
}

/// `[memory.pii]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PiiConfig {
    /// Whether texts are looked through.
    pub enabled: bool,
    /// Findings of this confidence or more are replaced by a placeholder; 0 to 1.
    pub threshold: f32,
    /// What becomes of a memory with a finding below it.
    pub uncertain: Uncertain,
    /// Kinds that are left in the text.
    pub allow: Vec<Kind>,
}

impl Default for PiiConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            threshold: DEFAULT_THRESHOLD,
            uncertain: Uncertain::default(),
            allow: Vec::new(),
        }
    }
}

impl PiiConfig {
    /// The kinds that are looked for.
    #[must_use]
    pub fn kinds(&self) -> KindSet {
        self.allow
            .iter()
            .fold(KindSet::ALL, |set, kind| set.without(*kind))
    }
}
