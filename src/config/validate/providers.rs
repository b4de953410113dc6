//! Providers, models and model rules.

use std::net::{Ipv4Addr, Ipv6Addr};

use globset::GlobBuilder;
use url::{Host, Url};

use super::super::{AuthStyle, Config, Environment, PolicyConfig, ProviderConfig};
use super::Faults;

/// How alike an unknown provider name must be to a known one to be taken for a slip.
const ALIKE: f64 = 0.6;

pub(super) fn providers(config: &Config, faults: &mut Faults) {
    for (name, provider) in &config.providers {
        let key = format!("providers.{name}");
        let plain = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'));
        faults.require(
            plain,
            key.clone(),
            "a provider's name has only lower-case letters, digits, - and _",
        );
        if let Err(reason) = check_url(&provider.base_url, config.env == Environment::Development) {
            faults.add(format!("{key}.base_url"), reason);
        }
        api_key(name, provider, faults);
    }
    let defaults = config
        .providers
        .values()
        .filter(|provider| provider.default)
        .count();
    if config.providers.len() > 1 && defaults != 1 {
        let names: Vec<&str> = config.providers.keys().map(String::as_str).collect();
        let reason = format!(
            "there are {} providers ({}), and exactly one of them needs default = true",
            names.len(),
            names.join(", ")
        );
        faults.add("providers", reason);
    }
}

fn api_key(name: &str, provider: &ProviderConfig, faults: &mut Faults) {
    let key = format!("providers.{name}.api_key");
    match (&provider.api_key, provider.auth) {
        (_, AuthStyle::None) => {}
        (None, AuthStyle::Bearer | AuthStyle::ApiKey) => {
            let variable = if name == "openai" {
                "OPENAI_API_KEY".to_owned()
            } else {
                format!("IBEX_PROVIDERS__{}__API_KEY", name.to_uppercase())
            };
            faults.add(key, format!("is missing: set {variable}, or auth = \"none\" in [providers.{name}] for a server that wants no key"));
        }
        (Some(value), AuthStyle::Bearer | AuthStyle::ApiKey) => {
            let sendable = !value.is_empty() && value.bytes().all(|b| b.is_ascii_graphic());
            faults.require(sendable, key, "is empty or has a character that no header can carry (a space or line break, perhaps)");
        }
    }
}

/// Whether a URL can be called: http or https, a host, no credentials, and plain http only where nobody can listen.
pub(super) fn check_url(text: &str, development: bool) -> Result<(), &'static str> {
    let url = Url::parse(text).map_err(|_| "is not a URL such as https://api.openai.com/v1")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain credentials");
    }
    if url.fragment().is_some() {
        return Err("must not have a fragment (#)");
    }
    match (url.scheme(), url.host()) {
        ("https", Some(_)) => Ok(()),
        ("http", Some(host)) if development || is_loopback(&host) => Ok(()),
        ("http", Some(_)) => Err("must be https outside development, unless it is on this machine"),
        _ => Err("must start with http:// or https:// and name a host"),
    }
}

/// Whether a host is this machine.
pub(super) fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost",
        Host::Ipv4(ip) => Ipv4Addr::is_loopback(ip),
        Host::Ipv6(ip) => Ipv6Addr::is_loopback(ip),
    }
}

pub(super) fn models(config: &Config, faults: &mut Faults) {
    for (at, model) in config.models.iter().enumerate() {
        let key = |name: &str| format!("models[{at}].{name}");
        glob(&model.pattern, key("pattern"), faults);
        if let Some(provider) = model
            .provider
            .as_ref()
            .filter(|name| !config.providers.contains_key(*name))
        {
            let scored = config
                .providers
                .keys()
                .map(|name| (strsim::normalized_damerau_levenshtein(provider, name), name));
            let nearest = scored
                .filter(|(score, _)| *score >= ALIKE)
                .max_by(|a, b| a.0.total_cmp(&b.0));
            let fault = super::Fault::new(key("provider"), "names no configured provider");
            faults
                .0
                .push(fault.nearest(nearest.map(|(_, name)| name.clone())));
        }
        faults.require(
            model.upstream_model.as_deref() != Some(""),
            key("upstream_model"),
            "must not be empty; leave it out to send the same name",
        );
        faults.require(
            model.context_window != Some(0),
            key("context_window"),
            "0 would leave no room for any message",
        );
        faults.require(
            model.max_output_tokens != Some(0),
            key("max_output_tokens"),
            "0 would leave no room for an answer",
        );
    }
}

pub(super) fn rules(policy: &PolicyConfig, faults: &mut Faults) {
    for (at, rule) in policy.rules.iter().enumerate() {
        glob(&rule.model, format!("policy.rules[{at}].model"), faults);
    }
}

fn glob(pattern: &str, key: String, faults: &mut Faults) {
    if pattern.is_empty() {
        faults.add(key, "must not be empty; * matches every name without a /");
    } else if let Err(error) = GlobBuilder::new(pattern).literal_separator(true).build() {
        faults.add(key, format!("is not a glob: {}", error.kind()));
    }
}
