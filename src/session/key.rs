//! Whose conversation it is. The same session id under another organisation, agent or user is another session.

use std::fmt;
use std::sync::Arc;

use crate::auth::Scope;
use crate::ids::{AgentId, OrgId, SessionId, UserId};
use crate::memory::PartitionKey;

/// One conversation of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// The tenant.
    pub org: OrgId,
    /// The agent.
    pub agent: AgentId,
    /// The user, or none.
    pub user: Option<UserId>,
    /// The client's name for it, or a derived one.
    pub id: SessionId,
}

impl SessionKey {
    /// The session `id` of `scope`.
    #[must_use]
    pub fn new(scope: &Scope, id: SessionId) -> Self {
        Self {
            org: scope.org(),
            agent: scope.agent(),
            user: scope.user().cloned(),
            id,
        }
    }

    /// The partitions whose memories may be frozen in it.
    #[must_use]
    pub fn partitions(&self) -> smallvec::SmallVec<[PartitionKey; 2]> {
        let shared = PartitionKey {
            org: self.org,
            agent: self.agent,
            user: None,
        };
        let own = self.user.clone().map(|user| PartitionKey {
            user: Some(user),
            ..shared.clone()
        });
        std::iter::once(shared).chain(own).collect()
    }

    /// Whether it belongs to `scope`: the check that everything read back passes.
    #[must_use]
    pub fn belongs_to(&self, scope: &Scope) -> bool {
        self.org == scope.org() && self.agent == scope.agent() && self.user.as_ref() == scope.user()
    }
}

/// The resolved provider and model of a request, as `provider/model`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane(Arc<str>);

impl Lane {
    /// The lane of `model` at `provider`.
    #[must_use]
    pub fn new(provider: &str, model: &str) -> Self {
        Self([provider, "/", model].concat().into())
    }

    /// A lane that was stored.
    #[must_use]
    pub fn stored(text: Arc<str>) -> Self {
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A session in one lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaneKey {
    /// The session.
    pub session: SessionKey,
    /// The lane.
    pub lane: Lane,
}
