//! How two values of one attribute relate: the question that decides whether something may be retired.
//!
//! [`Relates::Differ`] is said only of values of one sort that exclude each other, [`Relates::Unclear`] of whatever words do not tell.

use std::cmp::Ordering;

use super::value::{Shape, is_team};
use super::{canon, places, vocabulary};

/// How two values of one attribute relate. "Later" is the value with the newer start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relates {
    /// The same value.
    Same,
    /// The later says more: "Porto" then "Porto, Portugal".
    Extends,
    /// The later says less.
    Narrows,
    /// They exclude each other.
    Differ,
    /// Both can hold.
    Compatible,
    /// Words alone do not tell.
    Unclear,
}

/// How the `later` value relates to the `earlier` one. `cue`: the later statement says itself that something changed.
pub(super) fn compare(shape: Shape, later: &[String], earlier: &[String], cue: bool) -> Relates {
    if later == earlier {
        return Relates::Same;
    }
    if let Some(part) = part_of(shape, later, earlier) {
        return part;
    }
    match shape {
        Shape::Place | Shape::Location => place(later, earlier, cue),
        Shape::Choice => choice(later, earlier, cue),
        Shape::Tool => tool(later, earlier, cue),
        Shape::When => kinds(when_kind(later) == when_kind(earlier), cue),
        Shape::Amount => kinds(unit_of(later) == unit_of(earlier), false),
        Shape::Phone => phone(later, earlier),
        Shape::Owner => kinds(owners_differ(later, earlier), cue),
        // "Heron" and "Heron-5G" may be two networks, and a password in other capitals may be a slip.
        Shape::Name | Shape::Code if begins(later, earlier) || begins(earlier, later) => {
            kinds(false, cue)
        }
        Shape::Organisation | Shape::Person | Shape::Name => kinds(
            !share(later, earlier) && !may_be_short_for(later, earlier),
            cue,
        ),
        Shape::Address => kinds(numbers(later) != numbers(earlier), cue),
        Shape::Words => kinds(
            vocabulary::category(&later.join(" ")) == vocabulary::category(&earlier.join(" ")),
            false,
        ),
        Shape::Role => kinds(
            !share(later, earlier) || (later.len() > 1 && earlier.len() > 1),
            cue,
        ),
        Shape::Port | Shape::Version | Shape::Age | Shape::Email | Shape::Link | Shape::Code => {
            Relates::Differ
        }
    }
}

const fn kinds(exclusive: bool, cue: bool) -> Relates {
    if exclusive || cue {
        Relates::Differ
    } else {
        Relates::Unclear
    }
}

/// Whether one value is the other one with more words or a longer version or path.
fn part_of(shape: Shape, later: &[String], earlier: &[String]) -> Option<Relates> {
    let within = |small: &[String], big: &[String]| small.iter().all(|w| big.contains(w));
    let dotted = |small: &[String], big: &[String]| match (small, big) {
        ([small], [big]) => big
            .strip_prefix(small.as_str())
            .is_some_and(|tail| tail.starts_with(['.', '/', '-', '+'])),
        _ => false,
    };
    let longer = |small: &[String], big: &[String]| {
        let words = small.len() < big.len() && within(small, big);
        words
            || (matches!(
                shape,
                Shape::Version | Shape::Link | Shape::Words | Shape::Choice | Shape::Tool
            ) && dotted(small, big))
    };
    if longer(earlier, later) {
        return Some(Relates::Extends);
    }
    if longer(later, earlier) {
        return Some(Relates::Narrows);
    }
    // The same words in another order: a date, or two names.
    let shuffled = later.len() == earlier.len() && within(later, earlier) && within(earlier, later);
    shuffled.then_some(if shape == Shape::When {
        Relates::Same
    } else {
        Relates::Unclear
    })
}

/// Two unknown places exclude each other only where the later statement says that it is so now.
fn place(later: &[String], earlier: &[String], cue: bool) -> Relates {
    let known = |place: &[String]| places::is_known(&place.join(" "));
    match places::compare(&later.join(" "), &earlier.join(" ")) {
        places::Places::Apart => Relates::Differ,
        places::Places::Within => Relates::Extends,
        places::Places::Holds => Relates::Narrows,
        places::Places::Unknown => kinds(false, cue && !known(later) && !known(earlier)),
    }
}

