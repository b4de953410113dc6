//! Dead rows leave once they outnumber the living: places change, nothing is analysed again.

use super::blocks::Blocks;
use super::columns::{Columns, NONE, Row};

/// Fewer dead rows than this are never worth it.
const LEAST_DEAD: usize = 64;

impl Columns {
    /// Whether the dead outnumber the living.
    pub(super) fn is_mostly_dead(&self) -> bool {
        let dead = self.rows.len() - self.live;
        dead > LEAST_DEAD && dead > self.live
    }

    /// Drops dead rows where they are too many, keeping the order of the living. Nothing is analysed again.
    pub(super) fn compact(&mut self) {
        if !self.is_mostly_dead() {
            return;
        }
        let mut moved = vec![NONE; self.rows.len()];
        let mut at = 0u32;
        for (slot, kept) in moved.iter_mut().zip(self.kept.iter()) {
            if kept.is_some() {
                *slot = at;
                at += 1;
            }
        }
        let place = |row: u32| moved.get(row as usize).copied().unwrap_or(NONE);
        let mut vectors = Blocks::new(self.dimensions());
        let (mut rows, mut scales) = (Blocks::default(), Blocks::default());
        let all = self.rows.iter().zip(self.scales.iter());
        for (row, (columns, scale)) in all.enumerate() {
            if moved.get(row).is_none_or(|place| *place == NONE) {
                continue;
            }
            vectors.push_row(self.vectors.row(row).iter().copied());
            scales.push(*scale);
            rows.push(Row {
                previous: place(columns.previous),
                next: place(columns.next),
                ..columns.clone()
            });
        }
        let mut kept = Blocks::default();
        for living in std::mem::take(&mut self.kept).into_values().flatten() {
            kept.push(Some(living));
        }
        (self.rows, self.vectors, self.scales, self.kept) = (rows, vectors, scales, kept);
        self.lexicon
            .move_rows(|row| Some(place(row)).filter(|row| *row != NONE));
        self.places.values_mut().for_each(|row| *row = place(*row));
        self.turns.values_mut().for_each(|row| *row = place(*row));
        self.shrink();
        self.hot.stale();
        self.generation += 1;
    }
}
