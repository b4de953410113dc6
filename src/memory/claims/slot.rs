//! Subject slots: the subject, attribute and qualifiers of a plain statement that takes one value at a time.
//!
//! Two statements of one slot with different values cannot both be current, so the newer one can close the older one without a model.
//! Everything here is therefore on the side of saying nothing: every word must find its place in the grammar, or there is no slot.

use super::clause::{self, Clause};
use super::compare::{self, Relates};
use super::grammar;
use super::lexicon;
use super::value::Shape;
use super::{vocabulary, words};

/// A statement as a slot and what it puts into it.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Whom or what it is about, in one spelling. "@user" is a speaker without a name.
    pub subject: String,
    /// Which attribute, in one spelling: "residence", "port", "favorite color".
    pub attribute: String,
    /// What limits the statement ("in staging", "on weekends"), sorted.
    pub qualifiers: Vec<String>,
    /// The words of the value.
    pub value: Vec<String>,
    /// What the value is preferred over.
    pub against: Vec<String>,
    /// The value that it says it replaces: "moved from Porto to Berlin".
    pub replaces: Vec<String>,
    /// It says that the value does not, or no longer, hold.
    pub negated: bool,
    /// It says itself that something changed: "now", "moved to", "new".
    pub change: bool,
    /// How many days before its start the change may lie.
    pub days_ago: u16,
    /// The value is written like a name or a number.
    pub(super) named: bool,
    /// The subject is a person.
    pub(super) person: bool,
    /// What sort of value this is.
    pub(super) shape: Shape,
    /// Words of the predicate that need not mean the same: "works for" beside "works at".
    pub(super) form: &'static str,
}

/// The slot of `text`, or `None` where it is not certain that there is exactly one.
#[must_use]
pub fn slot(text: &str) -> Option<Slot> {
    slot_of(text, None)
}

/// The slot of `text` as said by `speaker`: who "I" and "my" are, unless the text begins with a name and a colon. What else stands before a
/// colon leaves no slot, but for a few labels like "Update".
#[must_use]
pub fn slot_of(text: &str, speaker: Option<&str>) -> Option<Slot> {
    if text.len() > clause::LONGEST {
        return None;
    }
    let clean = words::clean(text);
    let clause: Clause<'_> = clause::read(words::split(&clean), speaker)?;
    grammar::parse(&clause)
}

impl Slot {
    /// Whether both speak of one attribute of one subject, whatever the qualifiers.
    pub(super) fn same_base(&self, other: &Self) -> bool {
        self.subject == other.subject && self.attribute == other.attribute
    }

    /// Whether the subjects may be one under two names: "mara" and "mara quist", "atlas" and "project atlas".
    pub(super) fn may_be_one(&self, other: &Self) -> bool {
        // "the deadline", "our deadline"
        if without_group(&self.subject) == without_group(&other.subject) {
            return true;
        }
        let extra = |small: &str, big: &str| {
            let within = small.split(' ').all(|w| big.split(' ').any(|b| b == w));
            let more = big
                .split(' ')
                .filter(|b| small.split(' ').all(|w| w != *b))
                .all(lexicon::is_generic);
            within
                && ((self.person
                    && other.person
                    && small.split(' ').next() == big.split(' ').next())
                    || more)
        };
        extra(&self.subject, &other.subject) || extra(&other.subject, &self.subject)
    }

    /// It reports an event and not a state.
    pub(super) fn is_event(&self) -> bool {
        self.form == "event"
    }

