//! Which rows contain a term, and how often.
//!
//! Most partitions are small, and most terms of a large one occur once: neither pays for a table with a list behind each entry.

use super::blocks::fit;
use super::sharded::Sharded;
use super::terms::Term;

/// Occurrences up to which a partition's are kept in one sorted list.
const FEW: usize = 1_024;

/// One document that contains a term.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    pub(super) row: u32,
    pub(super) count: u16,
}

/// One entry of the sorted list.
#[derive(Debug, Clone, Copy)]
struct Occurrence {
    term: Term,
    posting: Posting,
}

/// The documents that contain a term.
#[derive(Debug)]
enum List {
    One(Posting),
    More(Box<Long>),
}

#[derive(Debug)]
struct Long {
    /// By row; the dead ones included.
    postings: Vec<Posting>,
    /// How many of them are alive.
    live: u32,
}

/// The occurrences of all terms.
#[derive(Debug)]
pub(super) enum Lexicon {
    /// By term, then by row; those of dead rows are taken out.
    Few(Few),
    /// Those of dead rows stay until rows move.
    Many(Many),
}

/// See [`Lexicon::Few`].
#[derive(Debug, Default)]
pub(super) struct Few(Vec<Occurrence>);

/// See [`Lexicon::Many`].
#[derive(Debug, Default)]
pub(super) struct Many {
    lists: Sharded<Term, List>,
    /// What the long lists take.
    list_bytes: usize,
}

impl Default for Lexicon {
    fn default() -> Self {
        Self::Few(Few::default())
    }
}

/// The documents that contain one term, by row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Postings<'a> {
    source: Source<'a>,
    /// How many of them are alive.
    pub(super) live: u32,
}

#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    Sorted(&'a [Occurrence]),
    List(&'a [Posting]),
}

impl Postings<'_> {
    pub(super) const fn len(&self) -> usize {
        match self.source {
            Source::Sorted(list) => list.len(),
            Source::List(list) => list.len(),
        }
    }

    pub(super) fn get(&self, at: usize) -> Option<Posting> {
        match self.source {
            Source::Sorted(list) => list.get(at).map(|found| found.posting),
            Source::List(list) => list.get(at).copied(),
        }
    }

    /// The posting of `row`.
    pub(super) fn of_row(&self, row: u32) -> Option<Posting> {
        let at = match self.source {
            Source::Sorted(list) => list.binary_search_by_key(&row, |found| found.posting.row),
            Source::List(list) => list.binary_search_by_key(&row, |posting| posting.row),
        };
        self.get(at.ok()?)
    }

    /// Calls `visit` with each posting of `range` and its place.
    pub(super) fn each(
        &self,
        range: std::ops::Range<usize>,
        mut visit: impl FnMut(usize, Posting),
    ) {
        match self.source {
            Source::Sorted(list) => {
                let part = list.get(range.clone()).unwrap_or_default();
                let each = range.zip(part);
                each.for_each(|(at, found)| visit(at, found.posting));
            }
            Source::List(list) => {
                let part = list.get(range.clone()).unwrap_or_default();
                range
                    .zip(part)
                    .for_each(|(at, posting)| visit(at, *posting));
            }
        }
    }
}

impl Lexicon {
    /// Whether it is the sorted list: all postings of all terms are then soon read.
    pub(super) const fn is_few(&self) -> bool {
        matches!(self, Self::Few(_))
    }

    /// The documents that contain `term`.
    pub(super) fn postings(&self, term: Term) -> Postings<'_> {
        let (source, live) = match self {
            Self::Few(few) => {
                let list = few.of(term);
                (Source::Sorted(list), list.len())
            }
            Self::Many(many) => match many.lists.get(&term) {
                None => (Source::List(&[]), 0),
                Some(List::One(posting)) => (Source::List(std::slice::from_ref(posting)), 1),
                Some(List::More(long)) => (Source::List(&long.postings), long.live as usize),
            },
        };
        Postings {
            source,
            live: u32::try_from(live).unwrap_or(u32::MAX),
        }
    }

    /// Adds the terms of `row`, which comes after every row that is known.
    pub(super) fn add(&mut self, row: u32, terms: &[Term]) {
        let mut sorted = terms.to_vec();
        sorted.sort_unstable();
        let fits = match self {
            Self::Few(few) => few.0.len() + sorted.len() <= FEW,
            Self::Many(_) => true,
        };
        if !fits && let Self::Few(few) = self {
            *self = Self::Many(Many::from_sorted(&few.0));
        }
        for run in sorted.chunk_by(|a, b| a == b) {
            let Some(&term) = run.first() else { continue };
            let count = u16::try_from(run.len()).unwrap_or(u16::MAX);
            let posting = Posting { row, count };
            match self {
                Self::Few(few) => few.insert(term, posting),
                Self::Many(many) => many.push(term, posting),
            }
        }
    }

    /// Takes the terms of a dead row out, or only counts it out. Whether places in lists have changed.
    pub(super) fn remove(&mut self, row: u32, mut terms: Vec<Term>) -> bool {
        match self {
            Self::Few(few) => {
                few.0.retain(|found| found.posting.row != row);
                true
            }
            Self::Many(many) => {
                terms.sort_unstable();
                terms.dedup();
                terms.into_iter().for_each(|term| many.remove(term, row));
                false
            }
        }
    }

    /// Gives every row its new place; `None` drops it. The order of rows stays.
    pub(super) fn move_rows(&mut self, place: impl Fn(u32) -> Option<u32>) {
        let moved = |posting: &mut Posting| match place(posting.row) {
            Some(row) => {
                posting.row = row;
                true
            }
            None => false,
        };
        match self {
            Self::Few(few) => few.0.retain_mut(|found| moved(&mut found.posting)),
            Self::Many(many) => many.keep(moved),
        }
    }

    /// Gives back what was reserved in vain.
    pub(super) fn shrink(&mut self) {
        match self {
            Self::Few(few) => fit(&mut few.0),
            Self::Many(many) => many.lists.shrink(),
        }
    }

    /// What it takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Few(few) => few.0.capacity() * size_of::<Occurrence>(),
            Self::Many(many) => many.lists.bytes() + many.list_bytes,
        }
    }
}

