//! `[rate_limit]`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Request, token and stream rates at four levels: global, organisation, agent, token. A level's own figure wins over the default.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimitConfig {
    /// Requests per minute at every level that sets nothing else.
    pub default_rpm: u32,
    /// Tokens per minute (prompt estimate plus asked-for output) at every level that sets nothing else; unset = not limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_tpm: Option<u32>,
    /// Streams open at once at every level that sets nothing else; unset = not limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_streams: Option<u32>,
    /// The whole process.
    pub global: LimitOverride,
    /// Each organisation.
    pub org: LimitOverride,
    /// Each agent.
    pub agent: LimitOverride,
    /// Each token.
    pub token: LimitOverride,
    /// Single organisations, agents or tokens, by their identifier.
    pub ids: BTreeMap<String, LimitOverride>,
}

impl Default for RateLimitConfig {
    fn default() -> Self {
        Self {
            default_rpm: 6_000,
            default_tpm: None,
            default_streams: Some(1_000),
            global: LimitOverride::default(),
            org: LimitOverride::default(),
            agent: LimitOverride::default(),
            token: LimitOverride::default(),
            ids: BTreeMap::new(),
        }
    }
}

/// Figures of one level or one identifier; unset ones are inherited.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitOverride {
    /// Requests per minute, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpm: Option<u32>,
    /// Tokens per minute, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpm: Option<u32>,
    /// Streams open at once, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
}
