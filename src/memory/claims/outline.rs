//! Whether two statements describe one thing and differ only in what they say it is: "the mascot is an otter", "the mascot is a fox".
//!
//! Where the noun is not known to take one value at a time that is a question and nothing more. "The deadline is tight" beside "the
//! deadline is Friday" is none: what something is like and which one it is are values of two sorts.

use super::canon::{self, When};
use super::lexicon::{self, Gate};
use super::words::{self, Mark, Word};

/// Longer statements are no plain descriptions.
const MOST_WORDS: usize = 24;

/// What sort of value a few words are, as far as their form tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// "in Porto", "at noon".
    Where,
    /// "an otter".
    Kind,
    /// A day or a time.
    When,
    /// Anything with a digit.
    Number,
    /// A capitalised word.
    Name,
    /// What is left.
    Plain,
}

/// A description and its value.
struct Outline<'w, 'a> {
    subject: Vec<&'w str>,
    value: Vec<&'w Word<'a>>,
    sort: Sort,
}

/// Whether both texts are of this form with one description and two values of one sort.
pub(super) fn differ_in_value(new: &str, existing: &str) -> bool {
    let (new, existing) = (words::clean(new), words::clean(existing));
    let (new, existing) = (words::split(&new), words::split(&existing));
    let (Some(new), Some(existing)) = (Outline::of(&new), Outline::of(&existing)) else {
        return false;
    };
    let lows = |value: &[&Word<'_>]| value.iter().map(|w| w.low.to_string()).collect::<Vec<_>>();
    new.subject == existing.subject
        && new.sort == existing.sort
        && lows(&new.value) != lows(&existing.value)
}

impl<'w, 'a> Outline<'w, 'a> {
    fn of(words: &'w [Word<'a>]) -> Option<Self> {
        let words = match words {
            [words @ .., last] if last.mark == Mark::Stop => words,
            words => words,
        };
        let marked = |w: &Word<'_>| !matches!(w.mark, Mark::Word | Mark::Possessive);
        if words.len() > MOST_WORDS || words.iter().any(marked) {
            return None;
        }
        let verb = words.iter().position(|w| w.is("is"))?;
        let (before, after) = words.split_at_checked(verb)?;
        let first = before.first()?;
        let definite = ["the", "our", "my"].iter().any(|d| first.is(d))
            || before.iter().any(|w| w.mark == Mark::Possessive);
        let said = |w: &&Word<'_>| !matches!(&*w.low, "is" | "now" | "currently" | "still" | "the");
        let value: Vec<&Word<'_>> = after.iter().filter(said).collect();
        // "not", "maybe", "and": more is said than a value.
        let plain = |w: &&Word<'_>| w.cap || lexicon::gate(&w.low) == Gate::Pass;
        let fits = definite && before.len() > 1 && (1..=6).contains(&value.len());
        (fits && value.iter().all(plain)).then(|| Self {
            subject: before.iter().map(|w| &*w.low).collect(),
            sort: sort(&value),
            value,
        })
    }
}

fn sort(value: &[&Word<'_>]) -> Sort {
    let Some(first) = value.first() else {
        return Sort::Plain;
    };
    let digit = |w: &&Word<'_>| w.low.bytes().any(|b| b.is_ascii_digit());
    if value.iter().any(|w| canon::when(&w.low) != When::Other) {
        Sort::When
    } else if lexicon::is_preposition(&first.low) {
        Sort::Where
    } else if first.is("a") || first.is("an") {
        Sort::Kind
    } else if value.iter().any(digit) {
        Sort::Number
    } else if first.cap {
        Sort::Name
    } else {
        Sort::Plain
    }
}
