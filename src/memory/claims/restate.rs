//! Whether one text only says again what another one says: the test that a near duplicate must pass before it counts as the same.
//!
//! A vector cannot tell "port 8080" from "port 8081" or "always" from "never". Here every word must agree, in order, so digits, negation,
//! names and the order of arguments do. Only spelling may differ: case at the start, articles, contractions, number words, British
//! spelling, one plural ending; or both texts fill one slot with one value.

use std::borrow::Cow;

use super::compare::Relates;
use super::slot::{Slot, slot_of};
use super::words::{Mark, Word};
use super::{canon, lexicon, words};

/// Whether `a` and `b` make the same claim. `false` when in doubt. Texts that point at the moment of writing ("tomorrow") never do.
#[must_use]
pub fn same_claim(a: &str, b: &str) -> bool {
    if same_words(a, b) {
        return true;
    }
    match (slot_of(a, None), slot_of(b, None)) {
        (Some(a), Some(b)) => same_fill(&a, &b),
        (Some(_) | None, None) | (None, Some(_)) => false,
    }
}

/// Whether both slots are one slot with one value.
pub(super) fn same_fill(a: &Slot, b: &Slot) -> bool {
    let same = a.same_base(b)
        && a.qualifiers == b.qualifiers
        && a.negated == b.negated
        && a.against == b.against;
    // "moved to Porto yesterday" says more than "lives in Porto".
    same && a.is_event() == b.is_event()
        && a.replaces == b.replaces
        && a.relates(b) == Relates::Same
}

/// Whether both texts have the same words in the same order.
pub(super) fn same_words(a: &str, b: &str) -> bool {
    let (a, b) = (words::clean(a), words::clean(b));
    let (a, b) = (words::split(&a), words::split(&b));
    let mut endings = 0_usize;
    let (mut left, mut right) = (Tokens::new(&a), Tokens::new(&b));
    let mut any = false;
    loop {
        match (left.next(), right.next()) {
            (None, None) => return any,
            (Some(l), Some(r)) => {
                if !l.agrees(&r, &mut endings) {
                    return false;
                }
                any = true;
            }
            (Some(_), None) | (None, Some(_)) => return false,
        }
    }
}

/// A word as it is compared.
struct Token<'a> {
    text: Cow<'a, str>,
    raw: &'a str,
    cap: bool,
    first: bool,
    pointing: bool,
}

impl Token<'_> {
    fn agrees(&self, other: &Self, endings: &mut usize) -> bool {
        if self.pointing || other.pointing || !self.same_case(other) {
            return false;
        }
        if self.text == other.text {
            return true;
        }
        // "a database" and "databases" are no restatement, but then the article differs as well.
        let plural = |one: &str, two: &str| {
            one.len() > 3 && two.strip_suffix('s') == Some(one) && !one.ends_with('s')
        };
        let close = plural(&self.text, &other.text) || plural(&other.text, &self.text);
        *endings += 1;
        close
            && !self.cap
            && !other.cap
            && *endings < 2
            && self.text.is_ascii()
            && !self.text.bytes().any(|b| b.is_ascii_digit())
    }

    /// "Polish" and "polish" are two words, except where a sentence begins.
    fn same_case(&self, other: &Self) -> bool {
        // A password has no spelling but its own: "heRon42" is not "heron42".
        let code = |raw: &str| {
            raw.bytes().any(|b| b.is_ascii_digit()) && raw.starts_with(char::is_alphabetic)
        };
        let inner = |raw: &str| raw.chars().skip(1).collect::<String>();
        let spelled = !(code(self.raw) && code(other.raw)) || inner(self.raw) == inner(other.raw);
        spelled && (self.cap == other.cap || (self.first && other.first))
    }
}

/// The words of a text that are compared: all but "the" and the last full stop.
struct Tokens<'w, 'a> {
    words: std::iter::Peekable<std::slice::Iter<'w, Word<'a>>>,
    pending: Vec<String>,
}

impl<'w> Tokens<'w, 'w> {
    fn new(words: &'w [Word<'w>]) -> Self {
        Self {
            words: words.iter().peekable(),
            pending: Vec::new(),
        }
    }

    fn next(&mut self) -> Option<Token<'w>> {
        if let Some(text) = self.pending.pop() {
            return Some(Token {
                text: Cow::Owned(text),
                raw: "",
                cap: false,
                first: false,
                pointing: false,
            });
        }
        loop {
            let word = self.words.next()?;
            if word.is("the") || (word.mark == Mark::Stop && self.words.peek().is_none()) {
                continue;
            }
            let pointing = word.mark == Mark::Word && lexicon::is_relative_time(&word.low);
            let (cap, first) = (word.cap, word.first);
            if !word.low.bytes().any(|b| b.is_ascii_digit()) {
                let text = if word.mark == Mark::Word {
                    canon::word(&word.low)
                } else {
                    Cow::Borrowed(mark_name(word))
                };
                return Some(Token {
                    text,
                    raw: word.raw,
                    cap,
                    first,
                    pointing,
                });
            }
            let mut out = Vec::with_capacity(2);
            canon::push(&word.low, &mut out);
            out.reverse();
            let text = out.pop()?;
            self.pending = out;
            return Some(Token {
                text: Cow::Owned(text),
                raw: word.raw,
                cap,
                first,
                pointing,
            });
        }
    }
}

const fn mark_name<'a>(word: &Word<'a>) -> &'a str {
    match word.mark {
        Mark::Possessive => "'s",
        Mark::Comma => ",",
        Mark::Colon => ":",
        Mark::Stop => ".",
        Mark::Question => "?",
        Mark::Word | Mark::Odd => word.raw,
    }
}
