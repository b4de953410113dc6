//! Words near a candidate that make it more or less likely to be what it looks like, in the
//! languages of the countries whose number formats are known.

use super::Finding;
use super::text::{View, is_unspaced};
use super::words::Words;

/// What a candidate may be, as a bit, so that one word can speak for or against several.
pub(super) type Topic = u8;
pub(super) const PHONE: Topic = 1;
pub(super) const CARD: Topic = 2;
pub(super) const SSN: Topic = 4;
pub(super) const IP: Topic = 8;
pub(super) const MAIL: Topic = 16;
/// Added to `PHONE` for digits that nothing but a word makes a phone number: words for amounts and
/// for numbers of other things speak against these only.
pub(super) const LOOSE: Topic = 32;
/// Added to `SSN` where no word announces one: words for goods and money speak against it.
pub(super) const TRADE: Topic = 64;
/// A phone number is not just talked of but announced, so that `LOOSE` does not apply.
pub(super) const ANNOUNCED: Topic = 128;
/// Bytes before a candidate in which a word may speak for it.
const REACH_BEFORE: usize = 48;
/// Bytes before a candidate in which a word may speak against it; shorter, because "order",
/// "id" and the like are frequent words.
const DOUBT_BEFORE: usize = 28;
/// Bytes after a candidate in which a word may speak for or against it.
const REACH_AFTER: usize = 24;
/// The longest word in the table, in bytes (with room).
const LONGEST_WORD: usize = 40;
/// What a near word for the candidate adds to its confidence.
const STRONG: f32 = 0.40;
/// As [`STRONG`], for words that mean other things as well.
const WEAK: f32 = 0.22;
/// What a word against the candidate takes away, adjacent and further off.
const ADJACENT_DOUBT: f32 = 0.45;
const FAR_DOUBT: f32 = 0.10;
/// Candidates at or above this are doubted by [`FAR_DOUBT`] only: their form speaks for itself.
const SPEAKS_FOR_ITSELF: f32 = 0.85;

/// A word of the table found in the text.
#[derive(Clone, Copy)]
pub(super) struct Hit {
    start: usize,
    end: usize,
    list: &'static Words,
}

/// Takes a match of the automaton as a hit, unless it is only part of another word.
pub(super) fn hit(
    view: View,
    start: usize,
    end: usize,
    list: &'static Words,
    open: bool,
) -> Option<Hit> {
    let unspaced = view.char_at(start).is_some_and(is_unspaced);
    let touches = |letter: char| letter.is_alphabetic() && !is_unspaced(letter);
    if !unspaced && view.char_before(start).is_some_and(touches) {
        // `userPhone`: a capital after a small letter starts a word.
        let camel = view.at(start).is_ascii_uppercase() && view.before(start).is_ascii_lowercase();
        if !camel {
            return None;
        }
    }
    if !unspaced && !open && view.char_at(end).is_some_and(touches) {
        return None;
    }
    (!in_placeholder(view, start)).then_some(Hit { start, end, list })
}

/// Adds a hit, which ends no earlier than those before it. Of hits that contain one another the
/// longest counts: "social security card" says nothing about cards.
pub(super) fn add(hits: &mut Vec<Hit>, hit: Hit) {
    if hits
        .last()
        .is_some_and(|last| last.start < hit.start && last.end >= hit.end)
    {
        return;
    }
    while hits
        .last()
        .is_some_and(|last| last.start >= hit.start && last.end - last.start < hit.end - hit.start)
    {
        hits.pop();
    }
    hits.push(hit);
}

/// Whether the word at `start` is part of a placeholder: `[PHONE_NUMBER]` says nothing about the
/// digits after it, otherwise redacting a text could raise what was left in it.
fn in_placeholder(view: View, start: usize) -> bool {
    const LONGEST_LABEL: usize = 16;
    let mut first = start;
    while start - first < LONGEST_LABEL && matches!(view.before(first), b'A'..=b'Z' | b'_') {
        first -= 1;
    }
    view.before(first) == b'['
        && view.at(view.run(start, LONGEST_LABEL, |byte| {
            matches!(byte, b'A'..=b'Z' | b'_')
        })) == b']'
}

/// The confidence of a candidate in its surroundings: its own, raised or lowered by the nearest
/// word that has something to say about it. Words before count more than words after.
pub(super) fn weigh(hits: &[Hit], candidate: &Finding, topic: Topic) -> f32 {
    let Near {
        strong,
        weak,
        doubt,
    } = nearest(hits, candidate.range.start, candidate.range.end, topic);
    let own = candidate.confidence;
    let confidence = if strong <= doubt && strong < usize::MAX {
        own + STRONG
    } else if weak <= doubt && weak < usize::MAX {
        own + WEAK
    } else if doubt > DOUBT_BEFORE {
        own
    } else if doubt > DOUBT_BEFORE / 2 || own >= SPEAKS_FOR_ITSELF {
        own - FAR_DOUBT
    } else {
        own - ADJACENT_DOUBT
    };
    confidence.clamp(0.0, 0.99)
}

/// Whether a strong word for the topic is near, and nearer than one against it.
pub(super) fn supported(hits: &[Hit], start: usize, end: usize, topic: Topic) -> bool {
    let near = nearest(hits, start, end, topic);
    near.strong < usize::MAX && near.strong <= near.doubt
}

/// Whether a strong word for the topic stands right before, with no more than `: ` between.
pub(super) fn adjacent(hits: &[Hit], start: usize, end: usize, topic: Topic) -> bool {
    const LONGEST_SIGN: usize = 3;
    nearest(hits, start, end, topic).strong <= LONGEST_SIGN
}

/// Whether a strong word for the topic is in reach, whatever speaks against it.
pub(super) fn said(hits: &[Hit], start: usize, end: usize, topic: Topic) -> bool {
    nearest(hits, start, end, topic).strong < usize::MAX
}

/// Whether any word against the topic is in reach.
pub(super) fn doubted(hits: &[Hit], start: usize, end: usize, topic: Topic) -> bool {
    nearest(hits, start, end, topic).doubt < usize::MAX
}

/// Distances of the nearest strong and weak words for a topic and of the nearest against it,
/// `usize::MAX` where there is none.
struct Near {
    strong: usize,
    weak: usize,
    doubt: usize,
}

/// What the words around a candidate say.
fn nearest(hits: &[Hit], start: usize, end: usize, topic: Topic) -> Near {
    let mut near = Near {
        strong: usize::MAX,
        weak: usize::MAX,
        doubt: usize::MAX,
    };
    let first = hits.partition_point(|hit| hit.end + REACH_BEFORE < start);
    for hit in hits.iter().skip(first) {
        if hit.end > end + REACH_AFTER + LONGEST_WORD {
            break;
        }
        let distance = if hit.end <= start {
            start - hit.end
        } else if hit.start >= end && hit.start <= end + REACH_AFTER {
            // A word after the number is as far off as one twice the distance before it.
            2 * (hit.start - end) + 6
        } else {
            continue;
        };
        if hit.list.plus & topic != 0 {
            let nearest = if hit.list.strong {
                &mut near.strong
            } else {
                &mut near.weak
            };
            *nearest = distance.min(*nearest);
        }
        if hit.list.minus & topic != 0 {
            near.doubt = distance.min(near.doubt);
        }
    }
    near
}
