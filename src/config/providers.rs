//! `[upstream]`, `[providers.NAME]` and `[[models]]`.

use serde::{Deserialize, Serialize};

use crate::tokens::Family;

/// Timeouts and connection pool of the provider side.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamConfig {
    /// Time to connect, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Time from the sent request to the answer's head, in milliseconds.
    pub first_byte_timeout_ms: u64,
    /// Longest silence between two pieces of an answer, in milliseconds.
    pub idle_timeout_ms: u64,
    /// Longest whole answer, in milliseconds; 0 = no limit.
    pub total_timeout_ms: u64,
    /// Idle connections kept per provider.
    pub pool_max_idle: usize,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 5_000,
            first_byte_timeout_ms: 300_000,
            idle_timeout_ms: 120_000,
            total_timeout_ms: 0,
            pool_max_idle: 1_024,
        }
    }
}

/// How the provider takes its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthStyle {
    /// `Authorization: Bearer KEY`.
    #[default]
    Bearer,
    /// `api-key: KEY`.
    ApiKey,
    /// No key: a server of one's own.
    None,
}

/// One OpenAI-compatible provider.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// Base URL. Without a path `/v1` is added; any other path is used as it stands; a query string is kept.
    pub base_url: String,
    /// The key; required unless `auth = "none"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// How the key is sent.
    #[serde(default)]
    pub auth: AuthStyle,
    /// Serves models that no `[[models]]` entry routes. Exactly one provider is the default; a lone one always is.
    #[serde(default)]
    pub default: bool,
}

impl std::fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderConfig")
            .field("auth", &self.auth)
            .field("default", &self.default)
            .finish_non_exhaustive()
    }
}

/// How many system messages a model's template takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SystemRole {
    /// Any number, anywhere.
    Multi,
    /// One, at the start.
    #[default]
    Single,
    /// None: instructions go into the first user message.
    None,
}

/// How a turn's recalled memories stand beside the user message that opened it (`stable` layout).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecallPlace {
    /// The first text of that message: fits every template.
    #[default]
    Inline,
    /// A user message of its own just before it, for models that take two user messages in a row.
    Separate,
}

/// What is known of the models that match a pattern. Absent fields come from the built-in catalogue, else from the defaults.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// A glob over the model name; `*` stops at `/`.
    pub pattern: String,
    /// The provider that serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The name to send instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_model: Option<String>,
    /// Context window in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u32>,
    /// Greatest answer in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// `o200k_base`, `cl100k_base`, `claude` or `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<Family>,
    /// `multi`, `single` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_role: Option<SystemRole>,
    /// `inline` or `separate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall: Option<RecallPlace>,
}
