//! The verdict on a new memory beside one existing memory.
//!
//! Both claims are first put in order of their start, so that swapping them swaps the verdict and nothing else; then the slots decide
//! what the pair means, and the intervals what may be done about it.

use jiff::{SignedDuration, Timestamp};

use super::compare::Relates;
use super::restate;
use super::slot::{Slot, slot_of};
use super::{Claim, Relation, Verdict, outline, topic};

/// What a pair means, before the intervals are asked. "Later" has the newer start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Nothing to each other.
    Unrelated,
    /// One claim, twice.
    Same,
    /// Both cannot hold at one time.
    Exclusive,
    /// Both hold, the one with more detail than the other.
    Detail,
    /// They touch, and a model has to say how.
    Ask(Relation),
}

/// A claim with its slot, read once and compared often.
#[derive(Clone, Debug)]
pub struct Parsed<'a> {
    /// The claim.
    pub claim: Claim<'a>,
    /// What it puts where.
    pub slot: Option<Slot>,
}

impl<'a> Parsed<'a> {
    /// Reads the slot of a claim.
    #[must_use]
    pub fn new(claim: Claim<'a>) -> Self {
        Self {
            claim,
            slot: slot_of(claim.text, claim.speaker),
        }
    }
}

/// What becomes of `new` beside `existing`. The truth table stands at the top of this module's root.
#[must_use]
pub fn decide(new: &Claim<'_>, existing: &Claim<'_>) -> Verdict {
    decide_parsed(&Parsed::new(*new), &Parsed::new(*existing))
}

/// [`decide`] for claims whose slots are known: a new memory has many neighbours and is read once.
#[must_use]
pub fn decide_parsed(new: &Parsed<'_>, existing: &Parsed<'_>) -> Verdict {
    let slots = (new.slot.as_ref(), existing.slot.as_ref());
    let (new, existing) = (&new.claim, &existing.claim);
    let meaning = match slots {
        (Some(n), Some(e)) if new.valid_from >= existing.valid_from => of_slots(n, e),
        (Some(n), Some(e)) => of_slots(e, n),
        (Some(_) | None, None) | (None, Some(_)) => of_texts(new, existing),
    };
    match meaning {
        Meaning::Unrelated => Verdict::None,
        Meaning::Same => same(new, existing, slots),
        Meaning::Exclusive => exclusive(new, existing, slots),
        Meaning::Detail | Meaning::Ask(_) if disjoint(new, existing) => Verdict::None,
        Meaning::Detail => detail(slots),
        Meaning::Ask(relation_guess) => Verdict::Escalate { relation_guess },
    }
}

/// Whether the half-open intervals have no instant in common.
fn disjoint(a: &Claim<'_>, b: &Claim<'_>) -> bool {
    let ends_before =
        |a: &Claim<'_>, b: &Claim<'_>| a.valid_until.is_some_and(|until| until <= b.valid_from);
    ends_before(a, b) || ends_before(b, a)
}

fn of_texts(new: &Claim<'_>, existing: &Claim<'_>) -> Meaning {
    // "I" of two speakers are two people.
    let speakers = new.speaker == existing.speaker;
    if speakers && restate::same_words(new.text, existing.text) {
        return Meaning::Same;
    }
    let guess = topic::guess(new.text, existing.text);
    let alike = || outline::differ_in_value(new.text, existing.text).then_some(Relation::Overlap);
    guess
        .or_else(alike)
        .map_or(Meaning::Unrelated, Meaning::Ask)
}

fn of_slots(later: &Slot, earlier: &Slot) -> Meaning {
    if later.attribute != earlier.attribute {
        return Meaning::Unrelated;
    }
    if later.subject != earlier.subject {
        return if later.may_be_one(earlier) {
            Meaning::Ask(Relation::Overlap)
        } else {
            Meaning::Unrelated
        };
    }
    let relates = later.relates(earlier);
    if later.qualifiers == earlier.qualifiers {
        let event = relates == Relates::Same
            && !restate::same_fill(later, earlier)
            && later.negated == earlier.negated;
        return if event {
            Meaning::Detail
        } else {
            same_slot(relates, later.negated, earlier.negated)
        };
    }
    let within = |small: &[String], big: &[String]| small.iter().all(|q| big.contains(q));
    let nested = within(&later.qualifiers, &earlier.qualifiers)
        || within(&earlier.qualifiers, &later.qualifiers);
    match (nested, relates) {
        (false, _) | (true, Relates::Compatible) => Meaning::Unrelated,
        (true, Relates::Same | Relates::Extends | Relates::Narrows)
            if later.negated == earlier.negated =>
        {
            Meaning::Detail
        }
        (true, Relates::Same | Relates::Extends | Relates::Narrows) => {
            Meaning::Ask(Relation::Contradiction)
        }
        (true, Relates::Differ | Relates::Unclear) => Meaning::Ask(Relation::Overlap),
    }
}

