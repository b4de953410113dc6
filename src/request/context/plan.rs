//! The context plan: the record that every assembly leaves, as the preview shows it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ids::MemoryId;

use super::budget::Budget;

/// Why a candidate was not injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exclusion {
    /// Its relevance is below the floor.
    Floor,
    /// The relevance gate does not believe that it answers the query.
    Gate,
    /// There was no room.
    Budget,
    /// Another candidate says the same.
    Duplicate,
    /// The conversation already carries it.
    AlreadyInContext,
    /// A filter of the request or its validity excludes it.
    Filter,
}

impl Exclusion {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::Floor,
        Self::Gate,
        Self::Budget,
        Self::Duplicate,
        Self::AlreadyInContext,
        Self::Filter,
    ];

    /// The text in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Gate => "gate",
            Self::Budget => "budget",
            Self::Duplicate => "duplicate",
            Self::AlreadyInContext => "already_in_context",
            Self::Filter => "filter",
        }
    }
}

/// The five components of the composite score, each 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Components {
    /// How well it answers the query.
    pub relevance: f32,
    /// Exponential decay by the shortest half-life of its labels.
    pub recency: f32,
    /// Votes, with Laplace smoothing.
    pub usefulness: f32,
    /// The writer's confidence.
    pub confidence: f32,
    /// Uses, up to ten.
    pub frequency: f32,
}

/// Where an injected memory stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Found for this request's query.
    Recall,
    /// Part of the snapshot that opened the session.
    Snapshot,
}

/// Whether a candidate went out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Injected.
    Packed,
    /// Left out.
    Excluded,
}

/// One candidate's fate.
#[derive(Debug, Clone, Serialize)]
pub struct PlannedMemory {
    /// Which memory.
    pub id: MemoryId,
    /// Where it went, or would have gone.
    pub region: Placement,
    /// What became of it.
    pub decision: Decision,
    /// Why it was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Exclusion>,
    /// The score that ordered it.
    pub score: f32,
    /// The score's parts.
    pub components: Components,
    /// Tokens of its formatted content.
    pub tokens: u32,
}

/// How a retrieval branch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// In time.
    Ok,
    /// Cancelled at its limit or at the wall.
    Timeout,
    /// Failed.
    Error,
    /// Not asked.
    Skipped,
}

impl Outcome {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Timeout, Self::Error, Self::Skipped];

    /// The text in reasons and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Timeout => "timeout",
            Self::Error => "error",
            Self::Skipped => "skipped",
        }
    }
}

/// One branch's record.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct BranchReport {
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took, in milliseconds.
    pub ms: f64,
    /// What it found.
    pub hits: usize,
}

/// The degradation ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Level {
    /// Everything worked.
    L0,
    /// One memory branch (or the directive) is missing.
    L1,
    /// Both memory branches are missing.
    L2,
    /// The deadline was hit, or assembly failed.
    L3,
}

impl Level {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::L0, Self::L1, Self::L2, Self::L3];

    /// The header's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::L0 => "L0",
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::L3 => "L3",
        }
    }
}

/// The outcome of context (design, section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContextStatus {
    /// All branches answered.
    Full,
    /// One memory branch is missing.
    Partial,
    /// Only the directive went out.
    DirectiveOnly,
    /// Only what the client sent went out.
    HistoryOnly,
    /// The request asked for no memory.
    Skipped,
    /// Switched off by configuration or policy.
    Disabled,
}

impl ContextStatus {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::Full,
        Self::Partial,
        Self::DirectiveOnly,
        Self::HistoryOnly,
        Self::Skipped,
        Self::Disabled,
    ];

    /// The header's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::DirectiveOnly => "directive-only",
            Self::HistoryOnly => "history-only",
            Self::Skipped => "skipped",
            Self::Disabled => "disabled",
        }
    }
}

/// What the packer did.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PackReport {
    /// `dp` or `greedy`.
    pub path: &'static str,
    /// Tokens per cell of the table; 1 is exact.
    pub bucket: u32,
    /// The capacity in tokens.
    pub capacity: u32,
    /// Candidates that took part.
    pub evaluated: usize,
    /// Candidates left out for want of room.
    pub skipped: usize,
    /// Whether room ran out.
    pub budget_reached: bool,
}

/// Token accounts of what was injected.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct TokenAccount {
    /// Everything that was injected.
    pub injected: u32,
    /// The directive's share.
    pub directive: u32,
    /// The memories' share, content only.
    pub memories: u32,
    /// Wrappers, joins and the safety sentence.
    pub formatter: u32,
}

/// What happened to a session that its operator may want to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEvent {
    /// The client changed its own system text or tools. The provider reads its prompt again, and that is not our epoch.
    ClientPrefixChanged,
    /// The beginning of the history was cut off.
    HistoryTrimmed,
    /// The request goes another way than one before it: an edit, a regenerated answer, a parallel request.
    Branched,
}

impl SessionEvent {
    /// Every one.
    pub const ALL: [Self; 3] = [
        Self::ClientPrefixChanged,
        Self::HistoryTrimmed,
        Self::Branched,
    ];

    /// The text in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientPrefixChanged => "client_prefix_changed",
            Self::HistoryTrimmed => "history_trimmed",
            Self::Branched => "branched",
        }
    }
}

/// What is frozen for the session (`stable` layout).
#[derive(Debug, Clone, Default, Serialize)]
pub struct SessionAccount {
    /// SHA-256 over the bytes of the frozen prefix that are ibex's own, in hexadecimal.
    pub prefix_sha256: String,
    /// The epoch; 0 where nothing could be frozen.
    pub epoch: u32,
    /// Hash over everything that is sent: it extends the former request's wherever the client's messages do.
    pub sent_chain: String,
    /// Memories in the request as sent, those sent again included.
    #[serde(rename = "memories_sent")]
    pub memories: usize,
    /// Memories that this request is the first to send.
    #[serde(rename = "memories_new")]
    pub new: usize,
    /// What happened.
    pub events: Vec<SessionEvent>,
}

/// The record of one assembly.
#[derive(Debug, Clone, Serialize)]
pub struct ContextPlan {
    /// Outcome.
    pub status: ContextStatus,
    /// Level.
    #[serde(rename = "degradation")]
    pub level: Level,
    /// Why it is not simply full with memories.
    pub reason: Option<String>,
    /// Where injected text goes.
    pub layout: crate::config::Layout,
    /// The branches by name, and the question's vector as `embedding`.
    pub branches: BTreeMap<&'static str, BranchReport>,
    /// The budget.
    pub budget: Budget,
    /// Every candidate.
    pub memories: Vec<PlannedMemory>,
    /// The packer's record.
    pub pack: Option<PackReport>,
    /// Token accounts.
    pub tokens: TokenAccount,
    /// Durations in milliseconds, by step.
    pub timings_ms: BTreeMap<&'static str, f64>,
    /// What is frozen for the session; absent in the `assembled` layout.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionAccount>,
}
