//! Stage 3, agent binding: takes a [`VerifiedToken`] and the request's headers, yields a [`BoundPrincipal`].
//!
//! The headers have one spelling each. A proxy that folds `_` into `-`, or reads the last of two values, would otherwise see another agent
//! than `ibex` does.

#[cfg(test)]
mod tests;

use http::{HeaderMap, HeaderName};

use crate::auth::{BindError, Permissions, Principal, Verifier};
use crate::error::{ApiError, Code};
use crate::ids::{AgentId, UserId};

use super::bearer_token::VerifiedToken;

const AGENT: HeaderName = HeaderName::from_static("x-ibex-agent-id");
const USER: HeaderName = HeaderName::from_static("x-ibex-user-id");

/// Proof that the credential may act for this agent and user.
#[derive(Debug, Clone)]
pub struct BoundPrincipal {
    principal: Principal,
}

impl BoundPrincipal {
    /// Who is asking.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Goes on only if every permission of `needed` is held.
    ///
    /// # Errors
    /// With the permissions that are missing.
    pub fn require(self, needed: Permissions) -> Result<Self, MissingPermissions> {
        let held = self.principal.permissions();
        let lacking = Permissions::from_bits(needed.bits() & !held.bits());
        if held.holds(needed) {
            Ok(self)
        } else {
            Err(MissingPermissions(lacking))
        }
    }
}

/// The permissions that a request needs and its credential lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("permissions are missing")]
pub struct MissingPermissions(Permissions);

impl From<MissingPermissions> for ApiError {
    fn from(MissingPermissions(lacking): MissingPermissions) -> Self {
        let names: Vec<&str> = lacking.names().collect();
        Self::new(
            Code::InsufficientPermissions,
            format!("The credential lacks: {}.", names.join(", ")),
        )
    }
}

/// Why the stage refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AgentBindingError {
    /// A header is sent twice, under a look-alike name, or is not a well-formed identifier.
    #[error("{0} is not well-formed")]
    Malformed(&'static str),
    /// The credential does not allow it.
    #[error(transparent)]
    Refused(#[from] BindError),
}

impl From<AgentBindingError> for ApiError {
    fn from(error: AgentBindingError) -> Self {
        match error {
            AgentBindingError::Malformed(name) => Self::new(
                Code::ValidationError,
                format!("{name} must be sent once and hold a well-formed identifier."),
            )
            .param(name),
            AgentBindingError::Refused(BindError::MissingAgent) => Self::new(
                Code::MissingAgentId,
                "X-IBEX-Agent-ID is required: the credential is not bound to an agent.",
            ),
            AgentBindingError::Refused(BindError::AgentNotAuthorized) => {
                Self::new(Code::AgentNotAuthorized, "The agent is not authorised.")
            }
            AgentBindingError::Refused(BindError::AgentSuspended) => {
                Self::new(Code::AgentSuspended, "The agent is not active.")
            }
            AgentBindingError::Refused(BindError::UserNotAuthorized) => {
                Self::new(Code::UserNotAuthorized, "The user is not authorised.")
            }
            AgentBindingError::Refused(BindError::MayNotNameUser) => {
                MissingPermissions(Permissions::ACT_FOR_USER).into()
            }
            AgentBindingError::Refused(BindError::Unavailable(_)) => Self::new(
                Code::AuthUnavailable,
                "The agent cannot be checked at the moment.",
            )
            .retry_after(1),
        }
    }
}

/// Binds the credential to the agent and user that the headers name.
///
/// # Errors
/// When a header is malformed or the credential does not allow it.
pub async fn agent_binding(
    token: &VerifiedToken,
    headers: &HeaderMap,
    verifier: &Verifier,
) -> Result<BoundPrincipal, AgentBindingError> {
    refuse_lookalikes(headers)?;
    let agent = agent_header(headers)?;
    let user = user_header(headers)?;
    let principal = verifier.bind(token.claims(), agent, user).await?;
    Ok(BoundPrincipal { principal })
}

fn agent_header(headers: &HeaderMap) -> Result<Option<AgentId>, AgentBindingError> {
    let malformed = AgentBindingError::Malformed("X-IBEX-Agent-ID");
    let Some(text) = single(headers, &AGENT).map_err(|()| malformed.clone())? else {
        return Ok(None);
    };
    // An identifier has one spelling, in lower case.
    let id: AgentId = text.parse().map_err(|_| malformed.clone())?;
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(malformed);
    }
    Ok(Some(id))
}

fn user_header(headers: &HeaderMap) -> Result<Option<UserId>, AgentBindingError> {
    let malformed = || AgentBindingError::Malformed("X-IBEX-User-ID");
    let text = single(headers, &USER).map_err(|()| malformed())?;
    text.map(str::parse).transpose().map_err(|_| malformed())
}

/// The text of a header that may be sent once.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

/// Refuses names that equal ours but for underscores.
fn refuse_lookalikes(headers: &HeaderMap) -> Result<(), AgentBindingError> {
    let folds_to = |name: &HeaderName, ours: &HeaderName| {
        let (name, ours) = (name.as_str(), ours.as_str());
        name.len() == ours.len()
            && name != ours
            && name
                .bytes()
                .zip(ours.bytes())
                .all(|(a, b)| a == b || (a == b'_' && b == b'-'))
    };
    for name in headers.keys() {
        if folds_to(name, &AGENT) {
            return Err(AgentBindingError::Malformed("X-IBEX-Agent-ID"));
        }
        if folds_to(name, &USER) {
            return Err(AgentBindingError::Malformed("X-IBEX-User-ID"));
        }
    }
    Ok(())
}