/// One slot with the same qualifiers.
const fn same_slot(relates: Relates, later_negated: bool, earlier_negated: bool) -> Meaning {
    match (later_negated, earlier_negated, relates) {
        (false, false, Relates::Differ) => Meaning::Exclusive,
        (false, false, Relates::Extends | Relates::Narrows) => Meaning::Detail,
        (false, false, Relates::Unclear) => Meaning::Ask(Relation::Contradiction),
        (false, false, Relates::Same) | (true, true, Relates::Same) => Meaning::Same,
        (true, false, Relates::Same) | (false, true, Relates::Same) => Meaning::Exclusive,
        (true, false, Relates::Extends | Relates::Narrows | Relates::Unclear)
        | (false, true, Relates::Extends | Relates::Narrows | Relates::Unclear) => {
            Meaning::Ask(Relation::Contradiction)
        }
        (_, _, Relates::Differ | Relates::Compatible)
        | (true, true, Relates::Extends | Relates::Narrows | Relates::Unclear) => {
            Meaning::Unrelated
        }
    }
}

type Slots<'s> = (Option<&'s Slot>, Option<&'s Slot>);

/// The claim is there already, if it is there for the same time.
fn same(new: &Claim<'_>, existing: &Claim<'_>, slots: Slots<'_>) -> Verdict {
    if disjoint(new, existing) {
        // The same value for another time is a period of its own. Only of a slot is it certain that the older period is over.
        return if matches!(slots, (Some(_), Some(_))) {
            in_turn(new, existing)
        } else {
            Verdict::None
        };
    }
    let open = new.valid_until.is_none() && existing.valid_until.is_none();
    let covered = existing.valid_from <= new.valid_from
        && existing
            .valid_until
            .is_none_or(|until| new.valid_until.is_some_and(|new_until| new_until <= until));
    if open || (covered && existing.valid_until == new.valid_until) {
        Verdict::Restatement
    } else {
        Verdict::Overlap
    }
}

fn exclusive(new: &Claim<'_>, existing: &Claim<'_>, slots: Slots<'_>) -> Verdict {
    if disjoint(new, existing) {
        return in_turn(new, existing);
    }
    let open = new.valid_until.is_none() && existing.valid_until.is_none();
    if !open || new.valid_from == existing.valid_from || may_be_older(new, existing, slots) {
        return Verdict::Escalate {
            relation_guess: Relation::Contradiction,
        };
    }
    in_turn(new, existing)
}

/// The one with the newer start closes the other one, at that start or where it was closed already.
fn in_turn(new: &Claim<'_>, existing: &Claim<'_>) -> Verdict {
    let close = |older: &Claim<'_>, start: Timestamp| {
        older.valid_until.map_or(start, |until| until.min(start))
    };
    if new.valid_from > existing.valid_from {
        Verdict::Supersedes {
            close_at: close(existing, new.valid_from),
        }
    } else {
        Verdict::SupersededBy {
            close_at: close(new, existing.valid_from),
        }
    }
}

/// "I moved to Porto last month" happened before it was said, perhaps before the other claim began.
fn may_be_older(new: &Claim<'_>, existing: &Claim<'_>, slots: Slots<'_>) -> bool {
    let (later, earlier, slot) = if new.valid_from > existing.valid_from {
        (new, existing, slots.0)
    } else {
        (existing, new, slots.1)
    };
    let days = slot.map_or(0, |slot| slot.days_ago);
    let reach = SignedDuration::from_hours(24 * i64::from(days));
    later.valid_from.duration_since(earlier.valid_from) < reach
}

fn detail(slots: Slots<'_>) -> Verdict {
    let (Some(new), Some(existing)) = slots else {
        return Verdict::Overlap;
    };
    let says = |slot: &Slot| slot.qualifiers.len() + slot.value.len();
    let more = new.relates(existing) == Relates::Extends || says(new) > says(existing);
    if more {
        Verdict::Specializes
    } else {
        Verdict::Overlap
    }
}
