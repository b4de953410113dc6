//! `[context]`.

use serde::{Deserialize, Serialize};

/// Where injected text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// What was sent once in a session is sent again byte for byte, so the provider's prompt cache stays whole.
    #[default]
    Stable,
    /// One block a request: directive, safety sentence, memories (ADR-0070).
    Assembled,
}

/// Which formula orders candidates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScoreSchema {
    /// Five components: relevance, recency, usefulness, confidence, frequency.
    #[default]
    Composite,
    /// `0.85 similarity + 0.15 confidence`.
    Interim,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// Context assembly.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContextConfig {
    /// Whether context is assembled at all.
    pub enabled: bool,
    /// Where injected text goes.
    pub layout: Layout,
    /// The retrieval wall: from the start of assembly, in milliseconds; it shrinks to `timeout_ms` when only that one is set lower.
    pub deadline_ms: u64,
    /// The whole assembly, from its start, in milliseconds; at least `deadline_ms`, and 5 more than it when only that one is set higher.
    pub timeout_ms: u64,
    /// Limit of the directive branch, in milliseconds; this and the hot branch's shrink to `deadline_ms` when they are not set.
    pub directive_timeout_ms: u64,
    /// Limit of the hot branch, in milliseconds; it and the cold branch's begin when the question is embedded, and end at the wall.
    pub hot_timeout_ms: u64,
    /// Limit of the cold branch, in milliseconds; `deadline_ms` when not set.
    pub cold_timeout_ms: u64,
    /// Most memories from the hot set.
    pub hot_limit: usize,
    /// Most memories from the cold search.
    pub cold_limit: usize,
    /// Most tokens of memory text in one request.
    pub recall_tokens: u32,
    /// Most tokens of memory text in the session-open snapshot; 0 = no snapshot. The `assembled` layout has none.
    pub snapshot_tokens: u32,
    /// Most memories in the session-open snapshot.
    pub snapshot_items: usize,
    /// The operator's own rules, before every directive of every agent (`stable` layout); empty = none.
    pub platform_policy: String,
    /// Greatest platform policy, in tokens of `o200k_base`.
    pub platform_policy_tokens: u32,
    /// Whether the relevance gate decides what is worth injecting.
    pub recall_gate: Switch,
    /// Candidates whose relevance is below this are dropped before scoring; below 0.5.
    pub relevance_floor: f32,
    /// The score's formula.
    pub score_schema: ScoreSchema,
    /// Most cells of the packer's exact table; larger problems use coarser buckets, then a greedy pass.
    pub packer_dp_cell_ceiling: usize,
    /// Random bytes of the block nonce, 1 to 64.
    pub formatter_nonce_bytes: usize,
    /// Context window of models that are not known, in tokens.
    pub default_context_window: u32,
    /// Least and greatest answer reserve, in tokens.
    pub reserve_min: u32,
    /// Greatest answer reserve without a request's own maximum, in tokens.
    pub reserve_max: u32,
    /// Greatest directive, in tokens of `o200k_base`; checked when a version is added.
    pub directive_tokens: u32,
}

impl Default for ContextConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            layout: Layout::Stable,
            deadline_ms: 40,
            timeout_ms: 45,
            directive_timeout_ms: 5,
            hot_timeout_ms: 15,
            cold_timeout_ms: 40,
            hot_limit: 20,
            cold_limit: 50,
            recall_tokens: 2_000,
            snapshot_tokens: 1_500,
            snapshot_items: 40,
            platform_policy: String::new(),
            platform_policy_tokens: 2_000,
            recall_gate: Switch::On,
            relevance_floor: 0.15,
            score_schema: ScoreSchema::Composite,
            packer_dp_cell_ceiling: 437_570,
            formatter_nonce_bytes: 16,
            default_context_window: 32_768,
            reserve_min: 500,
            reserve_max: 4_096,
            directive_tokens: 4_000,
        }
    }
}
