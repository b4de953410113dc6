//! The memories of one partition as columns: append-only, a dead row stays until more than half are dead.

use crate::ids::MemoryId;
use crate::memory::{Memory, Status};

use super::blocks::Blocks;
use super::hot::HotMembers;
use super::kept::Kept;
use super::lexicon::Lexicon;
use super::prepared::{Levels, Prepared, speaker_of, turn_of, validity};
use super::sharded::Sharded;
use super::terms::{Side, Term, terms};
use super::vectors::cosine;

/// No row.
pub(super) const NONE: u32 = u32::MAX;

/// The fixed-size part of a row.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// Terms of the text.
    pub(super) length: f32,
    /// The neighbour turns of a dialogue turn.
    pub(super) previous: u32,
    pub(super) next: u32,
    /// Length of the sum of this turn's and the previous turn's vectors.
    pub(super) pair_norm: f32,
    /// Validity in microseconds: from (inclusive) and until (exclusive). A dead row is never valid.
    pub(super) from: i64,
    pub(super) until: i64,
    /// Who speaks, by the first word of the name; only for dialogue turns.
    pub(super) speaker: Option<Term>,
}

impl Row {
    /// Whether the memory is valid at `now`, in microseconds.
    pub(super) fn is_valid(&self, now: i64) -> bool {
        (self.from..self.until).contains(&now)
    }
}

/// What is known of a partition of which only candidates are here.
#[derive(Debug, Clone)]
pub(super) struct Background {
    /// Memories in the partition.
    pub(super) documents: usize,
    /// Of them, candidates.
    pub(super) candidates: usize,
    /// The mean cosine over all of them, where it is known.
    pub(super) mean_cosine: Option<f32>,
    /// Whether every memory with a word of the query is a candidate.
    pub(super) all_words: bool,
    /// How many of the partition's memories hold a term, where that was counted.
    pub(super) held: Vec<(Term, u32)>,
}

impl Background {
    /// How many of the partition's memories hold a term, when so many of the candidates do. Candidates are chosen for their words: where
    /// not all that have one are here, the share among them is an upper bound, and the geometric mean with their number is a guess.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a guess needs no more than seven digits"
    )]
    pub(super) fn holding(&self, term: Term, here: u32) -> u32 {
        if let Some((_, held)) = self.held.iter().find(|(of, _)| *of == term) {
            return here.max(*held);
        }
        if self.all_words || here == 0 || self.candidates == 0 {
            return here;
        }
        let most = here as f32 / self.candidates as f32 * self.documents as f32;
        (here as f32 * most.max(here as f32)).sqrt() as u32
    }
}

/// The columns.
#[derive(Debug, Default)]
pub(super) struct Columns {
    /// Set where the rows are candidates that stand for a whole partition.
    pub(super) background: Option<Box<Background>>,
    /// Grows when rows or postings move: a pass that released the lock starts again.
    pub(super) generation: u64,
    pub(super) rows: Blocks<Row>,
    pub(super) kept: Blocks<Option<Kept>>,
    /// As wide as the first vector; before it without width.
    pub(super) vectors: Blocks<i8>,
    /// Undo the vectors' bytes; 0 without a comparable vector. Apart from the rows: a scan reads them all.
    pub(super) scales: Blocks<f32>,
    pub(super) lexicon: Lexicon,
    pub(super) live: usize,
    pub(super) live_length: f64,
    /// Live dialogue turns; without any the views that concern them are skipped.
    pub(super) dialogue: usize,
    pub(super) hot: HotMembers,
    /// The rows of the living.
    pub(super) places: Sharded<MemoryId, u32>,
    /// The newest revision that is known of each memory that is not among the living; of one that was removed for good the greatest
    /// there is.
    pub(super) gone: Sharded<MemoryId, i64>,
    pub(super) turns: Sharded<(Term, u32), u32>,
    /// What the kept memories own outside their column.
    pub(super) heap: usize,
}

impl Columns {
    pub(super) fn new(hot: usize) -> Self {
        Self {
            hot: HotMembers::new(hot),
            vectors: Blocks::new(0),
            ..Self::default()
        }
    }

