//! Text to search terms, the same way for memories and queries.
//!
//! Words are folded (case, accents, a few letters that Unicode does not decompose), stop words leave, English words are stemmed.
//! Identifiers and numbers stay whole and are also found by their parts. Scripts written without spaces become overlapping pairs of
//! characters.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::stems::stem;

/// A term by its hash. The hash is seeded at start, so that nobody can choose texts that collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Term(u64);

/// Which side of the search a text is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// A memory: single characters of unspaced scripts are terms too, so that a one-character query finds them.
    Document,
    /// A query: pairs of characters only, unless the run has one.
    Query,
}

static SEED: LazyLock<foldhash::quality::RandomState> =
    LazyLock::new(foldhash::quality::RandomState::default);

impl Term {
    /// The term of a folded text.
    pub(super) fn of(text: &str) -> Self {
        Self(SEED.hash_one(text))
    }

    /// One of 1,024 bits, as a word of sixteen and the bit in it.
    pub(super) fn place(self) -> (usize, u64) {
        let [low, high, ..] = self.0.to_le_bytes();
        (usize::from(high % 16), 1 << (low % 64))
    }
}

/// The terms of a text, in order, repeated as they occur.
#[must_use]
pub(super) fn terms(text: &str, side: Side) -> Vec<Term> {
    let mut found = Vec::with_capacity(text.len() / 6 + 4);
    walk(text, side, &mut |term| found.push(Term::of(term)));
    found
}

/// Case and accents removed, as terms are compared. Unspaced scripts keep their marks: there a mark is a letter's other half.
pub(super) fn fold(text: &str, into: &mut String) {
    into.clear();
    if text.is_ascii() {
        into.push_str(text);
        into.make_ascii_lowercase();
        return;
    }
    for c in text.nfkc().flat_map(char::to_lowercase) {
        if is_unspaced(c) {
            into.push(c);
            continue;
        }
        match c {
            'ß' => into.push_str("ss"),
            'ı' => into.push('i'),
            'ø' => into.push('o'),
            'æ' => into.push_str("ae"),
            'œ' => into.push_str("oe"),
            'đ' | 'ð' => into.push('d'),
            'ł' => into.push('l'),
            'þ' => into.push_str("th"),
            '\u{2019}' | '\u{2bc}' => into.push('\''),
            _ => into.extend(std::iter::once(c).nfkd().filter(|&c| !is_accent(c))),
        }
    }
}

/// Calls `sink` with every term of `text`.
pub(super) fn walk(text: &str, side: Side, sink: &mut dyn FnMut(&str)) {
    let mut folded = String::with_capacity(32);
    // Word by word: one accented word does not send the whole text through normalisation, and most words need no folding at all.
    for word in text.split_ascii_whitespace() {
        if word.bytes().all(|b| b.is_ascii_lowercase()) {
            stem(word, sink);
            continue;
        }
        fold(word, &mut folded);
        for chunk in folded.split_whitespace() {
            chunk_terms(chunk, side, sink);
        }
    }
}

/// The terms of one piece of text without spaces.
fn chunk_terms(chunk: &str, side: Side, sink: &mut dyn FnMut(&str)) {
    let chunk = chunk.trim_matches(|c: char| !is_word(c));
    if chunk.is_empty() {
        return;
    }
    if chunk.bytes().all(|b| b.is_ascii_lowercase()) {
        return stem(chunk, sink);
    }
    let compound = chunk.contains(|c: char| !is_word(c));
    if compound && is_identifier(chunk) {
        sink(chunk);
    }
    for word in chunk.split(|c: char| !is_word(c) && c != '\'') {
        let word = word.strip_suffix("'s").unwrap_or(word);
        for part in word.split('\'') {
            word_terms(part, side, sink);
        }
    }
}

/// Whether a chunk with inner punctuation is a name of its own (`10:30`, `inv-0042`, `a@b.example`, `snake_case`) and not two words
/// around a slash.
fn is_identifier(chunk: &str) -> bool {
    chunk.len() <= 128
        && chunk.is_ascii()
        && chunk
            .bytes()
            .any(|b| b.is_ascii_digit() || b == b'@' || b == b'_')
}

/// The terms of a run of word characters.
fn word_terms(word: &str, side: Side, sink: &mut dyn FnMut(&str)) {
    if word.is_empty() {
        return;
    }
    if word.bytes().all(|b| b.is_ascii_lowercase()) {
        return stem(word, sink);
    }
    if word.contains(is_unspaced) {
        return script_runs(word, side, sink);
    }
    sink(word);
    // `gpt4` is also found by `gpt` and by `4`, `snake_case` by `snake`.
    if word.is_ascii() && word.bytes().any(|b| !b.is_ascii_digit()) {
        split_kinds(word, sink);
    }
}

