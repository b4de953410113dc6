//! What the memory write path asks of a store beyond reading: one transaction for everything that a write decides, and the ledger that
//! makes a keyed write happen once.

mod ledger;
mod relations;

use async_trait::async_trait;
use jiff::Timestamp;

use super::{DeadLetter, StoreError};
use crate::ids::{AgentId, EscalationId, MemoryId, OrgId};
use crate::memory::{Memory, PartitionKey};

pub use ledger::{LedgerEntry, LedgerKey, LedgerMember, LedgerOutcome, LedgerRow};
pub use relations::{
    Decider, Effect, Escalation, EscalationStatus, Relation, Settlement, StoredRelation, Verdict,
};

/// A memory to be written, with what was decided about it.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The memory. Its status says whether it is active, quarantined, or superseded before it arrived.
    pub memory: Memory,
    /// A hash of what it says something about, where that can be told for certain: of two memories with the same one, one may replace
    /// the other.
    pub slot: Option<[u8; 16]>,
    /// What it is to others.
    pub verdicts: Vec<Verdict>,
    /// Why it is quarantined: a JSON text without any of the content.
    pub review: Option<String>,
}

impl From<Memory> for Draft {
    fn from(memory: Memory) -> Self {
        Self {
            memory,
            slot: None,
            verdicts: Vec::new(),
            review: None,
        }
    }
}

/// A write of the refinery: everything in it becomes durable together, or nothing does.
#[derive(Debug, Clone, Default)]
pub struct Refined {
    /// The memories, in order.
    pub rows: Vec<Draft>,
    /// The entry of a keyed write.
    pub ledger: Option<LedgerEntry>,
}

impl From<Vec<Memory>> for Refined {
    /// Memories about which nothing was decided.
    fn from(memories: Vec<Memory>) -> Self {
        Self {
            rows: memories.into_iter().map(Draft::from).collect(),
            ledger: None,
        }
    }
}

/// What became of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// Stored.
    Inserted {
        /// The row's revision.
        revision: i64,
        /// The memories that it supersedes: of the verdicts, those that still held.
        supersedes: Vec<MemoryId>,
        /// Every other memory that changed with it.
        changed: Vec<MemoryId>,
    },
    /// An active row of the partition says the same.
    Duplicate {
        /// That row.
        existing: MemoryId,
    },
}

/// A change of a memory that is there.
#[derive(Debug, Clone)]
pub struct Edit {
    /// The memory as it is to be. Its identifier, partition and creation time say which one.
    pub draft: Draft,
    /// The revision that it was read at: any change since then makes this one void.
    pub read_at: i64,
    /// Whether its text changed: the old one is forgotten then.
    pub forgets: bool,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edited {
    /// Stored, as a row is.
    Done(Committed),
    /// The memory changed meanwhile, or is gone.
    Stale,
}

/// The durable side of the memory write path.
#[async_trait]
pub trait RefineryStore: Send + Sync {
    /// Commits a write; an outcome for each row, in order. A row whose partition has an active row with the same content hash,
    /// also one earlier in the write, is not inserted: that row's retrieval count and `updated_at` are bumped.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the ledger has the key already; nothing was written then.
    async fn commit(&self, write: Refined) -> Result<Vec<Committed>, StoreError>;
    /// Changes a memory, all or nothing. A text that is forgotten leaves a tombstone with its hash, and counts as a forgotten memory.
    async fn edit(&self, edit: Edit) -> Result<Edited, StoreError>;
    /// Counts a vote on an active memory that one of `partitions` holds; the memory as it is then.
    async fn vote(
        &self,
        partitions: &[PartitionKey],
        id: MemoryId,
        useful: bool,
        at: Timestamp,
    ) -> Result<Option<Memory>, StoreError>;
    /// The memories of a partition that say something about the same as a new one does, superseded ones too, newest start first; at
    /// most `most`.
    async fn slot_mates(
        &self,
        partition: &PartitionKey,
        slot: [u8; 16],
        most: usize,
    ) -> Result<Vec<Memory>, StoreError>;
    /// Whether a text with this hash was forgotten or rejected here.
    async fn is_tombstoned(
        &self,
        partition: &PartitionKey,
        content_hash: [u8; 32],
    ) -> Result<bool, StoreError>;
    /// The relations that a memory has and that others have to it.
    async fn relations(
        &self,
        partition: &PartitionKey,
        id: MemoryId,
    ) -> Result<Vec<StoredRelation>, StoreError>;
    /// Why a memory is quarantined.
    async fn review(
        &self,
        partition: &PartitionKey,
        id: MemoryId,
    ) -> Result<Option<String>, StoreError>;
    /// Pairs of `partitions` that wait for a decision, newest first, after one of a former page; at most `most`.
    async fn escalations(
        &self,
        partitions: &[PartitionKey],
        after: Option<EscalationId>,
        most: usize,
    ) -> Result<Vec<Escalation>, StoreError>;
    /// One escalation, whatever its status.
    async fn escalation(
        &self,
        partitions: &[PartitionKey],
        id: EscalationId,
    ) -> Result<Option<Escalation>, StoreError>;
    /// Decides a pair: with a relation it takes effect, without one both stay as they are.
    async fn settle_escalation(
        &self,
        escalation: &Escalation,
        decision: Option<(Relation, Decider)>,
        at: Timestamp,
    ) -> Result<Settlement, StoreError>;
    /// Notes a turn from which nothing could be captured.
    async fn add_dead_letter(&self, letter: DeadLetter) -> Result<(), StoreError>;
    /// The newest dead letters of `partitions`, newest first; at most `most`.
    async fn dead_letters(
        &self,
        partitions: &[PartitionKey],
        most: usize,
    ) -> Result<Vec<DeadLetter>, StoreError>;
    /// The partitions of an agent, at most `most`, in which something waits for a person: a memory, a pair, or a turn that could not be
    /// captured.
    async fn waiting_partitions(
        &self,
        org: OrgId,
        agent: AgentId,
        most: usize,
    ) -> Result<Vec<PartitionKey>, StoreError>;
    /// Deletes at most `most` dead letters from before a time; answers how many.
    async fn prune_dead_letters(&self, before: Timestamp, most: usize) -> Result<u64, StoreError>;
    /// The keyed write that was committed at `since` or later under this key.
    async fn ledger_row(
        &self,
        key: &LedgerKey,
        since: Timestamp,
    ) -> Result<Option<LedgerRow>, StoreError>;
    /// Deletes at most `most` entries from before a time; answers how many.
    async fn prune_ledger(&self, before: Timestamp, most: usize) -> Result<u64, StoreError>;
}
