//! The memories of one partition as columns: append-only, a dead row stays until more than half are dead.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::ids::MemoryId;
use crate::memory::{Memory, Status};

use super::hot::HotMembers;
use super::space::Space;
use super::terms::{Side, Term, fold, terms};
use super::vectors::{cosine, quantise};

/// No row.
pub(super) const NONE: u32 = u32::MAX;

/// The fixed-size part of a row.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// Terms of the text.
    pub(super) length: f32,
    /// Validity in milliseconds: from (inclusive) and until (exclusive). A dead row is never valid.
    pub(super) from: i64,
    pub(super) until: i64,
    /// The neighbour turns of a dialogue turn.
    pub(super) previous: u32,
    pub(super) next: u32,
    /// Undoes the vector's bytes; 0 without a comparable vector.
    pub(super) scale: f32,
    /// Length of the sum of this turn's and the previous turn's vectors.
    pub(super) pair_norm: f32,
    /// Who speaks, by the first word of the name; only for dialogue turns.
    pub(super) speaker: Option<Term>,
}

/// One document that contains a term.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    pub(super) row: u32,
    pub(super) count: u16,
}

/// The documents that contain a term, by row.
#[derive(Debug, Default)]
pub(super) struct Postings {
    pub(super) list: Vec<Posting>,
    /// How many of them are alive.
    pub(super) live: u32,
}

/// What is known of an id: the newest revision applied, and the row when it has one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) revision: i64,
    pub(super) row: u32,
}

/// A memory made ready outside the lock.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) memory: Arc<Memory>,
    pub(super) terms: Vec<Term>,
    bytes: Vec<i8>,
    scale: f32,
}

impl Prepared {
    /// Analyses `memory`. A vector of another space is left out: it can be compared with nothing here.
    pub(super) fn new(memory: Arc<Memory>, space: &Space) -> Self {
        let (mut bytes, mut scale) = (Vec::new(), 0.0);
        if let Some(vector) = space.vector(&memory) {
            scale = quantise(&vector, &mut bytes);
        }
        let terms = if memory.status == Status::Active {
            terms(&memory.content, Side::Document)
        } else {
            Vec::new()
        };
        Self {
            memory,
            terms,
            bytes,
            scale,
        }
    }
}

/// The columns.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// Grows when rows move: a pass that released the lock starts again.
    pub(super) generation: u64,
    pub(super) rows: Vec<Row>,
    pub(super) memories: Vec<Option<Arc<Memory>>>,
    pub(super) vectors: Vec<i8>,
    pub(super) dimensions: usize,
    pub(super) postings: HashMap<Term, Postings, RandomState>,
    pub(super) live: usize,
    pub(super) live_length: f64,
    /// Live dialogue turns; without any the views that concern them are skipped.
    pub(super) dialogue: usize,
    pub(super) hot: HotMembers,
    pub(super) known: HashMap<MemoryId, Known, RandomState>,
    pub(super) turns: HashMap<(Term, u32), u32, RandomState>,
}

impl Columns {
    pub(super) fn new(hot: usize) -> Self {
        Self {
            hot: HotMembers::new(hot),
            ..Self::default()
        }
    }

    /// Whether `memory` was brought up to date without analysing its text: it is no newer than what is known, or only votes, labels,
    /// validity and the like changed.
    pub(super) fn update(&mut self, memory: &Arc<Memory>) -> bool {
        let Some(known) = self.known.get(&memory.id).copied() else {
            return false;
        };
        if known.revision >= memory.revision {
            return true;
        }
        let replaced = self.replace_in_place(known.row, memory);
        if replaced && let Some(known) = self.known.get_mut(&memory.id) {
            known.revision = memory.revision;
        }
        replaced
    }

