//! What follows a table of rounded lengths: drop what is too much, use what is left, exchange what pays.

use super::Item;

/// The most exchanges in one packing: far more than a rounding error leaves to gain, and a bound on the time.
const MAX_SWAPS: usize = 16;

/// A set that fits.
pub(super) struct Improved {
    /// What it is worth.
    pub(super) value: f32,
    /// Its positions, ascending.
    pub(super) chosen: Vec<usize>,
}

/// Makes a set fit, uses the room that is left and exchanges what pays.
pub(super) fn improve(items: &[Item], capacity: u32, start: &[usize]) -> Improved {
    let mut selection = Selection::new(items, capacity, start);
    selection.repair();
    selection.refill();
    selection.swap();
    let value = selection.members(true).map(|(_, item)| item.worth()).sum();
    Improved {
        value,
        chosen: selection
            .members(true)
            .map(|(position, _)| position)
            .collect(),
    }
}

/// Fills the capacity by value per token: the best answer where items are short against a table's cell.
pub(super) fn by_density(items: &[Item], capacity: u32) -> Vec<usize> {
    let mut order: Vec<(usize, &Item)> = items
        .iter()
        .enumerate()
        .filter(|(_, item)| item.worth() > 0.0)
        .collect();
    order.sort_by(|a, b| density(b.1).total_cmp(&density(a.1)));
    let mut room = capacity;
    order.retain(|(_, item)| {
        room.checked_sub(item.tokens)
            .inspect(|&left| room = left)
            .is_some()
    });
    order.into_iter().map(|(position, _)| position).collect()
}

/// The most valuable item that fits alone; of equals the highest rank.
pub(super) fn best_single(items: &[Item], capacity: u32) -> Vec<usize> {
    let fitting = items
        .iter()
        .enumerate()
        .filter(|(_, item)| item.tokens <= capacity);
    let best = fitting.reduce(|best, other| {
        if other.1.worth() > best.1.worth() {
            other
        } else {
            best
        }
    });
    best.map(|(position, _)| position).into_iter().collect()
}

/// Value per token; without bound for what costs nothing.
fn density(item: &Item) -> f32 {
    item.worth() / item.tokens as f32
}

/// A set of candidates under change.
struct Selection<'a> {
    items: &'a [Item],
    taken: Vec<bool>,
    capacity: u64,
    tokens: u64,
}

impl<'a> Selection<'a> {
    /// Starts from `chosen`, which may be too heavy.
    fn new(items: &'a [Item], capacity: u32, chosen: &[usize]) -> Self {
        let mut selection = Self {
            items,
            taken: vec![false; items.len()],
            capacity: u64::from(capacity),
            tokens: 0,
        };
        for &position in chosen {
            selection.set(position, true);
        }
        selection
    }

    /// Drops items until the rest fits. If one item alone is heavy enough, the cheapest such; else the one that gives least value
    /// for its tokens. Of equals the lowest rank goes.
    fn repair(&mut self) {
        while let Some(excess) = self
            .tokens
            .checked_sub(self.capacity)
            .filter(|&excess| excess > 0)
        {
            let enough = self
                .members(true)
                .filter(|(_, item)| u64::from(item.tokens) >= excess);
            let single =
                enough.min_by(|a, b| a.1.worth().total_cmp(&b.1.worth()).then(b.0.cmp(&a.0)));
            let weakest = || {
                let heavy = self.members(true).filter(|(_, item)| item.tokens > 0);
                heavy.min_by(|a, b| density(a.1).total_cmp(&density(b.1)).then(b.0.cmp(&a.0)))
            };
            let Some((position, _)) = single.or_else(weakest) else {
                return;
            };
            self.set(position, false);
        }
    }

    /// Adds what still fits, in rank order.
    fn refill(&mut self) {
        for (position, item) in self.items.iter().enumerate() {
            let is_out = self.taken.get(position) == Some(&false);
            if is_out && item.worth() > 0.0 && self.tokens + u64::from(item.tokens) <= self.capacity
            {
                self.set(position, true);
            }
        }
    }

    /// Exchanges one item for another as long as that gains value, the best exchange first, refilling after each.
    fn swap(&mut self) {
        for _ in 0..MAX_SWAPS {
            let Some((out, back_in)) = self.best_swap() else {
                return;
            };
            self.set(out, false);
            self.set(back_in, true);
            self.refill();
        }
    }

    fn best_swap(&self) -> Option<(usize, usize)> {
        let mut best = (0.0, None);
        for (out, leaving) in self.members(true) {
            let room = self.capacity.saturating_sub(self.tokens) + u64::from(leaving.tokens);
            for (candidate, coming) in self.members(false) {
                let gain = coming.worth() - leaving.worth();
                if gain > best.0 && u64::from(coming.tokens) <= room {
                    best = (gain, Some((out, candidate)));
                }
            }
        }
        best.1
    }

    fn members(&self, taken: bool) -> impl Iterator<Item = (usize, &'a Item)> {
        let states = self.items.iter().zip(&self.taken).enumerate();
        states
            .filter(move |(_, (_, state))| **state == taken)
            .map(|(position, (item, _))| (position, item))
    }

    fn set(&mut self, position: usize, state: bool) {
        let (Some(item), Some(slot)) = (self.items.get(position), self.taken.get_mut(position))
        else {
            return;
        };
        if *slot != state {
            *slot = state;
            let tokens = u64::from(item.tokens);
            self.tokens = if state {
                self.tokens + tokens
            } else {
                self.tokens - tokens
            };
        }
    }
}
