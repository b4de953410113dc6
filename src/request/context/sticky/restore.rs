//! A lane rendered again from the store.
//!
//! A lost cache is no loss as long as what is rendered again hashes to what was sent. Where it does not, the epoch rotates.

use std::sync::Arc;

use super::again::Memories;
use super::lane::{are_own, rotated};
use super::render::Press;
use super::{Unknown, Work};
use crate::app::{App, Rules};
use crate::auth::Scope;
use crate::ids::MemoryId;
use crate::memory::Status;
use crate::session::record::LaneRecord;
use crate::session::{Chain, LaneKey, Opening, Outcome, SessionKey, Turn};
use crate::store::StoreError;
use crate::store::shared::{BlockFate, Held, InProcess, SessionCache};
use crate::tokens::Family;

/// What became of a lane that was not in the cache.
pub(super) enum Restored {
    /// It is there again.
    Held(Held),
    /// It is new, or cannot be rendered; this was its last epoch, 0 for none.
    Lost(u32),
}

/// What the store knows of a lane.
enum Stored {
    /// The session is not known, or only in other lanes.
    Nothing,
    /// The lane is known, and cannot be rendered to the same bytes; this was its last epoch.
    Lost(u32),
    /// The lane, rendered again.
    Lane(Box<Again>),
}

/// A lane that was rendered again.
struct Again {
    opening: Opening,
    turns: Vec<(Turn, Outcome)>,
    /// Memories that were forgotten while the lane was not in memory.
    gone: Vec<MemoryId>,
    /// The revision up to which that is known.
    checked: i64,
}

/// The work on one lane. It outlives the request that began it.
pub(super) struct Restore {
    pub(super) app: App,
    rules: Arc<Rules>,
    pub(super) owner: Arc<SessionKey>,
    key: Arc<LaneKey>,
    chain: Chain,
    scope: Scope,
    family: Family,
    /// Whether what is found is put back; for a preview it is not.
    keep: bool,
}

impl Restore {
    pub(super) fn of(work: &Work<'_>) -> Self {
        Self {
            app: work.app.clone(),
            rules: Arc::clone(&work.rules),
            owner: Arc::clone(&work.owner),
            key: Arc::clone(&work.key),
            chain: work.chain.clone(),
            scope: work.subject.who.scope().clone(),
            family: work.subject.profile.family,
            keep: work.keep,
        }
    }

    pub(super) fn press(&self) -> Press<'_> {
        Press {
            settings: &self.app.config.context,
            rules: &self.rules,
            secret: &self.app.sessions.secret,
            counter: &self.app.counter,
            renderings: &self.app.sessions.renderings,
            family: self.family,
        }
    }

    pub(super) async fn run(&self) -> Result<Restored, Unknown> {
        let found = self.stored().await.map_err(|error| {
            tracing::warn!("session state: {error}");
            Unknown("session=error")
        })?;
        Ok(match found {
            Stored::Lane(again) => Restored::Held(self.take_up(*again).await?),
            Stored::Lost(epoch) => Restored::Lost(epoch),
            Stored::Nothing => Restored::Lost(self.may_be_lost()),
        })
    }

    /// The last check on everything that is read back: it must have been frozen for this very scope.
    fn owns(&self, held: &Held) -> bool {
        let blocks = held.turns.iter().filter_map(super::block_of);
        are_own(&self.scope, held.opening.as_deref(), blocks)
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
    async fn take_up(&self, again: Again) -> Result<Held, Unknown> {
        let Again {
            opening,
            turns,
            gone,
            checked,
        } = again;
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
                rotated(&self.app, &self.key, &next, false);
                self.app.sessions.records.forgotten(&self.key, gone);
            }
        }
        let noted = cache.checked(&self.key, checked, count).await;
        noted.map_err(failed)?;
        let held = cache.read(&self.key, self.chain.turns()).await;
        let held = held.map_err(failed)?.filter(|held| self.owns(held));
        held.ok_or(Unknown("session=error"))
    }

    /// Renders the stored lane again, where that is possible.
    async fn stored(&self) -> Result<Stored, StoreError> {
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
        Ok(Stored::Lane(Box::new(Again {
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
