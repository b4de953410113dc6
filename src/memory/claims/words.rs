//! Cuts a text into words and marks, the one way that slots, restatements and topics all read it.
//!
//! Contractions are opened ("doesn't" is "does not"), a possessive becomes its own mark, and compatibility characters are folded, so
//! that the grammar sees one spelling. A mark that the grammar does not understand stays visible as [`Mark::Odd`]: it makes a slot
//! impossible instead of being skipped.

use crate::memory::pii::is_invisible;
use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;

/// What a piece of the text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// A word, number, address or anything else between spaces.
    Word,
    /// The possessive "'s" or "s'".
    Possessive,
    /// A comma.
    Comma,
    /// A colon.
    Colon,
    /// The end of a sentence.
    Stop,
    /// A question mark.
    Question,
    /// Brackets, quotes, semicolons, dashes and the like.
    Odd,
}

/// One piece of a text.
#[derive(Clone, Debug)]
pub(super) struct Word<'a> {
    /// As it was written.
    pub(super) raw: &'a str,
    /// In lower case.
    pub(super) low: Cow<'a, str>,
    /// What it is.
    pub(super) mark: Mark,
    /// Whether it begins with a capital letter.
    pub(super) cap: bool,
    /// Whether it is the first word of the text.
    pub(super) first: bool,
}

impl Word<'_> {
    /// Whether this is the word `low`.
    pub(super) fn is(&self, low: &str) -> bool {
        self.mark == Mark::Word && self.low == low
    }
}

/// The text with compatibility characters folded, one kind of apostrophe and no invisible characters.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let folded = text.nfkc().filter(|c| !is_invisible(*c)).map(|c| match c {
        '\u{2018}' | '\u{2019}' | '\u{2bc}' => '\'',
        other => other,
    });
    Cow::Owned(folded.collect())
}

/// The words and marks of a cleaned text.
pub(super) fn split(clean: &str) -> Vec<Word<'_>> {
    let mut out = Vec::with_capacity(24);
    for chunk in clean.split_whitespace() {
        let first = out.is_empty();
        chunk_into(chunk, first, &mut out);
    }
    out
}

fn chunk_into<'a>(chunk: &'a str, first: bool, out: &mut Vec<Word<'a>>) {
    let opened = chunk.trim_start_matches(is_odd_edge);
    if opened.len() < chunk.len() {
        out.push(mark(Mark::Odd, chunk.strip_suffix(opened).unwrap_or(chunk)));
    }
    let body = opened.trim_end_matches(|c| is_edge(c) && c != '\'');
    let tail = opened.strip_prefix(body).unwrap_or_default();
    if !body.is_empty() {
        word_into(body, first, out);
    }
    for (at, c) in tail.char_indices() {
        let kind = match c {
            ',' => Mark::Comma,
            ':' => Mark::Colon,
            '.' | '!' | '\u{2026}' | '\u{3002}' => Mark::Stop,
            '?' => Mark::Question,
            _ => Mark::Odd,
        };
        out.push(mark(kind, tail.get(at..at + c.len_utf8()).unwrap_or(tail)));
    }
}

const fn is_odd_edge(c: char) -> bool {
    matches!(
        c,
        '(' | '['
            | '{'
            | '<'
            | '"'
            | '\''
            | '\u{201c}'
            | '\u{ab}'
            | '`'
            | '*'
            | '~'
            | '\u{2013}'
            | '\u{2014}'
    )
}

const fn is_edge(c: char) -> bool {
    is_odd_edge(c)
        || matches!(
            c,
            ',' | '.'
                | ':'
                | ';'
                | '!'
                | '?'
                | ')'
                | ']'
                | '}'
                | '>'
                | '\u{201d}'
                | '\u{bb}'
                | '\u{2026}'
                | '\u{3002}'
        )
}

const fn mark<'a>(mark: Mark, raw: &'a str) -> Word<'a> {
    Word {
        raw,
        low: Cow::Borrowed(raw),
        mark,
        cap: false,
        first: false,
    }
}

fn plain(raw: &str, first: bool) -> Word<'_> {
    let cap = raw.chars().next().is_some_and(char::is_uppercase);
    let lowered = raw.bytes().any(|b| b.is_ascii_uppercase() || !b.is_ascii());
    let low = if lowered {
        Cow::Owned(raw.to_lowercase())
    } else {
        Cow::Borrowed(raw)
    };
    Word {
        raw,
        low,
        mark: Mark::Word,
        cap,
        first,
    }
}

fn word_into<'a>(body: &'a str, first: bool, out: &mut Vec<Word<'a>>) {
    let (stem, possessive, extra) = contraction(body);
    if body
        .bytes()
        .any(|b| matches!(b, b'(' | b')' | b'"' | b';' | b'[' | b']'))
    {
        out.push(mark(Mark::Odd, "("));
    }
    if stem.is_empty() {
        out.push(mark(Mark::Odd, "'"));
    } else {
        out.push(plain(stem, first));
    }
    if possessive {
        out.push(mark(Mark::Possessive, "'s"));
    }
    if let Some(extra) = extra {
        out.push(plain(extra, false));
    }
}

/// The word without what an apostrophe hangs on to it: whether that was a possessive, else the word it stood for.
fn contraction(body: &str) -> (&str, bool, Option<&'static str>) {
    let low_end = |end: &str| {
        let at = body.len().checked_sub(end.len())?;
        let (stem, tail) = (body.get(..at)?, body.get(at..)?);
        tail.eq_ignore_ascii_case(end).then_some(stem)
    };
    if !body.contains('\'') {
        return match low_end("cannot") {
            Some("") => ("can", false, Some("not")),
            _ => (body, false, None),
        };
    }
    if low_end("won't") == Some("") {
        return ("will", false, Some("not"));
    }
    if low_end("can't") == Some("") {
        return ("can", false, Some("not"));
    }
    if let Some(stem) = low_end("n't") {
        return (stem, false, Some("not"));
    }
    if let Some(stem) = low_end("'s").or_else(|| low_end("'")) {
        return (stem, true, None);
    }
    let ends = [
        ("'m", "am"),
        ("'re", "are"),
        ("'ve", "have"),
        ("'ll", "will"),
        ("'d", "would"),
    ];
    for (end, word) in ends {
        if let Some(stem) = low_end(end) {
            return (stem, false, Some(word));
        }
    }
    (body, false, None)
}
