//! What a verified credential says, whichever kind it is.

use jiff::Timestamp;

use crate::ids::{AgentId, OrgId, TokenId, UserId};

use super::Permissions;

/// The result of verifying a credential; only `auth` can make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenClaims {
    pub(in crate::auth) token: TokenId,
    pub(in crate::auth) org: OrgId,
    pub(in crate::auth) agent: Option<AgentId>,
    pub(in crate::auth) user: Option<UserId>,
    pub(in crate::auth) permissions: Permissions,
    /// The first instant at which the credential is refused, an issuer's leeway included.
    pub(in crate::auth) expires_at: Option<Timestamp>,
}

impl TokenClaims {
    /// The credential's identifier, safe to log.
    #[must_use]
    pub fn token(&self) -> TokenId {
        self.token
    }

    /// The tenant.
    #[must_use]
    pub fn org(&self) -> OrgId {
        self.org
    }

    /// The agent it is bound to.
    #[must_use]
    pub fn agent(&self) -> Option<AgentId> {
        self.agent
    }

    /// The user it is bound to.
    #[must_use]
    pub fn user(&self) -> Option<&UserId> {
        self.user.as_ref()
    }

    /// What it may do.
    #[must_use]
    pub fn permissions(&self) -> Permissions {
        self.permissions
    }

    pub(in crate::auth) fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}
