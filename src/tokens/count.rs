//! A number of tokens that remembers how it was counted, so that counts of two kinds cannot be added by accident.

use super::Family;

/// Two counts of different families met in one sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("token counts of {left:?} and {right:?} cannot be added")]
pub struct MixedFamilies {
    /// The family of the sum so far.
    pub left: Family,
    /// The family that does not belong.
    pub right: Family,
}

/// Tokens, as one family counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub tokens: u32,
    /// Whose tokens.
    pub family: Family,
}

impl Count {
    /// `tokens` of `family`.
    #[must_use]
    pub const fn new(family: Family, tokens: u32) -> Self {
        Self { tokens, family }
    }

    /// The neutral element of a sum under `family`.
    #[must_use]
    pub const fn zero(family: Family) -> Self {
        Self::new(family, 0)
    }

    /// The sum of two counts of one family; saturates.
    ///
    /// # Errors
    /// [`MixedFamilies`] when the families differ, even if one of the counts is zero.
    pub fn plus(self, other: Self) -> Result<Self, MixedFamilies> {
        if self.family != other.family {
            return Err(MixedFamilies {
                left: self.family,
                right: other.family,
            });
        }
        Ok(Self::new(
            self.family,
            self.tokens.saturating_add(other.tokens),
        ))
    }
}