fn choice(later: &[String], earlier: &[String], cue: bool) -> Relates {
    let (later, earlier) = (later.join(" "), earlier.join(" "));
    match (vocabulary::family(&later), vocabulary::family(&earlier)) {
        (Some(one), Some(other)) if one == other => {
            let base = vocabulary::without_version;
            if base(&later) == base(&earlier) && !cue {
                Relates::Unclear
            } else {
                Relates::Differ
            }
        }
        (Some(_), Some(_)) => Relates::Compatible,
        (None, _) | (_, None) => Relates::Unclear,
    }
}

/// "The" tool is one: of two names that are not known here, too, only one can be meant.
fn tool(later: &[String], earlier: &[String], cue: bool) -> Relates {
    let known = |value: &[String]| vocabulary::family(&value.join(" ")).is_some();
    if known(later) || known(earlier) {
        return choice(later, earlier, cue);
    }
    let same = share(later, earlier) || may_be_short_for(later, earlier);
    kinds(
        !same && !begins(later, earlier) && !begins(earlier, later),
        cue,
    )
}

fn phone(later: &[String], earlier: &[String]) -> Relates {
    let (later, earlier) = (later.concat(), earlier.concat());
    let (long, short) = match later.len().cmp(&earlier.len()) {
        Ordering::Less => (&earlier, &later),
        Ordering::Equal | Ordering::Greater => (&later, &earlier),
    };
    // With and without the country code.
    if long.ends_with(short.trim_start_matches(['+', '0'])) {
        Relates::Unclear
    } else {
        Relates::Differ
    }
}

/// Two people or two teams: a person and a team can own one thing together.
fn owners_differ(later: &[String], earlier: &[String]) -> bool {
    match (is_team(later), is_team(earlier)) {
        (true, true) => later.split_last().map(|(_, l)| l) != earlier.split_last().map(|(_, e)| e),
        (false, false) => !share(later, earlier) && !may_be_short_for(later, earlier),
        (true, false) | (false, true) => false,
    }
}

fn begins(short: &[String], long: &[String]) -> bool {
    let (short, long) = (short.concat(), long.concat());
    let head = long.get(..short.len());
    head.is_some_and(|head| head.eq_ignore_ascii_case(&short))
}

fn share(one: &[String], other: &[String]) -> bool {
    let title = |w: &str| matches!(w, "mr" | "mrs" | "ms" | "miss" | "dr" | "prof");
    one.iter().any(|w| !title(w) && other.contains(w))
}

/// "Ben" may be "Benjamin", "SL" may be "Silverline".
fn may_be_short_for(one: &[String], other: &[String]) -> bool {
    let letters = |value: &[String]| value.concat();
    let hides = |short: &str, long: &str| {
        let mut rest = long.chars();
        let first = short.chars().next() == long.chars().next();
        first && short.chars().count() < 5 && short.chars().all(|c| rest.any(|l| l == c))
    };
    let (one, other) = (letters(one), letters(other));
    hides(&one, &other) || hides(&other, &one)
}

fn numbers(value: &[String]) -> Vec<&String> {
    value
        .iter()
        .filter(|w| w.bytes().any(|b| b.is_ascii_digit()))
        .collect()
}

fn unit_of(value: &[String]) -> Vec<&String> {
    let numeric = value.iter().any(|w| canon::is_number(w));
    value
        .iter()
        .filter(|w| numeric && !canon::is_number(w))
        .collect()
}

/// Which parts of a date a value names: a weekday and a month do not compare.
fn when_kind(value: &[String]) -> [bool; 4] {
    let has = |kind| value.iter().any(|w| canon::when(w) == kind);
    let year = value.iter().any(|w| w.len() == 4 && canon::is_number(w));
    [
        has(canon::When::Weekday),
        has(canon::When::Date),
        has(canon::When::Time),
        year,
    ]
}
