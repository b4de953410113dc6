//! The names of keys and channels in Redis: the only place that makes any.
//!
//! A name is `prefix:{tag}:what:...`. The tag in braces is the organisation, or `global` for what belongs to none; in a cluster all names with
//! one tag lie on one server. No organisation can name a key of another: its identifier stands in front, and it is a UUID. What a client
//! chose (sessions, users, models, its keys) is in a name only as a hash, so it can neither be read there nor break out of its place.

use redis::{RedisWrite, ToRedisArgs};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::ids::{AgentId, OrgId};
use crate::limits::Level;
use crate::memory::PartitionKey;
use crate::session::LaneKey;

/// The tag of what belongs to no organisation.
const GLOBAL: &str = "global";

/// Bytes of a hash that are kept. Half of SHA-256 is more than anybody can find two equal ones of for somebody else's session.
const HASH_BYTES: usize = 16;

/// The name of a key. Only [`Keys`] makes one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key(String);

impl Key {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ToRedisArgs for Key {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(self.0.as_bytes());
    }
}

/// The name of a channel. Only [`Keys`] makes one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Channel(String);

impl ToRedisArgs for Channel {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(self.0.as_bytes());
    }
}

/// What is counted at a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Requests per minute.
    Requests,
    /// Tokens per minute.
    Tokens,
}

impl Counted {
    /// Its name, in keys and error texts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
        }
    }
}

/// Makes names under one prefix.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: Box<str>,
}

impl Keys {
    /// Names that begin with `prefix`. The configuration allows only prefixes without colons and braces.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
        }
    }

    fn key(&self, org: OrgId, rest: std::fmt::Arguments<'_>) -> Key {
        Key(format!("{}:{{{org}}}:{rest}", self.prefix))
    }

    /// Keys of the level of the whole service belong to no organisation.
    fn level(&self, level: Level, org: OrgId, rest: std::fmt::Arguments<'_>) -> Key {
        match level {
            Level::Global => Key(format!("{}:{{{GLOBAL}}}:{rest}", self.prefix)),
            Level::Token | Level::Agent | Level::Org => self.key(org, rest),
        }
    }

    /// The rate of `id` at a level, within `org`.
    #[must_use]
    pub fn rate(&self, level: Level, org: OrgId, id: Uuid, what: Counted) -> Key {
        let (what, name) = (what.as_str(), level_name(level));
        self.level(level, org, format_args!("rate:{what}:{name}:{id}"))
    }

    /// The streams that `id` has open at a level, within `org`.
    #[must_use]
    pub fn lease(&self, level: Level, org: OrgId, id: Uuid) -> Key {
        let name = level_name(level);
        self.level(level, org, format_args!("streams:{name}:{id}"))
    }

    /// One part of a frozen session. `part` is one of a fixed set, never a client's text.
    #[must_use]
    pub fn lane(&self, lane: &LaneKey, part: &'static str) -> Key {
        let session = &lane.session;
        let hash = Fields::new()
            .bytes(session.agent.as_bytes())
            .optional(session.user.as_ref().map(|user| user.as_str().as_bytes()))
            .bytes(session.id.as_str().as_bytes())
            .bytes(lane.lane.as_str().as_bytes())
            .hash();
        self.key(session.org, format_args!("lane:{hash}:{part}"))
    }

    /// The directive of an agent.
    #[must_use]
    pub fn directive(&self, org: OrgId, agent: AgentId) -> Key {
        self.key(org, format_args!("directive:{agent}"))
    }

    /// The hot set of a partition.
    #[must_use]
    pub fn hot(&self, partition: &PartitionKey) -> Key {
        let hash = Fields::new()
            .bytes(partition.agent.as_bytes())
            .optional(partition.user.as_ref().map(|user| user.as_str().as_bytes()))
            .hash();
        self.key(partition.org, format_args!("hot:{hash}"))
    }

    /// A keyed chat request of an organisation. `key_hash` is a hash of the client's key and of whoever may use it.
    #[must_use]
    pub fn chat_idempotency(&self, org: OrgId, key_hash: &[u8; 32]) -> Key {
        let hash = Fields::new().bytes(key_hash).hash();
        self.key(org, format_args!("idempotency:chat:{hash}"))
    }

    /// What is written to see whether anything can be.
    #[must_use]
    pub fn probe(&self) -> Key {
        Key(format!("{}:{{{GLOBAL}}}:probe", self.prefix))
    }

    /// Where changes are announced.
    #[must_use]
    pub fn changes(&self) -> Channel {
        Channel(format!("{}:{{{GLOBAL}}}:changes", self.prefix))
    }
}

/// A name of its own: that in error texts may change.
const fn level_name(level: Level) -> &'static str {
    match level {
        Level::Token => "token",
        Level::Agent => "agent",
        Level::Org => "org",
        Level::Global => "global",
    }
}

/// Hashes fields so that no two different lists of them are the same bytes.
struct Fields(Sha256);

impl Fields {
    fn new() -> Self {
        Self(Sha256::new())
    }

    fn bytes(mut self, field: &[u8]) -> Self {
        self.0.update((field.len() as u64).to_be_bytes());
        self.0.update(field);
        self
    }

