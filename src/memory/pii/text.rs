//! Bounds-safe reading of a text by byte offset: every accessor answers something harmless when
//! the offset is past an end, so the scanners need neither indexing nor slicing.

use std::ops::Range;

/// A borrowed text that is read by byte offset.
#[derive(Clone, Copy)]
pub(super) struct View<'t> {
    text: &'t str,
}

impl<'t> View<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text }
    }

    pub(super) fn text(self) -> &'t str {
        self.text
    }

    pub(super) fn bytes(self) -> &'t [u8] {
        self.text.as_bytes()
    }

    pub(super) fn len(self) -> usize {
        self.text.len()
    }

    /// The byte at `index`, 0 past the end.
    pub(super) fn at(self, index: usize) -> u8 {
        self.text.as_bytes().get(index).copied().unwrap_or(0)
    }

    /// The byte just before `index`, 0 at the start.
    pub(super) fn before(self, index: usize) -> u8 {
        index.checked_sub(1).map_or(0, |previous| self.at(previous))
    }

    /// The text in `range`, empty when the range does not lie on character boundaries.
    pub(super) fn slice(self, range: Range<usize>) -> &'t str {
        self.text.get(range).unwrap_or("")
    }

    /// The character that ends at `index`.
    pub(super) fn char_before(self, index: usize) -> Option<char> {
        if self.before(index).is_ascii() {
            return index
                .checked_sub(1)
                .map(|previous| char::from(self.at(previous)));
        }
        self.text.get(..index)?.chars().next_back()
    }

    /// The character that starts at `index`.
    pub(super) fn char_at(self, index: usize) -> Option<char> {
        self.text.get(index..)?.chars().next()
    }

    /// Where the run of bytes accepted by `accept` that starts at `from` ends, looking at no more
    /// than `most` bytes.
    pub(super) fn run(self, from: usize, most: usize, accept: impl Fn(u8) -> bool) -> usize {
        let bytes = self.text.as_bytes().get(from..).unwrap_or(&[]);
        from + bytes
            .iter()
            .take(most)
            .take_while(|byte| accept(**byte))
            .count()
    }

    /// Whether the bytes at `index` are `wanted`, ASCII case ignored.
    pub(super) fn has(self, index: usize, wanted: &str) -> bool {
        self.text
            .as_bytes()
            .get(index..index.saturating_add(wanted.len()))
            .is_some_and(|found| found.eq_ignore_ascii_case(wanted.as_bytes()))
    }

    /// Whether a word of a spaced script touches `index` from the left: a digit, an underscore or
    /// a letter. Scripts written without spaces do not count, their words touch everything.
    pub(super) fn word_before(self, index: usize) -> bool {
        self.char_before(index).is_some_and(is_word)
    }

    /// As [`Self::word_before`], from the right.
    pub(super) fn word_after(self, index: usize) -> bool {
        self.char_at(index).is_some_and(is_word)
    }
}

/// Whether a character belongs to a word in a script that separates words by spaces.
pub(super) fn is_word(letter: char) -> bool {
    letter == '_' || (letter.is_alphanumeric() && !is_unspaced(letter))
}

/// Whether a character belongs to a script written without spaces (Chinese, Japanese, Hangul
/// counted with them because particles are glued to the word).
pub(super) fn is_unspaced(letter: char) -> bool {
    ('\u{2e80}'..='\u{d7ff}').contains(&letter) || letter >= '\u{f900}'
}
