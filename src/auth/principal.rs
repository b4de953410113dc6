//! The verified answer to "who asks": only code of this module's parent can make one, so holding it is proof of the gates.

use crate::ids::{AgentId, OrgId, TokenId, UserId};

use super::Permissions;

/// Whose memories may be read or written: one agent of one organisation, and at most one of its users.
///
/// Private fields and a constructor that only `auth` can call: a scope is always the result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    org: OrgId,
    agent: AgentId,
    user: Option<UserId>,
}

impl Scope {
    pub(in crate::auth) fn new(org: OrgId, agent: AgentId, user: Option<UserId>) -> Self {
        Self { org, agent, user }
    }

    /// The tenant.
    #[must_use]
    pub fn org(&self) -> OrgId {
        self.org
    }

    /// The agent.
    #[must_use]
    pub fn agent(&self) -> AgentId {
        self.agent
    }

    /// The end user; without one only agent-wide memories are seen.
    #[must_use]
    pub fn user(&self) -> Option<&UserId> {
        self.user.as_ref()
    }
}

#[cfg(test)]
impl Scope {
    /// A scope without a check, for tests of what lies behind the gates.
    pub(crate) fn for_test(org: OrgId, agent: AgentId, user: Option<UserId>) -> Self {
        Self::new(org, agent, user)
    }
}

/// The verified result of the bearer token and agent binding gates.
#[derive(Debug, Clone)]
pub struct Principal {
    scope: Scope,
    token: TokenId,
    permissions: Permissions,
}

impl Principal {
    pub(in crate::auth) fn new(scope: Scope, token: TokenId, permissions: Permissions) -> Self {
        Self {
            scope,
            token,
            permissions,
        }
    }

    /// What this principal may read and write.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The tenant.
    #[must_use]
    pub fn org(&self) -> OrgId {
        self.scope.org
    }

    /// The agent.
    #[must_use]
    pub fn agent(&self) -> AgentId {
        self.scope.agent
    }

    /// The credential's identifier (for a JWT, derived from its issuer and `jti` or subject).
    #[must_use]
    pub fn token(&self) -> TokenId {
        self.token
    }

    /// Whether every permission of `needed` is held.
    #[must_use]
    pub fn may(&self, needed: Permissions) -> bool {
        self.permissions.holds(needed)
    }

    /// The held permissions.
    #[must_use]
    pub fn permissions(&self) -> Permissions {
        self.permissions
    }
}
