//! The chain: what a request's messages hash to, message by message, so that a turn is known again whatever the client's spelling.

use crate::ids::OrgId;
use crate::openai::ChatRequest;

use super::SessionSecret;

macro_rules! hashes {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
            pub struct $name([u8; 16]);

            impl $name {
                /// The hash of these bytes.
                #[must_use]
                pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                    Self(bytes)
                }

                /// The bytes.
                #[must_use]
                pub const fn as_bytes(&self) -> &[u8; 16] {
                    &self.0
                }
            }
        )*
    };
}

hashes! {
    /// Hash of all messages up to one of them. The client's leading system text is left out: a clock in it must not make every turn a new one.
    ChainHash;
    /// Hash of a user message and the message before it: finds a turn again in a history whose beginning was cut off.
    Anchor;
}

/// One user message of a request, which opens a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Its place among the request's messages.
    pub message: usize,
    /// The chain up to it.
    pub chain: ChainHash,
    /// The message and its predecessor.
    pub anchor: Anchor,
}

/// The hashes of one request.
#[derive(Debug, Clone)]
pub struct Chain {
    turns: Vec<Turn>,
    links: Vec<ChainHash>,
    first_user: Option<ChainHash>,
    client_prefix: ChainHash,
}

impl Chain {
    /// Hashes `chat` for a request of `org`.
    #[must_use]
    pub fn of(chat: &ChatRequest, org: OrgId, secret: &SessionSecret) -> Self {
        let _ = (chat, org, secret);
        Self {
            turns: Vec::new(),
            links: Vec::new(),
            first_user: None,
            client_prefix: ChainHash([0; 16]),
        }
    }

    /// The user messages, oldest first. The last one opened the turn that the request is part of.
    #[must_use]
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// The chain after each message; leading system messages have the chain's start.
    #[must_use]
    pub fn links(&self) -> &[ChainHash] {
        &self.links
    }

    /// The first user message by itself, for the name of a session that has none. Without a user message the first one that is not
    /// leading system text.
    #[must_use]
    pub fn first_user(&self) -> Option<&ChainHash> {
        self.first_user.as_ref()
    }

    /// The client's leading system text and tools: what it may change under way without a new epoch of ours.
    #[must_use]
    pub fn client_prefix(&self) -> ChainHash {
        self.client_prefix
    }
}
