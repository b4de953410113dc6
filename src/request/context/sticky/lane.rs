//! The lane's standing: what is frozen for this session and model, from the cache, else rendered again from the store.
//!
//! A lost cache is no loss as long as what is rendered again hashes to what was sent. Where it does not, the epoch rotates.

use std::sync::Arc;

use tokio::time::timeout_at;

use super::again::Memories;
use super::{Unknown, Work};
use crate::ids::MemoryId;
use crate::memory::Status;
use crate::session::record::LaneRecord;
use crate::session::{Block, Opening, Outcome, Turn, is_derived};
use crate::store::StoreError;
use crate::store::shared::{BlockFate, Held, InProcess, Known, SessionCache};

/// How a lane is found.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    /// What it holds.
    pub(super) held: Held,
    /// The last epoch that was used although nothing of it can be rendered; 0 for none.
    pub(super) lost: u32,
    /// The number of the epoch that the lane opens with, if it has to be opened.
    pub(super) first: u32,
}

impl Standing {
    /// A lane that is open.
    pub(super) const fn open(held: Held) -> Self {
        Self {
            held,
            lost: 0,
            first: 1,
        }
    }
}

/// What the store knows of a lane.
enum Stored {
    /// The session is not known, or only in other lanes.
    Nothing,
    /// The lane is known, and cannot be rendered to the same bytes; this was its last epoch.
    Lost(u32),
    /// The lane, rendered again.
    Lane(Box<Restored>),
}

/// A lane that was rendered again.
struct Restored {
    opening: Opening,
    turns: Vec<(Turn, Outcome)>,
    /// Memories that were forgotten while the lane was not in memory.
    gone: Vec<MemoryId>,
    /// The revision up to which that is known.
    checked: i64,
}

