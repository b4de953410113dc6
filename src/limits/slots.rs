//! Open streams of this process, counted at every level. A slot is held by a value and given back when that value is dropped, whatever the way
//! out. Where replicas share their slots, the same value holds the lease, and the count of this process stands in for it in an outage.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use smallvec::SmallVec;
use uuid::Uuid;

use super::rates::{Figures, Level, Limited, Subject};
use super::shared::{Lease, Share};

/// A level with the identifier counted there.
type Key = (Level, Uuid);

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
        self.take_share(subject, None)
    }

    /// The same, with this replica's share of every limit.
    pub(super) fn take_share(
        &self,
        subject: &Subject,
        share: Option<Share>,
    ) -> Result<SlotHeld, Limited> {
        self.hold(subject, |limit| Some(share.map_or(limit, |s| s.of(limit))))
            .map_err(|limited| limited.local(share.is_some()))
    }

    /// Takes one slot at every level that limits streams, whatever the limit: somebody else keeps it.
    pub(super) fn count(&self, subject: &Subject) -> SlotHeld {
        self.hold(subject, |_| None).unwrap_or_else(|_| self.none())
    }

    fn none(&self) -> SlotHeld {
        SlotHeld {
            counts: Arc::clone(&self.counts),
            keys: SmallVec::new(),
            _lease: None,
        }
    }

    fn hold(
        &self,
        subject: &Subject,
        most: impl Fn(u32) -> Option<u32>,
    ) -> Result<SlotHeld, Limited> {
        let mut held = self.none();
        for level in Level::NARROW_TO_WIDE {
            let key = (level, subject.id(level));
            let Some(limit) = self.figures.streams(level, key.1) else {
                continue;
            };
            let mut count = self.counts.entry(key).or_insert(0);
            if let Some(most) = most(limit).filter(|most| *count >= *most) {
                let idle = *count == 0;
                drop(count);
                if idle {
                    self.counts.remove_if(&key, |_, n| *n == 0);
                }
                return Err(Limited::streams(level, most));
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
    keys: SmallVec<[Key; 4]>,
    /// The slot that other replicas know of.
    _lease: Option<Lease>,
}

impl SlotHeld {
    pub(super) fn with(mut self, lease: Option<Lease>) -> Self {
        self._lease = lease;
        self
    }
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
