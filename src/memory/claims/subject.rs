//! Who or what a statement is about: one named entity in one spelling, or nobody.
//!
//! A subject that the text does not tell apart from others ("the server", "Mara's friend", "a ticket") is no subject: two statements
//! about it need not be about one thing.

use super::attribute::{self, Attribute, Scope};
use super::canon;
use super::clause::USER;
use super::lexicon;
use super::words::{Mark, Word};

/// The owner in "our deadline".
const US: &str = "@us";

/// The owner in "the deadline": whatever the memories are about.
const THE: &str = "@the";

/// What sort of thing a subject is, as far as its form tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// The speaker, a capitalised name, or somebody's only wife, boss, ...
    Person,
    /// A described or numbered thing.
    Thing,
    /// A single capitalised word after "of" or "for": "the deadline for Atlas".
    Name,
}

/// A subject.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    /// Its canonical name.
    pub(super) name: String,
    /// Its sort.
    pub(super) sort: Sort,
}

/// Which part of a noun phrase is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// What stands after "of".
    Owner,
    /// What stands before it, or all of a phrase without one.
    Head,
}

struct Piece {
    text: String,
    cap: bool,
    first: bool,
    owns: bool,
}

/// A noun phrase with its owner first: "the port of the staging database" is "staging database port".
pub(super) struct Phrase {
    pieces: Vec<Piece>,
    /// It began with "the" or "our", so that one word with a capital is no person.
    definite: bool,
    /// It was turned round at "of" or "for".
    turned: bool,
    /// It was turned round at "in" or "at", so that only an attribute can be meant: "the wifi password in the Porto office".
    inside: bool,
    /// "new": the phrase itself says that the value changed.
    pub(super) fresh: bool,
}

