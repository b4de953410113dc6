//! The cosine of every row: the part of a search that grows with all bytes of the vectors. A large partition is scanned by several
//! threads, because one core alone cannot fetch a million vectors within the wall.

use std::sync::LazyLock;
use std::thread;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::partition::{CHUNK_ROWS, Interrupted, Partition};
use super::vectors::QueryVector;

/// Rows from which the scan takes longer than waking another thread is worth.
const SHARED_ROWS: usize = 1 << 16;
/// More threads would wait for the memory together.
const MOST_THREADS: usize = 4;

static CORES: LazyLock<usize> =
    LazyLock::new(|| thread::available_parallelism().map_or(1, usize::from));

/// The rows that a pass looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scanned<'a> {
    pub(super) partition: &'a Partition,
    pub(super) generation: u64,
    pub(super) rows: usize,
    pub(super) deadline: Instant,
}

impl Scanned<'_> {
    /// The cosines of all rows; 0 where a row has no vector.
    pub(super) fn cosines(self, vector: &QueryVector) -> Result<Vec<f32>, Interrupted> {
        let mut cosines = vec![0.0; self.rows];
        let threads = if self.rows < SHARED_ROWS {
            1
        } else {
            MOST_THREADS.min(*CORES)
        };
        let chunks = Mutex::new(cosines.chunks_mut(CHUNK_ROWS).enumerate());
        let take = || chunks.lock().next();
        let work = || {
            while let Some((at, cosines)) = take() {
                self.chunk(vector, at * CHUNK_ROWS, cosines)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            // A thread that cannot be had is done without: whoever is there takes the next chunk.
            let helper = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
            let helpers: Vec<_> = (1..threads).filter_map(helper).collect();
            let own = work();
            let others = helpers.into_iter().map(|helper| helper.join());
            // A chunk of a thread that was lost is missing.
            let lost = |_| Err(Interrupted::Deadline);
            others.fold(own, |all, other| all.and(other.unwrap_or_else(lost)))
        })?;
        Ok(cosines)
    }

    fn chunk(
        self,
        vector: &QueryVector,
        start: usize,
        cosines: &mut [f32],
    ) -> Result<(), Interrupted> {
        let range = start..start + cosines.len();
        self.partition
            .chunk(self.generation, range, self.deadline, |columns, range| {
                let bytes = columns.vectors.block_from(start);
                let bytes = bytes.get(..range.len() * vector.dimensions());
                vector.scan(bytes.unwrap_or_default(), cosines);
                let scales = columns.scales.block_from(start);
                for (cosine, scale) in cosines.iter_mut().zip(scales) {
                    *cosine *= scale;
                }
            })
    }
}
