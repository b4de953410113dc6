//! The lane's standing: what is frozen for this session and model, from the cache, else rendered again from the store.
//!
//! A lost cache is no loss as long as what is rendered again hashes to what was sent. Where it does not, the epoch rotates.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tokio::time::timeout_at;

use super::render::{Epoch, Pinned, Press};
use super::{Unknown, Work};
use crate::ids::MemoryId;
use crate::memory::{Memory, Status};
use crate::session::record::{LaneRecord, OpeningRecord, TurnRecord};
use crate::session::working_state::WorkingState;
use crate::session::{Block, Opening, Outcome, StateDelta, Turn};
use crate::store::StoreError;
use crate::store::shared::{BlockFate, Held, InProcess, Known, SessionCache};

/// The memories of a stored lane.
type Memories = HashMap<MemoryId, Memory, RandomState>;

/// How a lane is found.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    /// What it holds.
    pub(super) held: Held,
    /// The last epoch that was used although nothing of it can be rendered; 0 for none.
    pub(super) lost: u32,
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
        })
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
        Ok(Standing {
            held: held.ok_or(Unknown("session=error"))?,
            lost: 0,
        })
    }

    /// Renders the stored lane again, where that is possible.
    async fn restore(&self) -> Result<Stored, StoreError> {
        let store = &self.app.store;
        if !store.knows_session(&self.owner).await? {
            return Ok(Stored::Nothing);
        }
        let records = &self.app.sessions.records;
        let whole = !self.keep || records.are_whole().await;
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

    /// The lane from these memories; nothing when it is not what was sent.
    async fn rendered(
        &self,
        record: &LaneRecord,
        memories: &Memories,
        checked: i64,
    ) -> Result<Option<(Opening, Vec<(Turn, Outcome)>)>, StoreError> {
        let Some(opening) = self.opening_again(&record.opening, memories).await? else {
            return Ok(None);
        };
        let states = self.states_of(&record.turns).await?;
        let turns: Option<Vec<(Turn, Outcome)>> = record
            .turns
            .iter()
            .map(|turn| {
                let outcome = self.turn_again(turn, (memories, checked), &states)?;
                Some((place(turn), outcome))
            })
            .collect();
        Ok(turns.map(|turns| (opening, turns)))
    }

    /// Whether the stored turns are all there, as far as this request can tell. Rows are written in order, so what a crash takes is the
    /// newest: a turn behind the newest stored one, or one that was begun and is not there, may have had a block. What is missing
    /// before it was never this lane's: another model answered it, or memory was skipped.
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
        let behind = turns.iter().rev().skip(1).take_while(|turn| !known(turn));
        known(last) || (!begun && behind.count() == 0)
    }

    async fn opening_again(
        &self,
        record: &OpeningRecord,
        memories: &Memories,
    ) -> Result<Option<Opening>, StoreError> {
        let directive = match record.directive {
            Some(version) => {
                let (org, agent) = (self.owner.org, self.owner.agent);
                let found = self
                    .app
                    .store
                    .directive_version(org, agent, version)
                    .await?;
                let Some(found) = found else {
                    return Ok(None);
                };
                Some(found)
            }
            None => None,
        };
        let snapshot: Vec<&Memory> = record
            .snapshot
            .iter()
            .filter_map(|id| memories.get(id))
            .collect();
        let pinned = directive.as_ref().map(|d| Pinned {
            version: d.version,
            text: &d.content,
            hidden: false,
        });
        let epoch = Epoch {
            number: record.epoch,
            nonce: record.nonce_epoch,
            reason: record.reason,
        };
        let opening = self.press().opening(&self.owner, epoch, pinned, &snapshot);
        // Without all of its memories it cannot hash to the same; what is left is what the next epoch has.
        let whole = snapshot.len() == record.snapshot.len();
        Ok((!whole || *opening.sha256() == record.sha256).then_some(opening))
    }

    fn turn_again(
        &self,
        record: &TurnRecord,
        (memories, checked): (&Memories, i64),
        states: &HashMap<u32, WorkingState, RandomState>,
    ) -> Option<Outcome> {
        let recalled: Vec<&Memory> = record
            .memories
            .iter()
            .filter_map(|id| memories.get(id))
            .collect();
        let press = self.press();
        let recall = press.recall(&self.owner, record.nonce_epoch, &record.anchor, &recalled);
        let state: Option<StateDelta> = match record.state {
            None => None,
            Some((from, to)) => {
                let (before, after) = (states.get(&from)?, states.get(&to)?);
                press.state(&self.owner, record.nonce_epoch, (from, before), (to, after))
            }
        };
        let block = Press::block(&self.owner, record.nonce_epoch, checked, recall, state);
        let whole = recalled.len() == record.memories.len();
        match (block, record.digest) {
            (Some(block), Some(digest)) if whole && *block.digest() != digest => None,
            (Some(block), _) => Some(Outcome::Block(block)),
            (None, _) => Some(Outcome::Nothing),
        }
    }

    /// The versions of the working state that deltas lead from and to; 0 is the empty one.
    async fn states_of(
        &self,
        turns: &[TurnRecord],
    ) -> Result<HashMap<u32, WorkingState, RandomState>, StoreError> {
        let mut states = HashMap::default();
        states.insert(0, WorkingState::default());
        let wanted = turns.iter().filter_map(|t| t.state);
        for version in wanted.flat_map(|(from, to)| [from, to]) {
            if states.contains_key(&version) {
                continue;
            }
            let stored = self
                .app
                .store
                .working_state(&self.owner, Some(version))
                .await?;
            if let Some(state) = stored.and_then(|s| serde_json::from_str(&s.json).ok()) {
                states.insert(version, state);
            }
        }
        Ok(states)
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

/// Where a stored turn stands: it has no place in a request.
const fn place(record: &TurnRecord) -> Turn {
    Turn {
        message: 0,
        chain: record.chain,
        anchor: record.anchor,
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
