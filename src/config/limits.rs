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
    /// What a replica does while the shared rates cannot be asked; unset, `local` in development and `refuse` elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_outage: Option<RedisOutage>,
    /// `local`: the number of replicas, each of which then allows its share.
    pub replicas: u32,
    /// The whole service: this process, or with Redis all replicas together.
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
            redis_outage: None,
            replicas: 1,
            global: LimitOverride::default(),
            org: LimitOverride::default(),
            agent: LimitOverride::default(),
            token: LimitOverride::default(),
            ids: BTreeMap::new(),
        }
    }
}

/// What happens to requests while the rates that replicas share cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedisOutage {
    /// They are refused with 503: no request goes uncounted.
    Refuse,
    /// Each replica counts by itself, with its share of every figure.
    Local,
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
