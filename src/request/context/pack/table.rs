//! The knapsack table: one row of best values, updated item by item, and the choices that led there.

/// A candidate as the table sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// Its position among the candidates.
    pub(super) position: usize,
    /// What it is worth; positive and finite.
    pub(super) value: f32,
    /// What it weighs, in cells; at most the capacity, or the table overlooks it.
    pub(super) cells: usize,
}

/// The choices of one entry: for the capacities from `first` on, whether taking it was strictly better.
struct Choices {
    entry: Entry,
    /// What this entry and all before it weigh together.
    prefix: usize,
    first: usize,
    /// Where its answers start in the flat list, and how many there are.
    start: usize,
    len: usize,
}

/// Positions of the most valuable set within `capacity` cells, ascending. An entry is taken only if that is strictly better, so of
/// two equally good sets the one with the higher ranks wins.
///
/// A row is computed only where it can matter: not above what the entries so far weigh together (there the answer is all of
/// them), and not below what the entries still to come could leave unused.
pub(super) fn solve(entries: &[Entry], capacity: usize) -> Vec<usize> {
    let total: usize = entries.iter().map(|entry| entry.cells).sum();
    let capacity = capacity.min(total);
    let mut best = vec![0.0_f32; capacity + 1];
    let mut updated = vec![0.0_f32; capacity + 1];
    let mut taken: Vec<bool> = Vec::with_capacity(entries.len() * (capacity + 1) / 2);
    let mut rows: Vec<Choices> = Vec::with_capacity(entries.len());
    let (mut prefix, mut prefix_value) = (0, 0.0);

    for entry in entries.iter().filter(|entry| entry.cells <= capacity) {
        let before = prefix.min(capacity);
        prefix += entry.cells;
        let last = prefix.min(capacity);
        // Beyond the old prefix everything so far fits.
        best.iter_mut()
            .take(last + 1)
            .skip(before + 1)
            .for_each(|cell| *cell = prefix_value);
        prefix_value += entry.value;

        let first = entry.cells.max(capacity.saturating_sub(total - prefix));
        let start = taken.len();
        let len = (last + 1).saturating_sub(first);
        let with = best
            .get(first - entry.cells..first - entry.cells + len)
            .unwrap_or_default();
        let without = best.get(first..first + len).unwrap_or_default();
        let row = updated.get_mut(..len).unwrap_or_default();
        update(row, with, without, entry.value);
        taken.extend(row.iter().zip(without).map(|(new, old)| new > old));
        if let Some(cells) = best.get_mut(first..first + len) {
            cells.copy_from_slice(row);
        }
        rows.push(Choices {
            entry: *entry,
            prefix,
            first,
            start,
            len,
        });
    }
    trace(&rows, &taken, capacity)
}

/// One row: the better of leaving the entry and taking it. Three zipped slices, so that the compiler can use wide instructions.
fn update(row: &mut [f32], with: &[f32], without: &[f32], value: f32) {
    for ((new, &with), &without) in row.iter_mut().zip(with).zip(without) {
        let taking = with + value;
        *new = if taking > without { taking } else { without };
    }
}

/// Walks back through the choices from the full capacity.
fn trace(rows: &[Choices], taken: &[bool], capacity: usize) -> Vec<usize> {
    let mut room = capacity;
    let mut chosen = Vec::new();
    for row in rows.iter().rev() {
        let answers = taken
            .get(row.start..row.start + row.len)
            .unwrap_or_default();
        let chose = room >= row.prefix
            || room
                .checked_sub(row.first)
                .and_then(|cell| answers.get(cell))
                .is_some_and(|&taken| taken);
        if chose {
            chosen.push(row.entry.position);
            room -= row.entry.cells;
        }
    }
    chosen.reverse();
    chosen
}
