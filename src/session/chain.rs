//! The chain: what a request's messages hash to, message by message, so that a turn is known again whatever the client's spelling.

use hmac::Mac;
use sha2::{Digest, Sha256};

use crate::ids::OrgId;
use crate::openai::ChatRequest;
use crate::openai::chat::{Message, Role, Sink};

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
        let keyed = Keyed::new(org, secret);
        let messages = chat.messages();
        let (leading, conversation) = messages
            .split_at_checked(chat.leading_system())
            .unwrap_or_default();
        let mut this = Self {
            turns: Vec::new(),
            links: Vec::with_capacity(messages.len()),
            first_user: None,
            client_prefix: ChainHash(keyed.client_prefix(chat, leading)),
        };
        let mut link = keyed.begin(Purpose::Start).digest();
        this.links.resize(leading.len(), ChainHash(link));
        let (mut first, mut previous) = (None, NOTHING);
        for (message, place) in conversation.iter().zip(leading.len()..) {
            let hash = keyed.message(chat, message);
            link = keyed.pair(Purpose::Link, &link, &hash);
            this.links.push(ChainHash(link));
            first.get_or_insert(hash);
            if message.role == Role::User {
                this.first_user.get_or_insert(ChainHash(hash));
                this.turns.push(Turn {
                    message: place,
                    chain: ChainHash(link),
                    anchor: Anchor(keyed.pair(Purpose::Anchor, &previous, &hash)),
                });
            }
            previous = hash;
        }
        this.first_user = this.first_user.or(first.map(ChainHash));
        this
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

type Hash = [u8; 16];

/// What stands for the message before the first one.
const NOTHING: Hash = [0; 16];

/// What a hash is of; the first byte of its input.
#[derive(Clone, Copy)]
enum Purpose {
    Start = 1,
    Link,
    Anchor,
    Message,
    Prefix,
}

/// The hash that everything of one request starts from.
///
/// A key of the organisation's own fills its first block. That makes a keyed hash of plain SHA-256, at half the cost of an HMAC for
/// what is as short as a link; half of each digest is cut off, so that nobody can go on from where one ends.
struct Keyed(Sha256);

impl Keyed {
    fn new(org: OrgId, secret: &SessionSecret) -> Self {
        let mut mac = secret.keyed("chain");
        mac.update(org.as_bytes());
        let mut hash = Sha256::new();
        hash.update(mac.finalize().into_bytes());
        hash.update([0; 32]);
        Self(hash)
    }

    fn begin(&self, purpose: Purpose) -> Running<'_> {
        let mut hash = self.0.clone();
        hash.update([purpose as u8]);
        Running {
            keyed: self,
            purpose,
            hash,
        }
    }

    fn pair(&self, purpose: Purpose, one: &Hash, other: &Hash) -> Hash {
        let mut running = self.begin(purpose);
        running.feed(one);
        running.feed(other);
        running.digest()
    }

    fn message(&self, chat: &ChatRequest, message: &Message) -> Hash {
        let mut running = self.begin(Purpose::Message);
        chat.canonical(message, &mut running);
        running.digest()
    }

    fn client_prefix(&self, chat: &ChatRequest, leading: &[Message]) -> Hash {
        let mut running = self.begin(Purpose::Prefix);
        for message in leading {
            chat.canonical(message, &mut running);
        }
        // No message begins like this, and the tools are all the rest.
        running.feed(b"T");
        running.feed(chat.present("tools").unwrap_or_default());
        running.digest()
    }
}

struct Running<'k> {
    keyed: &'k Keyed,
    purpose: Purpose,
    hash: Sha256,
}

impl Sink for Running<'_> {
    fn feed(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    fn nested(&self) -> Self {
        self.keyed.begin(self.purpose)
    }

    fn digest(self) -> Hash {
        let mut hash = Hash::default();
        hash.iter_mut()
            .zip(self.hash.finalize())
            .for_each(|(slot, byte)| *slot = byte);
        hash
    }
}