impl Work<'_> {
    /// What the cache holds; nothing when the store has to be asked.
    pub(super) async fn cached(&self) -> Result<Option<Held>, Unknown> {
        let asked = self.app.sessions.cache.read(&self.key, self.chain.turns());
        let held = timeout_at(self.deadline.wall, asked)
            .await
            .map_err(|_| Unknown("session=timeout"))?
            .map_err(|_| Unknown("session=error"))?;
        Ok(held.filter(|held| self.owns(held)))
    }

    /// The last check on everything that is read back: it must have been frozen for this very scope.
    fn owns(&self, held: &Held) -> bool {
        let blocks = held.turns.iter().filter_map(super::block_of);
        self.are_own(held.opening.as_deref(), blocks)
    }

    /// Whether all of this was frozen for the scope of this request.
    pub(super) fn are_own<'b>(
        &self,
        opening: Option<&Opening>,
        mut blocks: impl Iterator<Item = &'b Arc<Block>>,
    ) -> bool {
        let scope = self.subject.who.scope();
        let opening = opening.is_none_or(|o| o.owner.belongs_to(scope));
        let own = opening && blocks.all(|b| b.owner().belongs_to(scope));
        if !own {
            tracing::error!(
                "frozen text of another scope was found under this session's key; it is not used"
            );
        }
        own
    }

    /// A lane that holds nothing.
    fn nothing(&self) -> Held {
        Held {
            turns: vec![Known::No; self.chain.turns().len()],
            ..Held::default()
        }
    }

    /// Asks the store for a lane that is not in the cache. To be called by one request at a time.
    pub(super) async fn stored(&self, held: Option<Held>) -> Result<Standing, Unknown> {
        let found = timeout_at(self.deadline.wall, self.restore())
            .await
            .map_err(|_| Unknown("session=timeout"))?
            .map_err(|error| {
                tracing::warn!("session state: {error}");
                Unknown("session=error")
            })?;
        let lost = match found {
            Stored::Lane(restored) => return self.take_up(*restored).await,
            Stored::Lost(epoch) => epoch,
            Stored::Nothing => self.may_be_lost(),
        };
        Ok(Standing {
            held: held.unwrap_or_else(|| self.nothing()),
            lost,
            first: self.first_epoch(lost),
        })
    }

    /// The number of a lane's first epoch: one more than what was lost. A session that the client did not name leaves no row before it
    /// goes on, and another replica may not have written a session's rows yet, so a lane that is first seen in its third turn may have been
    /// seen before. It begins with 3, which no earlier request can have been told.
    fn first_epoch(&self, lost: u32) -> u32 {
        let unwritten = is_derived(&self.owner.id) || self.app.sessions.cache.is_shared();
        if lost == 0 && unwritten {
            let turns = self.chain.turns().len();
            return u32::try_from(turns).unwrap_or(u32::MAX).max(1);
        }
        lost.saturating_add(1)
    }

    /// After a crash a lane in its later turns that the store does not know may have had rows that were not written any more. Its epoch is
    /// then one that no earlier turn can have begun with.
    fn may_be_lost(&self) -> u32 {
        let turns = u32::try_from(self.chain.turns().len()).unwrap_or(u32::MAX);
        if self.keep && self.app.sessions.records.came_after_a_crash() {
            turns.saturating_sub(1)
        } else {
            0
        }
    }

    /// Puts a lane back. What was forgotten meanwhile leaves it at once, as an epoch of its own.
    async fn take_up(&self, restored: Restored) -> Result<Standing, Unknown> {
        let Restored {
            opening,
            turns,
            gone,
            checked,
        } = restored;
        // A preview freezes nothing, so it looks at a lane of its own.
        let scratch = InProcess::new(&self.app.config.session);
        let cache: &dyn SessionCache = if self.keep {
            &*self.app.sessions.cache
        } else {
            &scratch
        };
        let failed = |_| Unknown("session=error");
        let opening = Arc::new(opening);
        let count = turns.len();
        cache
            .restore(&self.key, Arc::clone(&opening), turns)
            .await
            .map_err(failed)?;
        if !gone.is_empty() {
            let next = Arc::new(opening.without(&gone));
            let fate = BlockFate::Without(gone.clone());
            let holds = cache
                .rotate(&self.key, opening.epoch, Arc::clone(&next), fate)
                .await
                .map_err(failed)?;
            if self.keep && Arc::ptr_eq(&holds, &next) {
                self.rotated(&next, false);
                self.app.sessions.records.forgotten(&self.key, gone);
            }
        }
        let noted = cache.checked(&self.key, checked, count).await;
        noted.map_err(failed)?;
        let held = cache.read(&self.key, self.chain.turns()).await;
        let held = held.map_err(failed)?.filter(|held| self.owns(held));
        Ok(Standing::open(held.ok_or(Unknown("session=error"))?))
    }

    /// Renders the stored lane again, where that is possible.
    async fn restore(&self) -> Result<Stored, StoreError> {
        let store = &self.app.store;
        if !store.knows_session(&self.owner).await? {
            return Ok(Stored::Nothing);
        }
        let records = &self.app.sessions.records;
        // What other replicas have not written, this one cannot know.
        let whole =
            !self.keep || (records.are_whole().await && !self.app.sessions.cache.is_shared());
        let Some(record) = store.session_lane(&self.key).await? else {
            return Ok(Stored::Nothing);
        };
        let partitions = self.key.session.partitions();
        // Before the memories are read: what is forgotten after that is found by the seal.
        let checked = store.forget_fence(&partitions).await?;
        let ids = all_ids(&record);
        let found = store.memories_by_id(&partitions, &ids).await?;
        let mut memories: Memories = found
            .into_iter()
            .filter(|memory| memory.status != Status::Quarantined)
            .map(|memory| (memory.id, memory))
            .collect();
        let mut rendered = self.rendered(&record, &memories, checked).await?;
        if rendered.is_none() && memories.values().any(|memory| memory.text_revision > 0) {
            // Not the same bytes, and some texts are not what they were: without those the rest may be.
            memories.retain(|_, memory| memory.text_revision == 0);
            rendered = self.rendered(&record, &memories, checked).await?;
        }
        let Some((opening, turns)) = rendered.filter(|(_, turns)| whole || self.covers(turns))
        else {
            return Ok(Stored::Lost(record.opening.epoch));
        };
        let mut gone = ids;
        gone.retain(|id| !memories.contains_key(id));
        Ok(Stored::Lane(Box::new(Restored {
            opening,
            turns,
            gone,
            checked,
        })))
    }

    /// Whether the stored turns are all there, as far as this request can tell. One process writes rows in order, so what a crash takes is the
    /// newest: a turn behind the newest stored one, or one that was begun and is not there, may have had a block. What is missing
    /// before it was never this lane's: another model answered it, or memory was skipped. Of several replicas each writes its own, so any
    /// turn that is missing may have had a block: those of other models get their rows with the first request that comes back to this one.
    fn covers(&self, stored: &[(Turn, Outcome)]) -> bool {
        let turns = self.chain.turns();
        let known = |turn: &Turn| {
            stored
                .iter()
                .any(|(t, _)| t.chain == turn.chain || t.anchor == turn.anchor)
        };
        let Some(last) = turns.last() else {
            return true;
        };
        let begun = last.message + 1 < self.chain.links().len();
        if self.app.sessions.cache.is_shared() {
            let mut earlier = turns.iter().rev().skip(1);
            return (known(last) || !begun) && earlier.all(known);
        }
        let behind = turns.iter().rev().skip(1).take_while(|turn| !known(turn));
        known(last) || (!begun && behind.count() == 0)
    }

    /// Tells of a new epoch: event, metric, record.
    pub(super) fn rotated(&self, opening: &Opening, drops_blocks: bool) {
        super::frozen::announce(self.app, opening);
        let at = self.app.clock.now();
        self.app
            .sessions
            .records
            .opened(&self.key, opening, drops_blocks, at);
    }
}

fn all_ids(record: &LaneRecord) -> Vec<MemoryId> {
    let blocks = record.turns.iter().flat_map(|t| t.memories.iter().copied());
    let mut ids: Vec<MemoryId> = record
        .opening
        .snapshot
        .iter()
        .copied()
        .chain(blocks)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
