//! Whether two statements without a common slot are about one thing often enough for a model to be asked, and what it will likely say.
//!
//! Never a reason to retire anything. A text that two statements share no words with costs no question.

use super::Relation;
use super::lexicon::{self, Gate};
use super::words::{self, Mark, Word};

/// Only the first words of a text are compared: a question about a long text is decided by how it begins.
const MOST_WORDS: usize = 256;

/// What a text is about.
struct Topic {
    /// Content words, sorted, once each.
    words: Vec<u64>,
    negative: bool,
    additive: bool,
}

/// The likely relation of `new` to `existing`, or `None` if they are about different things.
pub(super) fn guess(new: &str, existing: &str) -> Option<Relation> {
    if are_two_of_many(new, existing) {
        return None;
    }
    let (new, existing) = (Topic::of(new), Topic::of(existing));
    let shared = new
        .words
        .iter()
        .filter(|w| existing.words.binary_search(w).is_ok())
        .count();
    let fewest = new.words.len().min(existing.words.len());
    if shared < 2 || shared * 2 < fewest {
        return None;
    }
    Some(if new.negative != existing.negative {
        Relation::Contradiction
    } else if new.additive || existing.additive {
        Relation::Overlap
    } else if shared == existing.words.len() && new.words.len() > shared {
        Relation::Specializes
    } else {
        Relation::Overlap
    })
}

/// "Mara likes tea" and "Mara likes coffee": the same up to a verb that takes many objects, and then only different objects. A number or
/// a word like "only" or "now" behind the verb may still be at odds with the other one.
fn are_two_of_many(new: &str, existing: &str) -> bool {
    let (new, existing) = (words::clean(new), words::clean(existing));
    let (new, existing) = (words::split(&new), words::split(&existing));
    let common = new
        .iter()
        .zip(&existing)
        .take_while(|(n, e)| n.low == e.low)
        .count();
    let many = new.iter().take(common).position(|w| takes_many(&w.low));
    let plain = |words: &[Word<'_>]| {
        let rest = words.get(common..).unwrap_or_default();
        let object = |w: &Word<'_>| match w.mark {
            Mark::Word => {
                lexicon::gate(&w.low) == Gate::Pass
                    && !is_light(&w.low)
                    && !w.low.bytes().any(|b| b.is_ascii_digit())
            }
            Mark::Stop => true,
            Mark::Possessive | Mark::Comma | Mark::Colon | Mark::Question | Mark::Odd => false,
        };
        (1..=4).contains(&rest.len()) && rest.iter().all(object)
    };
    many.is_some() && common < 6 && plain(&new) && plain(&existing)
}

fn takes_many(low: &str) -> bool {
    matches!(
        low,
        "likes"
            | "like"
            | "loves"
            | "love"
            | "enjoys"
            | "enjoy"
            | "owns"
            | "own"
            | "knows"
            | "know"
            | "speaks"
            | "speak"
            | "visited"
            | "manages"
            | "plays"
            | "play"
            | "allergic"
            | "charge"
            | "collects"
            | "dislikes"
            | "hates"
    )
}

impl Topic {
    fn of(text: &str) -> Self {
        let clean = words::clean(text);
        let mut topic = Self {
            words: Vec::with_capacity(24),
            negative: false,
            additive: false,
        };
        let stemmer = rust_stemmers::Stemmer::create(rust_stemmers::Algorithm::English);
        for word in words::split(&clean)
            .iter()
            .filter(|w| w.mark == Mark::Word)
            .take(MOST_WORDS)
        {
            let low = &*word.low;
            topic.negative |= matches!(
                low,
                "not"
                    | "no"
                    | "never"
                    | "without"
                    | "none"
                    | "neither"
                    | "nor"
                    | "stopped"
                    | "quit"
                    | "anymore"
            );
            topic.additive |= lexicon::gate(low) == Gate::Additive;
            if low.chars().any(is_unspaced) {
                topic.words.extend(
                    low.chars()
                        .take(MOST_WORDS)
                        .map(|c| u64::from(u32::from(c))),
                );
            } else if !is_light(low) {
                topic.words.push(fnv(&stemmer.stem(low)));
            }
        }
        topic.words.sort_unstable();
        topic.words.dedup();
        topic
    }
}

/// A script that is written without spaces: each character counts as a word.
const fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}')
}

fn is_light(low: &str) -> bool {
    matches!(
        low,
        "the"
            | "a"
            | "an"
            | "is"
            | "are"
            | "was"
            | "were"
            | "be"
            | "been"
            | "am"
            | "in"
            | "on"
            | "at"
            | "of"
            | "for"
            | "to"
            | "and"
            | "or"
            | "by"
            | "with"
            | "from"
            | "as"
            | "that"
            | "this"
            | "it"
            | "its"
            | "does"
            | "do"
            | "did"
            | "has"
            | "have"
            | "had"
            | "not"
            | "no"
            | "longer"
            | "also"
            | "too"
            | "now"
            | "currently"
            | "anymore"
            | "never"
            | "always"
    )
}

fn fnv(word: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    word.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}
