//! A hash table that grows a part at a time: doubling a table of a million entries takes long enough to be felt by every request that
//! waits for the lock.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;

/// Entries from which a table is split.
const SPLIT: usize = 1 << 16;
/// Parts of a split table.
const SHARDS: usize = 64;

/// A map of one part, or of [`SHARDS`] once it is large; an empty one takes nothing.
#[derive(Debug)]
pub(super) struct Sharded<K, V> {
    state: RandomState,
    shards: Vec<HashMap<K, V, RandomState>>,
}

impl<K, V> Default for Sharded<K, V> {
    fn default() -> Self {
        Self {
            state: RandomState::default(),
            shards: Vec::new(),
        }
    }
}

impl<K: Hash + Eq, V> Sharded<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.shards.get(self.shard(key))?.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let shard = self.shard(key);
        self.shards.get_mut(shard)?.get_mut(key)
    }

    /// Inserts, and returns what was there.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.make_room();
        let shard = self.shard(&key);
        self.shards.get_mut(shard)?.insert(key, value)
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let shard = self.shard(key);
        self.shards.get_mut(shard)?.remove(key)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.shards.iter_mut().flat_map(HashMap::values_mut)
    }

    /// Keeps the entries for which `keep` holds.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        for shard in &mut self.shards {
            shard.retain(|key, value| keep(key, value));
            shard.shrink_to_fit();
        }
    }

    /// Gives back what was reserved in vain.
    pub(super) fn shrink(&mut self) {
        self.shards.iter_mut().for_each(HashMap::shrink_to_fit);
    }

    /// What the tables take, without what their values own elsewhere.
    pub(super) fn bytes(&self) -> usize {
        let tables = self.shards.iter().map(|shard| {
            let buckets = match shard.capacity() {
                0 => return 0,
                1..4 => 4,
                4..8 => 8,
                capacity => (capacity * 8 / 7).next_power_of_two(),
            };
            // One byte of each bucket tells whether it is taken; sixteen are read at once.
            buckets * (size_of::<(K, V)>() + 1) + 16
        });
        tables.sum::<usize>() + self.shards.capacity() * size_of::<HashMap<K, V, RandomState>>()
    }

    /// The tables look at the highest and the lowest bits of the same hash.
    fn shard(&self, key: &K) -> usize {
        if self.shards.len() < 2 {
            return 0;
        }
        let [.., middle, _, _, _] = self.state.hash_one(key).to_le_bytes();
        usize::from(middle) % self.shards.len()
    }

    fn make_room(&mut self) {
        match self.shards.as_slice() {
            [] => self.shards = vec![HashMap::with_hasher(self.state.clone())],
            [only] if only.len() >= SPLIT => {
                let whole = std::mem::take(&mut self.shards);
                let part = || HashMap::with_capacity_and_hasher(SPLIT / SHARDS, self.state.clone());
                self.shards = (0..SHARDS).map(|_| part()).collect();
                for (key, value) in whole.into_iter().flatten() {
                    let shard = self.shard(&key);
                    if let Some(shard) = self.shards.get_mut(shard) {
                        shard.insert(key, value);
                    }
                }
            }
            _ => {}
        }
    }
}
