//! Stage 2, bearer token: takes the request's headers, yields a [`VerifiedToken`].
//!
//! `Authorization: Bearer` is the way; `x-api-key` and `api-key` serve clients that cannot do otherwise. Whoever sends more than one must
//! mean the same credential by all of them.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::{HeaderMap, HeaderName, header};

use crate::auth::{AuthError, Credential, TokenClaims, Verifier};
use crate::error::{ApiError, Code};

/// Where a bare credential may stand.
const KEY_HEADERS: [HeaderName; 2] = [
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
];

/// Proof that the request carries a credential that is valid now.
#[derive(Debug, Clone)]
pub struct VerifiedToken {
    claims: Arc<TokenClaims>,
}

impl VerifiedToken {
    /// What the credential says.
    #[must_use]
    pub fn claims(&self) -> &TokenClaims {
        &self.claims
    }
}

/// Why the stage refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BearerTokenError {
    /// No credential, or an empty one.
    #[error("no credential")]
    Missing,
    /// Something stands where a credential belongs, but it is none: another scheme, a header sent twice.
    #[error("no well-formed credential")]
    Malformed,
    /// Two headers carry different credentials.
    #[error("two different credentials")]
    Conflicting,
    /// The credential was not accepted.
    #[error(transparent)]
    Refused(#[from] AuthError),
}

impl From<BearerTokenError> for ApiError {
    fn from(error: BearerTokenError) -> Self {
        match error {
            BearerTokenError::Missing => Self::new(
                Code::MissingToken,
                "A credential is required: Authorization: Bearer <token>.",
            ),
            BearerTokenError::Conflicting => Self::new(
                Code::InvalidRequest,
                "The request carries two different credentials.",
            ),
            // One text for all of them: nobody learns how close a guess was.
            BearerTokenError::Malformed | BearerTokenError::Refused(AuthError::InvalidToken) => {
                Self::new(Code::InvalidToken, "The credential is not valid.")
            }
            BearerTokenError::Refused(AuthError::OrgSuspended) => {
                Self::new(Code::OrgSuspended, "The organisation is suspended.")
            }
            BearerTokenError::Refused(AuthError::Unavailable(_)) => Self::new(
                Code::AuthUnavailable,
                "The credential cannot be checked at the moment.",
            )
            .retry_after(1),
        }
    }
}

/// Finds the request's one credential and has it verified.
///
/// # Errors
/// When there is none, more than one, or it is not accepted.
pub async fn bearer_token(
    headers: &HeaderMap,
    verifier: &Verifier,
) -> Result<VerifiedToken, BearerTokenError> {
    let credential = credential(headers)?;
    let claims = verifier.verify(credential).await?;
    Ok(VerifiedToken { claims })
}

fn credential(headers: &HeaderMap) -> Result<Credential<'_>, BearerTokenError> {
    let mut found = single(headers, &header::AUTHORIZATION)?
        .map(bearer)
        .transpose()?;
    for name in &KEY_HEADERS {
        let Some(text) = single(headers, name)? else {
            continue;
        };
        let key = well_formed(text.trim_matches(' '))?;
        if found.is_some_and(|other| other != key) {
            return Err(BearerTokenError::Conflicting);
        }
        found = Some(key);
    }
    found.ok_or(BearerTokenError::Missing)
}

/// The text of a header that may be sent once.
fn single<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'h str>, BearerTokenError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value
            .to_str()
            .map(Some)
            .map_err(|_| BearerTokenError::Malformed),
        (Some(_), Some(_)) => Err(BearerTokenError::Malformed),
    }
}

/// The credential after the scheme, which is spelled in any case and followed by one or more spaces (RFC 9110, section 11).
fn bearer(text: &str) -> Result<Credential<'_>, BearerTokenError> {
    let text = text.trim_matches(' ');
    let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
    if !scheme.is_empty() && !scheme.eq_ignore_ascii_case("Bearer") {
        return Err(BearerTokenError::Malformed);
    }
    well_formed(rest.trim_start_matches(' '))
}

fn well_formed(text: &str) -> Result<Credential<'_>, BearerTokenError> {
    if text.is_empty() {
        return Err(BearerTokenError::Missing);
    }
    Credential::new(text).ok_or(BearerTokenError::Malformed)
}
