//! Dead rows leave once they outnumber the living: places change, nothing is analysed again.

use super::columns::{Columns, NONE};

/// Fewer dead rows than this are never worth it.
const LEAST_DEAD: usize = 64;

impl Columns {
    pub(super) fn compact_when_worth_it(&mut self) {
        let dead = self.rows.len() - self.live;
        if dead > LEAST_DEAD && dead > self.live {
            self.compact();
        }
    }

    /// Drops dead rows, keeping the order of the living. Nothing is analysed again.
    fn compact(&mut self) {
        let mut moved = vec![NONE; self.rows.len()];
        let mut at = 0u32;
        for (slot, memory) in moved.iter_mut().zip(&self.memories) {
            if memory.is_some() {
                *slot = at;
                at += 1;
            }
        }
        let place = |row: u32| moved.get(row as usize).copied().unwrap_or(NONE);
        self.compact_vectors();
        let mut alive = self.memories.iter().map(Option::is_some);
        self.rows.retain(|_| alive.next().unwrap_or(false));
        self.memories.retain(Option::is_some);
        for row in &mut self.rows {
            (row.previous, row.next) = (place(row.previous), place(row.next));
        }
        self.postings.retain(|_, postings| {
            postings.list.retain_mut(|posting| {
                posting.row = place(posting.row);
                posting.row != NONE
            });
            postings.list.shrink_to_fit();
            !postings.list.is_empty()
        });
        self.known
            .values_mut()
            .for_each(|known| known.row = place(known.row));
        self.turns.values_mut().for_each(|row| *row = place(*row));
        self.hot.stale();
        self.generation += 1;
    }

    fn compact_vectors(&mut self) {
        if self.dimensions == 0 {
            return;
        }
        let rows = self
            .vectors
            .chunks_exact(self.dimensions)
            .zip(&self.memories);
        self.vectors = rows
            .filter(|(_, memory)| memory.is_some())
            .flat_map(|(bytes, _)| bytes)
            .copied()
            .collect();
    }
}
