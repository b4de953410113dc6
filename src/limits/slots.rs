//! Open streams, counted at every level. A slot is held by a value and given back when that value is dropped, whatever the way out.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use super::rates::{Figures, Key, Level, Limited, Subject};

type Counts = DashMap<Key, u32, foldhash::fast::RandomState>;

/// The counters.
#[derive(Debug)]
pub struct Slots {
    counts: Arc<Counts>,
    figures: Figures,
}

impl Slots {
    /// Counters with the limits of the configuration.
    #[must_use]
    pub fn new(figures: Figures) -> Self {
        Self {
            counts: Arc::default(),
            figures,
        }
    }

    /// Takes one slot at every level.
    ///
    /// # Errors
    /// When one level is full; what was taken at other levels is given back.
    pub fn take(&self, subject: &Subject) -> Result<SlotHeld, Limited> {
        let mut held = SlotHeld {
            counts: Arc::clone(&self.counts),
            keys: smallvec::SmallVec::new(),
        };
        for level in Level::NARROW_TO_WIDE {
            let key = subject.key(level);
            let Some(limit) = self.figures.streams(level, key) else {
                continue;
            };
            let mut count = self.counts.entry(key).or_insert(0);
            if *count >= limit {
                let idle = *count == 0;
                drop(count);
                if idle {
                    self.counts.remove_if(&key, |_, n| *n == 0);
                }
                return Err(Limited::streams(level, limit));
            }
            *count += 1;
            held.keys.push(key);
        }
        Ok(held)
    }

    /// Slots taken now, over all levels.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.counts.iter().map(|e| u64::from(*e.value())).sum()
    }
}

/// Slots of one stream.
#[derive(Debug)]
pub struct SlotHeld {
    counts: Arc<Counts>,
    keys: smallvec::SmallVec<[Key; 4]>,
}

impl Drop for SlotHeld {
    fn drop(&mut self) {
        for key in &self.keys {
            if let Entry::Occupied(mut entry) = self.counts.entry(*key) {
                *entry.get_mut() -= 1;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
    }
}