    /// Brings one memory up to date. An older revision than the one applied changes nothing.
    pub(super) fn upsert(&mut self, prepared: Prepared) {
        if self.update(&prepared.memory) {
            return;
        }
        let (id, revision) = (prepared.memory.id, prepared.memory.revision);
        if let Some(old) = self.known.get(&id).copied() {
            self.kill(old.row);
        }
        let row = if prepared.memory.status == Status::Active {
            self.append(prepared)
        } else {
            NONE
        };
        self.known.insert(id, Known { revision, row });
        self.compact_when_worth_it();
    }

    /// Removes one memory for good: a forgotten id never comes back.
    pub(super) fn remove(&mut self, id: MemoryId) {
        if let Some(old) = self.known.insert(
            id,
            Known {
                revision: i64::MAX,
                row: NONE,
            },
        ) {
            self.kill(old.row);
            self.compact_when_worth_it();
        }
    }

    pub(super) fn memory(&self, row: u32) -> Option<&Arc<Memory>> {
        self.memories.get(row as usize)?.as_ref()
    }

    pub(super) fn row(&self, row: u32) -> Option<&Row> {
        self.rows.get(row as usize)
    }

    pub(super) fn vector(&self, row: u32) -> &[i8] {
        let start = row as usize * self.dimensions;
        self.vectors
            .get(start..start + self.dimensions)
            .unwrap_or_default()
    }

    /// When neither text nor vector changed, the row stays.
    fn replace_in_place(&mut self, row: u32, new: &Arc<Memory>) -> bool {
        let Some(old) = self.memory(row) else {
            return false;
        };
        let same_text = old.content == new.content && old.source == new.source;
        if !same_text || old.embedding != new.embedding || new.status != Status::Active {
            return false;
        }
        let (from, until) = validity(new);
        if let Some(columns) = self.rows.get_mut(row as usize) {
            (columns.from, columns.until) = (from, until);
        }
        if let Some(slot) = self.memories.get_mut(row as usize) {
            *slot = Some(Arc::clone(new));
        }
        self.hot.changed(row, new);
        true
    }

