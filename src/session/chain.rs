//! The chain: what a request's messages hash to, message by message, so that a turn is known again whatever the client's spelling.

use highway::{HighwayHash, HighwayHasher, Key};
use hmac::Mac;

use crate::ids::OrgId;
use crate::openai::ChatRequest;
use crate::openai::chat::{Message, Role, Sink};

use super::SessionSecret;
use super::secret::highway_key;

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

/// The key that everything of one request is hashed under: derived for the organisation, so no tenant can find out what another's messages
/// hash to, or find two of its own that hash alike.
///
/// HighwayHash, because every request is hashed whole: it is keyed, strong and some six times as fast as SHA-256 on this input. What must
/// withstand more (names of sessions, nonces) goes through an HMAC besides.
struct Keyed(Key);

impl Keyed {
    fn new(org: OrgId, secret: &SessionSecret) -> Self {
        let mut mac = secret.keyed("chain");
        mac.update(org.as_bytes());
        Self(highway_key(mac))
    }

    fn begin(&self, purpose: Purpose) -> Running<'_> {
        let mut hash = HighwayHasher::new(self.0);
        hash.append(&[purpose as u8]);
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
    hash: HighwayHasher,
}

impl Sink for Running<'_> {
    fn feed(&mut self, bytes: &[u8]) {
        self.hash.append(bytes);
    }

    fn nested(&self) -> Self {
        self.keyed.begin(self.purpose)
    }

    fn digest(self) -> Hash {
        let [low, high] = self.hash.finalize128();
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{Chain, ChatRequest, OrgId, SessionSecret};

    fn chain_of(org: OrgId, key: u8, body: &Value) -> Chain {
        let chat = ChatRequest::parse(Bytes::from(body.to_string()), 100).unwrap();
        Chain::of(&chat, org, &SessionSecret::new(&[key; 32]))
    }

    fn chain(messages: &Value) -> Chain {
        let org = "00000000-0000-7000-8000-000000000001".parse().unwrap();
        chain_of(org, 7, &json!({"messages": messages}))
    }

    fn says(role: &str, text: &str) -> Value {
        json!({"role": role, "content": text})
    }

    #[test]
    fn the_leading_system_text_is_no_link() {
        let one = chain(&json!([
            says("system", "10:00"),
            says("developer", "x"),
            says("user", "a")
        ]));
        let other = chain(&json!([says("system", "10:01"), says("user", "a")]));
        assert_eq!(one.links().len(), 3);
        assert_eq!(one.links()[0], one.links()[1]);
        assert_eq!(one.links()[1], other.links()[0]);
        assert_eq!(one.links()[2], other.links()[1]);
        assert_ne!(one.links()[1], one.links()[2]);
        assert_ne!(one.client_prefix(), other.client_prefix());
        assert_eq!(one.first_user(), other.first_user());
        assert_eq!(one.turns()[0].message, 2);
        assert_eq!(one.turns()[0].chain, one.links()[2]);
        assert_eq!(one.turns()[0].anchor, other.turns()[0].anchor);
        let later = chain(&json!([
            says("user", "a"),
            says("system", "10:00"),
            says("user", "b")
        ]));
        let changed = chain(&json!([
            says("user", "a"),
            says("system", "10:01"),
            says("user", "b")
        ]));
        assert_ne!(later.links()[2], changed.links()[2]);
    }

    #[test]
    fn an_anchor_knows_its_message_and_the_one_before() {
        let whole = chain(&json!([
            says("user", "a"),
            says("assistant", "b"),
            says("user", "c"),
            says("assistant", "d"),
            says("user", "e"),
        ]));
        let cut = chain(&json!([
            says("assistant", "b"),
            says("user", "c"),
            says("assistant", "d"),
            says("user", "e")
        ]));
        let (whole, cut) = (whole.turns(), cut.turns());
        assert_eq!((whole.len(), cut.len()), (3, 2));
        assert_eq!(whole[1].anchor, cut[0].anchor);
        assert_eq!(whole[2].anchor, cut[1].anchor);
        assert_ne!(whole[1].chain, cut[0].chain);
        let headless = chain(&json!([says("user", "c")]));
        assert_ne!(headless.turns()[0].anchor, whole[1].anchor);
    }

    #[test]
    fn the_first_user_message_is_known_wherever_it_stands() {
        let alone = chain(&json!([says("user", "a")]));
        let later = chain(&json!([
            says("system", "s"),
            says("assistant", "hello"),
            says("user", "a"),
            says("user", "b")
        ]));
        assert_eq!(alone.first_user(), later.first_user());
        let nobody = chain(&json!([
            says("system", "s"),
            says("assistant", "hello"),
            says("tool", "t")
        ]));
        let hello = chain(&json!([says("assistant", "hello")]));
        assert!(nobody.turns().is_empty());
        assert!(nobody.first_user().is_some());
        assert_eq!(nobody.first_user(), hello.first_user());
        assert_eq!(chain(&json!([says("system", "s")])).first_user(), None);
        assert_eq!(chain(&json!([])).first_user(), None);
    }

    #[test]
    fn a_user_message_of_odd_content_is_a_turn() {
        let odd = chain(
            &json!([{"role": "user"}, {"role": "user", "content": 7}, {"role": "user", "content": []}, "user"]),
        );
        assert_eq!(odd.turns().len(), 3);
        assert_eq!(odd.links().len(), 4);
    }

    #[test]
    fn the_hashes_belong_to_an_organisation_and_a_key() {
        let (one, other) = (OrgId::new(), OrgId::new());
        let body =
            json!({"messages": [says("system", "s"), says("user", "a")], "tools": [{"a": 1}]});
        let base = chain_of(one, 1, &body);
        for foreign in [chain_of(other, 1, &body), chain_of(one, 2, &body)] {
            assert_ne!(base.links()[0], foreign.links()[0]);
            assert_ne!(base.links()[1], foreign.links()[1]);
            assert_ne!(base.turns()[0].anchor, foreign.turns()[0].anchor);
            assert_ne!(base.first_user(), foreign.first_user());
            assert_ne!(base.client_prefix(), foreign.client_prefix());
        }
        let same = chain_of(one, 1, &body);
        assert_eq!(base.links(), same.links());
        assert_eq!(base.client_prefix(), same.client_prefix());
    }

    #[test]
    fn the_client_prefix_knows_system_text_and_tools() {
        let org = OrgId::new();
        let prefix = |system: &str, tools: Value| {
            let body =
                json!({"messages": [says("system", system), says("user", "a")], "tools": tools});
            chain_of(org, 1, &body).client_prefix()
        };
        let base = prefix("s", json!([{"a": 1}]));
        assert_eq!(base, prefix("s", json!([{"a": 1}])));
        assert_ne!(base, prefix("t", json!([{"a": 1}])));
        assert_ne!(base, prefix("s", json!([{"a": 2}])));
        assert_ne!(base, prefix("s", Value::Null));
    }

    proptest! {
        #[test]
        fn a_longer_conversation_keeps_the_earlier_links(roles in prop::collection::vec(0_usize..4, 1..12), cut in any::<prop::sample::Index>()) {
            let messages: Vec<_> = roles.iter().enumerate()
                .map(|(i, role)| says(["user", "assistant", "tool", "system"][*role], &i.to_string())).collect();
            let cut = cut.index(messages.len()) + 1;
            let whole = chain(&json!(messages));
            let part = chain(&json!(messages[..cut]));
            prop_assert_eq!(&whole.links()[..cut], part.links());
            prop_assert_eq!(&whole.turns()[..part.turns().len()], part.turns());
        }
    }
}
