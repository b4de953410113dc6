//! The rules of the near-dedup and conflict stages: what a new memory does to one that is there. Text and times in, a verdict out; no
//! store, no model, no clock.
//!
//! A rule may retire a memory only where words alone prove that both cannot hold. Everything else stays, and at most a model is asked.
//!
//! `slot` is the subject, attribute and qualifiers of a plain statement. "Newer" compares the starts; the table reads from the side of
//! the new memory, and with the roles swapped `Supersedes` becomes `SupersededBy`: a memory that arrives late with an older start is
//! history, stored closed at the start of the one that is there.
//!
//! | slots | value | negation | intervals | verdict |
//! |---|---|---|---|---|
//! | one | excludes | none | disjoint, newer | `Supersedes`, closed where it was |
//! | one | excludes | none | both open, newer | `Supersedes`, closed at the new start |
//! | one | excludes | none | both open, older | `SupersededBy`, closed at the existing start |
//! | one | excludes | none | same start, or they overlap and one has an end | `Escalate` contradiction |
//! | one | same | equal | both open, or the same end and covered | `Restatement` |
//! | one | same | equal | overlapping otherwise | `Overlap` |
//! | one | same, one an event ("moved to Porto") and one a state | equal | overlapping | `Specializes` or `Overlap` |
//! | one | same | equal | disjoint | `Supersedes`: a period of its own |
//! | one | same | differs | as "excludes" | as "excludes": "no longer works at Acme" ends "works at Acme" |
//! | one | excludes, compatible | one or both | any | `None`: "not in Lyon" says nothing of Porto |
//! | one | more or less detail | equal | overlapping | `Specializes` if the new one says more, else `Overlap` |
//! | one | more or less detail | differs | overlapping | `Escalate` contradiction |
//! | one | compatible | none | any | `None`: vim and Slack are both used |
//! | one | unclear | any | overlapping | `Escalate` contradiction |
//! | one base, qualifiers nested | same or detail | equal | overlapping | `Specializes` or `Overlap` |
//! | one base, qualifiers nested | excludes, unclear | any | overlapping | `Escalate` overlap |
//! | one base, qualifiers apart | any | any | any | `None`: tea in the morning, coffee in the evening |
//! | subject may be one ("Mara", "Mara Quist") | any | any | overlapping | `Escalate` overlap |
//! | two | any | any | any | `None` |
//! | at least one missing, same words | | | both open | `Restatement` |
//! | at least one missing, one description ("the mascot is ...") with two values of one sort | | | overlapping | `Escalate` overlap |
//! | at least one missing, many words shared | | | overlapping | `Escalate`, a guess |
//! | at least one missing | | | disjoint, or few words shared | `None` |

mod attribute;
mod canon;
mod change;
mod clause;
mod compare;
mod decide;
mod grammar;
mod lexicon;
mod outline;
mod places;
mod restate;
mod slot;
mod subject;
mod topic;
mod value;
mod vocabulary;
mod words;

#[cfg(test)]
mod tests;

use jiff::Timestamp;

pub use crate::store::Relation;

pub use decide::{Parsed, decide, decide_parsed};
pub use restate::same_claim;
pub use slot::{Slot, SlotKey, candidate_keys, slot, slot_key, slot_of};

/// What the stage has to know of a memory.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// Its content.
    pub text: &'a str,
    /// Who said it, if that is known: "I" and "my" are theirs. A "Name:" at the start of the text goes before.
    pub speaker: Option<&'a str>,
    /// From when on it holds.
    pub valid_from: Timestamp,
    /// Until when, not included. `None` is open.
    pub valid_until: Option<Timestamp>,
}

/// What becomes of a new memory beside an existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They have nothing to do with each other.
    None,
    /// The existing one says it already.
    Restatement,
    /// The new one replaces the existing one.
    Supersedes {
        /// Where the interval of the existing one ends.
        close_at: Timestamp,
    },
    /// The new one arrived late: it is history, and the existing one is current.
    SupersededBy {
        /// Where the interval of the new one ends.
        close_at: Timestamp,
    },
    /// The same thing over other times or in fewer words. Both stay.
    Overlap,
    /// The new one adds detail to the existing one. Both stay.
    Specializes,
    /// Rules do not tell. A classifier or a person does; until then, and if the classifier fails, both stay.
    Escalate {
        /// What it looks like.
        relation_guess: Relation,
    },
}
