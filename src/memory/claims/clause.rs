//! Reads one plain present statement out of a text, or finds that the text is none.
//!
//! Everything that could make a rule wrong stops here: questions, guesses, plans, reports, the past, several clauses, pronouns,
//! quantities, other languages. What is left are the words of the statement with its adverbs taken out and its polarity noted.

use super::lexicon::{self, Gate};
use super::words::{Mark, Word};
use super::{places, vocabulary};

/// Longer texts are no single statement.
pub(super) const LONGEST: usize = 300;

/// The subject a first person or "the user" stands for when no speaker is named.
pub(super) const USER: &str = "@user";

/// One plain statement.
#[derive(Debug)]
pub(super) struct Clause<'a> {
    /// Who "I" is.
    pub(super) speaker: String,
    /// Words and marks without adverbs and negation.
    pub(super) words: Vec<Word<'a>>,
    /// A leading "In staging," as words.
    pub(super) lead: Vec<Word<'a>>,
    /// "not", "no longer".
    pub(super) negated: bool,
    /// "now", "just", "correction:": it says itself that something changed.
    pub(super) cue: bool,
    /// "last week" and the like at the end: how many days back the event may lie.
    pub(super) days_ago: Option<u16>,
}

/// The statement of `words`, the text of which is at most [`LONGEST`] long.
pub(super) fn read<'a>(words: Vec<Word<'a>>, speaker: Option<&str>) -> Option<Clause<'a>> {
    let mut words = words;
    while words.last().is_some_and(|w| w.mark == Mark::Stop) {
        words.pop();
    }
    if words
        .iter()
        .any(|w| matches!(w.mark, Mark::Question | Mark::Odd | Mark::Stop))
    {
        return None;
    }
    let mut clause = Clause {
        speaker: speaker.map_or_else(|| USER.to_owned(), speaker_name),
        words: Vec::with_capacity(words.len()),
        lead: Vec::new(),
        negated: false,
        cue: false,
        days_ago: None,
    };
    let rest = label(words, &mut clause)?;
    let rest = leading(rest, &mut clause)?;
    let rest = trailing(rest, &mut clause);
    adverbs(rest, &mut clause)?;
    // The time zone, not the French "is".
    let passes = |w: &Word<'_>| {
        w.mark != Mark::Word || w.raw == "EST" || lexicon::gate(&w.low) == Gate::Pass
    };
    let exempt = |at: usize| is_month_of_may(&clause.words, at) || is_years_old(&clause.words, at);
    let open = clause
        .words
        .iter()
        .enumerate()
        .all(|(at, w)| passes(w) || exempt(at));
    (open && clause.lead.iter().all(passes)).then_some(clause)
}

/// How a speaker is called in slots.
pub(super) fn speaker_name(name: &str) -> String {
    let low = name.trim().to_lowercase();
    if matches!(low.as_str(), "user" | "the user" | "human") {
        USER.to_owned()
    } else {
        low
    }
}

/// Takes a leading "Name:" off. Any other colon ends the matter.
///
/// What stands before a colon may as well deny the rest ("False:", "Draft:") or say whose claim it is ("Tom: Mara lives in Porto"). So
/// only a label that is known to change nothing is dropped, and a name only before words about its own bearer.
fn label<'a>(words: Vec<Word<'a>>, clause: &mut Clause<'_>) -> Option<Vec<Word<'a>>> {
    let Some(at) = words.iter().position(|w| w.mark == Mark::Colon) else {
        return Some(words);
    };
    let (name, rest) = words.split_at_checked(at)?;
    let rest = rest.get(1..)?;
    let named = name.iter().all(|w| w.mark == Mark::Word) && (1..=3).contains(&name.len());
    if !named || rest.iter().any(|w| w.mark == Mark::Colon) {
        return None;
    }
    let low = name.iter().map(|w| &*w.low).collect::<Vec<_>>().join(" ");
    if lexicon::is_note_label(&low) {
        clause.cue = matches!(low.as_str(), "update" | "correction");
    } else if low == "user" || (name.iter().all(may_be_name) && is_first_person(rest)) {
        clause.speaker = speaker_name(&low);
    } else {
        return None;
    }
    let mut rest = rest.to_vec();
    if let Some(first) = rest.first_mut() {
        first.first = true;
    }
    Some(rest)
}

/// Whether the word of a label may be a part of a speaker's name.
fn may_be_name(word: &Word<'_>) -> bool {
    let shouted = word.raw.chars().count() > 1 && word.raw.chars().all(char::is_uppercase);
    let other = lexicon::is_anonymous_label(&word.low)
        || lexicon::is_no_speaker(&word.low)
        || lexicon::is_generic(&word.low)
        || vocabulary::is_no_name(&word.low)
        || places::is_known(&word.low);
    let given = lexicon::is_given_name(&word.low);
    word.cap && !shouted && (given || (!other && lexicon::gate(&word.low) == Gate::Pass))
}

