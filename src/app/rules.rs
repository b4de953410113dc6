//! What a reload changes: one snapshot of policy, providers, models and what stands before every directive.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::config::Config;
use crate::policy::Policy;
use crate::providers::Registry;
use crate::telemetry::Metrics;

use super::StartError;

/// How the configuration in force stands to the one that was read last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Configuration {
    /// It is the one.
    Current,
    /// The one that was read last is faulty; the former one is in force.
    LastGood,
    /// It differs in keys that only a restart takes over.
    NeedsRestart,
}

impl From<u8> for Configuration {
    fn from(standing: u8) -> Self {
        let known = [Self::LastGood, Self::NeedsRestart];
        let found = known.into_iter().find(|known| *known as u8 == standing);
        found.unwrap_or(Self::Current)
    }
}

impl Configuration {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Current => "ok",
            Self::LastGood => "last_good",
            Self::NeedsRestart => "restart_needed",
        }
    }
}

/// What a running process takes from a new configuration. A request takes one snapshot and keeps it to its end.
#[derive(Debug)]
pub struct Rules {
    /// Which models an organisation may use.
    pub policy: Policy,
    /// Providers and models.
    pub registry: Registry,
    /// What stands before every directive, see `context.platform_policy`. A session that is frozen keeps what it opened with until its next
    /// epoch.
    pub platform_policy: String,
    /// Greatest directive that may be added, in tokens of `o200k_base`.
    pub directive_tokens: u32,
    /// Tells rules apart whose text was rendered.
    pub generation: u64,
}

/// Keys that a reload takes over, and everything below them.
const RELOADED: [&str; 15] = [
    "providers",
    "models",
    "policy",
    "context.enabled",
    "context.platform_policy",
    "context.directive_tokens",
    "rate_limit.default_rpm",
    "rate_limit.default_tpm",
    "rate_limit.default_streams",
    "rate_limit.global",
    "rate_limit.org",
    "rate_limit.agent",
    "rate_limit.token",
    "rate_limit.ids",
    "log.level",
];

impl Rules {
    /// Reads them.
    ///
    /// # Errors
    /// When a rule or a provider cannot be used; the text names its key.
    pub(super) fn new(
        config: &Config,
        metrics: &Metrics,
        generation: u64,
    ) -> Result<Self, StartError> {
        Ok(Self {
            policy: Policy::new(config).map_err(|e| StartError(e.to_string()))?,
            registry: Registry::counted(config, &metrics.calls)
                .map_err(|e| StartError(e.to_string()))?,
            platform_policy: config.context.platform_policy.clone(),
            directive_tokens: config.context.directive_tokens,
            generation,
        })
    }
}

/// Keys whose values differ and that only a restart takes over. Names alone: a value may be a secret.
pub(super) fn need_restart(running: &Config, read: &Config) -> BTreeSet<String> {
    let mut changed = BTreeSet::new();
    let (Ok(running), Ok(read)) = (serde_json::to_value(running), serde_json::to_value(read))
    else {
        return changed;
    };
    differing("", &running, &read, &mut changed);
    changed
}

fn differing(key: &str, running: &Value, read: &Value, changed: &mut BTreeSet<String>) {
    if running == read || RELOADED.contains(&key) {
        return;
    }
    let (Value::Object(before), Value::Object(after)) = (running, read) else {
        changed.insert(key.to_owned());
        return;
    };
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        let key = if key.is_empty() {
            name.clone()
        } else {
            format!("{key}.{name}")
        };
        let of =
            |side: &serde_json::Map<String, Value>| side.get(name).cloned().unwrap_or_default();
        differing(&key, &of(before), &of(after), changed);
    }
}

#[cfg(test)]
mod tests {
    use super::need_restart;
    use crate::config::Config;

    #[test]
    fn keys_that_a_restart_alone_takes_over_are_named_without_their_values() {
        let running = Config::default();
        let mut read = Config::default();
        read.context.platform_policy = "Be kind.".to_owned();
        read.rate_limit.default_rpm = 7;
        read.rate_limit.global.rpm = Some(3);
        read.log.level = "debug".to_owned();
        assert!(need_restart(&running, &read).is_empty());
        read.rate_limit.replicas = 3;
        read.server.max_messages = 10;
        read.embedder.api_key = Some("sk-invented".to_owned());
        let named: Vec<String> = need_restart(&running, &read).into_iter().collect();
        let expected = [
            "embedder.api_key",
            "rate_limit.replicas",
            "server.max_messages",
        ];
        assert_eq!(named, expected);
    }
}