impl Few {
    fn of(&self, term: Term) -> &[Occurrence] {
        let start = self.0.partition_point(|found| found.term < term);
        let rest = self.0.get(start..).unwrap_or_default();
        let end = rest.partition_point(|found| found.term == term);
        rest.get(..end).unwrap_or_default()
    }

    fn insert(&mut self, term: Term, posting: Posting) {
        let at = self.0.partition_point(|found| found.term <= term);
        self.0.insert(at, Occurrence { term, posting });
    }
}

impl Many {
    fn from_sorted(sorted: &[Occurrence]) -> Self {
        let mut many = Self::default();
        for found in sorted {
            many.push(found.term, found.posting);
        }
        many
    }

    fn push(&mut self, term: Term, posting: Posting) {
        let Some(list) = self.lists.get_mut(&term) else {
            self.lists.insert(term, List::One(posting));
            return;
        };
        match list {
            List::One(first) => {
                let long = Long {
                    postings: vec![*first, posting],
                    live: 2,
                };
                self.list_bytes += long.bytes();
                *list = List::More(Box::new(long));
            }
            List::More(long) => {
                let before = long.bytes();
                long.postings.push(posting);
                long.live += 1;
                self.list_bytes += long.bytes() - before;
            }
        }
    }

    fn remove(&mut self, term: Term, row: u32) {
        match self.lists.get_mut(&term) {
            Some(List::One(only)) if only.row == row => {
                self.lists.remove(&term);
            }
            Some(List::More(long)) => long.live = long.live.saturating_sub(1),
            Some(List::One(_)) | None => {}
        }
    }

    fn keep(&mut self, mut keep: impl FnMut(&mut Posting) -> bool) {
        let mut list_bytes = 0;
        self.lists.retain(|_, list| {
            match list {
                List::One(posting) => return keep(posting),
                List::More(long) => {
                    long.postings.retain_mut(&mut keep);
                    long.postings.shrink_to_fit();
                    match long.postings.as_slice() {
                        [] => return false,
                        [only] => *list = List::One(*only),
                        _ => list_bytes += long.bytes(),
                    }
                }
            }
            true
        });
        self.list_bytes = list_bytes;
    }
}

impl Long {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.postings.capacity() * size_of::<Posting>()
    }
}

#[cfg(test)]
impl Lexicon {
    /// Whether the account of the long lists is that of the lists.
    pub(super) fn is_counted(&mut self) -> bool {
        let Self::Many(many) = self else { return true };
        let long = many.lists.values_mut().map(|list| match list {
            List::One(_) => 0,
            List::More(long) => long.bytes(),
        });
        long.sum::<usize>() == many.list_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::prop;

    use super::{FEW, Lexicon};
    use crate::memory::search::terms::Term;

    proptest::proptest! {
        #[test]
        fn few_and_many_hold_the_same(texts in prop::collection::vec((prop::collection::vec(0u8..60, 1..12), proptest::bool::weighted(0.2)), 1..300)) {
            let mut lexicon = Lexicon::default();
            let mut model: BTreeMap<u8, BTreeMap<u32, u16>> = BTreeMap::new();
            let mut all = 0;
            for (row, (words, dies)) in (0u32..).zip(&texts) {
                let terms: Vec<Term> = words.iter().map(|word| Term::of(&word.to_string())).collect();
                lexicon.add(row, &terms);
                let mut distinct = words.clone();
                distinct.sort_unstable();
                distinct.dedup();
                all += distinct.len();
                if *dies {
                    lexicon.remove(row, terms);
                    all -= if lexicon.is_few() { distinct.len() } else { 0 };
                    continue;
                }
                for word in words {
                    *model.entry(*word).or_default().entry(row).or_default() += 1;
                }
            }
            proptest::prop_assert!(all <= FEW || !lexicon.is_few());
            let dead = |row: u32| texts[row as usize].1;
            for word in 0..60u8 {
                let postings = lexicon.postings(Term::of(&word.to_string()));
                let mut found = BTreeMap::new();
                postings.each(0..postings.len(), |at, posting| {
                    assert_eq!(postings.get(at).unwrap().row, posting.row);
                    assert_eq!(postings.of_row(posting.row).unwrap().count, posting.count);
                    if !dead(posting.row) {
                        found.insert(posting.row, posting.count);
                    }
                });
                let expected = model.remove(&word).unwrap_or_default();
                proptest::prop_assert_eq!(postings.live as usize, expected.len());
                proptest::prop_assert_eq!(found, expected);
            }
        }
    }
}
