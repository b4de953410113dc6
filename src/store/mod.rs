//! What is durable, as traits: identities, directives, memories and the change feed. `sqlite` is the embedded engine, `postgres` the one that
//! replicas share.
//!
//! Every write bumps one store-wide revision and appends to the change feed in the same transaction, so a cache that has applied
//! the feed up to revision `r` is exactly the store at `r`, whichever process wrote. `keys` holds the server keys beside the store.

pub mod sqlite;
pub mod postgres;
pub mod shared;
pub mod keys;
pub mod transfer;
mod counted;
mod embeddings;
pub(crate) mod files;
mod refinery;
mod sessions;
mod types;

use async_trait::async_trait;

use crate::ids::{AgentId, MemoryId, OrgId, TokenId};
use crate::memory::{Memory, PartitionKey};

pub use counted::{Counted, Operation};
pub use embeddings::{EmbeddingStore, NewEmbedding, Unembedded};
pub use refinery::{
    Committed, Decider, Draft, Edit, Edited, Effect, Escalation, EscalationStatus, LedgerEntry,
    LedgerKey, LedgerMember, LedgerOutcome, LedgerRow, Refined, RefineryStore, Relation,
    Settlement, StoredRelation, Verdict,
};
pub use sessions::{SessionStore, StoredState};
pub use types::{
    Agent, AgentStatus, CaptureScope, Change, ChangeKind, DeadLetter, DirectiveMode,
    DirectiveVersion, ListFilter, ListPage, Matching, NewDirective, Org, OrgStatus, Reading,
    StoredToken,
};

