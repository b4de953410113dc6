//! What a session is: a conversation of one scope, and what was frozen for it so that it is sent again byte for byte.
//!
//! ```text
//! SessionKey        organisation, agent, user or none, session: the scope is part of the key
//! LaneKey           a session with one resolved model and provider; each lane has frozen state of its own
//! Chain             hashes of a request's messages, one for each prefix; a turn is known by the hash up to its user message
//! Opening           Region A of an epoch: what stands around the client's own system text
//! Outcome           what a turn got: a block, or nothing, for good
//! ```
//!
//! The types here hold rendered text and hashes and know neither stores nor requests' paths.

mod key;
pub mod chain;
mod frozen;
pub mod record;
mod secret;
pub mod working_state;

pub use chain::{Anchor, Chain, ChainHash, Turn};
pub use frozen::{
    Block, Element, Elements, Enveloped, Opening, OpeningParts, Outcome, Place, RotationReason,
    Snapshot, StateDelta, Text,
};
pub use key::{Lane, LaneKey, SessionKey};
pub use secret::{SessionNonce, SessionSecret, Tagger, is_derived};
