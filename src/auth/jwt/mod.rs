//! JSON Web Tokens of configured issuers.
//!
//! Nothing in a token chooses where its key comes from: the unverified `iss` and `kid` only select among what the operator configured,
//! each key has one algorithm, and `jku`, `x5u`, `jwk` and `x5c` are never read. Times are checked against the clock seam, everything else
//! about the signature by the library.

mod claims;
mod issuer;
mod key;
mod keyset;
#[cfg(test)]
mod tests;

use jsonwebtoken::{Algorithm, Header, dangerous, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::seams::Clock;

use super::{Credential, TokenClaims};

pub use issuer::{AuthSetupError, Issuers};
pub use keyset::{KeySetError, KeySetSource, MAX_KEY_SET_BYTES};

pub(in crate::auth) use claims::is_derived;

/// Why a token was not accepted.
#[derive(Debug)]
pub(in crate::auth) enum JwtError {
    /// Whatever is wrong with it, the client learns no more than this.
    Invalid,
    /// The issuer's keys cannot be had, so nothing can be said about the token.
    Keys(KeySetError),
}

/// Whether a credential has the shape of a JWT.
pub(in crate::auth) fn is_jwt(credential: Credential<'_>) -> bool {
    credential.as_str().bytes().filter(|b| *b == b'.').count() == 2
}

/// The one claim that is read before the signature is checked.
#[derive(Deserialize)]
struct Unverified {
    iss: String,
}

impl Issuers {
    /// Verifies a token: issuer, key, signature, audience, times, then the claims that make the principal.
    pub(in crate::auth) async fn verify(
        &self,
        credential: Credential<'_>,
        clock: &dyn Clock,
    ) -> Result<TokenClaims, JwtError> {
        let token = credential.as_str();
        let header = header(token).ok_or(JwtError::Invalid)?;
        let named: Unverified =
            dangerous::insecure_decode_claims(token).map_err(|_| JwtError::Invalid)?;
        let issuer = self.named(&named.iss).ok_or(JwtError::Invalid)?;

        let keys = issuer
            .keys
            .for_token(header.kid.as_deref(), header.alg)
            .await
            .map_err(JwtError::Keys)?;
        let validation = issuer.validation(header.alg);
        let claims = keys
            .iter()
            .filter(|key| key.serves(header.kid.as_deref(), header.alg))
            .find_map(|key| decode::<Map<String, Value>>(token, &key.verifying, &validation).ok())
            .ok_or(JwtError::Invalid)?
            .claims;
        issuer
            .claims
            .read(&claims, credential, clock.now())
            .ok_or(JwtError::Invalid)
    }
}

/// The header, if its algorithm is one of ours and it demands nothing that we do not know.
fn header(token: &str) -> Option<Header> {
    let header = decode_header(token).ok()?;
    let known = matches!(
        header.alg,
        Algorithm::HS256 | Algorithm::RS256 | Algorithm::ES256 | Algorithm::EdDSA
    );
    // An extension marked critical must be understood, and none is; an encrypted or compressed token is not a signed one.
    let plain = header.crit.is_none() && header.enc.is_none() && header.zip.is_none();
    (known && plain).then_some(header)
}