    /// Nothing is another field than an empty one.
    fn optional(mut self, field: Option<&[u8]>) -> Self {
        self.0.update([u8::from(field.is_some())]);
        match field {
            Some(field) => self.bytes(field),
            None => self,
        }
    }

    fn hash(self) -> String {
        use std::fmt::Write as _;

        let digest = self.0.finalize();
        digest.iter().take(HASH_BYTES).fold(
            String::with_capacity(2 * HASH_BYTES),
            |mut hex, byte| {
                // Writing to a string does not fail.
                _ = write!(hex, "{byte:02x}");
                hex
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use uuid::Uuid;

    use super::{Counted, Key, Keys};
    use crate::ids::{AgentId, OrgId, SessionId, UserId};
    use crate::limits::Level;
    use crate::memory::PartitionKey;
    use crate::session::{Lane, LaneKey, SessionKey};

    fn user(text: &str) -> UserId {
        text.parse().expect("a user id")
    }

    /// Texts that would meet each other if fields were only joined.
    const TRICKY: [&str; 6] = ["a", "ab", "a:b", "b", "}:{", "a}b"];

    fn lanes(org: OrgId, agent: AgentId) -> Vec<LaneKey> {
        let users = || std::iter::once(None).chain(TRICKY.iter().map(|u| Some(user(u))));
        let mut lanes = Vec::new();
        for user in users() {
            for session in TRICKY {
                for (provider, model) in [("a", "b"), ("a/b", "c"), ("a", "b/d"), ("ab", "a:b")] {
                    let id: SessionId = session.parse().expect("a session id");
                    let session = SessionKey {
                        org,
                        agent,
                        user: user.clone(),
                        id,
                    };
                    let lane = Lane::new(provider, model);
                    lanes.push(LaneKey { session, lane });
                }
            }
        }
        lanes
    }

    fn of_tenant(keys: &Keys, org: OrgId, agent: AgentId) -> Vec<(String, Key)> {
        let mut made = Vec::new();
        let id = Uuid::from_bytes(*agent.as_bytes());
        for level in [Level::Token, Level::Agent, Level::Org] {
            for what in [Counted::Requests, Counted::Tokens] {
                made.push((
                    format!("{level:?} {what:?} {org} {id}"),
                    keys.rate(level, org, id, what),
                ));
            }
            made.push((
                format!("lease {level:?} {org} {id}"),
                keys.lease(level, org, id),
            ));
        }
        for lane in lanes(org, agent) {
            for part in ["a", "b"] {
                made.push((format!("{part} {lane:?}"), keys.lane(&lane, part)));
            }
        }
        made.push((
            format!("directive {org} {agent}"),
            keys.directive(org, agent),
        ));
        for user in std::iter::once(None).chain(TRICKY.iter().map(|u| Some(user(u)))) {
            let partition = PartitionKey { org, agent, user };
            made.push((format!("hot {partition:?}"), keys.hot(&partition)));
        }
        for n in 0..4 {
            made.push((
                format!("idempotency {org} {agent} {n}"),
                keys.chat_idempotency(
                    org,
                    &[*agent.as_bytes(), [n; 16]]
                        .concat()
                        .try_into()
                        .expect("32"),
                ),
            ));
        }
        made
    }

    #[test]
    fn no_two_inputs_have_one_key() {
        let keys = Keys::new("ibex");
        let (orgs, agents) = (
            [OrgId::new(), OrgId::new()],
            [AgentId::new(), AgentId::new()],
        );
        let mut seen: HashMap<Key, String> = HashMap::new();
        for org in orgs {
            for agent in agents {
                for (input, key) in of_tenant(&keys, org, agent) {
                    if let Some(other) = seen.insert(key.clone(), input.clone()) {
                        panic!("{input} and {other} are both {key:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_key_of_a_tenant_is_tagged_with_it() {
        let keys = Keys::new("ibex");
        let org = OrgId::new();
        for (input, key) in of_tenant(&keys, org, AgentId::new()) {
            let begins = format!("ibex:{{{org}}}:");
            assert!(key.as_str().starts_with(&begins), "{input}: {key:?}");
            let braces = key.as_str().matches(['{', '}']).count();
            assert_eq!(braces, 2, "one tag: {key:?}");
        }
    }

    #[test]
    fn what_belongs_to_the_service_is_the_same_for_every_organisation() {
        let keys = Keys::new("ibex");
        let global = |org| keys.rate(Level::Global, org, Uuid::nil(), Counted::Requests);
        assert_eq!(global(OrgId::new()), global(OrgId::new()));
        assert!(global(OrgId::new()).as_str().starts_with("ibex:{global}:"));
    }

    #[test]
    fn names_of_clients_cannot_be_read_in_a_key() {
        let keys = Keys::new("ibex");
        let (org, agent) = (OrgId::new(), AgentId::new());
        let session = SessionKey {
            org,
            agent,
            user: Some(user("alice@example.com")),
            id: "my-secret-session".parse().expect("a session id"),
        };
        let lane = Lane::new("openai", "some-model");
        let key = keys.lane(&LaneKey { session, lane }, "a");
        for name in ["alice", "secret", "some-model", "openai"] {
            assert!(!key.as_str().contains(name), "{key:?}");
        }
    }
}