/// Whether the statement is about the one who makes it.
fn is_first_person(words: &[Word<'_>]) -> bool {
    let first = words.first();
    first.is_some_and(|w| ["i", "my", "we", "our"].iter().any(|own| w.is(own)))
}

/// Takes a leading "In staging," or "Actually," off.
fn leading<'a>(words: Vec<Word<'a>>, clause: &mut Clause<'a>) -> Option<Vec<Word<'a>>> {
    let Some(at) = words.iter().position(|w| w.mark == Mark::Comma) else {
        return Some(words);
    };
    let (lead, rest) = words.split_at_checked(at)?;
    let first = lead.first()?;
    let opens = matches!(&*first.low, "in" | "at" | "on" | "for" | "during");
    let filler = lead.len() == 1
        && matches!(
            &*first.low,
            "yes" | "actually" | "ok" | "okay" | "currently" | "now"
        );
    if opens && lead.len() < 2 {
        return None;
    }
    if opens {
        clause.lead = lead.to_vec();
    }
    if opens || filler {
        let mut rest = rest.get(1..)?.to_vec();
        if let Some(first) = rest.first_mut() {
            first.first = true;
        }
        return Some(rest);
    }
    Some(words)
}

/// Takes a closing "last week" off and notes how far back it reaches.
fn trailing<'a>(mut words: Vec<Word<'a>>, clause: &mut Clause<'_>) -> Vec<Word<'a>> {
    let lows: Vec<&str> = words.iter().rev().take(2).map(|w| &*w.low).collect();
    let (days, count) = match lows.as_slice() {
        ["today" | "tonight", ..] => (1, 1),
        ["yesterday", ..] => (2, 1),
        ["morning" | "week", "this"] => (7, 2),
        ["week", "last"] => (14, 2),
        ["month", "this"] => (31, 2),
        ["month", "last"] => (62, 2),
        _ => return words,
    };
    words.truncate(words.len().saturating_sub(count));
    clause.days_ago = Some(days);
    words
}

/// What a word means for the statement, besides its place in it.
enum Adverb {
    /// It is part of the statement.
    Keep,
    /// It changes nothing.
    Drop,
    /// "now", "just": something changed.
    Cue,
    /// "these days", "right now": the same in two words.
    CuePair,
    /// "as of", which is only understood before "now".
    AsOf,
    /// "not".
    Not,
    /// "no longer".
    NoLonger,
    /// "any more".
    AnyMore,
    /// "anymore".
    Anymore,
    /// "for now": it says that it will not last.
    Passing,
}

fn adverb(word: &Word<'_>, next: Option<&Word<'_>>) -> Adverb {
    let next = next.map_or("", |w| &*w.low);
    let shown = word.cap && !word.first;
    match (&*word.low, next) {
        _ if word.mark != Mark::Word => Adverb::Keep,
        ("no", "longer") => Adverb::NoLonger,
        ("any", "more") => Adverb::AnyMore,
        ("right", "now") | ("these", "days") => Adverb::CuePair,
        ("as", "of") => Adverb::AsOf,
        ("for", "now") => Adverb::Passing,
        ("anymore", _) => Adverb::Anymore,
        ("not", _) => Adverb::Not,
        _ if shown => Adverb::Keep,
        ("now" | "currently" | "presently" | "nowadays" | "just" | "recently" | "newly", _) => {
            Adverb::Cue
        }
        ("still" | "already" | "officially" | "finally" | "actually", _) => Adverb::Drop,
        _ => Adverb::Keep,
    }
}

/// Copies the words without adverbs of time and without the negation, which must stand where a plain English sentence has it.
fn adverbs<'a>(words: Vec<Word<'a>>, clause: &mut Clause<'a>) -> Option<()> {
    let (mut negations, mut anymore) = (0_usize, false);
    let mut rest = words.into_iter().peekable();
    while let Some(word) = rest.next() {
        match adverb(&word, rest.peek()) {
            Adverb::Keep => clause.words.push(word),
            Adverb::Drop => {}
            Adverb::Cue => clause.cue = true,
            Adverb::CuePair => {
                rest.next();
                clause.cue = true;
            }
            Adverb::AsOf => {
                rest.next();
                rest.next_if(|w| w.is("now"))?;
                clause.cue = true;
            }
            Adverb::Not => {
                negations += 1;
                drop_auxiliary(&mut clause.words)?;
            }
            Adverb::NoLonger => {
                rest.next();
                negations += 1;
            }
            Adverb::AnyMore => {
                rest.next();
                anymore = true;
            }
            Adverb::Anymore => anymore = true,
            Adverb::Passing => return None,
        }
    }
    clause.negated = negations == 1;
    (negations < 2 && (!anymore || clause.negated)).then_some(())
}

/// "not" must follow "do" or a form of "be": the former is dropped with it, so that the verb stands alone.
fn drop_auxiliary(words: &mut Vec<Word<'_>>) -> Option<()> {
    let last = words.last()?;
    match &*last.low {
        "does" | "do" => {
            words.pop();
            Some(())
        }
        "is" | "am" => Some(()),
        _ => None,
    }
}

/// "may" beside a number is the month.
fn is_month_of_may(words: &[Word<'_>], at: usize) -> bool {
    let digits = |at: Option<usize>| {
        at.and_then(|at| words.get(at))
            .is_some_and(|w| w.raw.starts_with(|c: char| c.is_ascii_digit()))
    };
    words
        .get(at)
        .is_some_and(|w| w.raw == "May" && (digits(at.checked_sub(1)) || digits(at.checked_add(1))))
}

/// "34 years old" speaks of the present, "the old port" does not.
fn is_years_old(words: &[Word<'_>], at: usize) -> bool {
    let years = at
        .checked_sub(1)
        .and_then(|at| words.get(at))
        .is_some_and(|w| w.is("years") || w.is("year"));
    years && words.get(at).is_some_and(|w| w.is("old"))
}
