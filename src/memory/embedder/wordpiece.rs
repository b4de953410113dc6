//! The uncased WordPiece tokenizer of the BERT family: basic tokens (lower case, accents stripped, punctuation and CJK characters
//! alone), then the longest vocabulary entries from the left, with `##` marking a continuation.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Longer words are unknown as a whole, as in the reference tokenizer.
const MAX_WORD_CHARS: usize = 100;

/// A vocabulary, split by position in the word so that a lookup never builds a `##` string.
pub(super) struct WordPiece {
    // The keys are the program's own vocabulary, so a fixed hash is safe here.
    starts: HashMap<&'static str, u32, FixedState>,
    continuations: HashMap<&'static str, u32, FixedState>,
    unknown: u32,
    /// Bytes of the longest entry: a longer head is never looked up, which keeps hostile words cheap.
    longest: usize,
}

impl WordPiece {
    /// Reads a vocabulary: one entry a line, the line number is the id.
    pub(super) fn new(vocabulary: &'static str) -> Self {
        let mut starts = HashMap::with_capacity_and_hasher(32_768, FixedState::default());
        let mut continuations = HashMap::with_capacity_and_hasher(8_192, FixedState::default());
        for (id, entry) in (0u32..).zip(vocabulary.lines()) {
            match entry.strip_prefix("##") {
                Some(rest) if !rest.is_empty() => continuations.insert(rest, id),
                _ => starts.insert(entry, id),
            };
        }
        let unknown = starts.get("[UNK]").copied().unwrap_or_default();
        let longest = vocabulary.lines().map(str::len).max().unwrap_or_default();
        Self {
            starts,
            continuations,
            unknown,
            longest,
        }
    }

    /// The id of an entry, such as `[CLS]`.
    #[cfg(feature = "onnx")]
    pub(super) fn id(&self, entry: &str) -> Option<u32> {
        self.starts.get(entry).copied()
    }

    /// Calls `sink` with the ids of the first `max_words` whitespace-separated words of `text`.
    pub(super) fn ids(&self, text: &str, max_words: usize, mut sink: impl FnMut(u32)) {
        let mut token = String::with_capacity(32);
        for word in text.split_whitespace().take(max_words) {
            if word.is_ascii() {
                self.feed_ascii(word, &mut token, &mut sink);
            } else {
                for c in word
                    .nfd()
                    .filter(|&c| !is_combining_mark(c))
                    .flat_map(char::to_lowercase)
                {
                    self.feed(c, &mut token, &mut sink);
                }
            }
            self.flush(&mut token, &mut sink);
        }
    }

