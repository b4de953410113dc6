//! Values of a slot: what may stand as the value of an attribute.
//!
//! A shape is strict: "the budget is 20 percent spent" has no amount and "the manager is Portuguese" names nobody, though the words
//! stand where a value would.

use super::words::{Mark, Word};
use super::{canon, lexicon, places, vocabulary};

/// The sort of value that an attribute takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A city or country.
    Place,
    /// Where a thing is.
    Location,
    /// An organisation.
    Organisation,
    /// A person's name.
    Person,
    /// What someone or something is called.
    Name,
    /// A person or a team.
    Owner,
    /// An occupation, after its article.
    Role,
    /// A TCP port.
    Port,
    /// A version.
    Version,
    /// Years of age.
    Age,
    /// A number with its unit.
    Amount,
    /// A day, date or time.
    When,
    /// A mail address.
    Email,
    /// A phone number.
    Phone,
    /// A street address.
    Address,
    /// A URL, path, host name or other single word.
    Link,
    /// A short phrase.
    Words,
    /// One of several alternatives: a tool or a preference. Not functional by itself.
    Choice,
    /// A tool: like a choice, but a name or a known one, so that "slow" is none.
    Tool,
    /// A code or password, in the spelling it was given.
    Code,
}

/// A value as it was read.
pub(super) struct Value {
    /// Its canonical words.
    pub(super) words: Vec<String>,
    /// It is written like a name or a number, so that it says which one and not what it is like.
    pub(super) named: bool,
}

/// The canonical words of a value, if `words` are one of this shape.
pub(super) fn read(shape: Shape, words: &[Word<'_>]) -> Option<Value> {
    let commas = words.iter().any(|w| w.mark == Mark::Comma);
    let marked = words
        .iter()
        .any(|w| !matches!(w.mark, Mark::Word | Mark::Comma));
    if marked
        || (commas
            && !matches!(
                shape,
                Shape::Place | Shape::Location | Shape::Address | Shape::When
            ))
    {
        return None;
    }
    let plain: Vec<&Word<'_>> = words.iter().filter(|w| w.mark == Mark::Word).collect();
    let plain = match (shape, plain.split_first()) {
        (Shape::Role, Some((first, rest))) if matches!(&*first.low, "a" | "an" | "the") => rest,
        (Shape::Role, _) => return None,
        (Shape::Place | Shape::Location | Shape::Organisation | Shape::Person, _) => &plain,
        (_, Some((first, rest))) if matches!(&*first.low, "a" | "an" | "the") => rest,
        _ => &plain,
    };
    let mut out = Vec::with_capacity(plain.len());
    for word in plain {
        if shape == Shape::Code {
            out.push(word.raw.to_owned());
        } else {
            canon::push(&word.low, &mut out);
        }
    }
    let longest = if matches!(shape, Shape::Address | Shape::When) {
        6
    } else {
        4
    };
    if out.is_empty() || out.len() > longest {
        return None;
    }
    fits(shape, plain, &mut out).then(|| {
        let fixed = |w: &&Word<'_>| {
            w.cap
                || w.low
                    .bytes()
                    .any(|b| b.is_ascii_digit() || matches!(b, b'/' | b'+'))
        };
        Value {
            named: plain.iter().all(fixed),
            words: out,
        }
    })
}

fn fits(shape: Shape, plain: &[&Word<'_>], out: &mut Vec<String>) -> bool {
    let digits = |s: &str| s.bytes().filter(u8::is_ascii_digit).count();
    match shape {
        Shape::Place | Shape::Location => is_place(plain, out),
        Shape::Organisation => {
            is_name(plain)
                && !places::is_known(&out.join(" "))
                && !out.iter().any(|w| canon::is_number(w))
        }
        Shape::Person => is_person(plain),
        Shape::Owner => is_person(plain) || is_team(out),
        Shape::Name => is_name(plain),
        Shape::Role => !plain
            .iter()
            .any(|w| is_verbish(&w.low) || vocabulary::is_no_role(&w.low)),
        Shape::Words | Shape::Choice => plain.iter().all(|w| !is_verbish(&w.low)),
        Shape::Tool => {
            let known = vocabulary::family(&out.join(" ")).is_some();
            known || is_name(plain)
        }
        Shape::Code => matches!(plain, [only] if is_code(only)),
        Shape::Port => matches!(out.as_slice(), [port] if port.parse::<u16>().is_ok_and(|p| p > 0)),
        Shape::Version => matches!(out.as_slice(), [version] if digits(version) > 0),
        Shape::Age => {
            let years =
                matches!(out.as_slice(), [_] | [_, _]) && out.get(1).is_none_or(|w| w == "year");
            let number = out.first().and_then(|n| n.parse::<u8>().ok());
            out.truncate(1);
            years && number.is_some_and(|n| n > 0)
        }
        Shape::Amount => is_amount(out),
        Shape::When => is_when(out),
        Shape::Email => {
            matches!(out.as_slice(), [mail] if mail.contains('@') && mail.contains('.'))
        }
        Shape::Phone => is_phone(out),
        Shape::Address => {
            let part = |w: &&Word<'_>| {
                w.cap || digits(&w.low) > 0 || matches!(&*w.low, "de" | "da" | "do" | "of")
            };
            plain.iter().all(part)
                && plain.iter().any(|w| w.cap)
                && out.iter().any(|w| digits(w) > 0)
        }
        Shape::Link => is_link(out),
    }
}

