//! What a memory is: a compound assertion of one organisation and agent, with provenance, validity and a life cycle.
//! It is data. It is never an instruction, and nothing in it is ever executed or trusted as policy.

pub mod embedder;
pub mod search;
pub mod pii;
pub mod claims;
pub mod write;
pub mod capture;
mod strip;
mod escape;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ids::{AgentId, MemoryId, OrgId, UserId};
use crate::tokens::TokenCounts;

pub use escape::escape;
pub(crate) use escape::push_escaped;
pub use strip::own_text;

/// The kinds of memory, in the order in which a formatted block lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// How something is done.
    Procedural,
    /// What is so.
    Factual,
    /// What somebody likes.
    Preference,
    /// What somebody tends to do.
    Behavioral,
    /// What happened.
    Episodic,
}

impl Category {
    /// Every category in block order.
    pub const ALL: [Self; 5] = [
        Self::Procedural,
        Self::Factual,
        Self::Preference,
        Self::Behavioral,
        Self::Episodic,
    ];

    /// The wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Procedural => "procedural",
            Self::Factual => "factual",
            Self::Preference => "preference",
            Self::Behavioral => "behavioral",
            Self::Episodic => "episodic",
        }
    }

    /// Days after which the recency component has halved (contract, section 9).
    #[must_use]
    pub const fn half_life_days(self) -> f32 {
        match self {
            Self::Factual => 180.0,
            Self::Procedural => 120.0,
            Self::Preference => 45.0,
            Self::Behavioral => 30.0,
            Self::Episodic => 14.0,
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be one of procedural, factual, preference, behavioral, episodic")]
pub struct UnknownCategory;

impl FromStr for Category {
    type Err = UnknownCategory;

    fn from_str(text: &str) -> Result<Self, UnknownCategory> {
        Self::ALL
            .into_iter()
            .find(|c| c.as_str() == text)
            .ok_or(UnknownCategory)
    }
}

/// A category with the writer's confidence in it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// The category.
    pub label: Category,
    /// 0 to 1; 1 when absent.
    #[serde(default = "whole")]
    pub confidence: f32,
}

fn whole() -> f32 {
    1.0
}

/// Where a memory stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Current and retrievable.
    Active,
    /// Replaced by a newer memory; kept as history, never retrieved.
    Superseded,
    /// Held for review; never retrieved.
    Quarantined,
    /// A tombstone: content gone, identity kept so that nothing brings it back.
    Forgotten,
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 4] = [
        Self::Active,
        Self::Superseded,
        Self::Quarantined,
        Self::Forgotten,
    ];

    /// The status with this stored name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// The stored and wire name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Superseded => "superseded",
            Self::Quarantined => "quarantined",
            Self::Forgotten => "forgotten",
        }
    }
}

/// Where a memory came from. Session and turn together place a dialogue turn among its neighbours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The producer: `api`, `dialogue`, `import`, ...
    pub kind: String,
    /// The conversation it was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The position inside that conversation, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
}

impl Source {
    /// The kind of what was captured from a conversation: nobody wrote it, so what was forgotten does not come back as this.
    pub const CAPTURE: &str = "capture";
}

impl Default for Source {
    fn default() -> Self {
        Self {
            kind: "api".to_owned(),
            session: None,
            turn: None,
        }
    }
}

