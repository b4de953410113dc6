//! The rows that are not memories.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::auth::{HistoryRight, Permissions, ReviewRight};
use crate::ids::{AgentId, MemoryId, OrgId, SessionId, TokenId, UserId};
use crate::memory::{Category, Memory, PartitionKey, Status};

macro_rules! stored_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The stored and wire name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The value with this stored name.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

pub(super) use stored_enum;

stored_enum!(
    /// Whether an organisation may use the service.
    OrgStatus {
        /// In use.
        Active = "active",
        /// Every request is refused with `ORG_SUSPENDED`.
        Suspended = "suspended",
    }
);

stored_enum!(
    /// Whether an agent may be used.
    AgentStatus {
        /// In use.
        Active = "active",
        /// Stopped for a while.
        Paused = "paused",
        /// Stopped by an operator.
        Suspended = "suspended",
        /// Out of use for good.
        Archived = "archived",
    }
);

stored_enum!(
    /// What of an agent's conversations becomes memory.
    CaptureScope {
        /// Nothing.
        Off = "off",
        /// What a user says becomes that user's memory; requests without a user are not captured.
        User = "user",
        /// What anybody says becomes memory that every user of the agent sees.
        Agent = "agent",
    }
);

stored_enum!(
    /// Where a directive goes among the messages (contract, section 4).
    DirectiveMode {
        /// A system message before all others.
        SystemFirst = "system_first",
        /// A system message after the leading run of system messages.
        SystemAppend = "system_append",
        /// In front of the first user message's text.
        UserPrepend = "user_prepend",
    }
);

/// A tenant.
#[derive(Debug, Clone)]
pub struct Org {
    /// Identity.
    pub id: OrgId,
    /// A name for people.
    pub name: String,
    /// Status.
    pub status: OrgStatus,
    /// Creation time.
    pub created_at: Timestamp,
}

/// An agent of a tenant.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Identity.
    pub id: AgentId,
    /// Its tenant.
    pub org: OrgId,
    /// A name for people.
    pub name: String,
    /// Status.
    pub status: AgentStatus,
    /// What of its conversations becomes memory.
    pub capture: CaptureScope,
    /// Creation time.
    pub created_at: Timestamp,
}

/// A personal access token as it is kept: never the secret, only a keyed digest of the whole token.
#[derive(Debug, Clone)]
pub struct StoredToken {
    /// The public part.
    pub id: TokenId,
    /// The tenant.
    pub org: OrgId,
    /// The agent it is bound to; the header is optional then and must match.
    pub agent: Option<AgentId>,
    /// The user it is bound to.
    pub user: Option<UserId>,
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub permissions: Permissions,
    /// HMAC-SHA-256 of the whole token under the server's token key.
    pub digest: [u8; 32],
    /// Creation time.
    pub created_at: Timestamp,
    /// End of validity.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// One version of an agent's directive.
#[derive(Debug, Clone)]
pub struct DirectiveVersion {
    /// The tenant.
    pub org: OrgId,
    /// The agent.
    pub agent: AgentId,
    /// Counts from 1 for each agent.
    pub version: u32,
    /// The text.
    pub content: std::sync::Arc<str>,
    /// Where it goes.
    pub mode: DirectiveMode,
    /// SHA-256 of the text.
    pub content_hash: [u8; 32],
    /// Whether it is the active version.
    pub active: bool,
    /// Creation time.
    pub created_at: Timestamp,
    /// When it was taken out of use for good.
    pub revoked_at: Option<Timestamp>,
}

/// A directive version to append.
#[derive(Debug, Clone)]
pub struct NewDirective {
    /// The tenant.
    pub org: OrgId,
    /// The agent.
    pub agent: AgentId,
    /// The text, 1 to 32,768 bytes.
    pub content: std::sync::Arc<str>,
    /// Where it goes.
    pub mode: DirectiveMode,
    /// Creation time.
    pub created_at: Timestamp,
}

/// A turn from which nothing could be captured, for good. It holds no text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it would have gone.
    pub partition: PartitionKey,
    /// The conversation.
    pub session: SessionId,
    /// The turn's place in it.
    pub turn: u32,
    /// What failed: `agent`, `model` or `store`.
    pub reason: String,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was given up.
    pub at: Timestamp,
}

/// Which of a partition's memories a read may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// The active ones that are valid at this time.
    Current(Timestamp),
    /// Also those that are replaced, and those that are not valid yet or any more.
    History(HistoryRight),
    /// The ones that wait for review, and no others.
    Review(ReviewRight),
}

impl Reading {
    /// Whether it may return this memory.
    #[must_use]
    pub fn allows(self, memory: &Memory) -> bool {
        match self {
            Self::Current(now) => memory.is_current(now),
            Self::History(_) => matches!(memory.status, Status::Active | Status::Superseded),
            Self::Review(_) => memory.status == Status::Quarantined,
        }
    }
}

/// Which memories to list.
#[derive(Debug, Clone)]
pub struct ListFilter {
    /// What may be seen at all.
    pub reading: Reading,
    /// Rows after this one (a memory id from a former page).
    pub after: Option<MemoryId>,
    /// At most this many rows.
    pub limit: usize,
    /// Only what matches.
    pub matching: Matching,
}

/// What a memory must be to be listed; what is absent is not asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Matching {
    /// This status, of those that the reading allows.
    pub status: Option<Status>,
    /// With this label.
    pub category: Option<Category>,
    /// Pinned or not.
    pub pinned: Option<bool>,
    /// From this conversation.
    pub session: Option<String>,
    /// From this kind of source.
    pub source: Option<String>,
    /// Valid from this time or later.
    pub from: Option<Timestamp>,
    /// Valid from a time before this one.
    pub until: Option<Timestamp>,
    /// Members of the client's own object that have these values: a text, or a number or truth value as JSON writes it.
    pub metadata: Vec<(String, String)>,
}

/// A page of memories.
#[derive(Debug, Clone)]
pub struct ListPage {
    /// Newest first.
    pub memories: Vec<Memory>,
    /// Whether more rows follow.
    pub has_more: bool,
}

/// What kind of row changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// An organisation's row.
    Org(OrgId),
    /// An agent's row.
    Agent(OrgId, AgentId),
    /// A token's row.
    Token(TokenId),
    /// An agent's active directive.
    Directive(OrgId, AgentId),
    /// A memory of a partition was inserted, changed or forgotten.
    Memory(PartitionKey, MemoryId),
    /// Anything may have changed: the feed does not reach back to where the reader was. A cache drops all it has and goes on from this
    /// entry's revision.
    Everything,
}

/// One entry of the change feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The store-wide revision of the write.
    pub revision: i64,
    /// What changed.
    pub kind: ChangeKind,
}
