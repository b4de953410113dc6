//! What a text that is kept costs: exact for the model it was written for, estimated for any other.

use super::{Counter, Family};
use crate::ids::OrgId;

/// The tokens of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    family: Family,
    tokens: u32,
    bytes: u32,
}

impl Tally {
    /// Counts `text` for a request of `org`: exactly where the vocabulary is known and loaded, through the counter's cache.
    #[must_use]
    pub fn of(counter: &Counter, org: OrgId, family: Family, text: &str) -> Self {
        let bytes = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let tokens = if counter.is_ready(family) {
            counter.count(org, family, text)
        } else {
            bytes.div_ceil(3)
        };
        Self {
            family,
            tokens,
            bytes,
        }
    }

    /// A bound that is known without counting: at most three bytes a token.
    #[must_use]
    pub const fn given(family: Family, tokens: u32) -> Self {
        Self {
            family,
            tokens,
            bytes: tokens.saturating_mul(3),
        }
    }

    /// A count that was kept: what [`Tally::parts`] told.
    #[must_use]
    pub const fn kept(family: Family, tokens: u32, bytes: u32) -> Self {
        Self {
            family,
            tokens,
            bytes,
        }
    }

    /// The model's family, the tokens by its count, and the bytes that any other family's are estimated from.
    #[must_use]
    pub const fn parts(self) -> (Family, u32, u32) {
        (self.family, self.tokens, self.bytes)
    }

    /// The tokens of another family are estimated: a third of the bytes.
    #[must_use]
    pub fn tokens(self, family: Family) -> u32 {
        if family == self.family {
            self.tokens
        } else {
            self.bytes.div_ceil(3)
        }
    }

    /// What is left when a text that was added is taken away again.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            family: self.family,
            tokens: self.tokens.saturating_sub(other.tokens(self.family)),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }

    /// Two texts one after the other. Where they meet a token may be saved, never added.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            family: self.family,
            tokens: self.tokens.saturating_add(other.tokens(self.family)),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}
