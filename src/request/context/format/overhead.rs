//! What formatting will cost, before it is known what will be formatted: upper bounds, so that a budget made with them holds.
//!
//! They stand on two facts: a byte-pair token has at least one byte, which bounds what is random (nonce and id); and the rest is
//! fixed text, whose exact counts are the constants here, held to the real tokenizers by a test. The margins cover that a text is
//! not cut into the same tokens once something stands beside it.

use super::nonce::characters;
use super::{
    BODY_CLOSES, BODY_OPENS, CATEGORY_OPENS, ID_OPENS, NONCE_OPENS, SECTION_BREAK,
    SENTENCE_AFTER_NONCE, SENTENCE_BEFORE_NONCE,
};
use crate::tokens::{Count, Family};

/// The fixed parts of a memory element and the newline after it, in tokens of either exact family.
pub(super) const ELEMENT_TOKENS: usize = 20;

/// The longest category name, in tokens of either exact family.
pub(super) const CATEGORY_TOKENS: usize = 3;

/// The safety sentence without its nonce, in tokens of either exact family.
pub(super) const SENTENCE_TOKENS: usize = 41;

/// Tokens that an element may add to the text on either side of it.
const ELEMENT_MARGIN: usize = 4;

/// As much for the joins of the sections and of the safety sentence, of which there are at most four.
const JOINS_TOKENS: usize = 8;

/// Characters of a hyphenated UUID.
const ID_BYTES: usize = 36;

/// Bytes of the longest category name.
const CATEGORY_BYTES: usize = 10;

/// The most tokens that one memory's element adds to its escaped content ([`escape`](super::escape)), the newline to the next one
/// included, with a nonce of `nonce_bytes` random bytes.
#[must_use]
pub fn wrapper_tokens(family: Family, nonce_bytes: usize) -> u32 {
    let random = characters(nonce_bytes) + ID_BYTES;
    let tokens = match family {
        Family::O200kBase | Family::Cl100kBase => {
            ELEMENT_TOKENS + CATEGORY_TOKENS + ELEMENT_MARGIN + random
        }
        Family::Claude | Family::Unknown => {
            let fixed = [
                NONCE_OPENS,
                ID_OPENS,
                CATEGORY_OPENS,
                BODY_OPENS,
                BODY_CLOSES,
            ]
            .iter()
            .map(|part| part.len())
            .sum::<usize>();
            (fixed + CATEGORY_BYTES + random + 1).div_ceil(3)
        }
    };
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

/// The most tokens that formatting adds to the directive, the history section, `memories` escaped contents and the tools: the
/// safety sentence, the joins, and a wrapper for each memory. With 0 memories, what is fixed.
#[must_use]
pub fn estimate_overhead(family: Family, nonce_bytes: usize, memories: usize) -> Count {
    let nonce = characters(nonce_bytes);
    let fixed = match family {
        Family::O200kBase | Family::Cl100kBase => SENTENCE_TOKENS + JOINS_TOKENS + nonce,
        Family::Claude | Family::Unknown => {
            let joins = 3 * SECTION_BREAK.len() + 1;
            (SENTENCE_BEFORE_NONCE.len() + SENTENCE_AFTER_NONCE.len() + joins + nonce).div_ceil(3)
        }
    };
    let memories = u32::try_from(memories).unwrap_or(u32::MAX);
    let wrappers = wrapper_tokens(family, nonce_bytes).saturating_mul(memories);
    Count::new(
        family,
        u32::try_from(fixed)
            .unwrap_or(u32::MAX)
            .saturating_add(wrappers),
    )
}
