//! The sentence patterns that make a slot: subject, verb, value and qualifiers of one plain statement.

use super::clause::Clause;
use super::slot::Slot;
use super::subject::{Phrase, Sort, Subject};
use super::value::{self, Shape};
use super::words::{Mark, Word};
use super::{canon, change, lexicon};

/// The parts of a sentence, while a pattern is tried on it.
pub(super) struct Sentence<'c, 'a> {
    /// The statement.
    pub(super) clause: &'c Clause<'a>,
    /// What stands before the verb.
    pub(super) subject: Phrase,
    /// What stands after it.
    pub(super) rest: &'c [Word<'a>],
}

/// What a pattern found beside its subject.
#[derive(Clone, Copy)]
pub(super) struct Fact<'c, 'a> {
    pub(super) attribute: &'c str,
    pub(super) shape: Shape,
    pub(super) form: &'static str,
    pub(super) words: &'c [Word<'a>],
}

/// The slot of a statement.
pub(super) fn parse(clause: &Clause<'_>) -> Option<Slot> {
    let at = (1..clause.words.len()).find(|at| is_verb(clause, *at))?;
    let (before, after) = clause.words.split_at_checked(at)?;
    let (verb, rest) = after.split_first()?;
    let subject = Phrase::read(before, &clause.speaker)?;
    let sentence = Sentence {
        clause,
        subject,
        rest,
    };
    let low = if verb.mark == Mark::Possessive {
        "is"
    } else {
        &*verb.low
    };
    let slot = match low {
        "is" | "am" => copula(&sentence, before),
        "was" | "has" | "have" => change::auxiliary(&sentence, low),
        _ => change::event(&sentence, low).or_else(|| verb_pattern(&sentence, low)),
    }?;
    // "yesterday" says when something happened. Of a state it says that it may be over.
    let timed = clause.days_ago.is_none() || slot.form == "event";
    timed.then_some(slot)
}

/// Whether the word at `at` is the verb of the statement: a verb of the third person, or a bare one after "I" or "does not".
fn is_verb(clause: &Clause<'_>, at: usize) -> bool {
    let Some(word) = clause.words.get(at) else {
        return false;
    };
    let next = clause.words.get(at + 1).map(|w| &*w.low);
    if word.mark == Mark::Possessive {
        return matches!(
            next,
            Some("based" | "living" | "located" | "married" | "working" | "scheduled")
        );
    }
    if word.cap || word.mark != Mark::Word {
        return false;
    }
    let first_person = at == 1 && clause.words.first().is_some_and(|w| w.is("i"));
    let bare = first_person || clause.negated;
    match &*word.low {
        "is" | "was" | "has" | "lives" | "resides" | "works" | "uses" | "prefers" | "reports"
        | "listens" | "runs" | "costs" => true,
        "am" | "have" => first_person,
        "live" | "reside" | "work" | "use" | "prefer" | "report" | "listen" | "run" | "cost" => {
            bare
        }
        low => change::is_event_verb(low),
    }
}

/// The words after `prefix`, if the words begin with it.
pub(super) fn after<'c, 'a>(words: &'c [Word<'a>], prefix: &[&str]) -> Option<&'c [Word<'a>]> {
    let (head, rest) = words.split_at_checked(prefix.len())?;
    head.iter()
        .zip(prefix)
        .all(|(w, p)| w.is(p) && !w.cap)
        .then_some(rest)
}

fn verb_pattern(s: &Sentence<'_, '_>, verb: &str) -> Option<Slot> {
    let sort = s.subject.subject()?.sort;
    let (attribute, shape, form, words) = match verb {
        "lives" | "live" | "resides" | "reside" => {
            ("residence", Shape::Place, "", after(s.rest, &["in"])?)
        }
        "works" | "work" => return works(s, s.rest),
        "reports" | "report" => ("manager", Shape::Person, "", after(s.rest, &["to"])?),
        "listens" | "listen" | "runs" | "run" => (
            "port",
            Shape::Port,
            "",
            after(s.rest, &["on", "port"]).or_else(|| after(s.rest, &["at", "port"]))?,
        ),
        "costs" | "cost" => ("price", Shape::Amount, "", s.rest),
        "uses" | "use" => ("uses", Shape::Choice, "", s.rest),
        "prefers" | "prefer" => return prefers(s),
        _ => return None,
    };
    // "Dinner costs 20 euros": a bare word at the start need not be a name, and need not be one dinner.
    let thing = matches!(attribute, "port" | "price");
    if (thing && sort != Sort::Thing) || (attribute == "manager" && sort != Sort::Person) {
        return None;
    }
    s.slot(Fact {
        attribute,
        shape,
        form,
        words,
    })
}

