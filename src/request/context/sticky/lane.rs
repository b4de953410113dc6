//! The lane's standing: what is frozen for this session and model, from the cache, else from the store.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::restore::{Restore, Restored};
use super::{Unknown, Work};
use crate::app::App;
use crate::auth::Scope;
use crate::session::{Block, LaneKey, Opening, is_derived};
use crate::store::shared::{Held, Known};

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
        blocks: impl Iterator<Item = &'b Arc<Block>>,
    ) -> bool {
        are_own(self.subject.who.scope(), opening, blocks)
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
        let lost = match self.restored().await? {
            Restored::Held(held) => return Ok(Standing::open(held)),
            Restored::Lost(epoch) => epoch,
        };
        Ok(Standing {
            held: held.unwrap_or_else(|| self.nothing()),
            lost,
            first: self.first_epoch(lost),
        })
    }

    /// What the store has of the lane.
    async fn restored(&self) -> Result<Restored, Unknown> {
        let restore = Restore::of(self);
        let mut running = Box::pin(async move { restore.run().await });
        // A store of this process says at once that a session is new, as most are that the cache does not know: that needs no task.
        if let Some(found) = (&mut running).now_or_never() {
            return found;
        }
        let (told, found) = oneshot::channel();
        // It goes on beyond the wall: the next turn then finds the lane, with nothing for the turn that did not wait.
        self.app.tasks.spawn(async move {
            told.send(running.await).ok();
        });
        let found = timeout_at(self.deadline.wall, found)
            .await
            .map_err(|_| Unknown("session=timeout"))?;
        found.unwrap_or(Err(Unknown("session=error")))
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

    /// Tells of a new epoch: event, metric, record.
    pub(super) fn rotated(&self, opening: &Opening, drops_blocks: bool) {
        rotated(self.app, &self.key, opening, drops_blocks);
    }
}

/// Whether all of this was frozen for a scope.
pub(super) fn are_own<'b>(
    scope: &Scope,
    opening: Option<&Opening>,
    mut blocks: impl Iterator<Item = &'b Arc<Block>>,
) -> bool {
    let opening = opening.is_none_or(|o| o.owner.belongs_to(scope));
    let own = opening && blocks.all(|b| b.owner().belongs_to(scope));
    if !own {
        tracing::error!(
            "frozen text of another scope was found under this session's key; it is not used"
        );
    }
    own
}

/// Tells of a new epoch of a lane.
pub(super) fn rotated(app: &App, key: &LaneKey, opening: &Opening, drops_blocks: bool) {
    super::frozen::announce(app, opening);
    let at = app.clock.now();
    app.sessions.records.opened(key, opening, drops_blocks, at);
}
