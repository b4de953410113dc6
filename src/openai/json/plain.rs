//! How far the plain part of a JSON string goes. A body is read by this: most strings of one are short (names, words of a schema), most of
//! its bytes are in long ones.

use memchr::memchr2;

/// Bytes of one word.
const WORD: usize = 8;
/// So many words are looked at one by one. What is longer is worth the call of a search that takes 32 bytes at a time.
const WORDS: usize = 4;

const ONES: u64 = u64::from_le_bytes([1; WORD]);
const HIGHS: u64 = ONES << 7;

/// The number of bytes before the first quote, backslash or control character; all of them where there is none.
pub(super) fn plain(bytes: &[u8]) -> usize {
    let (words, _) = bytes.as_chunks::<WORD>();
    let mut passed = 0;
    for word in words.iter().take(WORDS) {
        let ends = ends(u64::from_le_bytes(*word));
        if ends != 0 {
            return passed + ends.trailing_zeros() as usize / WORD;
        }
        passed += WORD;
    }
    let rest = bytes.get(passed..).unwrap_or_default();
    let end = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
    let before = rest.get(..end).unwrap_or_default();
    // A fold without an early exit is what the compiler turns into vector code.
    let control = before.iter().fold(false, |any, byte| any | (*byte < b' '));
    let end = match control {
        true => before.iter().position(|byte| *byte < b' ').unwrap_or(end),
        false => end,
    };
    passed + end
}

/// The high bit of each byte that ends a plain part. Behind the first one others may be set that do not: borrows go up, never down.
const fn ends(word: u64) -> u64 {
    let (quotes, backslashes) = (word ^ (ONES * b'"' as u64), word ^ (ONES * b'\\' as u64));
    let quotes = quotes.wrapping_sub(ONES) & !quotes;
    let backslashes = backslashes.wrapping_sub(ONES) & !backslashes;
    let controls = word.wrapping_sub(ONES * b' ' as u64) & !word;
    (quotes | backslashes | controls) & HIGHS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::plain;

    fn one_by_one(bytes: &[u8]) -> usize {
        let ends = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\');
        bytes.iter().position(ends).unwrap_or(bytes.len())
    }

    #[test]
    fn every_byte_in_every_place() {
        for length in 0..70 {
            for byte in 0..=u8::MAX {
                for place in 0..length {
                    let mut bytes = vec![b'a'; length];
                    bytes[place] = byte;
                    assert_eq!(plain(&bytes), one_by_one(&bytes), "{byte} at {place}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_what_one_look_at_each_byte_says(
            bytes in prop::collection::vec(prop_oneof![8 => 0x20_u8..=255, 1 => any::<u8>()], 0..100),
        ) {
            prop_assert_eq!(plain(&bytes), one_by_one(&bytes));
        }
    }
}