impl Phrase {
    /// Reads the words of a noun phrase. `speaker` is who "I" and "my" are.
    pub(super) fn read(words: &[Word<'_>], speaker: &str) -> Option<Self> {
        let mut phrase = Self {
            pieces: Vec::with_capacity(8),
            definite: false,
            turned: false,
            inside: false,
            fresh: false,
        };
        let of = words
            .iter()
            .position(|w| matches!(&*w.low, "of" | "for") && !w.cap);
        let inside = || {
            let starts = words.first().is_some_and(|w| w.is("the") || w.is("our"));
            let place = |w: &Word<'_>| matches!(&*w.low, "in" | "at" | "on") && !w.cap;
            starts.then(|| words.iter().position(place))?
        };
        phrase.inside = of.is_none() && inside().is_some();
        let of = of.or_else(inside);
        if let Some(at) = of {
            let (left, right) = words.split_at_checked(at)?;
            phrase.run(right.get(1..)?, speaker, Side::Owner)?;
            let owner = phrase.pieces.len();
            phrase.run(left, speaker, Side::Head)?;
            phrase.turned = true;
            let both = owner > 0 && phrase.pieces.len() > owner;
            return both.then_some(phrase);
        }
        phrase.run(words, speaker, Side::Head)?;
        let plain = phrase
            .pieces
            .iter()
            .all(|p| !lexicon::is_preposition(&p.text));
        (plain && (1..=8).contains(&phrase.pieces.len())).then_some(phrase)
    }

    fn run(&mut self, words: &[Word<'_>], speaker: &str, side: Side) -> Option<()> {
        let start = self.pieces.len();
        for (at, word) in words.iter().enumerate() {
            let next_owns = words
                .get(at + 1)
                .is_some_and(|w| w.mark == Mark::Possessive);
            let alone = words.len() == at + 1;
            match (word.mark, &*word.low) {
                (Mark::Possessive, _) if self.pieces.len() > start => {}
                (Mark::Word, "the") if at == 0 => self.definite = true,
                (Mark::Word, "i") if at == 0 && alone => self.person(speaker, false),
                (Mark::Word, "my") if at == 0 => self.person(speaker, true),
                (Mark::Word, "our") if at == 0 => {
                    self.definite = true;
                    self.person(&ours(speaker), true);
                }
                (Mark::Word, "user") if self.pieces.len() == start && (next_owns || alone) => {
                    self.person(USER, next_owns)
                }
                // The new port is the port, but the port of the new database is another one's.
                (Mark::Word, "new" | "current")
                    if side == Side::Head && !word.cap && self.after_owner(start) =>
                {
                    self.fresh |= &*word.low == "new"
                }
                (Mark::Word, "a" | "an" | "i" | "we" | "my" | "our" | "the") => return None,
                (Mark::Word, _) => self.pieces.push(Piece {
                    text: canon::word(&word.low).into_owned(),
                    cap: word.cap,
                    first: word.first,
                    owns: next_owns,
                }),
                _ => return None,
            }
        }
        Some(())
    }

    /// Whether nothing, or an owner, came right before.
    fn after_owner(&self, start: usize) -> bool {
        let run = self.pieces.get(start..).unwrap_or_default();
        run.last()
            .map_or(self.definite || self.turned || start > 0, |p| p.owns)
    }

    fn person(&mut self, name: &str, owns: bool) {
        self.pieces.push(Piece {
            text: name.to_owned(),
            cap: true,
            first: false,
            owns,
        });
    }

    /// The phrase as a subject by itself.
    pub(super) fn subject(&self) -> Option<Subject> {
        if self.inside {
            return None;
        }
        self.entity(self.pieces.len()).or_else(|| self.single())
    }

    /// Whether it names the seat of somebody, which is in one place.
    pub(super) fn is_site(&self) -> bool {
        let last = self.pieces.last();
        last.is_some_and(|p| matches!(&*p.text, "office" | "headquarters" | "hq"))
    }

    /// "the office", "our standup".
    fn single(&self) -> Option<Subject> {
        let (last, rest) = self.pieces.split_last()?;
        let (owner, own) = split_owner(rest);
        let owned = !owner.is_empty() && self.head(owner).is_some();
        let known = (owned || (owner.is_empty() && self.definite))
            && lexicon::is_single(&last.text)
            && own.iter().all(|p| lexicon::is_sole(&p.text));
        let mut subject = known.then(|| named(&self.pieces))?;
        // The new office may be one more.
        if self.fresh {
            subject.name.push_str(" new");
        }
        Some(subject)
    }

    /// The phrase as a subject and one of its attributes.
    pub(super) fn attribute(&self) -> Option<(Subject, Attribute)> {
        let words: Vec<&str> = self.pieces.iter().map(|p| p.text.as_str()).collect();
        let found = attribute::find(&words)?;
        let count = words.len().checked_sub(found.len)?;
        let fits = |subject: &Subject| match (found.scope, subject.sort) {
            (Scope::Either, _) | (_, Sort::Name) => true,
            (Scope::Person, sort) => sort == Sort::Person,
            (Scope::Thing, sort) => sort == Sort::Thing,
        };
        let pieces = self.pieces.get(..count)?;
        let thing = |subject: &Subject| {
            let owner = subject.sort == Sort::Person || is_us(&subject.name);
            let numbered = pieces.iter().any(|p| has_digit(&p.text));
            let passing = |p: &Piece| !p.cap && lexicon::is_passing(&p.text);
            let passing = !numbered && pieces.iter().any(passing);
            !attribute::needs_thing(&found.name) || !(owner || passing)
        };
        let subject = self
            .entity(count)
            .filter(|subject| fits(subject) && thing(subject))
            .or_else(|| self.described(count, &found))?;
        Some((subject, found))
    }

    /// The first `count` words as the owner in a definite description: "the deadline", "the wifi password", "my locker code". The
    /// owner need not be a name, but there must be one of it only.
    fn described(&self, count: usize, found: &Attribute) -> Option<Subject> {
        let pieces = self.pieces.get(..count)?;
        let (owner, own) = split_owner(pieces);
        let sole = |p: &Piece| lexicon::is_sole(&p.text);
        let alone = attribute::stands_alone(&found.name);
        let owned = if owner.is_empty() {
            self.definite
        } else {
            owner.iter().all(sole) || (!own.is_empty() && self.head(owner).is_some())
        };
        let told = match own {
            [] => alone || !owner.is_empty(),
            // "the monthly rent", "the orders database"
            [only] => sole(only) || (alone && !lexicon::is_many(&only.text)),
            // "my gym locker code": what stands before only narrows it down.
            several => {
                several.iter().any(sole) && !several.iter().any(|p| lexicon::is_many(&p.text))
            }
        };
        (found.scope != Scope::Person && owned && told).then(|| named(pieces))
    }

    /// The first `count` words as an entity.
    fn entity(&self, count: usize) -> Option<Subject> {
        let pieces = self.pieces.get(..count)?;
        let sort = self.sort(pieces)?;
        Some(Subject {
            sort,
            ..named(pieces)
        })
    }

    fn sort(&self, pieces: &[Piece]) -> Option<Sort> {
        let (head, rest) = match split_owner(pieces) {
            ([], all) => (all, [].as_slice()),
            parts => parts,
        };
        let sort = self.head(head)?;
        if rest.is_empty() {
            return Some(sort);
        }
        let shared = head.first().is_some_and(|p| is_us(&p.text));
        let described = rest.len() > 1 && rest.iter().any(|p| !lexicon::is_generic(&p.text));
        match sort {
            Sort::Thing if shared => described.then_some(Sort::Thing),
            Sort::Thing => Some(Sort::Thing),
            Sort::Person | Sort::Name => {
                let unique = rest.iter().all(|p| lexicon::is_unique_relation(&p.text));
                // "my dog Rex"
                let called = rest.len() > 1 && rest.last().is_some_and(|p| p.cap);
                (unique || called).then_some(Sort::Person)
            }
        }
    }

    /// What the words before any possessive are.
    fn head(&self, head: &[Piece]) -> Option<Sort> {
        let first = head.first()?;
        if is_us(&first.text) {
            return Some(Sort::Thing);
        }
        let digits = |p: &Piece| has_digit(&p.text);
        let capitals = head.iter().all(|p| p.cap);
        let generic = lexicon::is_generic(&first.text);
        if capitals && !self.definite && !generic && !head.iter().any(digits) && head.len() < 4 {
            let given =
                head.iter().any(|p| lexicon::is_given_name(&p.text)) || first.text.starts_with('@');
            let either = self.turned && !given && head.len() == 1;
            return Some(if either { Sort::Name } else { Sort::Person });
        }
        let named = head.iter().any(|p| (p.cap && !p.first) || digits(p));
        let described = head.len() > 1 && head.iter().any(|p| !lexicon::is_generic(&p.text));
        (named || described).then_some(Sort::Thing)
    }
}

/// Whom "our" names. Two speakers need not belong to one group.
fn ours(speaker: &str) -> String {
    if speaker == USER {
        US.to_owned()
    } else {
        format!("{US}:{speaker}")
    }
}

fn has_digit(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_digit())
}

fn is_us(text: &str) -> bool {
    let rest = text.strip_prefix(US);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// The words up to a possessive, and those after it.
fn split_owner(pieces: &[Piece]) -> (&[Piece], &[Piece]) {
    let owner = pieces.iter().position(|p| p.owns).map_or(0, |at| at + 1);
    pieces.split_at_checked(owner).unwrap_or((&[], pieces))
}

/// The words as the name of a thing.
fn named(pieces: &[Piece]) -> Subject {
    let words: Vec<&str> = pieces.iter().map(|p| p.text.as_str()).collect();
    let name = if words.is_empty() {
        THE.to_owned()
    } else {
        words.join(" ")
    };
    Subject {
        name,
        sort: Sort::Thing,
    }
}