/// Why the store could not answer. It never carries row contents.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The engine failed or is unreachable; a retry may help.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// A name or number is already taken.
    #[error("{0} already exists")]
    Conflict(&'static str),
    /// The row to change does not exist (or belongs to somebody else, which reads the same).
    #[error("no such {0}")]
    Missing(&'static str),
    /// The row was taken out of use for good.
    #[error("the {0} is revoked")]
    Revoked(&'static str),
    /// The engine refuses what it was given; a retry cannot help.
    #[error("the store refuses the row: {0}")]
    Refused(String),
    /// A stored row could not be read back.
    #[error("a stored {0} is damaged")]
    Damaged(&'static str),
}

impl StoreError {
    /// Every metric label.
    pub const LABELS: [&'static str; 6] = [
        "unavailable",
        "conflict",
        "missing",
        "revoked",
        "refused",
        "damaged",
    ];

    /// The metric label.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Conflict(_) => "conflict",
            Self::Missing(_) => "missing",
            Self::Revoked(_) => "revoked",
            Self::Refused(_) => "refused",
            Self::Damaged(_) => "damaged",
        }
    }
}

/// Organisations, agents and tokens.
#[async_trait]
pub trait IdentityStore: Send + Sync {
    /// Creates an organisation.
    async fn create_org(&self, org: Org) -> Result<(), StoreError>;
    /// One organisation.
    async fn org(&self, id: OrgId) -> Result<Option<Org>, StoreError>;
    /// Every organisation, oldest first.
    async fn orgs(&self) -> Result<Vec<Org>, StoreError>;
    /// Suspends or reactivates an organisation.
    async fn set_org_status(&self, id: OrgId, status: OrgStatus) -> Result<(), StoreError>;
    /// Creates an agent.
    async fn create_agent(&self, agent: Agent) -> Result<(), StoreError>;
    /// One agent, if it belongs to `org`.
    async fn agent(&self, org: OrgId, id: AgentId) -> Result<Option<Agent>, StoreError>;
    /// The agents of an organisation, oldest first.
    async fn agents(&self, org: OrgId) -> Result<Vec<Agent>, StoreError>;
    /// Changes an agent's status.
    async fn set_agent_status(
        &self,
        org: OrgId,
        id: AgentId,
        status: AgentStatus,
    ) -> Result<(), StoreError>;
    /// Says what of an agent's conversations becomes memory.
    async fn set_agent_capture(
        &self,
        org: OrgId,
        id: AgentId,
        capture: CaptureScope,
    ) -> Result<(), StoreError>;
    /// Stores a token's digest and claims.
    async fn create_token(&self, token: StoredToken) -> Result<(), StoreError>;
    /// One token by its identifier (the public part of a PAT).
    async fn token(&self, id: TokenId) -> Result<Option<StoredToken>, StoreError>;
    /// The tokens of an organisation, oldest first.
    async fn tokens(&self, org: OrgId) -> Result<Vec<StoredToken>, StoreError>;
    /// Revokes a token at `at`; revoking twice keeps the first time.
    async fn revoke_token(&self, id: TokenId, at: jiff::Timestamp) -> Result<(), StoreError>;
}

/// Directives: append-only versions and one active pointer per agent.
#[async_trait]
pub trait DirectiveStore: Send + Sync {
    /// The active version of an agent's directive.
    async fn active_directive(
        &self,
        org: OrgId,
        agent: AgentId,
    ) -> Result<Option<DirectiveVersion>, StoreError>;
    /// Every version, newest first, the active one marked.
    async fn directive_versions(
        &self,
        org: OrgId,
        agent: AgentId,
    ) -> Result<Vec<DirectiveVersion>, StoreError>;
    /// Appends the next version; it is not active until promoted.
    async fn add_directive(&self, directive: NewDirective) -> Result<DirectiveVersion, StoreError>;
    /// Makes `version` the active one and remembers the one it replaces.
    async fn promote_directive(
        &self,
        org: OrgId,
        agent: AgentId,
        version: u32,
    ) -> Result<DirectiveVersion, StoreError>;
    /// One version.
    async fn directive_version(
        &self,
        org: OrgId,
        agent: AgentId,
        version: u32,
    ) -> Result<Option<DirectiveVersion>, StoreError>;
    /// Takes a version out of use for good: it leaves the stack of activations, so that what was active before it is active again, and
    /// it cannot be promoted any more. Sessions that pinned it rotate. Revoking twice keeps the first time.
    async fn revoke_directive(
        &self,
        org: OrgId,
        agent: AgentId,
        version: u32,
        at: jiff::Timestamp,
    ) -> Result<DirectiveVersion, StoreError>;
    /// The revoked versions of an agent, in ascending order.
    async fn revoked_directives(&self, org: OrgId, agent: AgentId) -> Result<Vec<u32>, StoreError>;
    /// Makes the version that was active before the current one active again.
    async fn rollback_directive(
        &self,
        org: OrgId,
        agent: AgentId,
    ) -> Result<DirectiveVersion, StoreError>;
}

/// Memories.
#[async_trait]
pub trait MemoryStore: Send + Sync {
    /// The active memory of the same partition that says what `memory` says, for a time that `memory` would only repeat; never itself.
    async fn duplicate_of(&self, memory: &Memory) -> Result<Option<MemoryId>, StoreError>;
    /// One memory if one of `partitions` holds it, whatever its status but `forgotten`.
    async fn memory(
        &self,
        partitions: &[PartitionKey],
        id: MemoryId,
    ) -> Result<Option<Memory>, StoreError>;
    /// A page of memories of `partitions` together, newest first.
    async fn list_memories(
        &self,
        partitions: &[PartitionKey],
        filter: ListFilter,
    ) -> Result<ListPage, StoreError>;
    /// At most `limit` active memories of a partition that come after `after`, in the order of their identifiers, with vectors: what an
    /// index loads, page by page. Fewer than `limit` are the last.
    async fn partition_memories(
        &self,
        partition: &PartitionKey,
        after: Option<MemoryId>,
        limit: usize,
    ) -> Result<Vec<Memory>, StoreError>;
    /// Forgets one memory: content, labels, vector, metadata and source are erased, a tombstone with the hash stays. Returns the
    /// partition, or nothing when none of `partitions` holds it or it is forgotten already.
    async fn forget_memory(
        &self,
        partitions: &[PartitionKey],
        id: MemoryId,
        at: jiff::Timestamp,
    ) -> Result<Option<PartitionKey>, StoreError>;
    /// Counts a use of each memory that one of `partitions` holds. Best effort telemetry: it returns before anything is stored, is not
    /// fsynced and not in the change feed, and does not touch `updated_at`.
    async fn bump_retrieved(
        &self,
        partitions: &[PartitionKey],
        ids: Vec<MemoryId>,
        at: jiff::Timestamp,
    ) -> Result<(), StoreError>;
    /// The memories of `ids` that one of `partitions` holds, whatever their status but `forgotten`, in any order.
    async fn memories_by_id(
        &self,
        partitions: &[PartitionKey],
        ids: &[MemoryId],
    ) -> Result<Vec<Memory>, StoreError>;
    /// The revision of the last change that took a memory of one of `partitions` out of circulation; 0 when there was none. It sees
    /// what any process has committed before the call, is cheap enough for every request, and never waits for a writer. The answer is to be
    /// used at once: what takes a memory out of circulation returns only when every answer that was asked before its commit has been given.
    ///
    /// # Errors
    /// When the store cannot tell: nothing that was frozen may be sent then.
    async fn forget_fence(&self, partitions: &[PartitionKey]) -> Result<i64, StoreError>;
    /// How many active memories a partition holds.
    async fn count_memories(&self, partition: &PartitionKey) -> Result<u64, StoreError>;
}

/// The feed that keeps caches true across processes.
#[async_trait]
pub trait ChangeFeed: Send + Sync {
    /// The newest revision.
    async fn revision(&self) -> Result<i64, StoreError>;
    /// Changes after `revision`, oldest first, at most `limit`. When the feed cannot say what happened since (its oldest entries are
    /// trimmed, or `revision` is ahead of the store), the answer is a single [`ChangeKind::Everything`].
    async fn changes_after(&self, revision: i64, limit: usize) -> Result<Vec<Change>, StoreError>;
    /// Whether anything at all may have been written since the last call, by whichever process; cheap enough to ask several times a
    /// second. The answer is given once: one task asks and tells the others.
    async fn poll(&self) -> Result<bool, StoreError>;
    /// Answers a trivial query if reads work and writes are being taken: the readiness probe.
    async fn ping(&self) -> Result<(), StoreError>;
}

/// Everything durable.
pub trait Store:
    IdentityStore
    + DirectiveStore
    + MemoryStore
    + EmbeddingStore
    + RefineryStore
    + SessionStore
    + ChangeFeed
    + transfer::TransferStore
{
}

impl<T> Store for T where
    T: IdentityStore
        + DirectiveStore
        + MemoryStore
        + EmbeddingStore
        + RefineryStore
        + SessionStore
        + ChangeFeed
        + transfer::TransferStore
{
}

// What the stores' tests are written with, here and in the integration tests.
#[cfg(test)]
#[path = "../../tests/ibex/store/fixtures/mod.rs"]
#[expect(dead_code, reason = "the contract needs more of it")]
mod testing;
