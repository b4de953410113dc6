//! Values that this process has put or read, by their names. A name follows from the content, so what is here is never out of date; which
//! names a lane holds is asked of Redis each time. It spares Redis and the network the text, and this process reading it again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use super::codec::{Codec, Name};
use crate::config::SessionConfig;
use crate::session::{Block, Enveloped, Opening};

/// What an entry weighs besides its text.
const ENTRY: usize = 512;

/// A value under the lane that it belongs to: a name that stands in another lane leads to nothing.
type Key = (Name, Name);

#[derive(Clone)]
enum Value {
    Opening(Arc<Opening>),
    Block(Arc<Block>),
}

/// Bounded in bytes; what nobody asks for goes after the time that a lane may be idle.
pub(super) struct Seen(Cache<Key, Value, RandomState>);

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen").finish_non_exhaustive()
    }
}

impl Seen {
    pub(super) fn new(settings: &SessionConfig) -> Self {
        let cache = Cache::builder()
            .max_capacity(settings.max_bytes)
            .weigher(|_, value: &Value| u32::try_from(value.bytes()).unwrap_or(u32::MAX))
            .time_to_idle(Duration::from_secs(settings.idle_s))
            .eviction_policy(EvictionPolicy::lru())
            .build_with_hasher(RandomState::default());
        Self(cache)
    }

    pub(super) fn forget(&self) {
        self.0.invalidate_all();
    }

    pub(super) fn opening(&self, codec: &Codec, name: &Name) -> Option<Arc<Opening>> {
        match self.0.get(&(codec.lane(), *name))? {
            Value::Opening(opening) => Some(opening),
            Value::Block(_) => None,
        }
    }

    pub(super) fn block(&self, codec: &Codec, name: &Name) -> Option<Arc<Block>> {
        match self.0.get(&(codec.lane(), *name))? {
            Value::Block(block) => Some(block),
            Value::Opening(_) => None,
        }
    }

    pub(super) fn keep_opening(&self, codec: &Codec, name: Name, opening: &Arc<Opening>) {
        let value = Value::Opening(Arc::clone(opening));
        self.0.insert((codec.lane(), name), value);
    }

    pub(super) fn keep_block(&self, codec: &Codec, name: Name, block: &Arc<Block>) {
        let value = Value::Block(Arc::clone(block));
        self.0.insert((codec.lane(), name), value);
    }
}

impl Value {
    fn bytes(&self) -> usize {
        let enveloped = |e: &Enveloped| e.elements().len();
        let text = match self {
            Self::Opening(opening) => {
                let snapshot = opening.snapshot.as_ref().map_or(0, enveloped);
                opening.head.json().len() + opening.line.len() + snapshot
            }
            Self::Block(block) => {
                let state = block.state().map_or(0, |state| state.json.len());
                block.recall().map_or(0, enveloped) + state
            }
        };
        text + ENTRY
    }
}
