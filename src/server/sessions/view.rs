//! How sessions are shown: numbers, hashes and identifiers, never the text of a message.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::ids::hex;
use crate::ids::{MemoryId, SessionId, UserId};
use crate::session::record::{
    LaneView as StoredLane, OpeningRecord, SessionStatus, SessionView as StoredSession, TurnEnd,
    TurnView as StoredTurn,
};
use crate::session::working_state::{Evicted, WorkingState};
use crate::session::{RotationReason, SessionKey};

/// How long an idle session counts as active (contract, section 5).
const IDLE: SignedDuration = SignedDuration::from_mins(45);

/// A session as clients see it.
#[derive(Serialize)]
pub(super) struct SessionView<'a> {
    id: &'a SessionId,
    status: SessionStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a UserId>,
    created_at: Timestamp,
    used_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    terminated_at: Option<Timestamp>,
    turns: u32,
    lanes: Vec<LaneView<'a>>,
    latest: Vec<TurnView<'a>>,
}

impl<'a> SessionView<'a> {
    /// The session `key` as it stands at `now`.
    pub(super) fn of(key: &'a SessionKey, stored: &'a StoredSession, now: Timestamp) -> Self {
        Self {
            id: &key.id,
            status: status(stored, now),
            user: key.user.as_ref(),
            created_at: stored.created_at,
            used_at: stored.used_at,
            terminated_at: stored.terminated_at,
            turns: stored.turns,
            lanes: stored.lanes.iter().filter_map(LaneView::of).collect(),
            latest: stored.latest.iter().map(TurnView::of).collect(),
        }
    }
}

fn status(stored: &StoredSession, now: Timestamp) -> SessionStatus {
    if stored.terminated_at.is_some() {
        SessionStatus::Completed
    } else if now.duration_since(stored.used_at) > IDLE {
        SessionStatus::Abandoned
    } else {
        SessionStatus::Active
    }
}

/// A lane: what is frozen in its current epoch, and its epochs.
#[derive(Serialize)]
struct LaneView<'a> {
    lane: &'a str,
    epoch: u32,
    prefix_sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    directive_version: Option<u32>,
    snapshot: &'a [MemoryId],
    epochs: Vec<EpochView>,
}

impl<'a> LaneView<'a> {
    fn of(stored: &'a StoredLane) -> Option<Self> {
        let current = stored.epochs.last()?;
        Some(Self {
            lane: stored.lane.as_str(),
            epoch: current.epoch,
            prefix_sha256: hex(&current.sha256),
            directive_version: current.directive,
            snapshot: &current.snapshot,
            epochs: stored.epochs.iter().map(EpochView::of).collect(),
        })
    }
}

#[derive(Serialize)]
struct EpochView {
    epoch: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<RotationReason>,
    prefix_sha256: String,
    at: Timestamp,
}

impl EpochView {
    fn of(stored: &OpeningRecord) -> Self {
        Self {
            epoch: stored.epoch,
            reason: stored.reason,
            prefix_sha256: hex(&stored.sha256),
            at: stored.at,
        }
    }
}

/// A turn: what was settled, and how its calls ended.
#[derive(Serialize)]
struct TurnView<'a> {
    index: u32,
    lane: &'a str,
    messages_hash: String,
    memories: &'a [MemoryId],
    calls: u32,
    /// Absent until a call has ended.
    #[serde(flatten)]
    end: Option<EndView>,
    at: Timestamp,
}

impl<'a> TurnView<'a> {
    fn of(stored: &'a StoredTurn) -> Self {
        Self {
            index: stored.index,
            lane: stored.lane.as_str(),
            messages_hash: hex(stored.turn.chain.as_bytes()),
            memories: &stored.turn.memories,
            calls: stored.calls,
            end: stored.end.as_ref().map(EndView::of),
            at: stored.turn.at,
        }
    }
}

#[derive(Serialize)]
struct EndView {
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    ms: u64,
    stream: bool,
    complete: bool,
}

impl EndView {
    fn of(stored: &TurnEnd) -> Self {
        Self {
            prompt_tokens: stored.prompt_tokens,
            cached_tokens: stored.cached_tokens,
            completion_tokens: stored.completion_tokens,
            ms: stored.ms,
            stream: stored.stream,
            complete: stored.complete,
        }
    }
}

/// The working state as clients see it.
#[derive(Serialize)]
pub(super) struct StateView<'a> {
    /// 0 until one was written.
    pub(super) version: u32,
    pub(super) updated_at: Option<Timestamp>,
    pub(super) state: &'a WorkingState,
    /// What a write had to drop; a read has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evicted: Option<&'a [Evicted]>,
}
