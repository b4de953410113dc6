//! A growing column in pieces of one size. Growth never moves what is there: a column of a million rows is hundreds of megabytes, and
//! whoever copies them under the lock makes every request wait.

use super::partition::CHUNK_ROWS;

/// Rows of `width` values each, in blocks of [`CHUNK_ROWS`] rows.
#[derive(Debug)]
pub(super) struct Blocks<T> {
    /// Values of a row.
    width: usize,
    rows: usize,
    /// All but the last are full.
    blocks: Vec<Vec<T>>,
    /// Room for values in all but the last.
    full: usize,
}

impl<T> Blocks<T> {
    /// No rows of `width` values.
    pub(super) const fn new(width: usize) -> Self {
        Self {
            width,
            rows: 0,
            blocks: Vec::new(),
            full: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.rows
    }

    pub(super) const fn width(&self) -> usize {
        self.width
    }

    /// The values of the rows from `start` to the end of its block: what a chunk of work reads.
    pub(super) fn block_from(&self, start: usize) -> &[T] {
        let block = self.blocks.get(start / CHUNK_ROWS);
        block
            .and_then(|block| block.get(start % CHUNK_ROWS * self.width..))
            .unwrap_or_default()
    }

    /// The values of one row; none of a row that does not exist.
    pub(super) fn row(&self, row: usize) -> &[T] {
        let start = row % CHUNK_ROWS * self.width;
        let block = self.blocks.get(row / CHUNK_ROWS);
        block
            .and_then(|block| block.get(start..start + self.width))
            .unwrap_or_default()
    }

    pub(super) fn row_mut(&mut self, row: usize) -> &mut [T] {
        let start = row % CHUNK_ROWS * self.width;
        let block = self.blocks.get_mut(row / CHUNK_ROWS);
        block
            .and_then(|block| block.get_mut(start..start + self.width))
            .unwrap_or_default()
    }

    /// Appends a row; `values` are as many as the width.
    pub(super) fn push_row(&mut self, values: impl IntoIterator<Item = T>) {
        if self.rows.is_multiple_of(CHUNK_ROWS) {
            // A partition that has filled a block will fill another; a small one grows as it must.
            let room = match self.blocks.last_mut() {
                Some(last) => {
                    last.shrink_to_fit();
                    self.full += last.capacity();
                    CHUNK_ROWS * self.width
                }
                None => 0,
            };
            self.blocks.push(Vec::with_capacity(room));
        }
        if let Some(last) = self.blocks.last_mut() {
            last.extend(values.into_iter().take(self.width));
        }
        self.rows += 1;
    }

    /// Gives back what the last block has reserved in vain.
    pub(super) fn shrink(&mut self) {
        fit(&mut self.blocks);
        if let Some(last) = self.blocks.last_mut() {
            fit(last);
        }
    }

    /// What the blocks take, without what their values own elsewhere.
    pub(super) fn bytes(&self) -> usize {
        let values = self.full + self.blocks.last().map_or(0, Vec::capacity);
        values * size_of::<T>() + self.blocks.capacity() * size_of::<Vec<T>>()
    }
}

/// Columns of one value a row.
impl<T> Blocks<T> {
    pub(super) fn get(&self, row: usize) -> Option<&T> {
        self.blocks.get(row / CHUNK_ROWS)?.get(row % CHUNK_ROWS)
    }

    pub(super) fn get_mut(&mut self, row: usize) -> Option<&mut T> {
        self.blocks
            .get_mut(row / CHUNK_ROWS)?
            .get_mut(row % CHUNK_ROWS)
    }

    pub(super) fn push(&mut self, value: T) {
        self.push_row([value]);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flatten()
    }

    pub(super) fn into_values(self) -> impl Iterator<Item = T> {
        self.blocks.into_iter().flatten()
    }
}

/// Moves the values to where they just fit. Allocators shrink in place until half of the room is empty, which for small partitions is a
/// third of all there is.
pub(super) fn fit<T>(values: &mut Vec<T>) {
    if values.capacity() > values.len() {
        let mut fitting = Vec::with_capacity(values.len());
        fitting.append(values);
        *values = fitting;
    }
}

impl<T> Default for Blocks<T> {
    /// A column of one value a row.
    fn default() -> Self {
        Self::new(1)
    }
}
