//! What is frozen: rendered text with the places of the memories in it, so that one of them can leave without the rest changing.

mod enveloped;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{SessionKey, SessionNonce};
use crate::ids::MemoryId;
use crate::tokens::{Family, Tally};

pub use enveloped::{Element, Elements, Enveloped, Place, Text};

/// Why an epoch replaced another one (design, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RotationReason {
    /// A memory that had been sent was forgotten.
    Forget,
    /// The pinned directive version was revoked.
    Revoked,
    /// What was injected before no longer fits beside the conversation.
    OverBudget,
    /// The cache state was lost and could not be rendered again to the same bytes.
    StateLost,
}

impl RotationReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [
        Self::Forget,
        Self::Revoked,
        Self::OverBudget,
        Self::StateLost,
    ];

    /// The text in headers, events, metrics and the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Forget => "forget",
            Self::Revoked => "revoked",
            Self::OverBudget => "over_budget",
            Self::StateLost => "state_lost",
        }
    }

    /// The reason with this text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.as_str() == text)
    }
}

/// The session-open snapshot: memories that stand highest whatever is asked.
pub type Snapshot = Enveloped;

/// What a turn got: recalled memories, a change of the working state, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    owner: Arc<SessionKey>,
    recall: Option<Enveloped>,
    state: Option<StateDelta>,
    nonce_epoch: u32,
    digest: [u8; 16],
    as_of: i64,
}

/// A change of the working state, rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDelta {
    /// The inside of a JSON string.
    pub json: Bytes,
    /// The version it starts from; 0 is the empty state.
    pub from: u32,
    /// The version it leads to.
    pub to: u32,
    /// What it costs.
    pub cost: Tally,
}

impl Block {
    /// A block of `owner`'s session; nothing when it would be empty.
    #[must_use]
    pub fn new(
        owner: Arc<SessionKey>,
        nonce_epoch: u32,
        recall: Option<Enveloped>,
        state: Option<StateDelta>,
    ) -> Option<Self> {
        let mut hash = Sha256::new();
        recall.iter().for_each(|r| r.feed(&mut hash));
        // No JSON string holds this byte, so where one part ends is part of the digest.
        hash.update([0]);
        state.iter().for_each(|s| hash.update(&s.json));
        let whole: [u8; 32] = hash.finalize().into();
        let digest = *whole.first_chunk()?;
        (recall.is_some() || state.is_some()).then_some(Self {
            owner,
            recall,
            state,
            nonce_epoch,
            digest,
            as_of: 0,
        })
    }

    /// The same, of memories none of which was forgotten up to this revision of the store.
    #[must_use]
    pub fn known_at(self, revision: i64) -> Self {
        Self {
            as_of: revision,
            ..self
        }
    }

    /// The store's revision up to which its memories were known not to be forgotten when it was composed.
    #[must_use]
    pub fn as_of(&self) -> i64 {
        self.as_of
    }

    /// Whose it is.
    #[must_use]
    pub fn owner(&self) -> &SessionKey {
        &self.owner
    }

    /// The epoch whose nonce it bears.
    #[must_use]
    pub fn nonce_epoch(&self) -> u32 {
        self.nonce_epoch
    }

    /// The recalled memories.
    #[must_use]
    pub fn recall(&self) -> Option<&Enveloped> {
        self.recall.as_ref()
    }

    /// The change of the working state.
    #[must_use]
    pub fn state(&self) -> Option<&StateDelta> {
        self.state.as_ref()
    }

    /// The memories in it.
    pub fn ids(&self) -> impl Iterator<Item = MemoryId> {
        self.recall.iter().flat_map(Enveloped::ids)
    }

    /// What it costs a model of `family`.
    #[must_use]
    pub fn tokens(&self, family: Family) -> u32 {
        let recall = self.recall.as_ref().map_or(0, |r| r.cost().tokens(family));
        let state = self.state.as_ref().map_or(0, |s| s.cost.tokens(family));
        recall.saturating_add(state)
    }

    /// The first 16 bytes of the SHA-256 over its bytes.
    #[must_use]
    pub fn digest(&self) -> &[u8; 16] {
        &self.digest
    }

