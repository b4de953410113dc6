//! What a keyed write leaves behind.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, IdempotencyKey, MemoryId, OrgId};

/// Whose key: the same one of another organisation or agent is another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LedgerKey {
    /// The tenant.
    pub org: OrgId,
    /// The agent.
    pub agent: AgentId,
    /// The client's word.
    pub key: IdempotencyKey,
}

/// What became of one member of a keyed write. It holds no text, so nothing that is forgotten can be told again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LedgerOutcome {
    /// Stored as this memory.
    Stored(MemoryId),
    /// This memory said the same.
    Duplicate(MemoryId),
    /// Its fields were wrong.
    Invalid,
}

impl LedgerOutcome {
    /// The outcome of a member with the same text further on in the same write.
    #[must_use]
    pub const fn repeated(self) -> Self {
        match self {
            Self::Stored(id) => Self::Duplicate(id),
            Self::Duplicate(_) | Self::Invalid => self,
        }
    }
}

/// A keyed write that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRow {
    /// SHA-256 of what was asked.
    pub asked: [u8; 32],
    /// One outcome for each member, in order.
    pub outcomes: Vec<LedgerOutcome>,
}

/// A member of a keyed write whose rows are about to be inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerMember {
    /// Settled before the transaction.
    Known(LedgerOutcome),
    /// The row at this place.
    Row(usize),
    /// The same text as the member whose row is at this place.
    Repeats(usize),
}

/// What a keyed write leaves in the ledger, in the transaction of its rows.
#[derive(Debug, Clone)]
pub struct LedgerEntry {
    /// Whose key.
    pub key: LedgerKey,
    /// SHA-256 of what was asked.
    pub asked: [u8; 32],
    /// The members, in the client's order.
    pub members: Vec<LedgerMember>,
    /// The time of the write.
    pub at: Timestamp,
    /// Entries from before this time count as never written.
    pub since: Timestamp,
}
