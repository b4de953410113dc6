//! The service behind the bearer token and agent binding gates. A cache hit touches neither the store nor the heap.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use tokio::time::timeout;

use crate::config::AuthConfig;
use crate::ids::{AgentId, OrgId, TokenId, UserId};
use crate::seams::Clock;
use crate::store::{AgentStatus, ChangeKind, IdentityStore, OrgStatus, StoreError};

use super::cache::{AgentCache, AgentStanding, Refusal, TokenCache};
use super::jwt::{self, AuthSetupError, Issuers, JwtError, KeySetError, KeySetSource};
use super::pat::{self, Digest, TokenKey};
use super::{Credential, Permissions, Principal, Scope, TokenClaims};

/// How many revoked JWTs are remembered. A stored token's revocation is in its row and needs no memory.
const REVOKED_ENTRIES: u64 = 65_536;

/// Why nothing can be said about a credential or an agent now.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Cause {
    /// The identity store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The issuer's keys cannot be had.
    #[error(transparent)]
    Keys(#[from] KeySetError),
    /// The validation took longer than `auth.timeout_ms`.
    #[error("the validation was not done in time")]
    TimedOut,
}

/// Why a credential was not accepted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuthError {
    /// Unknown, expired, revoked or malformed: which of them stays here.
    #[error("the credential is not valid")]
    InvalidToken,
    /// Valid, but its organisation is suspended.
    #[error("the organisation is suspended")]
    OrgSuspended,
    /// It cannot be checked now.
    #[error("the credential cannot be checked: {0}")]
    Unavailable(#[from] Cause),
}

/// Why a credential may not act for an agent and user.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BindError {
    /// Neither the credential nor the request names an agent.
    #[error("no agent is named")]
    MissingAgent,
    /// The agent is unknown, another organisation's, or not the one the credential is bound to.
    #[error("the agent is not authorised")]
    AgentNotAuthorized,
    /// The agent is paused, suspended or archived.
    #[error("the agent is not active")]
    AgentSuspended,
    /// The credential is bound to another user.
    #[error("the user is not authorised")]
    UserNotAuthorized,
    /// The request names a user and the credential lacks `ActForUser`.
    #[error("the credential may not name a user")]
    MayNotNameUser,
    /// The agent cannot be looked up now.
    #[error("the agent cannot be checked: {0}")]
    Unavailable(#[from] Cause),
}

impl From<Refusal> for AuthError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid => Self::InvalidToken,
            Refusal::OrgSuspended => Self::OrgSuspended,
        }
    }
}

/// Verifies credentials and binds them to agents.
pub struct Verifier {
    store: Arc<dyn IdentityStore>,
    clock: Arc<dyn Clock>,
    token_key: TokenKey,
    issuers: Issuers,
    tokens: TokenCache,
    agents: AgentCache,
    revoked: Cache<TokenId, ()>,
    timeout: Duration,
}

impl Verifier {
    /// Opens the service. `sources` has a key set source, by issuer name, for each issuer with a `jwks_url`.
    ///
    /// # Errors
    /// With every fault of the issuers' configuration.
    pub fn new(
        store: Arc<dyn IdentityStore>,
        token_key: TokenKey,
        config: &AuthConfig,
        clock: Arc<dyn Clock>,
        sources: &HashMap<String, Arc<dyn KeySetSource>>,
    ) -> Result<Self, AuthSetupError> {
        let ttl = Duration::from_millis(config.cache_ttl_ms);
        Ok(Self {
            store,
            clock,
            token_key,
            issuers: Issuers::new(config, sources)?,
            tokens: TokenCache::new(config.cache_entries, ttl),
            agents: AgentCache::new(config.cache_entries, ttl),
            // Least recently used: the default policy may decline to admit a new entry.
            revoked: Cache::builder()
                .max_capacity(REVOKED_ENTRIES)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
            timeout: Duration::from_millis(config.timeout_ms),
        })
    }

    /// Who this credential speaks for.
    ///
    /// # Errors
    /// When it is not valid, its organisation is suspended, or neither can be found out now.
    pub async fn verify(&self, credential: Credential<'_>) -> Result<Arc<TokenClaims>, AuthError> {
        let digest = self.token_key.digest(credential);
        if let Some(kept) = self.tokens.get(&digest, || self.clock.now()) {
            return kept.map_err(AuthError::from);
        }
        // Boxed, so that a hit does not carry the state of a miss.
        Box::pin(self.verify_now(credential, digest)).await
    }

    async fn verify_now(
        &self,
        credential: Credential<'_>,
        digest: Digest,
    ) -> Result<Arc<TokenClaims>, AuthError> {
        let tickets = self.tokens.tickets();
        let verdict = timeout(self.timeout, self.judge(credential, &digest))
            .await
            .map_err(|_| Cause::TimedOut)??;
        match verdict {
            Ok(claims) => {
                let claims = Arc::new(claims);
                self.tokens
                    .keep(tickets, digest, Arc::clone(&claims), self.clock.now());
                Ok(claims)
            }
            Err(refusal) => {
                self.tokens.refuse(tickets, digest, refusal);
                Err(refusal.into())
            }
        }
    }