    /// The same without the memories of `gone`; nothing when nothing is left.
    #[must_use]
    pub fn without(&self, gone: &[MemoryId]) -> Option<Self> {
        Self::new(
            Arc::clone(&self.owner),
            self.nonce_epoch,
            self.recall.as_ref().and_then(|r| r.without(gone)),
            self.state.clone(),
        )
        .map(|block| block.known_at(self.as_of))
    }
}

/// What a turn got, for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing: nothing was relevant, or recall was degraded.
    Nothing,
    /// This block.
    Block(Arc<Block>),
}

impl Outcome {
    /// The block, if there is one.
    #[must_use]
    pub fn block(&self) -> Option<&Arc<Block>> {
        match self {
            Self::Nothing => None,
            Self::Block(block) => Some(block),
        }
    }

    /// The same without the memories of `gone`.
    #[must_use]
    pub fn without(&self, gone: &[MemoryId]) -> Self {
        match self {
            Self::Block(block) if block.ids().any(|id| gone.contains(&id)) => block
                .without(gone)
                .map_or(Self::Nothing, |b| Self::Block(Arc::new(b))),
            Self::Nothing | Self::Block(_) => self.clone(),
        }
    }
}

/// The parts of Region A.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpeningParts {
    /// Whose it is.
    pub owner: Arc<SessionKey>,
    /// Its number; 0 is a session that could only be opened degraded, which freezes nothing.
    pub epoch: u32,
    /// The epoch that the nonce is derived from.
    pub nonce_epoch: u32,
    /// What marks the session's envelopes as ours.
    pub nonce: SessionNonce,
    /// The pinned directive's version.
    pub directive: Option<u32>,
    /// Framing, platform policy and directive: the same for every session of the agent.
    pub head: Text,
    /// The line that names the nonce: the inside of a JSON string.
    pub line: Bytes,
    /// The snapshot behind it.
    pub snapshot: Option<Snapshot>,
    /// What head and line cost.
    pub cost: Tally,
    /// Why it replaced another one.
    pub reason: Option<RotationReason>,
}

/// Region A of one epoch: what stands before and behind the client's own leading system text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    parts: OpeningParts,
    sha256: [u8; 32],
}

impl Deref for Opening {
    type Target = OpeningParts;

    fn deref(&self) -> &OpeningParts {
        &self.parts
    }
}

impl Opening {
    /// Region A of these parts.
    #[must_use]
    pub fn new(parts: OpeningParts) -> Self {
        let mut hash = Sha256::new();
        hash.update(parts.head.sha256);
        hash.update(&parts.line);
        hash.update([0]);
        parts.snapshot.iter().for_each(|s| s.feed(&mut hash));
        let sha256 = hash.finalize().into();
        Self { parts, sha256 }
    }

    /// The parts, to make another one of.
    #[must_use]
    pub fn parts(&self) -> OpeningParts {
        self.parts.clone()
    }

    /// SHA-256 over the bytes of Region A that are ibex's own; what sessions share goes in as its own SHA-256.
    #[must_use]
    pub fn sha256(&self) -> &[u8; 32] {
        &self.sha256
    }

    /// What the snapshot costs a model of `family`.
    #[must_use]
    pub fn snapshot_tokens(&self, family: Family) -> u32 {
        let snapshot = self.parts.snapshot.as_ref();
        snapshot.map_or(0, |s| s.cost().tokens(family))
    }

    /// The memories of the snapshot.
    pub fn ids(&self) -> impl Iterator<Item = MemoryId> {
        self.parts.snapshot.iter().flat_map(Enveloped::ids)
    }

    /// The directive alone, for a request that may send nothing that is frozen.
    #[must_use]
    pub fn bare(&self) -> Self {
        Self::new(OpeningParts {
            epoch: 0,
            snapshot: None,
            reason: None,
            ..self.parts.clone()
        })
    }

    /// The next epoch, which lost the memories of `gone` and keeps every other byte.
    #[must_use]
    pub fn without(&self, gone: &[MemoryId]) -> Self {
        let snapshot = &self.parts.snapshot;
        Self::new(OpeningParts {
            epoch: self.parts.epoch.saturating_add(1),
            snapshot: snapshot.as_ref().and_then(|s| s.without(gone)),
            reason: Some(RotationReason::Forget),
            ..self.parts.clone()
        })
    }
}
