//! Folds look-alike characters to ASCII before detection (full-width forms, digits of other
//! scripts, unusual dashes and spaces) and drops invisible ones, keeping for every byte the place
//! it came from, so that a finding in the folded text maps to a range of the original.

use std::borrow::Cow;
use std::ops::Range;

/// A text as the detectors read it, with the way back to the original.
pub(super) struct Folded<'t> {
    original: &'t str,
    text: Cow<'t, str>,
    /// For each byte of `text` the start of the original character behind it; `None` when
    /// nothing was folded.
    origins: Option<Vec<usize>>,
}

impl<'t> Folded<'t> {
    /// Folds `original`; borrows it when there is nothing to fold, which is the usual case.
    pub(super) fn new(original: &'t str) -> Self {
        if original.is_ascii()
            || !original
                .chars()
                .any(|letter| folded(letter) != Some(letter))
        {
            return Self {
                original,
                text: Cow::Borrowed(original),
                origins: None,
            };
        }
        let mut text = String::with_capacity(original.len());
        let mut origins = Vec::with_capacity(original.len());
        for (start, letter) in original.char_indices() {
            if let Some(letter) = folded(letter) {
                text.push(letter);
                origins.resize(text.len(), start);
            }
        }
        Self {
            original,
            text: Cow::Owned(text),
            origins: Some(origins),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The range of the original behind a range of the folded text. Invisible characters inside
    /// are covered, those at the edges are not.
    pub(super) fn original_range(&self, range: Range<usize>) -> Range<usize> {
        let Some(origins) = &self.origins else {
            return range;
        };
        let origin = |index: usize| origins.get(index).copied().unwrap_or(self.original.len());
        let last = origin(range.end.saturating_sub(1));
        let width = self
            .original
            .get(last..)
            .and_then(|rest| rest.chars().next())
            .map_or(0, char::len_utf8);
        origin(range.start)..last + width
    }
}

/// What a character is read as; `None` when it is invisible and skipped.
fn folded(letter: char) -> Option<char> {
    if letter.is_ascii() {
        return Some(letter);
    }
    let code = u32::from(letter);
    let moved = |offset: u32| char::from_u32(code.saturating_sub(offset));
    let digit = |zero: u32| char::from_digit(code.saturating_sub(zero) % 10, 10);
    match code {
        // Soft hyphen, Mongolian vowel separator, zero-width and direction marks, variation
        // selectors, byte order mark.
        0xad | 0x180e | 0x200b..=0x200f | 0x202a..=0x202e => None,
        0x2060..=0x2064 | 0x2066..=0x2069 | 0xfe00..=0xfe0f | 0xfeff => None,
        0xa0 | 0x2000..=0x200a | 0x202f | 0x205f | 0x3000 => Some(' '),
        0x2010..=0x2015 | 0x2043 | 0x2212 | 0xfe58 | 0xfe63 => Some('-'),
        0x2024 | 0xfe52 => Some('.'),
        0xfe6b => Some('@'),
        0xff01..=0xff5e => moved(0xfee0),
        // Digits: Arabic-Indic, extended Arabic-Indic, Devanagari, Bengali, Thai, mathematical.
        0x660..=0x669 => digit(0x660),
        0x6f0..=0x6f9 => digit(0x6f0),
        0x966..=0x96f => digit(0x966),
        0x9e6..=0x9ef => digit(0x9e6),
        0xe50..=0xe59 => digit(0xe50),
        0x1d7ce..=0x1d7ff => digit(0x1d7ce),
        _ => Some(letter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_borrowed() {
        for text in ["plain", "façon", "日本語"] {
            assert!(matches!(Folded::new(text).text, Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn ranges_map_back_over_invisible_and_wide_characters() {
        let original = "a\u{200b}４\u{200b}２\u{2011}１ü\u{200b}";
        let folded = Folded::new(original);
        assert_eq!(folded.text(), "a42-1ü");
        assert_eq!(
            original.get(folded.original_range(1..5)).unwrap(),
            "４\u{200b}２\u{2011}１"
        );
        assert_eq!(original.get(folded.original_range(5..7)).unwrap(), "ü");
    }
}
