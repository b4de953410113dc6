//! JWT issuers: what is accepted from them is decided here, never by a token.

use std::collections::BTreeSet;

use url::Url;

use crate::auth::Permissions;

use super::super::{Config, Environment, IssuerConfig, KeyConfig};
use super::{Faults, decoded_len, providers};

/// Algorithms that a key set may use. A shared secret has no place in a published document.
const KEY_SET_ALGORITHMS: &[&str] = &["RS256", "ES256", "EdDSA"];

/// Least HS256 secret in bytes: the size of its digest.
const MIN_SECRET: usize = 32;

/// Greatest tolerated clock difference in seconds.
const MAX_LEEWAY: u64 = 300;

pub(super) fn issuers(config: &Config, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for (at, issuer) in config.auth.issuers.iter().enumerate() {
        let path = format!("auth.issuers[{at}]");
        faults.require(
            seen.insert(&issuer.issuer),
            format!("{path}.issuer"),
            "an earlier entry has the same issuer",
        );
        claims(issuer, &path, faults);
        permissions(issuer, &path, faults);
        key_source(
            issuer,
            &path,
            config.env == Environment::Development,
            faults,
        );
        for (k, key) in issuer.keys.iter().enumerate() {
            static_key(key, &format!("{path}.keys[{k}]"), faults);
        }
    }
}

fn claims(issuer: &IssuerConfig, path: &str, faults: &mut Faults) {
    let filled = |list: &[String]| !list.is_empty() && list.iter().all(|item| !item.is_empty());
    faults.require(
        filled(&issuer.audience),
        format!("{path}.audience"),
        "needs at least one value, and no empty one",
    );
    faults.require(
        !issuer.orgs.is_empty(),
        format!("{path}.orgs"),
        "needs at least one organisation",
    );
    let names = [
        ("issuer", Some(&issuer.issuer)),
        ("org_claim", Some(&issuer.org_claim)),
        ("agent_claim", Some(&issuer.agent_claim)),
        ("permissions_claim", Some(&issuer.permissions_claim)),
        ("user_claim", issuer.user_claim.as_ref()),
    ];
    for (key, value) in names {
        faults.require(
            value.is_none_or(|text| !text.is_empty()),
            format!("{path}.{key}"),
            "must not be empty",
        );
    }
    faults.require(
        issuer.leeway_s <= MAX_LEEWAY,
        format!("{path}.leeway_s"),
        format!("must be at most {MAX_LEEWAY} seconds"),
    );
}

fn permissions(issuer: &IssuerConfig, path: &str, faults: &mut Faults) {
    if issuer
        .default_permissions
        .iter()
        .any(|name| Permissions::named(name).is_none())
    {
        let names: Vec<&str> = Permissions::all().names().collect();
        faults.add(
            format!("{path}.default_permissions"),
            format!("has an unknown name; known are {}", names.join(", ")),
        );
    }
}

fn key_source(issuer: &IssuerConfig, path: &str, development: bool, faults: &mut Faults) {
    match (&issuer.jwks_url, issuer.keys.is_empty()) {
        (Some(_), false) => faults.add(
            format!("{path}.jwks_url"),
            "either keys or jwks_url, not both",
        ),
        (None, true) => faults.add(format!("{path}.keys"), "one of keys and jwks_url is needed"),
        (None, false) => {
            faults.require(
                issuer.algorithms.is_empty(),
                format!("{path}.algorithms"),
                "belongs to jwks_url; each entry of keys names its own algorithm",
            );
        }
        (Some(url), true) => {
            if let Err(reason) = check_key_set_url(url, development) {
                faults.add(format!("{path}.jwks_url"), reason);
            }
            let allowed = issuer
                .algorithms
                .iter()
                .all(|name| KEY_SET_ALGORITHMS.contains(&name.as_str()));
            faults.require(
                allowed,
                format!("{path}.algorithms"),
                format!("may name {} only", KEY_SET_ALGORITHMS.join(", ")),
            );
        }
    }
}

fn check_key_set_url(text: &str, development: bool) -> Result<(), &'static str> {
    providers::check_url(text, development)?;
    let local = Url::parse(text)
        .is_ok_and(|url| url.host().is_some_and(|host| providers::is_loopback(&host)));
    if text.starts_with("https:") || (development && local) {
        Ok(())
    } else {
        Err("must be https (plain http only on this machine, in development)")
    }
}

fn static_key(key: &KeyConfig, path: &str, faults: &mut Faults) {
    let sources = [
        key.secret.is_some(),
        key.public_key_pem.is_some(),
        key.file.is_some(),
    ];
    if sources.into_iter().filter(|set| *set).count() != 1 {
        faults.add(path, "needs exactly one of secret, public_key_pem and file");
        return;
    }
    match key.algorithm.as_str() {
        "HS256" => {
            faults.require(
                key.public_key_pem.is_none(),
                format!("{path}.public_key_pem"),
                "HS256 takes a secret, not a public key",
            );
            if let Some(secret) = &key.secret {
                let long = decoded_len(secret).is_some_and(|bytes| bytes >= MIN_SECRET);
                faults.require(
                    long,
                    format!("{path}.secret"),
                    format!("must be base64 of at least {MIN_SECRET} bytes"),
                );
            }
        }
        "RS256" | "ES256" | "EdDSA" => {
            faults.require(
                key.secret.is_none(),
                format!("{path}.secret"),
                "this algorithm takes a public key (public_key_pem)",
            );
            if let Some(pem) = &key.public_key_pem {
                let public = pem.contains("-----BEGIN ") && !pem.contains("PRIVATE KEY");
                faults.require(
                    public,
                    format!("{path}.public_key_pem"),
                    "must be a public key in PEM",
                );
            }
        }
        _ => faults.add(
            format!("{path}.algorithm"),
            "must be HS256, RS256, ES256 or EdDSA",
        ),
    }
}