    fn append(&mut self, prepared: Prepared) -> u32 {
        let Ok(row) = u32::try_from(self.rows.len()) else {
            return NONE;
        };
        let scale = self.append_vector(&prepared);
        self.append_postings(row, &prepared.terms);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a text has far fewer than 2^24 terms"
        )]
        let length = prepared.terms.len() as f32;
        let (from, until) = validity(&prepared.memory);
        let turn = turn_of(&prepared.memory);
        let speaker = turn.and_then(|_| speaker_of(&prepared.memory.content));
        self.rows.push(Row {
            length,
            from,
            until,
            previous: NONE,
            next: NONE,
            scale,
            pair_norm: 0.0,
            speaker,
        });
        self.live += 1;
        self.live_length += f64::from(length);
        self.hot.added(row, &prepared.memory, prepared.terms);
        self.memories.push(Some(prepared.memory));
        if let Some((session, turn)) = turn {
            self.dialogue += 1;
            self.turns.insert((session, turn), row);
            let before = turn
                .checked_sub(1)
                .and_then(|turn| self.turns.get(&(session, turn)).copied());
            let after = turn
                .checked_add(1)
                .and_then(|turn| self.turns.get(&(session, turn)).copied());
            self.link(before.unwrap_or(NONE), row);
            self.link(row, after.unwrap_or(NONE));
        }
        row
    }

    /// Appends the vector's bytes, or zeros. The first vector decides the dimensions; rows before it get zeros.
    fn append_vector(&mut self, prepared: &Prepared) -> f32 {
        if self.dimensions == 0 && prepared.scale > 0.0 {
            self.dimensions = prepared.bytes.len();
            self.vectors.resize(self.rows.len() * self.dimensions, 0);
        }
        if prepared.scale > 0.0 && prepared.bytes.len() == self.dimensions {
            self.vectors.extend_from_slice(&prepared.bytes);
            return prepared.scale;
        }
        self.vectors
            .resize((self.rows.len() + 1) * self.dimensions, 0);
        0.0
    }

    fn append_postings(&mut self, row: u32, terms: &[Term]) {
        for &term in terms {
            let postings = self.postings.entry(term).or_default();
            match postings.list.last_mut() {
                Some(last) if last.row == row => last.count = last.count.saturating_add(1),
                _ => {
                    postings.list.push(Posting { row, count: 1 });
                    postings.live += 1;
                }
            }
        }
    }

    /// Makes `second` the turn after `first`; either may be absent.
    fn link(&mut self, first: u32, second: u32) {
        let norm = self.pair_norm(first, second);
        if let Some(row) = self.rows.get_mut(first as usize) {
            row.next = second;
        }
        if let Some(row) = self.rows.get_mut(second as usize) {
            (row.previous, row.pair_norm) = (first, norm);
        }
    }

    /// The length of the sum of two unit vectors.
    fn pair_norm(&self, first: u32, second: u32) -> f32 {
        let (Some(a), Some(b)) = (self.row(first), self.row(second)) else {
            return 0.0;
        };
        let cosine = cosine(self.vector(first), a.scale, self.vector(second), b.scale);
        (2.0 + 2.0 * cosine).max(0.25).sqrt()
    }

    /// Ends a row: its text goes at once, its place later.
    fn kill(&mut self, row: u32) {
        let Some(memory) = self.memories.get_mut(row as usize).and_then(Option::take) else {
            return;
        };
        let start = row as usize * self.dimensions;
        if let Some(vector) = self.vectors.get_mut(start..start + self.dimensions) {
            vector.fill(0);
        }
        if let Some(key) = turn_of(&memory) {
            self.dialogue -= 1;
            if self.turns.get(&key) == Some(&row) {
                self.turns.remove(&key);
            }
        }
        if let Some(dead) = self.rows.get_mut(row as usize) {
            (dead.from, dead.until) = (i64::MAX, i64::MIN);
            let (previous, next) = (
                std::mem::replace(&mut dead.previous, NONE),
                std::mem::replace(&mut dead.next, NONE),
            );
            self.live -= 1;
            self.live_length -= f64::from(dead.length);
            self.unlink(row, previous, next);
        }
        let mut terms = terms(&memory.content, Side::Document);
        terms.sort_unstable();
        terms.dedup();
        for term in terms {
            if let Some(postings) = self.postings.get_mut(&term) {
                postings.live = postings.live.saturating_sub(1);
            }
        }
        self.hot.removed(row);
    }

    fn unlink(&mut self, row: u32, previous: u32, next: u32) {
        if let Some(before) = self
            .rows
            .get_mut(previous as usize)
            .filter(|before| before.next == row)
        {
            before.next = NONE;
        }
        if let Some(after) = self
            .rows
            .get_mut(next as usize)
            .filter(|after| after.previous == row)
        {
            (after.previous, after.pair_norm) = (NONE, 0.0);
        }
    }
}

/// A memory's validity in milliseconds, rounded outwards: every hit is checked exactly before it leaves.
fn validity(memory: &Memory) -> (i64, i64) {
    (
        memory.valid_from.as_millisecond(),
        memory
            .valid_until
            .map_or(i64::MAX, |end| end.as_millisecond().saturating_add(1)),
    )
}

/// The place of a dialogue turn.
fn turn_of(memory: &Memory) -> Option<(Term, u32)> {
    Some((
        Term::of(memory.source.session.as_deref()?),
        memory.source.turn?,
    ))
}

/// The first word of the name in `Name: text`.
fn speaker_of(content: &str) -> Option<Term> {
    let (name, _) = content.split_once(':')?;
    let worthy = name.len() <= 40
        && name.split_whitespace().count() <= 3
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || " .-'".contains(c));
    let first = name.split_whitespace().next().filter(|_| worthy)?;
    let mut folded = String::new();
    fold(first, &mut folded);
    Some(Term::of(&folded))
}
