//! What of a session is durable: numbers, hashes and identifiers, never text. Enough to render the same bytes again.

use jiff::Timestamp;

use super::{Anchor, ChainHash, LaneKey, RotationReason};
use crate::ids::MemoryId;

/// Region A of one epoch, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpeningRecord {
    /// Its number, from 1; never used twice in a lane.
    pub epoch: u32,
    /// The epoch that its nonce is derived from: an epoch that only lost items keeps the nonce.
    pub nonce_epoch: u32,
    /// The directive's version.
    pub directive: Option<u32>,
    /// The memories of the snapshot, in their order.
    pub snapshot: Vec<MemoryId>,
    /// What the rendered Region A must hash to.
    pub sha256: [u8; 32],
    /// Why it replaced another one; nothing for the first.
    pub reason: Option<RotationReason>,
    /// Whether the blocks of former epochs are gone with it.
    pub drops_blocks: bool,
    /// When.
    pub at: Timestamp,
}

/// A settled turn, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRecord {
    /// Hash of the messages up to the turn's user message.
    pub chain: ChainHash,
    /// Hash of that message and the one before it.
    pub anchor: Anchor,
    /// The epoch that its block's nonce belongs to.
    pub nonce_epoch: u32,
    /// The memories of its block, in their order; none for a turn that got nothing.
    pub memories: Vec<MemoryId>,
    /// Working state: the version its delta starts from (0 = nothing) and the one it leads to.
    pub state: Option<(u32, u32)>,
    /// The first 16 bytes of the SHA-256 of the rendered block; nothing for a turn that got nothing.
    pub digest: Option<[u8; 16]>,
    /// When.
    pub at: Timestamp,
}

/// How a turn's provider call ended: the checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEnd {
    /// Prompt tokens that the provider reported.
    pub prompt_tokens: u64,
    /// Of them, read from its cache.
    pub cached_tokens: u64,
    /// Completion tokens that it reported.
    pub completion_tokens: u64,
    /// From the request's head to the end of the answer, in milliseconds.
    pub ms: u64,
    /// Whether it was a stream.
    pub stream: bool,
    /// Whether the whole answer was relayed.
    pub complete: bool,
    /// When.
    pub at: Timestamp,
}

/// One durable fact about a session, in the order in which they happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionRecord {
    /// A lane opened or rotated its epoch. Creates the session and the lane where they are missing.
    Opened(LaneKey, OpeningRecord),
    /// A turn was settled. A turn that is known already stays as it is.
    Settled(LaneKey, TurnRecord),
    /// These memories were forgotten: they leave the lane's blocks, whose digests no longer say anything.
    Forgotten(LaneKey, Vec<MemoryId>),
    /// A turn's answer ended. Counts on the turn's row; each further call of the same turn adds to it.
    Ended(LaneKey, ChainHash, TurnEnd),
}

/// What a lane needs to be rendered again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRecord {
    /// The current epoch.
    pub opening: OpeningRecord,
    /// Every settled turn, oldest first; one whose block was dropped has nothing.
    pub turns: Vec<TurnRecord>,
}

/// Where a session stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// In use.
    Active,
    /// Ended by its client.
    Completed,
    /// Idle for longer than a session is kept.
    Abandoned,
}

/// One turn with its checkpoint, for people to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnView {
    /// The lane.
    pub lane: super::Lane,
    /// Counts from 0 in the session.
    pub index: u32,
    /// What was settled.
    pub turn: TurnRecord,
    /// Provider calls of the turn (a tool loop makes several).
    pub calls: u32,
    /// Their sums; nothing until the first has ended.
    pub end: Option<TurnEnd>,
}

/// One lane with its epochs, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneView {
    /// The lane.
    pub lane: super::Lane,
    /// Every epoch.
    pub epochs: Vec<OpeningRecord>,
}

/// A stored session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// When it was first seen.
    pub created_at: Timestamp,
    /// When it was last used.
    pub used_at: Timestamp,
    /// When its client ended it.
    pub terminated_at: Option<Timestamp>,
    /// Turns settled so far.
    pub turns: u32,
    /// Its lanes.
    pub lanes: Vec<LaneView>,
    /// The newest turns, newest first.
    pub latest: Vec<TurnView>,
}