    /// How the value of `self`, the later statement, relates to that of `earlier`.
    pub(super) fn relates(&self, earlier: &Self) -> Relates {
        if !self.replaces.is_empty() && self.replaces == earlier.value {
            return if self.value == earlier.value {
                Relates::Unclear
            } else {
                Relates::Differ
            };
        }
        // "moved to Sales" is no home, so an event of an unknown place proves nothing by itself.
        let cue = self.change && !(self.shape == Shape::Place && self.is_event());
        let relation = compare::compare(self.shape, &self.value, &earlier.value, cue);
        if relation == Relates::Differ && self.is_doubtful(earlier) {
            return Relates::Unclear;
        }
        match (self.against.is_empty(), earlier.against.is_empty()) {
            (true, true) => relation,
            (false, false) => self.ranked(earlier, relation),
            (false, true) if self.against == earlier.value => Relates::Differ,
            _ if relation == Relates::Same => Relates::Compatible,
            _ => Relates::Unclear,
        }
    }

    /// Whether two values that exclude each other may still both hold, because of how they were said.
    fn is_doubtful(&self, earlier: &Self) -> bool {
        let forms = matches!((self.form, earlier.form), ("at", "for") | ("for", "at"));
        // Many tools are used at once, and more so in tests.
        let tools = self.attribute == "uses"
            && (self.qualifiers.is_empty() || self.qualifiers.iter().any(|q| q.contains("test")));
        let several = forms || tools || self.attribute == "day";
        let unlike =
            self.shape == Shape::Words && !self.is_known_value() && !(self.named && earlier.named);
        let stale = !earlier.replaces.is_empty() && earlier.replaces == self.value;
        unlike || ((several || stale) && !self.change)
    }

    fn is_known_value(&self) -> bool {
        vocabulary::category(&self.value.join(" ")).is_some()
    }

    /// Two rankings: "tea over coffee" excludes "coffee over tea" and nothing else.
    fn ranked(&self, earlier: &Self, relation: Relates) -> Relates {
        let turned = self.value == earlier.against && self.against == earlier.value;
        match (turned, relation) {
            (true, _) => Relates::Differ,
            (false, Relates::Same) if self.against == earlier.against => Relates::Same,
            (false, _) => Relates::Compatible,
        }
    }
}

/// The words of a subject but "our" and the empty description.
fn without_group(subject: &str) -> Vec<&str> {
    let named = |w: &&str| !matches!(*w, "@the" | "@us");
    subject.split(' ').filter(named).collect()
}

/// A short name of a slot, by which an index finds the memories of the same slot without a vector. Only a candidate: equal keys say that
/// [`decide`](super::decide) should look, nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotKey(pub [u8; 16]);

/// The key of subject, attribute and qualifiers of `text`.
#[must_use]
pub fn slot_key(text: &str) -> Option<SlotKey> {
    slot(text).map(|slot| slot.key())
}

impl Slot {
    /// The key of subject, attribute and qualifiers.
    #[must_use]
    pub fn key(&self) -> SlotKey {
        self.hash(&self.qualifiers)
    }

    /// The key of subject and attribute alone. A memory filed under this one is found by the general and the qualified statements alike.
    #[must_use]
    pub fn base_key(&self) -> SlotKey {
        self.hash(&[])
    }

    /// 128-bit FNV-1a: stable between builds, and the callers' map needs no secrecy, since a shared key is only looked at.
    fn hash(&self, qualifiers: &[String]) -> SlotKey {
        const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let parts = [&self.subject, &self.attribute]
            .into_iter()
            .chain(qualifiers);
        let bytes = parts.flat_map(|part| part.bytes().chain([0]));
        let hash = bytes.fold(BASIS, |hash, byte| {
            (hash ^ u128::from(byte)).wrapping_mul(PRIME)
        });
        SlotKey(hash.to_be_bytes())
    }
}

/// The keys to file a memory under and to look its rivals up by: the exact slot first, then the slot without its qualifiers.
#[must_use]
pub fn candidate_keys(text: &str, speaker: Option<&str>) -> Vec<SlotKey> {
    let Some(slot) = slot_of(text, speaker) else {
        return Vec::new();
    };
    let (exact, base) = (slot.key(), slot.base_key());
    if exact == base {
        vec![exact]
    } else {
        vec![exact, base]
    }
}
