//! Configuration: TOML file, then environment, then one validation that reports every fault at once.
//!
//! One struct per section; a field's doc line says what it means, its `Default` is the default, and its environment variable is
//! `IBEX_<SECTION>__<KEY>`. `config/ibex.example.toml` lists all of them, and a test holds it to the structs.
//!
//! ```text
//! load      the order of it all
//! tree      the file, every setting with its line        env       variables as settings
//! check     unknown names, wrong types, missing keys     schema    the tree of known keys (from every_key), near matches
//! resolve   secret files, defaults that follow others    validate  combinations that cannot work
//! fault     one fault, and the message with all of them
//! ```

mod load;
mod env;
mod tree;
mod check;
mod schema;
mod every_key;
mod resolve;
mod validate;
mod fault;

mod auth;
mod capture;
mod console;
mod context;
pub mod embedder;
mod limits;
mod memory;
mod policy;
mod providers;
mod server;
mod session;
mod shared;
mod store;
mod telemetry;

use serde::{Deserialize, Serialize};

pub use env::{Variables, process_env};
pub use fault::{ConfigFaults, Fault, Origin};
pub use load::{Loaded, load};
pub use validate::validate;

pub use auth::{AuthConfig, IssuerConfig, KeyConfig};
pub use capture::CaptureConfig;
pub use console::ConsoleConfig;
pub use context::{ContextConfig, Layout, ScoreSchema, Switch};
pub use embedder::{EmbedderConfig, EmbedderKind};
pub use limits::{LimitOverride, RateLimitConfig, RedisOutage};
pub use memory::{ClassifierConfig, MemoryConfig, PiiConfig, Uncertain};
pub use policy::{Effect, PolicyConfig, RuleConfig};
pub use providers::{
    AuthStyle, ModelConfig, ProviderConfig, RecallPlace, SystemRole, UpstreamConfig,
};
pub use server::{LogConfig, LogFormat, ServerConfig};
pub use session::SessionConfig;
pub use shared::{PostgresConfig, RedisConfig, RedisMode, SearchIn};
pub use store::{KeysConfig, StoreConfig};
pub use telemetry::{TelemetryConfig, TraceProtocol};

/// OpenAI's own base URL.
pub const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// Where the binary runs. Outside development the safer of two behaviours is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    /// A developer's machine.
    #[default]
    Development,
    /// Before production, with its rules.
    Staging,
    /// Real users.
    Production,
}

/// The whole configuration, as written: every key present, defaults filled in.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where the binary runs: `development`, `staging` or `production` (`IBEX_ENV`).
    pub env: Environment,
    /// Listener, body limits and timeouts of the client side.
    pub server: ServerConfig,
    /// Log output.
    pub log: LogConfig,
    /// Traces.
    pub telemetry: TelemetryConfig,
    /// The durable store.
    pub store: StoreConfig,
    /// PostgreSQL as the durable store.
    pub postgres: PostgresConfig,
    /// What replicas share.
    pub redis: RedisConfig,
    /// Server keys.
    pub keys: KeysConfig,
    /// Credentials.
    pub auth: AuthConfig,
    /// Timeouts and pool of the provider side.
    pub upstream: UpstreamConfig,
    /// Providers by name. `OPENAI_BASE_URL` and `OPENAI_API_KEY` define the one named `openai`.
    pub providers: std::collections::BTreeMap<String, ProviderConfig>,
    /// Models beyond the built-in catalogue: first match wins.
    pub models: Vec<ModelConfig>,
    /// Request, token and stream rates.
    pub rate_limit: RateLimitConfig,
    /// Model rules and context switches.
    pub policy: PolicyConfig,
    /// Context assembly.
    pub context: ContextConfig,
    /// Frozen sessions.
    pub session: SessionConfig,
    /// Memory limits.
    pub memory: MemoryConfig,
    /// Memory from conversations.
    pub capture: CaptureConfig,
    /// The page for people who run the service.
    pub console: ConsoleConfig,
    /// Text to vector.
    pub embedder: EmbedderConfig,
}

#[cfg(test)]
mod tests;