/// One memory as it is stored.
#[derive(Debug, Clone)]
pub struct Memory {
    /// Identity.
    pub id: MemoryId,
    /// The partition it belongs to.
    pub partition: PartitionKey,
    /// What is remembered.
    pub content: Arc<str>,
    /// Labels, primary first (highest confidence, then name).
    pub labels: Vec<Label>,
    /// The writer's confidence, 0 to 1.
    pub confidence: f32,
    /// Start of validity.
    pub valid_from: Timestamp,
    /// End of validity (exclusive); open when absent.
    pub valid_until: Option<Timestamp>,
    /// When it was learnt, when that is known.
    pub observed_at: Option<Timestamp>,
    /// Provenance.
    pub source: Source,
    /// The client's own JSON object, kept as it was sent.
    pub metadata: Option<Arc<RawValue>>,
    /// Kept in the hot set whatever its score.
    pub pinned: bool,
    /// Life-cycle status.
    pub status: Status,
    /// Store-wide revision of the last change of this row; grows with every change.
    pub revision: i64,
    /// Store-wide revision of the last change of its text; 0 when it is as it was first written.
    pub text_revision: i64,
    /// The memories that it replaced when it was written: an injected block names them.
    pub supersedes: Box<[MemoryId]>,
    /// SHA-256 of the normalised content.
    pub content_hash: [u8; 32],
    /// How often it was injected or written again.
    pub retrieval_count: u32,
    /// `useful` votes.
    pub votes_useful: u32,
    /// `not_useful` votes.
    pub votes_not_useful: u32,
    /// When the row was created.
    pub created_at: Timestamp,
    /// When the row was last changed.
    pub updated_at: Timestamp,
    /// The vector, with the model that made it.
    pub embedding: Option<Embedding>,
    /// Token counts of the formatted content.
    pub tokens: TokenCounts,
}

impl Memory {
    /// The primary category: the first label's.
    #[must_use]
    pub fn category(&self) -> Category {
        self.labels.first().map_or(Category::Factual, |l| l.label)
    }

    /// Whether this says nothing new beside a memory with the same text that was written at `created_at` and holds from `from` until `until`.
    /// What is over may be said again; what has not begun may be said for the time before.
    #[must_use]
    pub fn repeats(
        &self,
        (from, until): (Timestamp, Option<Timestamp>),
        created_at: Timestamp,
    ) -> bool {
        let now = self.updated_at;
        let is_over = until.is_some_and(|end| end <= now);
        let is_earlier = self.valid_from < from && self.valid_until.is_none_or(|end| end > from);
        // Two writers at once have slightly different times; neither is dated ahead.
        let is_ahead = from > now && from > created_at;
        !(is_over || is_ahead && is_earlier)
    }

    /// Whether an ordinary read may return it at `now`: active, and `now` inside its validity.
    #[must_use]
    pub fn is_current(&self, now: Timestamp) -> bool {
        self.status == Status::Active
            && self.valid_from <= now
            && self.valid_until.is_none_or(|end| now < end)
    }
}

/// A vector and the model that made it. Vectors of two models are never compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// The embedder's stable name, with version and dimension.
    pub model: Arc<str>,
    /// Unit-length vector.
    pub vector: Arc<[f32]>,
}

/// The unit of storage, indexing and isolation: one organisation, one agent, and one user or "agent-wide".
///
/// Two users are two partitions, so a search under one cannot reach the other's rows, whatever a filter forgets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey {
    /// The tenant.
    pub org: OrgId,
    /// The agent.
    pub agent: AgentId,
    /// The user, or agent-wide.
    pub user: Option<UserId>,
}

impl PartitionKey {
    /// Where a write under `scope` goes: the user's partition when there is a user, the agent-wide one otherwise.
    #[must_use]
    pub fn for_write(scope: &crate::auth::Scope) -> Self {
        Self {
            org: scope.org(),
            agent: scope.agent(),
            user: scope.user().cloned(),
        }
    }

    /// What a read under `scope` sees: the agent-wide partition, then the user's when there is a user.
    #[must_use]
    pub fn for_read(scope: &crate::auth::Scope) -> smallvec::SmallVec<[Self; 2]> {
        let shared = Self {
            org: scope.org(),
            agent: scope.agent(),
            user: None,
        };
        let own = scope.user().map(|_| Self::for_write(scope));
        std::iter::once(shared).chain(own).collect()
    }

    /// Whether a read under `scope` may see this partition: the check every returned hit passes.
    #[must_use]
    pub fn visible_to(&self, scope: &crate::auth::Scope) -> bool {
        self.org == scope.org()
            && self.agent == scope.agent()
            && self.user.as_ref().is_none_or(|u| scope.user() == Some(u))
    }
}
