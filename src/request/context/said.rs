//! What was said already, of the memories that one request looks at: the same content, or the same words in another layout.

use std::collections::HashSet;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::memory::Memory;

/// What was said already: the same content, or the same words.
#[derive(Debug)]
pub struct Said {
    hashes: HashSet<[u8; 32], RandomState>,
    texts: HashSet<u64, RandomState>,
    hasher: RandomState,
    words: Vec<u8>,
}

/// Memories that are usually looked at for one request.
const USUAL: usize = 56;

impl Default for Said {
    fn default() -> Self {
        let hasher = RandomState::default();
        Self {
            hashes: HashSet::with_capacity_and_hasher(USUAL, hasher.clone()),
            texts: HashSet::with_capacity_and_hasher(USUAL, hasher.clone()),
            hasher,
            words: Vec::with_capacity(256),
        }
    }
}

impl Said {
    /// Whether nothing before says what `memory` says; from now on it is said.
    pub fn is_news(&mut self, memory: &Memory) -> bool {
        let new_hash = self.hashes.insert(memory.content_hash);
        words(&memory.content, &mut self.words);
        let new_text = self.texts.insert(self.hasher.hash_one(&self.words));
        new_hash && new_text
    }
}

/// The words in lower case without the punctuation around them: what is left of a text when only its layout may differ.
fn words(text: &str, into: &mut Vec<u8>) {
    into.clear();
    if text.is_ascii() {
        ascii_words(text.as_bytes(), into);
        return;
    }
    any_words(text, into);
}

/// The same of any text.
fn any_words(text: &str, into: &mut Vec<u8>) {
    let mut buffer = [0; 4];
    for word in text.split_whitespace() {
        let around = |c: char| u8::try_from(c).is_ok_and(|byte| folded(byte) == AROUND);
        let word = word.trim_matches(around);
        for c in word.chars().flat_map(char::to_lowercase) {
            into.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
        }
        if !word.is_empty() {
            into.push(SPACE);
        }
    }
}

/// The same in one pass: dozens of texts of a request come this way.
fn ascii_words(text: &[u8], into: &mut Vec<u8>) {
    // What is known to belong to the word; punctuation beyond it may turn out to stand after it.
    let (mut end, mut in_word) = (0, false);
    for byte in text.iter().chain([&SPACE]) {
        match folded(*byte) {
            SPACE if in_word => {
                into.truncate(end);
                into.push(SPACE);
                in_word = false;
            }
            SPACE => {}
            AROUND if !in_word => {}
            AROUND => into.push(*byte),
            letter => {
                into.push(letter);
                (end, in_word) = (into.len(), true);
            }
        }
    }
}

/// White space of any kind.
const SPACE: u8 = b' ';
/// Punctuation that may stand around a word.
const AROUND: u8 = b'.';

/// What a character of one byte is among words: white space, punctuation around them, or itself in lower case.
fn folded(byte: u8) -> u8 {
    FOLDED.get(usize::from(byte)).copied().unwrap_or(byte)
}

static FOLDED: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0_u8;
    loop {
        let folded = match byte {
            b' ' | 0x09..=0x0d => SPACE,
            // Part of a word wherever they stand.
            b'-' | b'+' | b'$' | b'#' | b'%' | b'@' => byte,
            _ if byte.is_ascii_punctuation() => AROUND,
            _ => byte.to_ascii_lowercase(),
        };
        #[expect(
            clippy::indexing_slicing,
            reason = "a byte is an index of 256 places, and it is the compiler that looks"
        )]
        {
            table[byte as usize] = folded;
        }
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{any_words, words};

    fn of(text: &str) -> String {
        let mut into = Vec::new();
        words(text, &mut into);
        String::from_utf8(into).unwrap()
    }

    #[test]
    fn layout_and_punctuation_around_words_do_not_count() {
        assert_eq!(
            of("  Port:\t8080,\x0bat  (dock) \"B\"!"),
            "port 8080 at dock b "
        );
        assert_eq!(of("don't e.g. ..."), "don't e.g ");
        assert_eq!(of("-5 C++ $3 #1 50% @home"), "-5 c++ $3 #1 50% @home ");
        assert_eq!(of("„Größe“ ÉTÉ, 5"), "„größe“ été 5 ");
        assert_eq!(of(""), "");
    }

    proptest! {
        #[test]
        fn ascii_is_read_like_any_text(text in "[ -~\t\r\n\x0b\x0c]{0,60}") {
            let mut into = Vec::new();
            any_words(&text, &mut into);
            prop_assert_eq!(of(&text).into_bytes(), into);
        }
    }
}
