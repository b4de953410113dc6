//! `[auth]` and `[[auth.issuers]]`.

use serde::{Deserialize, Serialize};

use crate::ids::OrgId;

/// Credentials.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// How long a validated credential is trusted without asking the store, in milliseconds.
    pub cache_ttl_ms: u64,
    /// How many validated credentials are kept.
    pub cache_entries: u64,
    /// Time for one validation, in milliseconds; beyond it the request is refused with 503.
    pub timeout_ms: u64,
    /// Who may issue JWTs.
    pub issuers: Vec<IssuerConfig>,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            cache_ttl_ms: 30_000,
            cache_entries: 5_000,
            timeout_ms: 2_000,
            issuers: Vec::new(),
        }
    }
}

/// One JWT issuer. Exactly one of `keys` and `jwks_url` is set; both come from the operator, never from a token.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerConfig {
    /// The exact `iss` claim.
    pub issuer: String,
    /// Accepted `aud` values; at least one must be in the token.
    pub audience: Vec<String>,
    /// Organisations this issuer may name.
    pub orgs: Vec<OrgId>,
    /// Static keys.
    #[serde(default)]
    pub keys: Vec<KeyConfig>,
    /// A key set to fetch, `https://` (or loopback `http://` in development).
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// Algorithms accepted from the key set: any of RS256, ES256, EdDSA, and all three when empty. Never HS256.
    #[serde(default)]
    pub algorithms: Vec<String>,
    /// The claim with the organisation; with exactly one entry in `orgs` it may be absent from the token.
    #[serde(default = "org_claim")]
    pub org_claim: String,
    /// The claim with the agent; a token that has it is bound to that agent.
    #[serde(default = "agent_claim")]
    pub agent_claim: String,
    /// The claim with the end user. Configured but missing in a token: 401.
    #[serde(default)]
    pub user_claim: Option<String>,
    /// The claim with the permission names (an array, or one space-separated string).
    #[serde(default = "permissions_claim")]
    pub permissions_claim: String,
    /// Permission names for tokens without that claim; none when empty.
    #[serde(default)]
    pub default_permissions: Vec<String>,
    /// Tolerated clock difference for `exp` and `nbf`, in seconds, at most 300.
    #[serde(default = "leeway")]
    pub leeway_s: u64,
    /// Least time between two fetches of the key set, in milliseconds.
    #[serde(default = "refresh_floor")]
    pub refresh_floor_ms: u64,
    /// Age at which the key set is fetched again, in milliseconds.
    #[serde(default = "refresh_after")]
    pub refresh_after_ms: u64,
    /// How long a key set that cannot be refreshed stays in use, in milliseconds.
    #[serde(default = "stale_if_error")]
    pub stale_if_error_ms: u64,
}

fn org_claim() -> String {
    "org_id".to_owned()
}
fn agent_claim() -> String {
    "agent_id".to_owned()
}
fn permissions_claim() -> String {
    "permissions".to_owned()
}
fn leeway() -> u64 {
    30
}
fn refresh_floor() -> u64 {
    10_000
}
fn refresh_after() -> u64 {
    300_000
}
fn stale_if_error() -> u64 {
    3_600_000
}

/// One static verification key; its algorithm is fixed here.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// The `kid` that selects it; without one it serves tokens without `kid`.
    #[serde(default)]
    pub kid: Option<String>,
    /// HS256, RS256, ES256 or EdDSA.
    pub algorithm: String,
    /// For HS256: base64 of at least 32 secret bytes.
    #[serde(default)]
    pub secret: Option<String>,
    /// For the others: the public key in PEM.
    #[serde(default)]
    pub public_key_pem: Option<String>,
    /// A file with either of them; loading reads it into the field it stands for.
    #[serde(default)]
    pub file: Option<std::path::PathBuf>,
}

impl std::fmt::Debug for KeyConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyConfig")
            .field("kid", &self.kid)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}