    /// What [`Self::feed`] does for each character, run by run.
    fn feed_ascii(&self, word: &str, token: &mut String, sink: &mut impl FnMut(u32)) {
        let mut rest = word;
        while !rest.is_empty() {
            let end = rest
                .bytes()
                .position(|b| !b.is_ascii_alphanumeric())
                .unwrap_or(rest.len());
            let (run, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
            token.push_str(run);
            token.make_ascii_lowercase();
            let mut tail = tail.chars();
            if let Some(c) = tail.next() {
                self.feed(c, token, sink);
            }
            rest = tail.as_str();
        }
    }

    /// Adds one folded character to the basic token being read, or ends it.
    fn feed(&self, c: char, token: &mut String, sink: &mut impl FnMut(u32)) {
        if c.is_control() || c == '\u{fffd}' || is_format(c) {
            return;
        }
        if is_punctuation(c) || is_cjk(c) {
            self.flush(token, sink);
            token.push(c);
            self.flush(token, sink);
        } else if c.is_whitespace() {
            self.flush(token, sink);
        } else {
            token.push(c);
        }
    }

    /// Splits the finished basic token into pieces. A token with an unknown part is unknown as a whole.
    fn flush(&self, token: &mut String, sink: &mut impl FnMut(u32)) {
        if token.is_empty() {
            return;
        }
        if let Some(&id) = self.starts.get(token.as_str()) {
            sink(id);
        } else if token.chars().count() > MAX_WORD_CHARS {
            sink(self.unknown);
        } else {
            match self.pieces(token) {
                Some(pieces) => pieces.into_iter().for_each(sink),
                None => sink(self.unknown),
            }
        }
        token.clear();
    }

    fn pieces(&self, token: &str) -> Option<smallvec::SmallVec<[u32; 16]>> {
        let mut pieces = smallvec::SmallVec::new();
        let mut rest = token;
        while !rest.is_empty() {
            let table = if pieces.is_empty() {
                &self.starts
            } else {
                &self.continuations
            };
            let ends = rest
                .char_indices()
                .rev()
                .map(|(at, c)| at + c.len_utf8())
                .skip_while(|&end| end > self.longest);
            let (id, tail) = ends
                .filter_map(|end| rest.split_at_checked(end))
                .find_map(|(head, tail)| table.get(head).map(|&id| (id, tail)))?;
            pieces.push(id);
            rest = tail;
        }
        Some(pieces)
    }
}

/// The punctuation that the reference tokenizer isolates: every ASCII symbol, and the common Unicode punctuation.
fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation()
        || matches!(c,
            '\u{a1}' | '\u{a7}' | '\u{ab}' | '\u{b6}' | '\u{b7}' | '\u{bb}' | '\u{bf}' | '\u{37e}' | '\u{55a}'..='\u{55f}' | '\u{589}'
            | '\u{5be}' | '\u{5c0}' | '\u{5c3}' | '\u{5f3}' | '\u{5f4}' | '\u{60c}' | '\u{61b}' | '\u{61f}' | '\u{66a}'..='\u{66d}' | '\u{6d4}'
            | '\u{964}' | '\u{965}' | '\u{e4f}' | '\u{e5a}' | '\u{e5b}' | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{2043}'
            | '\u{2045}'..='\u{2051}' | '\u{2053}'..='\u{205e}' | '\u{3001}'..='\u{3003}' | '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301f}'
            | '\u{30fb}' | '\u{ff01}'..='\u{ff03}' | '\u{ff05}'..='\u{ff0a}' | '\u{ff0c}'..='\u{ff0f}' | '\u{ff1a}' | '\u{ff1b}' | '\u{ff1f}'
            | '\u{ff20}' | '\u{ff3b}'..='\u{ff3d}' | '\u{ff3f}' | '\u{ff5b}' | '\u{ff5d}' | '\u{ff5f}'..='\u{ff65}')
}

/// Han ideographs: each is a token of its own.
fn is_cjk(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{2ceaf}' | '\u{2f800}'..='\u{2fa1f}')
}

/// Invisible format characters, which the reference tokenizer drops.
fn is_format(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::WordPiece;

    const VOCABULARY: &str = "[UNK]\nun\n##aff\n##able\nresume\n,\n東\n京\n##s\na\n!\nstrasse";

    fn ids(text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        WordPiece::new(VOCABULARY).ids(text, usize::MAX, |id| ids.push(id));
        ids
    }

    #[test]
    fn the_longest_pieces_win_from_the_left() {
        assert_eq!(ids("Unaffable"), [1, 2, 3]);
        assert_eq!(ids("resumes"), [4, 8]);
    }

    #[test]
    fn case_and_accents_are_folded() {
        assert_eq!(ids("RÉSUMÉ re\u{301}sume\u{301}"), [4, 4]);
    }

    #[test]
    fn punctuation_and_ideographs_stand_alone() {
        assert_eq!(ids("a,a!"), [9, 5, 9, 10]);
        assert_eq!(ids("東京a"), [6, 7, 9]);
    }

    #[test]
    fn control_characters_do_not_split_a_word() {
        assert_eq!(
            ids("RES\u{1}ume,\u{7f}UN\u{2}affable!a"),
            [4, 5, 1, 2, 3, 10, 9]
        );
    }

    #[test]
    fn a_word_with_an_unknown_part_is_one_unknown() {
        assert_eq!(ids("unzzz"), [0]);
        assert_eq!(ids(&"a".repeat(101)), [0]);
    }

    #[test]
    fn invisible_characters_do_not_split_a_word() {
        assert_eq!(ids("re\u{200b}su\u{ad}me"), [4]);
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_it(text in "\\PC{0,60}") {
            let words = text.split_whitespace().count();
            let found = ids(&text);
            proptest::prop_assert!(found.iter().all(|&id| id < 12));
            proptest::prop_assert!(words == 0 || found.len() <= text.chars().count() * 4);
        }
    }
}
