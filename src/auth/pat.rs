//! Personal access tokens: `ibex_pat_<uuid>_<secret>`. The identifier finds the row, a keyed digest of the whole text proves the token.
//!
//! The secret is 256 random bits, so one keyed hash is enough: there is nothing to guess that a slow password hash could slow down.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::ids::{AgentId, OrgId, TokenId, UserId};
use crate::seams::{Entropy, EntropyError};
use crate::store::StoredToken;

use super::{Credential, Permissions, Secret};

/// What every token of this kind starts with; secret scanners look for it.
pub const PREFIX: &str = "ibex_pat_";
const ID_CHARS: usize = 36;
const SECRET_BYTES: usize = 32;
/// Unpadded base64 of the secret.
const SECRET_CHARS: usize = 43;

/// A keyed digest of a credential.
pub(in crate::auth) type Digest = [u8; 32];

/// A server key too weak to protect anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token key must be at least 32 bytes and not all zero")]
pub struct WeakKey;

/// The server key under which credentials are digested. A stolen store is worthless without it.
#[derive(Clone)]
pub struct TokenKey(Hmac<Sha256>);

impl TokenKey {
    /// Takes the key's bytes.
    ///
    /// # Errors
    /// For a key that is short, empty or blank: it would make every stored digest computable by anyone.
    pub fn new(key: &[u8]) -> Result<Self, WeakKey> {
        if key.len() < 32 || key.iter().all(|b| *b == 0) {
            return Err(WeakKey);
        }
        Hmac::new_from_slice(key).map(Self).map_err(|_| WeakKey)
    }

    pub(in crate::auth) fn digest(&self, credential: Credential<'_>) -> Digest {
        let mut mac = self.0.clone();
        mac.update(credential.as_str().as_bytes());
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(<hidden>)")
    }
}

/// What a new token shall be.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// The tenant.
    pub org: OrgId,
    /// Binds the token to this agent.
    pub agent: Option<AgentId>,
    /// Binds the token to this user.
    pub user: Option<UserId>,
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub permissions: Permissions,
    /// Creation time.
    pub created_at: Timestamp,
    /// End of validity.
    pub expires_at: Option<Timestamp>,
}

/// A minted token: the text for its owner and the row for the store.
#[derive(Debug, Clone)]
pub struct IssuedToken {
    /// The whole token; it cannot be shown again.
    pub secret: Secret,
    /// What is stored of it.
    pub row: StoredToken,
}

/// Mints a token. Storing the row is the caller's.
///
/// # Errors
/// When the random source fails.
pub fn issue(
    key: &TokenKey,
    entropy: &dyn Entropy,
    new: NewToken,
) -> Result<IssuedToken, EntropyError> {
    let mut secret = [0_u8; SECRET_BYTES];
    entropy.fill(&mut secret)?;
    let id = TokenId::new();
    let text = format!("{PREFIX}{id}_{}", URL_SAFE_NO_PAD.encode(secret));
    let digest = Credential::new(&text)
        .map(|credential| key.digest(credential))
        .ok_or(EntropyError)?;
    let NewToken {
        org,
        agent,
        user,
        name,
        permissions,
        created_at,
        expires_at,
    } = new;
    let row = StoredToken {
        id,
        org,
        agent,
        user,
        name,
        permissions,
        digest,
        created_at,
        expires_at,
        revoked_at: None,
    };
    Ok(IssuedToken {
        secret: Secret::new(text),
        row,
    })
}

/// Whether a credential claims to be of this kind.
pub(in crate::auth) fn is_pat(credential: Credential<'_>) -> bool {
    credential.as_str().starts_with(PREFIX)
}

/// The identifier of a well-formed token.
pub(in crate::auth) fn parse(credential: Credential<'_>) -> Option<TokenId> {
    let (id, rest) = credential
        .as_str()
        .strip_prefix(PREFIX)?
        .split_at_checked(ID_CHARS)?;
    let secret = rest.strip_prefix('_')?;
    let encoded = secret
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if secret.len() != SECRET_CHARS || !encoded {
        return None;
    }
    id.parse().ok()
}

/// Compares two digests in a time that does not depend on where they differ.
pub(in crate::auth) fn same_digest(presented: &Digest, stored: &Digest) -> bool {
    presented.ct_eq(stored).into()
}

#[cfg(test)]
mod tests {
    use super::{PREFIX, TokenKey, WeakKey, issue, parse, same_digest};
    use crate::auth::Credential;
    use crate::auth::testing::{Dice, NoEntropy, new_token, token_key};
    use crate::ids::OrgId;

    #[test]
    fn an_issued_token_parses_back_and_digests_to_its_row() {
        let key = token_key();
        let issued = issue(&key, &Dice::default(), new_token(OrgId::new())).unwrap();
        let credential = Credential::new(issued.secret.expose()).unwrap();
        assert_eq!(parse(credential), Some(issued.row.id));
        assert!(same_digest(&key.digest(credential), &issued.row.digest));
        assert_eq!(issued.secret.expose().len(), PREFIX.len() + 36 + 1 + 43);
    }

    #[test]
    fn another_case_of_a_letter_is_another_token() {
        let key = token_key();
        let issued = issue(&key, &Dice::default(), new_token(OrgId::new())).unwrap();
        let changed: String = issued.secret.expose().chars().rev().collect::<String>();
        let mut flipped = false;
        let changed: String = changed
            .chars()
            .map(|c| {
                if flipped || !c.is_ascii_alphabetic() {
                    return c;
                }
                flipped = true;
                if c.is_ascii_lowercase() {
                    c.to_ascii_uppercase()
                } else {
                    c.to_ascii_lowercase()
                }
            })
            .collect();
        let changed: String = changed.chars().rev().collect();
        assert!(changed.eq_ignore_ascii_case(issued.secret.expose()));
        assert!(!same_digest(
            &key.digest(Credential::new(&changed).unwrap()),
            &issued.row.digest
        ));
    }

    #[test]
    fn each_token_draws_fresh_randomness_and_none_is_made_without() {
        let dice = Dice::default();
        let first = issue(&token_key(), &dice, new_token(OrgId::new())).unwrap();
        let second = issue(&token_key(), &dice, new_token(OrgId::new())).unwrap();
        assert_ne!(first.row.digest, second.row.digest);
        assert!(issue(&token_key(), &NoEntropy, new_token(OrgId::new())).is_err());
    }

    #[test]
    fn malformed_tokens_have_no_identifier() {
        let id = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        let secret = "s".repeat(43);
        assert!(parse(Credential::new(&format!("ibex_pat_{id}_{secret}")).unwrap()).is_some());
        let bad = [
            format!("ibex_pat_{id}_"),
            format!("ibex_pat_{id}_{secret}s"),
            format!("ibex_pat_{id}-{secret}"),
            format!("IBEX_PAT_{id}_{secret}"),
            format!("ibex_pat_{}_{secret}", id.replace('-', "")),
            format!("ibex_pat_{id}_{}", "=".repeat(43)),
            "ibex_pat_".to_owned(),
        ];
        for text in bad {
            assert_eq!(parse(Credential::new(&text).unwrap()), None, "{text}");
        }
    }

    #[test]
    fn an_empty_or_blank_server_key_is_refused() {
        for weak in [&[][..], &[0; 32], &[7; 31]] {
            assert!(matches!(TokenKey::new(weak), Err(WeakKey)));
        }
        assert!(TokenKey::new(&[7; 32]).is_ok());
    }
}
