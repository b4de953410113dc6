//! Who or what a statement is about: one named entity in one spelling, or nobody.
//!
//! A subject that the text does not tell apart from others ("the server", "Mara's friend", "a ticket") is no subject: two statements
//! about it need not be about one thing.

use super::attribute::{self, Attribute, Scope};
use super::canon;
use super::clause::USER;
use super::lexicon;
use super::words::{Mark, Word};

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
    /// "new": the phrase itself says that the value changed.
    pub(super) fresh: bool,
}

impl Phrase {
    /// Reads the words of a noun phrase. `speaker` is who "I" and "my" are.
    pub(super) fn read(words: &[Word<'_>], speaker: Option<&str>) -> Option<Self> {
        let mut phrase = Self {
            pieces: Vec::with_capacity(8),
            definite: false,
            turned: false,
            fresh: false,
        };
        let of = words
            .iter()
            .position(|w| matches!(&*w.low, "of" | "for") && !w.cap);
        if let Some(at) = of {
            let (left, right) = words.split_at_checked(at)?;
            phrase.run(right.get(1..)?, speaker)?;
            let owner = phrase.pieces.len();
            phrase.run(left, speaker)?;
            phrase.turned = true;
            let both = owner > 0 && phrase.pieces.len() > owner;
            return both.then_some(phrase);
        }
        phrase.run(words, speaker)?;
        let plain = phrase
            .pieces
            .iter()
            .all(|p| !lexicon::is_preposition(&p.text));
        (plain && (1..=8).contains(&phrase.pieces.len())).then_some(phrase)
    }

    fn run(&mut self, words: &[Word<'_>], speaker: Option<&str>) -> Option<()> {
        let start = self.pieces.len();
        for (at, word) in words.iter().enumerate() {
            let next_owns = words
                .get(at + 1)
                .is_some_and(|w| w.mark == Mark::Possessive);
            let alone = words.len() == at + 1;
            match (word.mark, &*word.low) {
                (Mark::Possessive, _) if self.pieces.len() > start => {}
                (Mark::Word, "the") if at == 0 => self.definite = true,
                (Mark::Word, "i") if at == 0 && alone => self.person(speaker?, false),
                (Mark::Word, "my") if at == 0 => self.person(speaker?, true),
                (Mark::Word, "our") if at == 0 => {
                    self.definite = true;
                    self.person("@us", true);
                }
                (Mark::Word, "user") if self.pieces.len() == start && (next_owns || alone) => {
                    self.person(USER, next_owns)
                }
                (Mark::Word, "new" | "current") if !word.cap && self.after_owner(start) => {
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
        self.entity(self.pieces.len())
    }

    /// The phrase as a subject and one of its attributes.
    pub(super) fn attribute(&self) -> Option<(Subject, Attribute)> {
        let words: Vec<&str> = self.pieces.iter().map(|p| p.text.as_str()).collect();
        let found = attribute::find(&words)?;
        let subject = self.entity(words.len().checked_sub(found.len)?)?;
        let fits = match (found.scope, subject.sort) {
            (Scope::Either, _) | (_, Sort::Name) => true,
            (Scope::Person, sort) => sort == Sort::Person,
            (Scope::Thing, sort) => sort == Sort::Thing,
        };
        fits.then_some((subject, found))
    }

    /// The first `count` words as an entity.
    fn entity(&self, count: usize) -> Option<Subject> {
        let pieces = self.pieces.get(..count)?;
        let sort = self.sort(pieces)?;
        let name = pieces
            .iter()
            .map(|p| p.text.as_str())
            .collect::<Vec<_>>()
            .join(" ");
        Some(Subject { name, sort })
    }

    fn sort(&self, pieces: &[Piece]) -> Option<Sort> {
        let (head, rest) = match pieces.iter().position(|p| p.owns) {
            Some(at) if at + 1 < pieces.len() => pieces.split_at_checked(at + 1)?,
            _ => (pieces, [].as_slice()),
        };
        let sort = self.head(head)?;
        if rest.is_empty() {
            return Some(sort);
        }
        let shared = head.first().is_some_and(|p| p.text == "@us");
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
        if first.text == "@us" {
            return Some(Sort::Thing);
        }
        let digits = |p: &Piece| p.text.bytes().any(|b| b.is_ascii_digit());
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
