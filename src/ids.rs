//! Identifiers as types of their own: made only by `parse` or `new`, so a value of the type is a valid one.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

/// Why a text is not an identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// Not a hyphenated UUID.
    #[error("not a UUID")]
    NotAUuid,
    /// Empty, too long, or with characters other than visible ASCII.
    #[error("must be 1 to {max} visible ASCII characters")]
    NotVisible {
        /// The greatest length in characters.
        max: usize,
    },
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Cow::<'_, str>::deserialize(from)?.parse().map_err(D::Error::custom)
            }
        }

        impl $name {
            /// A new, time-ordered identifier.
            #[must_use]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// The raw bytes, for keys and storage.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// Rebuilds an identifier from storage.
            #[must_use]
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            /// Accepts the hyphenated form in lower case only: one spelling per identifier.
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if text.len() != 36 || text.bytes().any(|b| b.is_ascii_uppercase()) {
                    return Err(InvalidId::NotAUuid);
                }
                Uuid::try_parse(text).map(Self).map_err(|_| InvalidId::NotAUuid)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }
    };
}

uuid_id!(
    /// A tenant.
    OrgId
);
uuid_id!(
    /// An agent of an organisation.
    AgentId
);
uuid_id!(
    /// One memory.
    MemoryId
);
uuid_id!(
    /// A question about two memories that waits for a decision.
    EscalationId
);
uuid_id!(
    /// An access token (not its secret).
    TokenId
);

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $max:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The greatest length in characters.
            pub const MAX: usize = $max;

            /// The identifier's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let visible = text.bytes().all(|b| (0x21..=0x7e).contains(&b));
                if text.is_empty() || text.len() > $max || !visible {
                    return Err(InvalidId::NotVisible { max: $max });
                }
                Ok(Self(text.into()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id!(
    /// An end user of an agent, named by the client or by the credential.
    UserId,
    128
);
text_id!(
    /// A conversation, named by the client (`X-IBEX-Session-ID`) or minted.
    SessionId,
    64
);
text_id!(
    /// One request, named by the client (`X-Request-ID`) or minted.
    RequestId,
    128
);
text_id!(
    /// The key under which a client repeats a write (`Idempotency-Key`).
    IdempotencyKey,
    255
);

impl SessionId {
    /// A fresh random session identifier.
    #[must_use]
    pub fn mint() -> Self {
        Self((*Uuid::new_v4().hyphenated().encode_lower(&mut [0; 36])).into())
    }
}

impl RequestId {
    /// A fresh random request identifier.
    #[must_use]
    pub fn mint() -> Self {
        let mut text = *b"req_00000000000000000000000000000000";
        let (_, digits) = text.split_at_mut(4);
        Uuid::new_v4().simple().encode_lower(digits);
        Self(String::from_utf8_lossy(&text).into())
    }
}

/// Lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| {
        DIGITS
            .get(usize::from(nibble))
            .map_or('0', |d| char::from(*d))
    };
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{AgentId, InvalidId, SessionId, UserId};

    #[test]
    fn a_uuid_has_one_spelling() {
        let id = AgentId::new();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(
            "{67e55044-10b1-426f-9247-bb680e5fe0c8}".parse::<AgentId>(),
            Err(InvalidId::NotAUuid)
        );
        assert_eq!(
            "67e5504410b1426f9247bb680e5fe0c8".parse::<AgentId>(),
            Err(InvalidId::NotAUuid)
        );
    }

    #[test]
    fn text_ids_are_bounded_and_visible() {
        assert!("user-1".parse::<UserId>().is_ok());
        for bad in ["", "a b", "a\u{200b}b", "\n", &"x".repeat(129)] {
            assert!(bad.parse::<UserId>().is_err(), "{bad:?}");
        }
        assert!("s".repeat(64).parse::<SessionId>().is_ok());
        assert!("s".repeat(65).parse::<SessionId>().is_err());
    }
}
