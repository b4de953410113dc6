//! Sentences that report a change ("moved to", "was raised to", "switched from vim to helix") as the slot of the new value.

use super::grammar::{self, Fact, Sentence};
use super::slot::Slot;
use super::subject::Sort;
use super::value::{self, Shape};
use super::words::Word;

/// Whether the verb reports a change by itself.
pub(super) fn is_event_verb(low: &str) -> bool {
    moves(low) || swaps(low) || adjusts(low) || matches!(low, "started" | "turned")
}

fn moves(low: &str) -> bool {
    matches!(low, "moved" | "relocated")
}

fn swaps(low: &str) -> bool {
    matches!(low, "switched" | "migrated" | "upgraded")
}

fn adjusts(low: &str) -> bool {
    matches!(
        low,
        "changed"
            | "updated"
            | "raised"
            | "lowered"
            | "increased"
            | "decreased"
            | "reduced"
            | "pushed"
            | "postponed"
            | "rescheduled"
            | "bumped"
            | "shifted"
            | "extended"
            | "cut"
            | "renamed"
            | "dropped"
            | "rose"
    )
}

/// "was raised to", "has been moved to", "has moved to".
pub(super) fn auxiliary(s: &Sentence<'_, '_>, verb: &str) -> Option<Slot> {
    let been = s.rest.first().is_some_and(|w| w.is("been")) && verb != "was";
    let (first, rest) = s.rest.get(usize::from(been)..)?.split_first()?;
    let low = &*first.low;
    // "was" opens the past; only a reported change leads into the present.
    let passive = adjusts(low) || moves(low) || swaps(low);
    let active = passive || low == "started";
    let fits = if been || verb == "was" {
        passive
    } else {
        active
    };
    if !fits {
        return None;
    }
    happened(s, low, rest, been || verb == "was")
}

/// "moved to Porto", "turned 34", "the deadline moved to Monday".
pub(super) fn event(s: &Sentence<'_, '_>, verb: &str) -> Option<Slot> {
    is_event_verb(verb).then(|| happened(s, verb, s.rest, false))?
}

fn happened(s: &Sentence<'_, '_>, verb: &str, rest: &[Word<'_>], passive: bool) -> Option<Slot> {
    if s.clause.negated {
        return None;
    }
    let slot = match verb {
        "turned" => whole(
            s,
            Fact {
                attribute: "age",
                shape: Shape::Age,
                form: "event",
                words: rest,
            },
            Sort::Person,
        ),
        "started" => started(s, rest),
        _ => to_value(s, verb, rest, passive),
    }?;
    Some(Slot {
        change: true,
        form: "event",
        ..slot
    })
}

fn whole(s: &Sentence<'_, '_>, fact: Fact<'_, '_>, sort: Sort) -> Option<Slot> {
    let slot = s.slot(fact)?;
    (s.subject.subject()?.sort == sort && slot.qualifiers.is_empty()).then_some(slot)
}

/// "started working at Acme".
fn started(s: &Sentence<'_, '_>, rest: &[Word<'_>]) -> Option<Slot> {
    let rest = grammar::after(rest, &["working"])
        .or_else(|| grammar::after(rest, &["a", "new", "job"]))?;
    let slot = grammar::works(s, rest)?;
    slot.qualifiers.is_empty().then_some(slot)
}

/// "from X to Y", "to Y".
fn to_value(s: &Sentence<'_, '_>, verb: &str, rest: &[Word<'_>], passive: bool) -> Option<Slot> {
    let rest = grammar::after(rest, &["back"]).unwrap_or(rest);
    let to = rest.iter().position(|w| w.is("to") && !w.cap)?;
    let (before, words) = rest.split_at_checked(to)?;
    let words = words.get(1..)?;
    let from = match before {
        [] => [].as_slice(),
        [from, old @ ..] if from.is("from") && !old.is_empty() => old,
        _ => return None,
    };
    let mut slot = target(s, verb, words, passive)?;
    if !from.is_empty() {
        slot.replaces = value::read(slot.shape, from)?.words;
    }
    // "moved to Porto in 2015" says when it happened, and that may be long ago.
    (slot.qualifiers.is_empty() || slot.attribute == "uses").then_some(slot)
}

fn target(s: &Sentence<'_, '_>, verb: &str, words: &[Word<'_>], passive: bool) -> Option<Slot> {
    if let Some((subject, found)) = s.subject.attribute() {
        let fact = Fact {
            attribute: &found.name,
            shape: found.shape,
            form: "event",
            words,
        };
        return s.slot_about(subject, fact);
    }
    let fact = |attribute, shape| Fact {
        attribute,
        shape,
        form: "event",
        words,
    };
    match verb {
        "renamed" if passive => s.slot(fact("name", Shape::Name)),
        _ if moves(verb) && !passive && s.subject.subject()?.sort == Sort::Person => {
            whole(s, fact("residence", Shape::Place), Sort::Person)
        }
        _ if moves(verb) && s.subject.is_site() => {
            whole(s, fact("location", Shape::Location), Sort::Thing)
        }
        "moved" | "rescheduled" | "postponed" | "pushed" | "shifted" => {
            whole(s, fact("schedule", Shape::When), Sort::Thing)
        }
        _ if swaps(verb) => s.slot(fact("uses", Shape::Choice)),
        _ => None,
    }
}