    /// What is held, to within what an allocator rounds.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.rows.bytes()
            + self.kept.bytes()
            + self.vectors.bytes()
            + self.scales.bytes()
            + self.lexicon.bytes()
            + self.hot.bytes()
            + self.places.bytes()
            + self.gone.bytes()
            + self.turns.bytes()
            + self.heap
    }

    /// Gives back what was reserved for more: most partitions rarely grow once they are loaded.
    pub(super) fn shrink(&mut self) {
        self.rows.shrink();
        self.kept.shrink();
        self.vectors.shrink();
        self.scales.shrink();
        self.lexicon.shrink();
        self.places.shrink();
        self.turns.shrink();
    }

    /// Brings a memory up to date where that needs no analysis of its text: it is no newer than what is known, or only votes, labels,
    /// validity and the like changed. Gives it back otherwise.
    pub(super) fn update(&mut self, memory: Memory, levels: &Levels) -> Option<Memory> {
        if let Some(revision) = self.gone.get(&memory.id) {
            return (*revision < memory.revision).then_some(memory);
        }
        let Some(row) = self.places.get(&memory.id).copied() else {
            return Some(memory);
        };
        let old = self.kept(row)?;
        if old.revision >= memory.revision {
            return None;
        }
        let same = memory.status == Status::Active
            && old.reads_like(&memory)
            && self.has_levels(row, levels);
        if !same {
            return Some(memory);
        }
        self.replace_in_place(row, memory);
        None
    }

    /// Brings one memory up to date. An older revision than the one applied changes nothing.
    pub(super) fn upsert(&mut self, prepared: Prepared) {
        let Prepared {
            memory,
            levels,
            terms,
        } = prepared;
        let Some(memory) = self.update(memory, &levels) else {
            return;
        };
        let (id, revision) = (memory.id, memory.revision);
        self.kill(id);
        if memory.status != Status::Active {
            self.gone.insert(id, revision);
        } else if let Some(row) = self.append(memory, &levels, terms) {
            self.gone.remove(&id);
            self.places.insert(id, row);
        }
    }

    /// Removes one memory for good: a forgotten id never comes back.
    pub(super) fn remove(&mut self, id: MemoryId) {
        self.gone.insert(id, i64::MAX);
        self.kill(id);
    }

    /// Counts one use of a memory, if it is here.
    pub(super) fn count_use(&mut self, id: MemoryId) {
        let Some(row) = self.places.get(&id).copied() else {
            return;
        };
        let kept = self.kept.get_mut(row as usize).and_then(Option::as_mut);
        let (Some(kept), Some(columns)) = (kept, self.rows.get(row as usize)) else {
            return;
        };
        kept.count_use();
        self.hot.changed(row, columns, kept, self.lexicon.is_few());
    }

    pub(super) fn kept(&self, row: u32) -> Option<&Kept> {
        self.kept.get(row as usize)?.as_ref()
    }

    pub(super) fn row(&self, row: u32) -> Option<&Row> {
        self.rows.get(row as usize)
    }

    pub(super) fn vector(&self, row: u32) -> &[i8] {
        self.vectors.row(row as usize)
    }

    pub(super) fn scale(&self, row: u32) -> f32 {
        self.scales.get(row as usize).copied().unwrap_or(0.0)
    }

    /// The dimensions of the vectors; 0 before the first.
    pub(super) const fn dimensions(&self) -> usize {
        self.vectors.width()
    }

    /// Whether the row's vector is this one.
    fn has_levels(&self, row: u32, levels: &Levels) -> bool {
        let scale = self.scale(row);
        #[expect(clippy::float_cmp, reason = "the same vector has the same scale")]
        let same = scale == levels.scale;
        same && (scale == 0.0 || self.vector(row) == &*levels.bytes)
    }

    /// Text and vector have not changed, so the row stays.
    fn replace_in_place(&mut self, row: u32, memory: Memory) {
        let (from, until) = validity(&memory);
        let kept = Kept::new(memory);
        if let Some(columns) = self.rows.get_mut(row as usize) {
            (columns.from, columns.until) = (from, until);
            self.hot.changed(row, columns, &kept, self.lexicon.is_few());
        }
        self.heap += kept.heap_bytes();
        if let Some(old) = self
            .kept
            .get_mut(row as usize)
            .and_then(|slot| slot.replace(kept))
        {
            self.heap -= old.heap_bytes();
        }
    }

    fn append(&mut self, memory: Memory, levels: &Levels, terms: Vec<Term>) -> Option<u32> {
        let row = u32::try_from(self.rows.len()).ok().filter(|r| *r != NONE)?;
        self.append_vector(levels);
        let was_few = self.lexicon.is_few();
        self.lexicon.add(row, &terms);
        if was_few && !self.lexicon.is_few() {
            // Until now the members needed no terms of their own.
            self.hot.stale();
            self.generation += 1;
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "a text has far fewer than 2^24 terms"
        )]
        let length = terms.len() as f32;
        let (from, until) = validity(&memory);
        let turn = turn_of(memory.source.session.as_deref(), memory.source.turn);
        let columns = Row {
            length,
            previous: NONE,
            next: NONE,
            pair_norm: 0.0,
            from,
            until,
            speaker: turn.and_then(|_| speaker_of(&memory.content)),
        };
        let kept = Kept::new(memory);
        self.heap += kept.heap_bytes();
        self.live += 1;
        self.live_length += f64::from(length);
        let terms = (!self.lexicon.is_few()).then_some(terms);
        self.hot.added(row, &columns, &kept, terms);
        self.rows.push(columns);
        self.kept.push(Some(kept));
        if let Some(turn) = turn {
            self.place_turn(turn, row);
        }
        Some(row)
    }

    /// Links a dialogue turn with its neighbours.
    fn place_turn(&mut self, (session, turn): (Term, u32), row: u32) {
        self.dialogue += 1;
        self.turns.insert((session, turn), row);
        let at = |turn: Option<u32>| {
            turn.and_then(|turn| self.turns.get(&(session, turn)).copied())
                .unwrap_or(NONE)
        };
        let (before, after) = (at(turn.checked_sub(1)), at(turn.checked_add(1)));
        self.link(before, row);
        self.link(row, after);
    }

    /// Appends the vector's bytes, or zeros. The first vector decides the dimensions; rows before it get zeros.
    fn append_vector(&mut self, levels: &Levels) {
        let comparable = levels.scale > 0.0;
        if comparable && self.dimensions() == 0 {
            let dimensions = levels.bytes.len();
            self.vectors = Blocks::new(dimensions);
            for _ in 0..self.rows.len() {
                self.vectors.push_row(std::iter::repeat_n(0, dimensions));
            }
        }
        let dimensions = self.dimensions();
        if comparable && levels.bytes.len() == dimensions {
            self.vectors.push_row(levels.bytes.iter().copied());
            self.scales.push(levels.scale);
        } else {
            self.vectors.push_row(std::iter::repeat_n(0, dimensions));
            self.scales.push(0.0);
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
        if self.row(first).is_none() || self.row(second).is_none() {
            return 0.0;
        }
        let (a, b) = (self.vector(first), self.vector(second));
        let cosine = cosine(a, self.scale(first), b, self.scale(second));
        (2.0 + 2.0 * cosine).max(0.25).sqrt()
    }

    /// Ends the row of a memory, if it has one: its text goes at once, its place later.
    fn kill(&mut self, id: MemoryId) {
        let Some(row) = self.places.remove(&id) else {
            return;
        };
        let Some(kept) = self.kept.get_mut(row as usize).and_then(Option::take) else {
            return;
        };
        self.heap -= kept.heap_bytes();
        self.vectors.row_mut(row as usize).fill(0);
        let source = kept.source();
        let turn = source.and_then(|s| turn_of(s.session.as_deref(), s.turn));
        if let Some(turn) = turn {
            self.dialogue -= 1;
            if self.turns.get(&turn) == Some(&row) {
                self.turns.remove(&turn);
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
        let terms = terms(&kept.content, Side::Document);
        if self.lexicon.remove(row, terms) {
            self.generation += 1;
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
