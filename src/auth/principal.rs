//! The verified answer to "who asks": only code of this module's parent can make one, so holding it is proof of the gates.

use crate::ids::{AgentId, OrgId, TokenId, UserId};

use super::Permissions;
use crate::store::CaptureScope;

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

/// The right to see what was: memories that are replaced, or outside their validity. It belongs to those who write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryRight(());

/// The right to see what is held for review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReviewRight(());

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
    capture: CaptureScope,
}

impl Principal {
    pub(in crate::auth) fn new(scope: Scope, token: TokenId, permissions: Permissions) -> Self {
        Self {
            scope,
            token,
            permissions,
            capture: CaptureScope::Off,
        }
    }

    /// The same, for an agent whose conversations become memory.
    pub(in crate::auth) fn capturing(self, capture: CaptureScope) -> Self {
        Self { capture, ..self }
    }

    /// What of the agent's conversations becomes memory.
    #[must_use]
    pub fn capture(&self) -> CaptureScope {
        self.capture
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

    /// The right to read history, for those who may write.
    #[must_use]
    pub fn history(&self) -> Option<HistoryRight> {
        self.may(Permissions::MEMORY_WRITE)
            .then_some(HistoryRight(()))
    }

    /// The right to read what is held for review.
    #[must_use]
    pub fn review(&self) -> Option<ReviewRight> {
        self.may(Permissions::MEMORY_REVIEW)
            .then_some(ReviewRight(()))
    }

    /// The held permissions.
    #[must_use]
    pub fn permissions(&self) -> Permissions {
        self.permissions
    }
}
