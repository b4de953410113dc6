//! State that replicas share: what is frozen in sessions. The in-process implementation is the embedded default.
//!
//! Everything is put if absent, and whoever comes second gets what the first one put: two requests of one session send the same bytes.

mod matching;
mod in_process;
mod replies;
pub mod redis;

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;

use crate::ids::MemoryId;
use crate::session::{ChainHash, LaneKey, Opening, Outcome, Turn};

pub use in_process::InProcess;
pub use replies::{
    COMPLETED, Claimed, Fingerprint, OwnReplies, Owner, PENDING, Replies, Reply, ReplyKey,
};

/// Why the cache has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CacheError {
    /// It cannot be reached.
    #[error("the session cache is unavailable: {0}")]
    Unavailable(String),
    /// The epoch was rotated meanwhile: what was computed belongs to the former one.
    #[error("the session's epoch was rotated meanwhile")]
    Rotated,
}

/// How a turn of a request is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// By its whole chain.
    Chain(Outcome),
    /// By its user message and the one before it: the history was trimmed.
    Anchor(Outcome),
    /// Not at all.
    No,
}

/// The last request of a lane, to hold the next one against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Its number of messages.
    pub messages: usize,
    /// The client's chain after the last of them.
    pub link: ChainHash,
    /// The client's system text and tools.
    pub client_prefix: ChainHash,
    /// Hash of what was sent.
    pub sent: ChainHash,
    /// Its epoch.
    pub epoch: u32,
    /// Whether the session has rows in the store.
    pub recorded: bool,
}

/// What a lane holds for a request.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// Region A; nothing while the session could only be opened degraded.
    pub opening: Option<Arc<Opening>>,
    /// One entry for each turn that was asked for.
    pub turns: Vec<Known>,
    /// The store's revision up to which forgotten memories have left the lane.
    pub checked: i64,
    /// The last request.
    pub last: Option<Sent>,
}

/// What a rotation does with the blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockFate {
    /// They stay.
    Keep,
    /// Their turns get nothing from now on.
    Drop,
    /// These memories leave them, and nothing else changes.
    Without(Vec<MemoryId>),
}

/// Frozen sessions. Every key carries organisation, agent and user.
#[async_trait]
pub trait SessionCache: Send + Sync + Debug {
    /// Whether other processes put things into it as well: what this one knows of its own records says nothing of theirs then.
    fn is_shared(&self) -> bool {
        false
    }

    /// Drops the copies of frozen texts that this process keeps only so that it need not fetch them: a memory was forgotten, and its text
    /// must not stay. No lane changes by it.
    fn forget_texts(&self) {}

    /// What is held for `turns`; nothing when the lane is not known.
    async fn read(&self, key: &LaneKey, turns: &[Turn]) -> Result<Option<Held>, CacheError>;

    /// Puts a whole lane that was rendered again from the store, unless one has been opened meanwhile.
    async fn restore(
        &self,
        key: &LaneKey,
        opening: Arc<Opening>,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(), CacheError>;

    /// Puts Region A if the lane has none and settles turns under it, and answers with what holds: the very same Region A when this call
    /// has put it.
    ///
    /// [`CacheError::Rotated`] when the one that holds has another nonce.
    async fn open(
        &self,
        key: &LaneKey,
        opening: Arc<Opening>,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(Arc<Opening>, Vec<Outcome>), CacheError>;

    /// Settles turns that are not settled, and answers with what holds for each. `nonce_epoch` is the one that blocks among them were
    /// rendered under. From now on the lane is not known to be checked any further than the blocks that were put.
    ///
    /// [`CacheError::Rotated`] when the lane's nonce is another one by now.
    async fn settle(
        &self,
        key: &LaneKey,
        nonce_epoch: u32,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<Vec<Outcome>, CacheError>;

    /// Replaces the Region A of epoch `from`, and answers with the one that holds: another rotation may have come first. It is the very
    /// same one when this call has put it.
    ///
    /// [`CacheError::Rotated`] when the lane has no Region A: it was lost since it was read, and one that came back without its turns would
    /// look whole.
    async fn rotate(
        &self,
        key: &LaneKey,
        from: u32,
        opening: Arc<Opening>,
        blocks: BlockFate,
    ) -> Result<Arc<Opening>, CacheError>;

    /// Every turn that the lane holds, on whatever branch, in the order of their settling. Their places are those of the requests that
    /// settled them.
    async fn turns(&self, key: &LaneKey) -> Result<Vec<(Turn, Outcome)>, CacheError>;

    /// Notes that no memory forgotten up to this revision is left in the lane, if it still has as many turns as were looked at.
    async fn checked(&self, key: &LaneKey, revision: i64, turns: usize) -> Result<(), CacheError>;

    /// Notes what was sent.
    async fn sent(&self, key: &LaneKey, sent: Sent) -> Result<(), CacheError>;
}
