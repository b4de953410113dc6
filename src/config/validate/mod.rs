//! Values that are fine alone and impossible together, or that would make the server refuse everything.

mod auth;
mod context;
mod embedder;
mod limits;
mod providers;
mod shared;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::fault::Fault;
use super::{Config, Environment, TelemetryConfig};

/// Everything that is wrong with the meaning of a configuration.
#[must_use]
pub fn validate(config: &Config) -> Vec<Fault> {
    let mut faults = Faults::default();
    limits::server(&config.server, &mut faults);
    limits::timeouts(config, &mut faults);
    limits::rates(&config.rate_limit, &mut faults);
    shared::outage(&config.rate_limit, &mut faults);
    shared::postgres(config, &mut faults);
    shared::redis(config, &mut faults);
    context::context(&config.context, &mut faults);
    context::session(&config.session, &mut faults);
    context::memory(&config.memory, &mut faults);
    context::capture(&config.capture, &mut faults);
    limits::console(&config.console, &mut faults);
    embedder::embedder(config, &mut faults);
    providers::providers(config, &mut faults);
    providers::models(config, &mut faults);
    providers::rules(&config.policy, &mut faults);
    auth::issuers(config, &mut faults);
    log(config, &mut faults);
    telemetry(&config.telemetry, &mut faults);
    keys(config, &mut faults);
    faults.0
}

/// What works but is probably not meant.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.providers.is_empty() {
        warnings.push("no provider is configured, so no model can be reached: set OPENAI_API_KEY, or a [providers.NAME] section".to_owned());
    }
    if config.env != Environment::Development && config.server.listen.ip().is_loopback() {
        warnings.push(
            "server.listen is a loopback address: only this machine can reach the server"
                .to_owned(),
        );
    }
    warnings.extend(embedder::unused(&config.embedder));
    warnings
}

/// The faults found so far.
#[derive(Debug, Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add(&mut self, key: impl Into<String>, reason: impl Into<String>) {
        self.0.push(Fault::new(key, reason));
    }

    /// `reason` becomes a fault of `key` unless `holds`.
    fn require(&mut self, holds: bool, key: impl Into<String>, reason: impl Into<String>) {
        if !holds {
            self.add(key, reason);
        }
    }
}

fn log(config: &Config, faults: &mut Faults) {
    // A bare word that is no level would be taken for the name of a module, and nothing else would be logged.
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let level = config.log.level.trim();
    let word = !level.contains(['=', ',', '[']);
    let readable = tracing_subscriber::EnvFilter::builder()
        .parse(level)
        .is_ok()
        && (!word || levels.iter().any(|known| level.eq_ignore_ascii_case(known)));
    faults.require(
        readable,
        "log.level",
        "must be error, warn, info, debug or trace, or a list such as info,ibex=debug",
    );
}

fn telemetry(telemetry: &TelemetryConfig, faults: &mut Faults) {
    if let Err(error) = crate::telemetry::otlp::check(telemetry) {
        faults.add(format!("telemetry.{}", error.key()), error.reason());
    }
    faults.require(
        (0.0..=1.0).contains(&telemetry.sample_ratio),
        "telemetry.sample_ratio",
        "must be a share between 0 and 1",
    );
    faults.require(
        telemetry.headers.is_none() || telemetry.headers_file.is_none(),
        "telemetry.headers_file",
        "cannot stand beside telemetry.headers: one of them is enough",
    );
    for (key, value) in [
        ("timeout_ms", telemetry.timeout_ms),
        ("queue", telemetry.queue as u64),
        ("batch", telemetry.batch as u64),
        ("interval_ms", telemetry.interval_ms),
    ] {
        faults.require(value > 0, format!("telemetry.{key}"), "must be at least 1");
    }
}

fn keys(config: &Config, faults: &mut Faults) {
    if let Some(key) = &config.keys.token_digest {
        faults.require(
            decoded_len(key) == Some(32),
            "keys.token_digest",
            "must be base64 of exactly 32 bytes (openssl rand -base64 32)",
        );
    }
}

/// How many bytes a base64 text stands for. Padding may be missing, as many tools leave it away.
fn decoded_len(text: &str) -> Option<usize> {
    let text = text.trim().trim_end_matches('=');
    STANDARD_NO_PAD.decode(text).ok().map(|bytes| bytes.len())
}

#[cfg(test)]
mod tests;
