//! Counting tokens: exact byte-pair counts where the vocabulary is known, a labelled conservative estimate elsewhere.

mod count;
mod counter;
mod tally;
mod estimator;
#[cfg(test)]
mod tests;

pub use count::{Count, MixedFamilies};
pub use counter::Counter;
pub use estimator::{Counted, Estimator};
pub use tally::Tally;

use serde::{Deserialize, Serialize};

/// Tokens charged for one image part, whatever its size: six tiles of 170 and a base of 85, which is what OpenAI's tile formula
/// gives a 2048 x 4096 picture at high detail. The encoded bytes say nothing about the price and are never counted.
pub const IMAGE_TOKENS: u32 = 1_105;

/// Which tokenizer a model uses, and so what a count of its tokens means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// OpenAI's `o200k_base`; counted exactly.
    O200kBase,
    /// OpenAI's `cl100k_base`; counted exactly.
    Cl100kBase,
    /// Anthropic's; estimated.
    Claude,
    /// Not known; estimated with the widest margin.
    Unknown,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 4] = [
        Self::O200kBase,
        Self::Cl100kBase,
        Self::Claude,
        Self::Unknown,
    ];

    /// The name, as in JSON and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::O200kBase => "o200k_base",
            Self::Cl100kBase => "cl100k_base",
            Self::Claude => "claude",
            Self::Unknown => "unknown",
        }
    }

    /// Percent of the context window that is kept back for counting errors (contract, section 8).
    #[must_use]
    pub const fn safety_percent(self) -> u32 {
        match self {
            Self::O200kBase | Self::Cl100kBase => 2,
            Self::Claude => 5,
            Self::Unknown => 10,
        }
    }
}

/// The token counts of one text under every family, kept beside a stored memory so that packing never counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenCounts {
    /// Exact `o200k_base` tokens.
    pub o200k: u32,
    /// Exact `cl100k_base` tokens.
    pub cl100k: u32,
    /// The estimate for Claude models.
    pub claude: u32,
    /// The estimate for unknown models.
    pub unknown: u32,
}

impl TokenCounts {
    /// The count under `family`.
    #[must_use]
    pub const fn of(&self, family: Family) -> u32 {
        match family {
            Family::O200kBase => self.o200k,
            Family::Cl100kBase => self.cl100k,
            Family::Claude => self.claude,
            Family::Unknown => self.unknown,
        }
    }
}
