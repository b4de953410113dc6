//! From the configuration as written to the one in use: secret files are read, and defaults that depend on other keys follow them.

use std::path::Path;

use super::fault::Fault;
use super::{
    Config, ContextConfig, EmbedderConfig, KeyConfig, Layout, PostgresConfig, RedisConfig,
    TelemetryConfig,
};

/// Time kept for ranking, packing and formatting when `context.timeout_ms` follows `context.deadline_ms`, in milliseconds.
const AFTER_RETRIEVAL_MS: u64 = 5;

/// Completes `config`; `is_set` tells whether a key was written.
pub(super) fn resolve(config: &mut Config, is_set: &dyn Fn(&str) -> bool) -> Vec<Fault> {
    follow_deadlines(&mut config.context, is_set);
    if config.context.layout == Layout::Assembled && !is_set("context.snapshot_tokens") {
        config.context.snapshot_tokens = 0;
    }
    let mut faults = Vec::new();
    for (i, issuer) in config.auth.issuers.iter_mut().enumerate() {
        for (k, key) in issuer.keys.iter_mut().enumerate() {
            faults.extend(read_key_file(key, &format!("auth.issuers[{i}].keys[{k}]")));
        }
    }
    faults.extend(read_embedder_key(&mut config.embedder));
    faults.extend(read_postgres_url(&mut config.postgres));
    faults.extend(read_redis_urls(&mut config.redis));
    faults.extend(read_headers(&mut config.telemetry));
    faults
}

/// Whoever sets one time only does not want a refusal because of the others: those keep inside it.
fn follow_deadlines(context: &mut ContextConfig, is_set: &dyn Fn(&str) -> bool) {
    let unset = |key: &str| !is_set(&format!("context.{key}"));
    match (unset("deadline_ms"), unset("timeout_ms")) {
        (true, false) => context.deadline_ms = context.deadline_ms.min(context.timeout_ms),
        (false, true) => {
            context.timeout_ms = context
                .timeout_ms
                .max(context.deadline_ms.saturating_add(AFTER_RETRIEVAL_MS))
        }
        (true, true) | (false, false) => {}
    }
    if unset("cold_timeout_ms") {
        context.cold_timeout_ms = context.deadline_ms;
    }
    if unset("hot_timeout_ms") {
        context.hot_timeout_ms = context.hot_timeout_ms.min(context.deadline_ms);
    }
    if unset("directive_timeout_ms") {
        context.directive_timeout_ms = context.directive_timeout_ms.min(context.deadline_ms);
    }
}

/// Puts the file's text where an inline key would stand. With an inline key as well, both are kept for the validation to refuse.
fn read_key_file(key: &mut KeyConfig, path: &str) -> Option<Fault> {
    if key.secret.is_some() || key.public_key_pem.is_some() {
        return None;
    }
    let file = key.file.as_ref()?;
    match std::fs::read_to_string(file) {
        Ok(text) => {
            let text = Some(text.trim().to_owned());
            if key.algorithm == "HS256" {
                key.secret = text
            } else {
                key.public_key_pem = text
            }
            key.file = None;
            None
        }
        Err(error) => Some(Fault::new(
            format!("{path}.file"),
            format!("the file cannot be read: {error}"),
        )),
    }
}

/// Puts the file's key where an inline one would stand. With an inline key as well, both are kept for the validation to refuse.
fn read_embedder_key(embedder: &mut EmbedderConfig) -> Option<Fault> {
    if embedder.api_key.is_some() {
        return None;
    }
    match read(embedder.api_key_file.as_ref()?, "embedder.api_key_file") {
        Ok(text) => {
            embedder.api_key = Some(text);
            embedder.api_key_file = None;
            None
        }
        Err(fault) => Some(fault),
    }
}

/// The same for the database's URL, which holds its password.
fn read_postgres_url(postgres: &mut PostgresConfig) -> Option<Fault> {
    if postgres.url.is_some() {
        return None;
    }
    match read(postgres.url_file.as_ref()?, "postgres.url_file") {
        Ok(text) => {
            postgres.url = Some(text);
            postgres.url_file = None;
            None
        }
        Err(fault) => Some(fault),
    }
}

/// The same for the URLs of Redis, one a line.
fn read_redis_urls(redis: &mut RedisConfig) -> Option<Fault> {
    if !redis.urls.is_empty() {
        return None;
    }
    match read(redis.urls_file.as_ref()?, "redis.urls_file") {
        Ok(text) => {
            redis.urls = text.split_whitespace().map(str::to_owned).collect();
            redis.urls_file = None;
            None
        }
        Err(fault) => Some(fault),
    }
}

/// The same for the headers of the collector, which hold its key.
fn read_headers(telemetry: &mut TelemetryConfig) -> Option<Fault> {
    if telemetry.headers.is_some() {
        return None;
    }
    match read(telemetry.headers_file.as_ref()?, "telemetry.headers_file") {
        Ok(text) => {
            telemetry.headers = Some(text);
            telemetry.headers_file = None;
            None
        }
        Err(fault) => Some(fault),
    }
}

fn read(file: &Path, key: &str) -> Result<String, Fault> {
    std::fs::read_to_string(file)
        .map(|text| text.trim().to_owned())
        .map_err(|error| Fault::new(key, format!("the file cannot be read: {error}")))
}
