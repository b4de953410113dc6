//! A configuration in which every key is set: serialised, it is the tree of known keys.
//!
//! Structs with optional keys are written out in full here, so a new key does not compile until it is listed.

use std::collections::BTreeMap;

use crate::ids::OrgId;
use crate::tokens::Family;

use super::{
    AuthConfig, AuthStyle, CaptureConfig, Config, ConsoleConfig, ContextConfig, Effect,
    EmbedderConfig, Environment, IssuerConfig, KeyConfig, KeysConfig, LimitOverride, LogConfig,
    MemoryConfig, ModelConfig, PolicyConfig, PostgresConfig, ProviderConfig, RateLimitConfig,
    RecallPlace, RedisConfig, RuleConfig, ServerConfig, SessionConfig, StoreConfig, SystemRole,
    TelemetryConfig, UpstreamConfig,
};

/// Stands for every name in a section whose keys the operator chooses (`[providers.NAME]`).
pub(super) const ANY_NAME: &str = "*";

pub(super) fn every_key() -> Config {
    Config {
        env: Environment::default(),
        server: ServerConfig::default(),
        log: LogConfig::default(),
        telemetry: TelemetryConfig {
            endpoint: some_text(),
            headers: some_text(),
            headers_file: Some("headers".into()),
            ..TelemetryConfig::default()
        },
        store: StoreConfig::default(),
        postgres: PostgresConfig {
            url: some_text(),
            url_file: Some("url".into()),
            ..PostgresConfig::default()
        },
        redis: RedisConfig {
            urls: vec![String::new()],
            urls_file: Some("urls".into()),
            ..RedisConfig::default()
        },
        keys: KeysConfig {
            token_digest: some_text(),
            session: some_text(),
        },
        auth: AuthConfig {
            issuers: vec![issuer()],
            ..AuthConfig::default()
        },
        upstream: UpstreamConfig::default(),
        providers: BTreeMap::from([(ANY_NAME.to_owned(), provider())]),
        models: vec![model()],
        rate_limit: rate_limit(),
        policy: PolicyConfig {
            rules: vec![rule()],
        },
        context: ContextConfig::default(),
        session: SessionConfig::default(),
        memory: MemoryConfig::default(),
        capture: CaptureConfig::default(),
        console: ConsoleConfig {
            enabled: Some(true),
            ..ConsoleConfig::default()
        },
        embedder: EmbedderConfig {
            base_url: some_text(),
            api_key: some_text(),
            api_key_file: Some("key".into()),
            model: some_text(),
            dimensions: Some(1),
            near_duplicate: Some(1.0),
            unrelated: Some(0.0),
            related: Some(1.0),
            ..EmbedderConfig::default()
        },
    }
}

fn some_text() -> Option<String> {
    Some(String::new())
}

fn some_org() -> OrgId {
    OrgId::from_bytes([0; 16])
}

fn issuer() -> IssuerConfig {
    IssuerConfig {
        issuer: String::new(),
        audience: vec![String::new()],
        orgs: vec![some_org()],
        keys: vec![KeyConfig {
            kid: some_text(),
            algorithm: String::new(),
            secret: some_text(),
            public_key_pem: some_text(),
            file: Some("key".into()),
        }],
        jwks_url: some_text(),
        algorithms: vec![String::new()],
        org_claim: String::new(),
        agent_claim: String::new(),
        user_claim: some_text(),
        permissions_claim: String::new(),
        default_permissions: vec![String::new()],
        leeway_s: 0,
        refresh_floor_ms: 0,
        refresh_after_ms: 0,
        stale_if_error_ms: 0,
    }
}

fn provider() -> ProviderConfig {
    ProviderConfig {
        base_url: super::OPENAI_BASE_URL.to_owned(),
        api_key: some_text(),
        auth: AuthStyle::default(),
        default: false,
    }
}

fn model() -> ModelConfig {
    ModelConfig {
        pattern: String::new(),
        provider: some_text(),
        upstream_model: some_text(),
        context_window: Some(1),
        max_output_tokens: Some(1),
        tokenizer: Some(Family::Unknown),
        system_role: Some(SystemRole::default()),
        recall: Some(RecallPlace::default()),
    }
}

fn rate_limit() -> RateLimitConfig {
    let level = LimitOverride {
        rpm: Some(1),
        tpm: Some(1),
        streams: Some(1),
    };
    RateLimitConfig {
        default_rpm: 1,
        default_tpm: Some(1),
        default_streams: Some(1),
        redis_outage: Some(super::RedisOutage::Local),
        replicas: 1,
        global: level,
        org: level,
        agent: level,
        token: level,
        ids: BTreeMap::from([(ANY_NAME.to_owned(), level)]),
    }
}

fn rule() -> RuleConfig {
    RuleConfig {
        org: Some(some_org()),
        priority: 0,
        model: String::new(),
        effect: Effect::Allow,
        context: Some(true),
    }
}
