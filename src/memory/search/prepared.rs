//! What of a memory can be made ready before the lock is taken.

use crate::memory::{Memory, Status};

use super::kept::OPEN;
use super::space::Space;
use super::terms::{Side, Term, fold, terms};
use super::vectors::quantise;

/// A vector as bytes; its scale is 0 where there is none that can be compared.
#[derive(Debug, Default)]
pub(super) struct Levels {
    pub(super) bytes: Vec<i8>,
    pub(super) scale: f32,
}

impl Levels {
    /// A vector of another space is left out: it can be compared with nothing here.
    pub(super) fn new(memory: &Memory, space: &Space) -> Self {
        let mut levels = Self::default();
        if let Some(vector) = space.vector(memory) {
            levels.scale = quantise(&vector, &mut levels.bytes);
        }
        levels
    }
}

/// A memory made ready outside the lock.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) memory: Memory,
    pub(super) levels: Levels,
    pub(super) terms: Vec<Term>,
}

impl Prepared {
    /// Analyses the text.
    pub(super) fn new(memory: Memory, levels: Levels) -> Self {
        let terms = if memory.status == Status::Active {
            terms(&memory.content, Side::Document)
        } else {
            Vec::new()
        };
        Self {
            memory,
            levels,
            terms,
        }
    }
}

/// A memory's validity in microseconds.
pub(super) fn validity(memory: &Memory) -> (i64, i64) {
    (
        memory.valid_from.as_microsecond(),
        memory.valid_until.map_or(OPEN, |end| end.as_microsecond()),
    )
}

/// The place of a dialogue turn.
pub(super) fn turn_of(session: Option<&str>, turn: Option<u32>) -> Option<(Term, u32)> {
    Some((Term::of(session?), turn?))
}

/// The first word of the name in `Name: text`.
pub(super) fn speaker_of(content: &str) -> Option<Term> {
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
