//! What is derived from the server's session key: names of sessions, nonces, assembly ids, chain hashes, and the tags of what is kept
//! outside of the process. Every replica with the key derives the same.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use highway::{HighwayHash, HighwayHasher};
use hmac::digest::Key;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{Anchor, ChainHash, SessionKey};
use crate::auth::Scope;
use crate::ids::SessionId;

/// What a derived session's name starts with.
const DERIVED: &str = "auto-";
/// Bytes of a nonce: 22 characters, as many as an assembly's own (ADR-0070).
const NONCE_BYTES: usize = 16;
/// Bytes of an assembly id: it tells blocks of one session apart and guards nothing.
const ASSEMBLY_BYTES: usize = 6;

/// A session's nonce: URL-safe base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionNonce(Arc<str>);

impl SessionNonce {
    /// A nonce that was kept; nothing when the text is none, which would have to be escaped.
    #[must_use]
    pub fn kept(text: &str) -> Option<Self> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        (!text.is_empty() && text.bytes().all(plain)).then(|| Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The server's session key, prepared.
#[derive(Clone)]
pub struct SessionSecret {
    keyed: Hmac<Sha256>,
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(<hidden>)")
    }
}

impl SessionSecret {
    /// Prepares the key.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        let mut block = Key::<Hmac<Sha256>>::default();
        block
            .iter_mut()
            .zip(key)
            .for_each(|(slot, byte)| *slot = *byte);
        Self {
            keyed: Hmac::new(&block),
        }
    }

    /// A keyed hash for one purpose: two purposes never share an output.
    pub(super) fn keyed(&self, purpose: &str) -> Hmac<Sha256> {
        let mut mac = self.keyed.clone();
        field(&mut mac, purpose.as_bytes());
        mac
    }

    /// The name of a session that the client did not name: the same first message of the same scope is the same conversation.
    #[must_use]
    pub fn derived_id(&self, scope: &Scope, first_message: &ChainHash) -> SessionId {
        let mut mac = self.keyed("session");
        mac.update(scope.org().as_bytes());
        mac.update(scope.agent().as_bytes());
        field(&mut mac, scope.user().map_or("", |u| u.as_str()).as_bytes());
        mac.update(first_message.as_bytes());
        let text = [DERIVED, &short::<18>(mac)].concat();
        text.parse().unwrap_or_else(|_| SessionId::mint())
    }

    /// The nonce of `session` in `epoch`.
    #[must_use]
    pub fn nonce(&self, session: &SessionKey, epoch: u32) -> SessionNonce {
        let mut mac = self.keyed("nonce");
        mac.update(session.org.as_bytes());
        mac.update(session.agent.as_bytes());
        field(
            &mut mac,
            session.user.as_ref().map_or("", |u| u.as_str()).as_bytes(),
        );
        field(&mut mac, session.id.as_str().as_bytes());
        mac.update(&epoch.to_le_bytes());
        SessionNonce(short::<NONCE_BYTES>(mac).into())
    }

    /// What tags the values of one purpose.
    #[must_use]
    pub fn tagger(&self, purpose: &str) -> Tagger {
        Tagger(HighwayHasher::new(highway_key(self.keyed(purpose))))
    }

    /// The id of the assembly for a turn. It follows from the anchor, which stays the same when a history's beginning is cut off.
    #[must_use]
    pub fn assembly(&self, turn: &Anchor) -> String {
        let mut mac = self.keyed("assembly");
        mac.update(turn.as_bytes());
        short::<ASSEMBLY_BYTES>(mac)
    }
}

/// Tags values that are kept outside of the process: nobody without the server's session key can make one that bears its tag, or move
/// one that belongs elsewhere.
#[derive(Debug, Clone)]
pub struct Tagger(HighwayHasher);

impl Tagger {
    /// One for values that belong to `part` of what this one is for.
    #[must_use]
    pub fn of(mut self, part: &[u8]) -> Self {
        self.0.append(&(part.len() as u64).to_le_bytes());
        self.0.append(part);
        self
    }

    /// The tag of `value`.
    #[must_use]
    pub fn tag(&self, value: &[u8]) -> [u8; 16] {
        let Self(hash) = self.clone().of(value);
        let [low, high] = hash.finalize128();
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
    }
}

/// A digest as the key of the fast hash.
pub(super) fn highway_key(mac: Hmac<Sha256>) -> highway::Key {
    let mut key = [0; 4];
    let bytes = mac.finalize().into_bytes();
    for (word, bytes) in key.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    highway::Key(key)
}

/// Whether the session's name was derived: it has no working state and cannot be terminated.
#[must_use]
pub fn is_derived(id: &SessionId) -> bool {
    id.as_str().starts_with(DERIVED)
}

/// A part of variable length: its length first, so that no two inputs run together.
fn field(mac: &mut Hmac<Sha256>, bytes: &[u8]) {
    mac.update(&(bytes.len() as u64).to_le_bytes());
    mac.update(bytes);
}

/// The first `N` bytes of a digest as text.
fn short<const N: usize>(mac: Hmac<Sha256>) -> String {
    let mut bytes = [0; N];
    bytes
        .iter_mut()
        .zip(mac.finalize().into_bytes())
        .for_each(|(b, d)| *b = d);
    URL_SAFE_NO_PAD.encode(bytes)
}