/// The letter runs and digit runs of a mixed ASCII word.
fn split_kinds(word: &str, sink: &mut dyn FnMut(&str)) {
    for part in word.split('_') {
        let mut rest = part;
        while let Some(first) = rest.chars().next() {
            let digit = first.is_ascii_digit();
            let end = rest
                .find(|c: char| c.is_ascii_digit() != digit)
                .unwrap_or(rest.len());
            let (run, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
            if digit {
                sink(run);
            } else if run.len() > 1 {
                stem(run, sink);
            }
            rest = tail;
        }
    }
}

/// Runs of unspaced script as pairs of characters; what stands between them as words.
fn script_runs(word: &str, side: Side, sink: &mut dyn FnMut(&str)) {
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let unspaced = is_unspaced(first);
        let end = rest
            .find(|c: char| is_unspaced(c) != unspaced)
            .unwrap_or(rest.len());
        let (run, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
        if unspaced {
            pairs(run, side, sink);
        } else {
            word_terms(run, side, sink);
        }
        rest = tail;
    }
}

fn pairs(run: &str, side: Side, sink: &mut dyn FnMut(&str)) {
    let ends = run
        .char_indices()
        .map(|(at, _)| at)
        .chain(std::iter::once(run.len()));
    let bounds: smallvec::SmallVec<[usize; 32]> = ends.collect();
    if side == Side::Document || bounds.len() == 2 {
        spans(run, &bounds, 2, sink);
    }
    spans(run, &bounds, 3, sink);
}

/// Calls `sink` with every window of `width - 1` characters.
fn spans(run: &str, bounds: &[usize], width: usize, sink: &mut dyn FnMut(&str)) {
    for window in bounds.windows(width) {
        if let (Some(&from), Some(&to)) = (window.first(), window.last())
            && let Some(text) = run.get(from..to)
        {
            sink(text);
        }
    }
}

/// Letters, digits, marks and the underscore.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || (!c.is_ascii() && is_combining_mark(c))
}

/// Scripts that do not put spaces between words (Hangul does, but its words carry their particles).
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1100}'..='\u{11ff}' | '\u{1780}'..='\u{17ff}' | '\u{3005}'..='\u{3007}'
        | '\u{3040}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}

/// The marks that folding drops: Latin, Greek and Cyrillic accents, Hebrew points, Arabic vowel signs. Indic vowel signs are letters.
fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{591}'..='\u{5bd}' | '\u{5bf}'..='\u{5c7}' | '\u{64b}'..='\u{65f}' | '\u{670}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}')
}

#[cfg(test)]
mod tests {
    use super::{Side, walk};

    fn of(text: &str, side: Side) -> Vec<String> {
        let mut found = Vec::new();
        walk(text, side, &mut |term| found.push(term.to_owned()));
        found
    }

    fn query(text: &str) -> Vec<String> {
        of(text, Side::Query)
    }

    #[test]
    fn words_are_folded_stopped_and_stemmed() {
        assert_eq!(
            query("The Painting's COLOURS, painted!"),
            ["paint", "colour", "paint"]
        );
        assert_eq!(query("what did they do?"), Vec::<String>::new());
    }

    #[test]
    fn letters_that_look_alike_meet() {
        assert_eq!(query("Straße Kraków naïve"), query("strasse krakow naive"));
        assert_eq!(query("İzmir ısı"), query("izmir isi"));
        assert_eq!(query("ﬁle"), query("file"));
    }

    #[test]
    fn identifiers_stay_whole_and_are_found_by_their_parts() {
        assert_eq!(query("INV-0042"), ["inv-0042", "inv", "0042"]);
        assert_eq!(query("port 8080."), ["port", "8080"]);
        assert_eq!(query("gpt4"), ["gpt4", "gpt", "4"]);
        assert_eq!(query("tea/coffee"), ["tea", "coffe"]);
        assert_eq!(query("00017"), ["00017"]);
    }

    #[test]
    fn unspaced_scripts_become_pairs() {
        assert_eq!(query("東京都"), ["東京", "京都"]);
        assert_eq!(query("猫"), ["猫"]);
        assert_eq!(of("黒猫", Side::Document), ["黒", "猫", "黒猫"]);
        assert_eq!(query("ラーメンlove"), ["ラー", "ーメ", "メン", "love"]);
        assert!(!query("กาแฟ").is_empty());
    }

    #[test]
    fn kana_keep_their_voicing() {
        assert_ne!(query("かき"), query("がき"));
        assert_eq!(query("ｶﾞｷ"), query("ガキ"));
    }

    proptest::proptest! {
        #[test]
        fn every_query_term_is_a_term_of_the_same_document(text in "\\PC{0,60}") {
            let document = of(&text, Side::Document);
            for term in query(&text) {
                proptest::prop_assert!(!term.is_empty());
                proptest::prop_assert!(document.contains(&term));
            }
        }
    }
}