/// "works at Acme", "works as a nurse".
pub(super) fn works(s: &Sentence<'_, '_>, rest: &[Word<'_>]) -> Option<Slot> {
    if s.subject.subject()?.sort != Sort::Person {
        return None;
    }
    let (preposition, words) = rest.split_first()?;
    let (attribute, shape, form) = match &*preposition.low {
        "at" => ("employer", Shape::Organisation, "at"),
        "for"
            if words
                .first()
                .is_some_and(|w| lexicon::is_given_name(&w.low)) =>
        {
            return None;
        }
        "for" => ("employer", Shape::Organisation, "for"),
        "as" => ("role", Shape::Role, ""),
        _ => return None,
    };
    s.slot(Fact {
        attribute,
        shape,
        form,
        words,
    })
}

/// "prefers X", "prefers X over Y".
fn prefers(s: &Sentence<'_, '_>) -> Option<Slot> {
    let fact = |words| Fact {
        attribute: "prefers",
        shape: Shape::Choice,
        form: "",
        words,
    };
    let over = s
        .rest
        .iter()
        .position(|w| matches!(&*w.low, "over" | "to" | "rather"));
    let Some(at) = over else {
        return s.slot(fact(s.rest));
    };
    let (better, worse) = s.rest.split_at_checked(at)?;
    let worse = match worse {
        [rather, than, worse @ ..] if rather.is("rather") => than.is("than").then_some(worse)?,
        [_, worse @ ..] => worse,
        [] => return None,
    };
    let mut slot = s.slot(fact(better))?;
    let (against, qualifiers) = tail(Shape::Choice, worse)?;
    slot.against = value::read(Shape::Choice, against)?.words;
    slot.qualifiers.extend(qualifiers);
    slot.qualifiers.sort_unstable();
    Some(slot)
}

/// "is ...".
fn copula(s: &Sentence<'_, '_>, before: &[Word<'_>]) -> Option<Slot> {
    if let Some(slot) = participle(s) {
        return Some(slot);
    }
    let set = after(s.rest, &["set", "to"]);
    let words = set.unwrap_or(s.rest);
    if let Some((subject, found)) = s.subject.attribute() {
        let fact = Fact {
            attribute: &found.name,
            shape: found.shape,
            form: "",
            words,
        };
        return s.slot_about(subject, fact);
    }
    if set.is_some() {
        None
    } else {
        inverse(s, before)
    }
}

/// "is based in", "is owned by", "is 34 years old" and the like.
fn participle(s: &Sentence<'_, '_>) -> Option<Slot> {
    let sort = s.subject.subject()?.sort;
    let person = sort == Sort::Person;
    let lows: Vec<&str> = s.rest.iter().take(2).map(|w| &*w.low).collect();
    let rest = |n: usize| s.rest.get(n..);
    let (attribute, shape, form, words) = match lows.as_slice() {
        ["based" | "living", "in"] if person => ("residence", Shape::Place, "", rest(2)?),
        ["based" | "located", "in" | "at"] if !person => {
            ("location", Shape::Location, "", rest(2)?)
        }
        ["in", _] if s.subject.is_site() => ("location", Shape::Location, "", rest(1)?),
        ["working", ..] => return works(s, rest(1)?),
        ["employed", "by" | "at"] if person => ("employer", Shape::Organisation, "at", rest(2)?),
        ["married", "to"] if person => ("spouse", Shape::Person, "", rest(2)?),
        ["owned", "by"] if !person => ("owner", Shape::Owner, "", rest(2)?),
        ["scheduled", "for" | "on" | "at"] if !person => ("schedule", Shape::When, "", rest(2)?),
        ["due", "on" | "by"] if !person => ("deadline", Shape::When, "", rest(2)?),
        ["due", _] if !person => ("deadline", Shape::When, "", rest(1)?),
        ["called" | "named", _] => ("name", Shape::Name, "", rest(1)?),
        ["hosted", "on" | "at" | "by" | "in"] if !person => {
            ("hosting", Shape::Choice, "", rest(2)?)
        }
        ["priced", "at"] if !person => ("price", Shape::Amount, "", rest(2)?),
        ["listening" | "running", "on"]
            if !person && s.rest.get(2).is_some_and(|w| w.is("port")) =>
        {
            ("port", Shape::Port, "", rest(3)?)
        }
        ["on" | "at", "version"] if !person => ("version", Shape::Version, "", rest(2)?),
        ["at", time] if !person && canon::when(&padded(time)) == canon::When::Time => {
            ("time", Shape::When, "", rest(1)?)
        }
        ["on", day] if !person && canon::when(day) == canon::When::Weekday => {
            ("day", Shape::When, "", rest(1)?)
        }
        [_, "years" | "year"] if person => {
            let old = s.rest.get(2).is_some_and(|w| w.is("old")) && s.rest.len() == 3;
            ("age", Shape::Age, "", old.then(|| s.rest.get(..2))??)
        }
        _ => return None,
    };
    s.slot(Fact {
        attribute,
        shape,
        form,
        words,
    })
}

fn padded(time: &str) -> String {
    let mut out = Vec::with_capacity(1);
    canon::push(time, &mut out);
    out.concat()
}

/// "Ana is Ben's manager", "Ana is the owner of the billing service".
fn inverse(s: &Sentence<'_, '_>, before: &[Word<'_>]) -> Option<Slot> {
    let owner = Phrase::read(s.rest, &s.clause.speaker)?;
    let (subject, found) = owner.attribute()?;
    if !matches!(found.shape, Shape::Person | Shape::Owner) {
        return None;
    }
    s.slot_about(
        subject,
        Fact {
            attribute: &found.name,
            shape: found.shape,
            form: "",
            words: before,
        },
    )
}

impl Sentence<'_, '_> {
    /// The slot of the fact about the whole subject phrase.
    pub(super) fn slot(&self, fact: Fact<'_, '_>) -> Option<Slot> {
        self.slot_about(self.subject.subject()?, fact)
    }

    /// The slot of the fact about `subject`.
    pub(super) fn slot_about(&self, subject: Subject, fact: Fact<'_, '_>) -> Option<Slot> {
        let (words, mut qualifiers) = tail(fact.shape, fact.words)?;
        if !self.clause.lead.is_empty() {
            qualifiers.extend(phrases(&self.clause.lead)?);
        }
        qualifiers.sort_unstable();
        qualifiers.dedup();
        let value = value::read(fact.shape, words)?;
        Some(Slot {
            subject: subject.name,
            person: subject.sort == Sort::Person,
            attribute: fact.attribute.to_owned(),
            qualifiers,
            value: value.words,
            named: value.named,
            against: Vec::new(),
            replaces: Vec::new(),
            negated: self.clause.negated,
            change: self.clause.cue || self.subject.fresh,
            days_ago: self.clause.days_ago.unwrap_or(0),
            shape: fact.shape,
            form: fact.form,
        })
    }
}

/// Parts a value from the qualifiers after it.
fn tail<'c, 'a>(shape: Shape, words: &'c [Word<'a>]) -> Option<(&'c [Word<'a>], Vec<String>)> {
    // "is on Friday", "is by Friday"
    let opens = shape == Shape::When
        && words
            .first()
            .is_some_and(|w| matches!(&*w.low, "on" | "by" | "at"));
    let words = if opens { words.get(1..)? } else { words };
    let ends = |at: usize, word: &Word<'_>| {
        let next = words.get(at + 1);
        let inside = match (&*word.low, shape) {
            ("at", Shape::When) => {
                next.is_some_and(|w| canon::when(&padded(&w.low)) == canon::When::Time)
            }
            ("of", Shape::When | Shape::Role | Shape::Words) => true,
            ("of", Shape::Place | Shape::Location | Shape::Organisation) => {
                next.is_some_and(|w| w.cap)
            }
            _ => false,
        };
        at > 0
            && word.mark == Mark::Word
            && !word.cap
            && lexicon::is_preposition(&word.low)
            && !inside
    };
    let Some(end) = words.iter().enumerate().position(|(at, w)| ends(at, w)) else {
        return Some((words, Vec::new()));
    };
    let (value, rest) = words.split_at_checked(end)?;
    Some((value, phrases(rest)?))
}

/// The prepositional phrases of `words`, each in one spelling.
fn phrases(words: &[Word<'_>]) -> Option<Vec<String>> {
    let mut out: Vec<String> = Vec::with_capacity(2);
    let mut length = 0_usize;
    for word in words {
        if !matches!(word.mark, Mark::Word | Mark::Possessive) {
            return None;
        }
        if (!word.cap || out.is_empty()) && lexicon::is_preposition(&word.low) {
            if !out.is_empty() && length == 0 {
                return None;
            }
            out.push(word.low.to_string());
            length = 0;
        } else if !matches!(&*word.low, "the" | "a" | "an") {
            let last = out.last_mut()?;
            last.push(' ');
            last.push_str(&canon::word(&word.low));
            length += 1;
        }
    }
    ((1..=5).contains(&length) && out.len() < 4).then_some(out)
}
