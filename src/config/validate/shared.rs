//! PostgreSQL and Redis: URLs of the right kind, times that leave time, and keys that all replicas have.

use url::Url;

use super::super::{
    Config, Environment, PostgresConfig, RateLimitConfig, RedisConfig, RedisOutage,
};
use super::Faults;

/// Longest role name of PostgreSQL, in bytes.
const ROLE_BYTES: usize = 63;

pub(super) fn postgres(config: &Config, faults: &mut Faults) {
    let PostgresConfig { url, url_file, .. } = &config.postgres;
    if url.is_some() && url_file.is_some() {
        faults.add(
            "postgres.url_file",
            "postgres.url is set as well: which one is meant?",
        );
    }
    let Some(url) = url else { return };
    let readable =
        Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "postgres" | "postgresql"));
    faults.require(
        readable,
        "postgres.url",
        "must be a URL that begins with postgres://",
    );
    figures(&config.postgres, faults);
    faults.require(
        config.keys.token_digest.is_some(),
        "keys.token_digest",
        "must be set with postgres.url: every replica needs the same key (openssl rand -base64 32)",
    );
}

fn figures(postgres: &PostgresConfig, faults: &mut Faults) {
    let role = &postgres.role;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let named = role.starts_with(|c: char| c.is_ascii_lowercase()) && role.chars().all(plain);
    faults.require(
        named && role.len() <= ROLE_BYTES,
        "postgres.role",
        "must be a name of lower-case letters, digits and underscores",
    );
    faults.require(
        postgres.max_connections >= 2,
        "postgres.max_connections",
        "must be at least 2: one connection stays for whoever does not wait for a load",
    );
    for (key, value) in [
        ("connect_timeout_ms", postgres.connect_timeout_ms),
        ("acquire_timeout_ms", postgres.acquire_timeout_ms),
        ("statement_timeout_ms", postgres.statement_timeout_ms),
        ("fence_timeout_ms", postgres.fence_timeout_ms),
    ] {
        faults.require(
            value > 0,
            format!("postgres.{key}"),
            "0 would leave no time",
        );
    }
    faults.require(
        (1..=1_000).contains(&postgres.ef_search),
        "postgres.ef_search",
        "must be between 1 and 1000, the bounds of hnsw.ef_search",
    );
}

pub(super) fn redis(config: &Config, faults: &mut Faults) {
    let redis = &config.redis;
    if !redis.urls.is_empty() && redis.urls_file.is_some() {
        faults.add(
            "redis.urls_file",
            "redis.urls is set as well: which ones are meant?",
        );
    }
    let of_redis =
        |url: &String| Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "redis" | "rediss"));
    faults.require(
        redis.urls.iter().all(of_redis),
        "redis.urls",
        "must be URLs that begin with redis:// or rediss://",
    );
    if redis.urls.is_empty() {
        let outside = config.env != Environment::Development;
        faults.require(
            !(config.postgres.url.is_some() && outside),
            "redis.urls",
            "must be set with postgres.url outside development: replicas would each allow every rate in full",
        );
        return;
    }
    times(redis, faults);
}

fn times(redis: &RedisConfig, faults: &mut Faults) {
    for (key, value) in [
        ("timeout_ms", redis.timeout_ms),
        ("connect_timeout_ms", redis.connect_timeout_ms),
    ] {
        faults.require(value > 0, format!("redis.{key}"), "0 would leave no time");
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    faults.require(
        !redis.prefix.is_empty() && redis.prefix.chars().all(plain),
        "redis.prefix",
        "must be a name of letters, digits, dashes, dots and underscores",
    );
}

pub(super) fn outage(rates: &RateLimitConfig, faults: &mut Faults) {
    faults.require(
        rates.replicas > 0,
        "rate_limit.replicas",
        "there is at least one",
    );
    let alone = rates.redis_outage != Some(RedisOutage::Local);
    faults.require(
        rates.replicas == 1 || !alone,
        "rate_limit.replicas",
        "says nothing unless rate_limit.redis_outage is local",
    );
}
