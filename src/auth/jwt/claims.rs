//! From a verified token's claims to who it speaks for, as the issuer's configuration maps them.

use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::auth::{Credential, Permissions, TokenClaims};
use crate::config::IssuerConfig;
use crate::ids::{OrgId, TokenId};

/// The UUID version of derived identifiers ("custom"); stored tokens carry another.
const DERIVED_VERSION: u8 = 8;

/// How an issuer's claims are read.
#[derive(Debug)]
pub(super) struct ClaimRules {
    issuer: String,
    orgs: Vec<OrgId>,
    org: String,
    agent: String,
    user: Option<String>,
    permissions: String,
    default_permissions: Permissions,
    leeway: SignedDuration,
}

impl ClaimRules {
    /// Reads the mapping, or names the key at fault and the reason.
    pub(super) fn new(config: &IssuerConfig) -> Result<Self, (&'static str, String)> {
        let named = [
            ("org_claim", Some(&config.org_claim)),
            ("agent_claim", Some(&config.agent_claim)),
            ("user_claim", config.user_claim.as_ref()),
            ("permissions_claim", Some(&config.permissions_claim)),
        ];
        for (key, claim) in named {
            if claim.is_some_and(|claim| claim.is_empty()) {
                return Err((key, "must not be empty".to_owned()));
            }
        }
        let mut default_permissions = Permissions::NONE;
        for name in &config.default_permissions {
            let one = Permissions::named(name).ok_or_else(|| {
                (
                    "default_permissions",
                    format!("there is no permission \"{name}\""),
                )
            })?;
            default_permissions = default_permissions.with(one);
        }
        Ok(Self {
            issuer: config.issuer.clone(),
            orgs: config.orgs.clone(),
            org: config.org_claim.clone(),
            agent: config.agent_claim.clone(),
            user: config.user_claim.clone(),
            permissions: config.permissions_claim.clone(),
            default_permissions,
            leeway: SignedDuration::from_secs(i64::try_from(config.leeway_s).unwrap_or_default()),
        })
    }

    /// The token's claims at `now`, or nothing if one of them is missing, ill-formed, out of time or beyond what the issuer may say.
    pub(super) fn read(
        &self,
        claims: &Map<String, Value>,
        token: Credential<'_>,
        now: Timestamp,
    ) -> Option<TokenClaims> {
        let expires_at = numeric_date(claims.get("exp")?)?
            .checked_add(self.leeway)
            .unwrap_or(Timestamp::MAX);
        if let Some(not_before) = claims.get("nbf")
            && now
                < numeric_date(not_before)?
                    .checked_sub(self.leeway)
                    .unwrap_or(Timestamp::MIN)
        {
            return None;
        }
        let user = self
            .user
            .as_ref()
            .map(|claim| text_id(claims.get(claim)?))
            .map_or(Some(None), |user| user.map(Some))?;
        let read = TokenClaims {
            token: self.token_id(claims, token),
            org: self.org(claims)?,
            agent: claims
                .get(&self.agent)
                .map_or(Some(None), |agent| text_id(agent).map(Some))?,
            user,
            permissions: claims
                .get(&self.permissions)
                .map_or(Some(self.default_permissions), permissions)?,
            expires_at: Some(expires_at),
        };
        (!read.has_expired(now)).then_some(read)
    }

    /// The organisation: one that this issuer may name; unnamed only when there is just one.
    fn org(&self, claims: &Map<String, Value>) -> Option<OrgId> {
        match (claims.get(&self.org), self.orgs.as_slice()) {
            (None, [only]) => Some(*only),
            (None, _) => None,
            (Some(named), allowed) => text_id(named).filter(|org| allowed.contains(org)),
        }
    }

    /// A stable identifier for limits and revocation: from the issuer and the token's own identifier, else its subject, else its text.
    fn token_id(&self, claims: &Map<String, Value>, token: Credential<'_>) -> TokenId {
        let own = |name: &'static str| {
            claims
                .get(name)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
                .map(|text| (name, text))
        };
        let (kind, text) = own("jti")
            .or_else(|| own("sub"))
            .unwrap_or(("token", token.as_str()));
        let mut hash = Sha256::new();
        for part in ["ibex token id", &self.issuer, kind, text] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest: [u8; 32] = hash.finalize().into();
        let (head, _) = digest.split_first_chunk().unwrap_or((&[0; 16], &[]));
        let id = uuid::Builder::from_custom_bytes(*head).into_uuid();
        TokenId::from_bytes(id.into_bytes())
    }
}

/// Whether an identifier was derived from a JWT; those of stored tokens never are.
pub(in crate::auth) fn is_derived(id: TokenId) -> bool {
    id.as_bytes()
        .get(6)
        .is_some_and(|byte| byte >> 4 == DERIVED_VERSION)
}

/// Seconds since the epoch, a fraction allowed (RFC 7519, section 2).
fn numeric_date(value: &Value) -> Option<Timestamp> {
    if let Some(seconds) = value.as_i64() {
        return Timestamp::from_second(seconds).ok();
    }
    let duration = SignedDuration::try_from_secs_f64(value.as_f64()?).ok()?;
    Timestamp::from_duration(duration).ok()
}

/// A claim that must be a well-formed identifier. Null is not "absent": a token bound to nothing says nothing.
fn text_id<T: FromStr>(value: &Value) -> Option<T> {
    value.as_str()?.parse().ok()
}

/// An array of names or one space-separated string. Names of other systems are passed over.
fn permissions(value: &Value) -> Option<Permissions> {
    let union =
        |set: Permissions, name: &str| set.with(Permissions::named(name).unwrap_or_default());
    match value {
        Value::String(names) => Some(
            names
                .split_ascii_whitespace()
                .fold(Permissions::NONE, union),
        ),
        Value::Array(names) => Some(
            names
                .iter()
                .filter_map(Value::as_str)
                .fold(Permissions::NONE, union),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}
