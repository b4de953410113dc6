//! What is frozen: rendered text with the places of the memories in it, so that one of them can leave without the rest changing.

use std::ops::Deref;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{SessionKey, SessionNonce};
use crate::ids::MemoryId;
use crate::tokens::{Family, Tally};

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

/// One memory, rendered: the same bytes in every envelope that it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Which.
    pub id: MemoryId,
    /// The inside of a JSON string.
    pub json: Bytes,
    /// What it costs.
    pub cost: Tally,
}

/// Where a memory stands in its envelope, and what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    id: MemoryId,
    bytes: u32,
    cost: Tally,
}

/// Memories one after the other. Sessions that open with the same ones share them.
#[derive(Debug, PartialEq, Eq)]
pub struct Elements {
    text: Text,
    places: Box<[Place]>,
    cost: Tally,
}

/// The inside of a JSON string with its SHA-256, which is taken once for everybody who shares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    json: Bytes,
    sha256: [u8; 32],
}

impl Text {
    /// A text.
    #[must_use]
    pub fn new(json: impl Into<Bytes>) -> Self {
        let json = json.into();
        Self {
            sha256: Sha256::digest(&json).into(),
            json,
        }
    }

    /// The text.
    #[must_use]
    pub fn json(&self) -> &Bytes {
        &self.json
    }
}

impl Elements {
    /// Puts elements together; nothing is no list.
    #[must_use]
    pub fn new(elements: &[Arc<Element>]) -> Option<Self> {
        let cost = elements.iter().map(|e| e.cost).reduce(Tally::plus)?;
        let bytes = elements.iter().map(|e| e.json.len()).sum();
        let mut json = BytesMut::with_capacity(bytes);
        elements
            .iter()
            .for_each(|e| json.extend_from_slice(&e.json));
        let places = elements.iter().map(|e| Place {
            id: e.id,
            bytes: u32::try_from(e.json.len()).unwrap_or(u32::MAX),
            cost: e.cost,
        });
        Some(Self {
            text: Text::new(json),
            places: places.collect(),
            cost,
        })
    }

    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.text.json.len()
    }

    /// Never: nothing is no list.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.text.json.is_empty()
    }

    /// The same without the memories of `gone`; nothing when none is left.
    fn without(&self, gone: &[MemoryId]) -> Option<Self> {
        let left = |place: &&Place| !gone.contains(&place.id);
        let places: Box<[Place]> = self.places.iter().filter(left).copied().collect();
        let cost = places.iter().map(|p| p.cost).reduce(Tally::plus)?;
        let mut json = BytesMut::with_capacity(self.len());
        let mut rest = self.text.json.clone();
        for place in &self.places {
            let element = rest.split_to((place.bytes as usize).min(rest.len()));
            if left(&place) {
                json.extend_from_slice(&element);
            }
        }
        Some(Self {
            text: Text::new(json),
            places,
            cost,
        })
    }
}

/// Memories inside one envelope, as the inside of a JSON string: it is spliced into a request as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enveloped {
    open: Bytes,
    elements: Arc<Elements>,
    close: &'static str,
    tags: Tally,
}

impl Enveloped {
    /// Puts `elements` between an opening and a closing tag, both the insides of JSON strings that cost `tags`.
    #[must_use]
    pub fn new(
        open: impl Into<Bytes>,
        elements: Arc<Elements>,
        close: &'static str,
        tags: Tally,
    ) -> Self {
        Self {
            open: open.into(),
            elements,
            close,
            tags,
        }
    }

    /// The text, in pieces.
    #[must_use]
    pub fn pieces(&self) -> [Bytes; 3] {
        let close = Bytes::from_static(self.close.as_bytes());
        [self.open.clone(), self.elements.text.json.clone(), close]
    }

    /// Feeds what it consists of to a hash.
    fn feed(&self, hash: &mut Sha256) {
        hash.update(&self.open);
        hash.update(self.elements.text.sha256);
        hash.update(self.close);
    }

    /// The memories, in their order.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = MemoryId> {
        self.elements.places.iter().map(|place| place.id)
    }

    /// What it costs.
    #[must_use]
    pub fn cost(&self) -> Tally {
        self.elements.cost.plus(self.tags)
    }

    /// The bytes that it does not share with other sessions, and the memories in it.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        let shared = Arc::strong_count(&self.elements) > 1;
        let own = if shared { 0 } else { self.elements.len() };
        let places = if shared {
            0
        } else {
            self.elements.places.len()
        };
        (self.open.len() + own, places)
    }

    /// The same without the memories of `gone`; nothing when none is left.
    #[must_use]
    pub fn without(&self, gone: &[MemoryId]) -> Option<Self> {
        Some(Self {
            elements: Arc::new(self.elements.without(gone)?),
            ..self.clone()
        })
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

#[cfg(test)]
mod tests;