    /// The verdict, from the store and the issuers' keys.
    async fn judge(
        &self,
        credential: Credential<'_>,
        digest: &Digest,
    ) -> Result<Result<TokenClaims, Refusal>, Cause> {
        let claims = if pat::is_pat(credential) {
            self.stored_token(credential, digest).await?
        } else if jwt::is_jwt(credential) {
            self.signed_token(credential).await?
        } else {
            None
        };
        let Some(claims) = claims else {
            return Ok(Err(Refusal::Invalid));
        };
        Ok(
            match self.store.org(claims.org).await?.map(|org| org.status) {
                Some(OrgStatus::Active) => Ok(claims),
                Some(OrgStatus::Suspended) => Err(Refusal::OrgSuspended),
                None => Err(Refusal::Invalid),
            },
        )
    }

    async fn stored_token(
        &self,
        credential: Credential<'_>,
        digest: &Digest,
    ) -> Result<Option<TokenClaims>, Cause> {
        let Some(id) = pat::parse(credential) else {
            return Ok(None);
        };
        let stored = self.store.token(id).await?;
        let proven = stored.filter(|row| {
            pat::same_digest(digest, &row.digest) && row.id == id && row.revoked_at.is_none()
        });
        let claims = proven.map(|row| TokenClaims {
            token: row.id,
            org: row.org,
            agent: row.agent,
            user: row.user,
            permissions: row.permissions,
            expires_at: row.expires_at,
        });
        Ok(claims.filter(|claims| !claims.has_expired(self.clock.now())))
    }

    async fn signed_token(&self, credential: Credential<'_>) -> Result<Option<TokenClaims>, Cause> {
        match self.issuers.verify(credential, &*self.clock).await {
            Ok(claims) => Ok((!self.revoked.contains_key(&claims.token)).then_some(claims)),
            Err(JwtError::Invalid) => Ok(None),
            Err(JwtError::Keys(error)) => Err(error.into()),
        }
    }

    /// The principal for the agent and user that a request names, as far as the credential allows.
    ///
    /// # Errors
    /// When it does not. What a credential is bound to is compared before anything is looked up, and an unknown agent reads like a foreign
    /// one.
    pub async fn bind(
        &self,
        claims: &TokenClaims,
        agent: Option<AgentId>,
        user: Option<UserId>,
    ) -> Result<Principal, BindError> {
        let agent = match (claims.agent, agent) {
            (Some(bound), Some(named)) if bound != named => {
                return Err(BindError::AgentNotAuthorized);
            }
            (bound, named) => bound.or(named).ok_or(BindError::MissingAgent)?,
        };
        let user = match (&claims.user, user) {
            (Some(bound), Some(named)) if *bound != named => {
                return Err(BindError::UserNotAuthorized);
            }
            (Some(bound), _) => Some(bound.clone()),
            (None, Some(_)) if !claims.permissions.holds(Permissions::ACT_FOR_USER) => {
                return Err(BindError::MayNotNameUser);
            }
            (None, named) => named,
        };
        let standing = self.agent_standing(claims.org, agent).await?;
        let Some((status, capture)) = standing else {
            return Err(BindError::AgentNotAuthorized);
        };
        match status {
            AgentStatus::Active => {
                let scope = Scope::new(claims.org, agent, user);
                let principal = Principal::new(scope, claims.token, claims.permissions);
                Ok(principal.capturing(capture))
            }
            AgentStatus::Paused | AgentStatus::Suspended | AgentStatus::Archived => {
                Err(BindError::AgentSuspended)
            }
        }
    }

    async fn agent_standing(
        &self,
        org: OrgId,
        agent: AgentId,
    ) -> Result<Option<AgentStanding>, Cause> {
        if let Some(kept) = self.agents.get((org, agent)) {
            return Ok(kept);
        }
        let tickets = self.agents.tickets();
        let found = timeout(self.timeout, self.store.agent(org, agent))
            .await
            .map_err(|_| Cause::TimedOut)??;
        // The store promises this; a wrong answer here would cross tenants, so it is checked as well.
        let standing = found
            .filter(|row| row.org == org && row.id == agent)
            .map(|row| (row.status, row.capture));
        self.agents.keep(tickets, (org, agent), standing);
        Ok(standing)
    }

    /// Forgets what a change may have made untrue. A change of a JWT's identifier is its revocation, since no row stands behind it.
    pub fn invalidate(&self, change: &ChangeKind) {
        match change {
            ChangeKind::Org(org) => self.tokens.remove_org(*org),
            ChangeKind::Agent(org, agent) => self.agents.remove((*org, *agent)),
            ChangeKind::Token(token) => {
                if jwt::is_derived(*token) {
                    self.revoked.insert(*token, ());
                }
                self.tokens.remove_token(*token);
            }
            ChangeKind::Everything => self.invalidate_all(),
            ChangeKind::Directive(..) | ChangeKind::Memory(..) => {}
        }
    }

    /// Forgets every verdict: after a gap in the change feed nothing kept can be trusted. Revocations stay.
    pub fn invalidate_all(&self) {
        self.tokens.clear();
        self.agents.clear();
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("issuers", &self.issuers)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
