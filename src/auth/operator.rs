//! The principal of the operator's own command line, which opens the store directly and so needs no token.

use crate::ids::{AgentId, OrgId, TokenId, UserId};
use crate::store::{IdentityStore, StoreError};

use super::{Permissions, Principal, Scope};

/// Why the operator's principal could not be made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OperatorError {
    /// The organisation has no such agent.
    #[error("the organisation has no such agent")]
    NoSuchAgent,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A principal with every permission, for an agent that exists in `org`, whatever its status: an operator also tends suspended agents.
///
/// # Errors
/// When the agent does not exist there, or the store fails.
pub async fn operator_principal(
    store: &dyn IdentityStore,
    org: OrgId,
    agent: AgentId,
    user: Option<UserId>,
) -> Result<Principal, OperatorError> {
    store
        .agent(org, agent)
        .await?
        .ok_or(OperatorError::NoSuchAgent)?;
    // No token stands behind it; the nil identifier belongs to none.
    let token = TokenId::from_bytes([0; 16]);
    Ok(Principal::new(
        Scope::new(org, agent, user),
        token,
        Permissions::all(),
    ))
}

#[cfg(test)]
mod tests {
    use super::{OperatorError, operator_principal};
    use crate::auth::Permissions;
    use crate::auth::testing::TestStore;
    use crate::ids::OrgId;
    use crate::store::AgentStatus;

    #[tokio::test]
    async fn the_operator_acts_for_agents_that_exist() {
        let store = TestStore::default();
        let org = store.add_org();
        let agent = store.add_agent(org, AgentStatus::Suspended);
        let principal = operator_principal(&store, org, agent, Some("ann".parse().unwrap()))
            .await
            .unwrap();
        assert!(principal.may(Permissions::all()));
        assert_eq!((principal.org(), principal.agent()), (org, agent));

        let foreign = operator_principal(&store, OrgId::new(), agent, None).await;
        assert!(matches!(foreign, Err(OperatorError::NoSuchAgent)));
    }
}
