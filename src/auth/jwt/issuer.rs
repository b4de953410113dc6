//! Configured issuers: from the operator's settings to what verification uses, with every fault found at the start.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::{Algorithm, Validation};

use crate::config::{AuthConfig, IssuerConfig};

use super::claims::ClaimRules;
use super::key::{Key, algorithm_named};
use super::keyset::{KeySet, KeySetError, KeySetSource, Timing};

/// The greatest tolerated clock difference, in seconds.
const MAX_LEEWAY_S: u64 = 300;
/// What a key set may hold when the operator names no algorithms.
const ASYMMETRIC: [Algorithm; 3] = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA];

/// Faults of the `[auth]` section, all of them, each with its key. No fault repeats a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct AuthSetupError(pub Vec<String>);

/// Every configured issuer by its name.
#[derive(Debug)]
pub struct Issuers {
    by_name: HashMap<String, Issuer>,
}

/// One issuer.
#[derive(Debug)]
pub(super) struct Issuer {
    name: String,
    audience: Vec<String>,
    pub(super) keys: Keys,
    pub(super) claims: ClaimRules,
}

/// Where an issuer's keys come from.
#[derive(Debug)]
pub(super) enum Keys {
    /// Configuration.
    Static(Arc<[Key]>),
    /// A key set, fetched as needed.
    Fetched(KeySet),
}

impl Keys {
    /// The keys among which the token's is.
    pub(super) async fn for_token(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<[Key]>, KeySetError> {
        match self {
            Self::Static(keys) => Ok(Arc::clone(keys)),
            Self::Fetched(set) => set.for_token(kid, algorithm).await,
        }
    }
}

impl Issuers {
    /// Reads the configuration; `sources` has a source by issuer name for each issuer with a `jwks_url`.
    ///
    /// # Errors
    /// With every fault at once.
    pub fn new(
        config: &AuthConfig,
        sources: &HashMap<String, Arc<dyn KeySetSource>>,
    ) -> Result<Self, AuthSetupError> {
        let mut faults = Vec::new();
        let mut by_name = HashMap::new();
        for (index, issuer) in config.issuers.iter().enumerate() {
            let mut fault = |key: &str, reason: &str| {
                faults.push(format!("auth.issuers[{index}].{key}: {reason}"))
            };
            if by_name.contains_key(&issuer.issuer) {
                fault("issuer", "named twice");
            }
            let read = Issuer::new(issuer, sources.get(&issuer.issuer), &mut fault);
            by_name.extend(read.map(|read| (issuer.issuer.clone(), read)));
        }
        if faults.is_empty() {
            Ok(Self { by_name })
        } else {
            Err(AuthSetupError(faults))
        }
    }

    pub(super) fn named(&self, name: &str) -> Option<&Issuer> {
        self.by_name.get(name)
    }
}

impl Issuer {
    fn new(
        config: &IssuerConfig,
        source: Option<&Arc<dyn KeySetSource>>,
        fault: &mut impl FnMut(&str, &str),
    ) -> Option<Self> {
        let blank =
            |texts: &[String]| texts.is_empty() || texts.iter().any(|text| text.trim().is_empty());
        if config.issuer.trim().is_empty() {
            fault("issuer", "must not be empty");
        }
        if blank(&config.audience) {
            fault("audience", "needs at least one value, none of them empty");
        }
        if config.orgs.is_empty() {
            fault("orgs", "needs at least one organisation");
        }
        if config.leeway_s > MAX_LEEWAY_S {
            fault("leeway_s", "must be at most 300");
        }
        let claims = ClaimRules::new(config)
            .map_err(|(key, reason)| fault(key, &reason))
            .ok();
        let keys = match (&config.jwks_url, config.keys.is_empty()) {
            (None, false) => static_keys(config, fault),
            (Some(_), true) => fetched_keys(config, source, fault),
            _ => {
                fault("keys", "exactly one of keys and jwks_url must be set");
                None
            }
        };
        Some(Self {
            name: config.issuer.clone(),
            audience: config.audience.clone(),
            keys: keys?,
            claims: claims?,
        })
    }

    /// What the library checks: the one algorithm, issuer and audience, and that they and the expiry are there. Times are ours.
    pub(super) fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.set_issuer(&[&self.name]);
        validation.set_audience(&self.audience);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation
    }
}

fn static_keys(config: &IssuerConfig, fault: &mut impl FnMut(&str, &str)) -> Option<Keys> {
    let read = |(index, key)| {
        Key::from_config(key)
            .map_err(|reason| fault(&format!("keys[{index}]"), &reason))
            .ok()
    };
    let keys: Option<Vec<Key>> = config.keys.iter().enumerate().map(read).collect();
    Some(Keys::Static(keys?.into()))
}

fn fetched_keys(
    config: &IssuerConfig,
    source: Option<&Arc<dyn KeySetSource>>,
    fault: &mut impl FnMut(&str, &str),
) -> Option<Keys> {
    let named: Option<Vec<Algorithm>> = config
        .algorithms
        .iter()
        .map(|name| algorithm_named(name).filter(|one| ASYMMETRIC.contains(one)))
        .collect();
    let Some(named) = named else {
        fault("algorithms", "a key set serves RS256, ES256 and EdDSA only");
        return None;
    };
    let Some(source) = source else {
        fault("jwks_url", "no source was opened for it");
        return None;
    };
    let allowed = if named.is_empty() {
        ASYMMETRIC.to_vec()
    } else {
        named
    };
    let timing = Timing {
        floor: Duration::from_millis(config.refresh_floor_ms),
        refresh_after: Duration::from_millis(config.refresh_after_ms),
        stale_if_error: Duration::from_millis(config.stale_if_error_ms),
    };
    Some(Keys::Fetched(KeySet::new(
        Arc::clone(source),
        allowed,
        timing,
    )))
}