/// A day, date or time, without the words that only lead to its parts.
fn is_when(out: &mut Vec<String>) -> bool {
    out.retain(|w| !matches!(w.as_str(), "at" | "on" | "by" | "the" | "of"));
    let shorter = out
        .iter()
        .map(|w| canon::ordinal(w).unwrap_or(w).to_owned());
    *out = shorter.collect();
    canon::is_point_in_time(out)
}

/// One word that is written like a URL, a path, a host or a region.
fn is_link(out: &mut Vec<String>) -> bool {
    *out = out
        .iter()
        .map(|w| w.trim_end_matches('/').to_owned())
        .collect();
    let shaped = |w: &str| {
        w.contains("://")
            || w.starts_with('/')
            || (w.contains('.') && !w.contains('@'))
            || w.bytes().any(|b| b.is_ascii_digit())
    };
    matches!(out.as_slice(), [link] if shaped(link))
}

/// A code, and not what one is like: "the password is weak", "the code is 4-digit".
fn is_code(word: &Word<'_>) -> bool {
    let digits = word.low.bytes().any(|b| b.is_ascii_digit());
    let told = ["digit", "char", "letter", "bit"]
        .iter()
        .any(|w| word.low.contains(w));
    (digits || word.cap) && !told && lexicon::gate(&word.low) == lexicon::Gate::Pass
}

/// One number, alone or with its unit: "20 percent spent" is no amount.
fn is_amount(out: &[String]) -> bool {
    const COUNTED: &[&str] = &[
        "replica",
        "replicas",
        "requests",
        "items",
        "users",
        "connections",
        "rows",
        "seats",
        "people",
        "tokens",
    ];
    match out {
        [number] => canon::is_number(number),
        [number, unit] => {
            canon::is_number(number)
                && (canon::unit(unit).is_some() || COUNTED.contains(&unit.as_str()))
        }
        _ => false,
    }
}

pub(super) fn is_team(out: &[String]) -> bool {
    let team = |w: &String| {
        matches!(
            w.as_str(),
            "team" | "squad" | "group" | "department" | "guild"
        )
    };
    out.len() > 1 && out.last().is_some_and(team)
}

/// A name, and not a word that says what something is like.
fn is_name(plain: &[&Word<'_>]) -> bool {
    let other = |w: &&Word<'_>| vocabulary::is_no_name(&w.low);
    let origin = matches!(plain, [only] if vocabulary::is_origin(&only.low));
    is_proper(plain) && !plain.iter().any(other) && !origin
}

/// A person's name: no "of" in it, and no post ("CEO").
fn is_person(plain: &[&Word<'_>]) -> bool {
    let odd =
        |w: &&Word<'_>| w.is("of") || (w.raw.len() > 1 && w.raw.chars().all(char::is_uppercase));
    // "reports to Porto" names an office.
    let place = matches!(plain, [only] if places::is_known(&only.low) && !lexicon::is_given_name(&only.low));
    !place && is_name(plain) && !plain.iter().any(odd)
}

fn is_place(plain: &[&Word<'_>], out: &mut Vec<String>) -> bool {
    let joined = out.join(" ");
    if places::is_known(&joined) {
        *out = places::canonical(&joined)
            .split(' ')
            .map(str::to_owned)
            .collect();
        return true;
    }
    is_proper(plain)
}

/// Capitalised words, with the particles that names carry.
fn is_proper(plain: &[&Word<'_>]) -> bool {
    let particle = |w: &Word<'_>| {
        matches!(
            &*w.low,
            "de" | "da" | "do" | "dos" | "van" | "von" | "del" | "la" | "upon" | "of"
        )
    };
    let edges = plain.first().is_some_and(|w| w.cap) && plain.last().is_some_and(|w| w.cap);
    edges && plain.iter().all(|w| w.cap || particle(w))
}

/// A word that starts another clause: "my favourite thing is going out".
fn is_verbish(low: &str) -> bool {
    matches!(
        low,
        "is" | "are"
            | "was"
            | "has"
            | "have"
            | "to"
            | "does"
            | "do"
            | "being"
            | "having"
            | "getting"
            | "spelled"
            | "made"
    )
}

fn is_phone(out: &mut Vec<String>) -> bool {
    let joined = out.concat();
    let number: String = joined
        .chars()
        .filter(|c| c.is_ascii_digit() || *c == '+')
        .collect();
    let clean = joined
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | '/'));
    if !clean || number.len() < 6 {
        return false;
    }
    *out = vec![number];
    true
}
