//! Settling: what was composed is put if absent, and what was there before wins.

use std::sync::Arc;

use tokio::time::timeout_at;

use super::compose::{Change, Composed};
use super::lane::Standing;

use super::super::Estimate;
use super::{Frozen, Unknown, Work};

use crate::ids::MemoryId;
use crate::session::{Opening, Outcome, RotationReason, Turn, is_derived};
use crate::store::shared::{BlockFate, CacheError, Held, Known, Sent};

impl Work<'_> {
    /// Freezes what was composed; nothing when the epoch was rotated meanwhile and all has to be read again.
    pub(super) async fn settled(
        &self,
        standing: &Standing,
        mut composed: Composed,
        counted: Estimate,
    ) -> Result<Option<Frozen>, Unknown> {
        let (mut checked, mut recorded) = (standing.held.checked, false);
        if self.keep {
            let Some(kept) = self.kept(standing, &mut composed).await? else {
                return Ok(None);
            };
            (checked, recorded) = kept;
        }
        let Composed {
            opening,
            change,
            turns,
            used,
            texts,
            known,
            plan,
        } = composed;
        let held = &standing.held.turns;
        let trimmed = held.iter().any(|k| matches!(k, Known::Anchor(_)));
        // Of a turn that was settled by somebody else, what counts is what that one recalled.
        let settled = turns.last().and_then(|(_, outcome)| outcome.block());
        let recalled: Vec<MemoryId> = settled.map(|b| b.ids().collect()).unwrap_or_default();
        let used = used
            .iter()
            .filter(|memory| recalled.contains(&memory.id))
            .map(|memory| (memory.partition.clone(), memory.id))
            .collect();
        Ok(Some(Frozen {
            key: Arc::clone(&self.key),
            opened: change == Change::Open,
            opening,
            turns,
            used,
            texts,
            plan,
            checked,
            known,
            last: standing.held.last,
            trimmed,
            recorded,
            counted: Some(counted),
            stripped: false,
        }))
    }

    /// Puts what was composed, takes over what holds instead, and tells of it. Yields the revision up to which all of it is checked, and
    /// whether the session has rows.
    async fn kept(
        &self,
        standing: &Standing,
        composed: &mut Composed,
    ) -> Result<Option<(i64, bool)>, Unknown> {
        let missing = missing(&standing.held, &composed.turns);
        let freezing = self.freeze(&composed.opening, &composed.change, &missing);
        let frozen = timeout_at(self.deadline.end, freezing)
            .await
            .map_err(|_| Unknown("session=timeout"))?;
        let (held, winners) = match frozen {
            Ok(frozen) => frozen,
            Err(CacheError::Rotated) => return Ok(None),
            Err(CacheError::Unavailable(_)) => return Err(Unknown("session=error")),
        };
        if !self.are_own(Some(&held), winners.iter().filter_map(Outcome::block)) {
            return Err(Unknown("session=error"));
        }
        if held.nonce_epoch != composed.opening.nonce_epoch {
            return Ok(None);
        }
        let won = Arc::ptr_eq(&held, &composed.opening);
        // What another request has put was not part of what this one read.
        let checked = seen_at(won, &missing, &winners).min(standing.held.checked);
        composed.opening = held;
        take(&mut composed.turns, &missing, winners);
        if won {
            self.replaced(&composed.opening, &composed.change);
        }
        let fresh = fresh(&standing.held, &composed.turns);
        let last = standing.held.last.as_ref();
        let (opening, change) = (&composed.opening, &composed.change);
        let noting = self.note(opening, change, last, &composed.turns, &fresh);
        let recorded = noting.await;
        if !won && composed.change == Change::Open {
            composed.change = Change::None;
        }
        Ok(Some((checked, recorded)))
    }

    /// Region A first, so that no block is ever settled under a nonce that nobody was told.
    async fn freeze(
        &self,
        opening: &Arc<Opening>,
        change: &Change,
        missing: &[(Turn, Outcome)],
    ) -> Result<(Arc<Opening>, Vec<Outcome>), CacheError> {
        let cache = &self.app.sessions.cache;
        let next = Arc::clone(opening);
        match change {
            Change::None | Change::Unfrozen => {}
            Change::Open => return cache.open(&self.key, next, missing.to_vec()).await,
            Change::Rotate(from, fate) => {
                let rotating = cache.rotate(&self.key, *from, Arc::clone(&next), fate.clone());
                // Another rotation came first. It may have been for another reason, and what it has done to the blocks was not read.
                if !Arc::ptr_eq(&rotating.await?, &next) {
                    return Err(CacheError::Rotated);
                }
            }
        }
        let settled = if missing.is_empty() {
            Vec::new()
        } else {
            let settling = cache.settle(&self.key, next.nonce_epoch, missing.to_vec());
            settling.await?
        };
        // Another replica may have opened in full what could only be opened degraded here.
        if *change == Change::Unfrozen && self.is_open().await? {
            return Err(CacheError::Rotated);
        }
        Ok((next, settled))
    }

    async fn is_open(&self) -> Result<bool, CacheError> {
        let cache = &self.app.sessions.cache;
        if !cache.is_shared() {
            return Ok(false);
        }
        let held = cache.read(&self.key, &[]).await?;
        Ok(held.is_some_and(|held| held.opening.is_some()))
    }

    /// Tells of an epoch that this request has put in the place of another one.
    fn replaced(&self, held: &Opening, change: &Change) {
        match change {
            Change::Open => super::frozen::announce(self.app, held),
            Change::Rotate(_, fate) => self.rotated(held, *fate == BlockFate::Drop),
            Change::None | Change::Unfrozen => {}
        }
    }

    /// What happened, for the store. `fresh` are the messages of the turns that need a row. Answers whether the session has rows.
    async fn note(
        &self,
        held: &Arc<Opening>,
        change: &Change,
        last: Option<&Sent>,
        turns: &[(Turn, Outcome)],
        fresh: &[usize],
    ) -> bool {
        let opens = *change == Change::Open;
        let unnamed = is_derived(&self.owner.id);
        let unrecorded = last.filter(|last| !last.recorded);
        // A session that was opened degraded has no row before it is opened in full. One that the client did not name has none before it
        // goes on: most such requests are single questions, and a question asked again is still one.
        let goes_on = |last: &Sent| self.chain.links().len() > last.messages;
        if held.epoch == 0 || (unnamed && (opens || unrecorded.is_some_and(|last| !goes_on(last))))
        {
            return false;
        }
        let records = &self.app.sessions.records;
        let at = self.app.clock.now();
        // Without a last request nobody knows whether there are rows: one that opened the lane has not said so yet and perhaps never will,
        // or it was brought back.
        let unknown = last.is_none();
        if !opens && !unknown && unrecorded.is_none() {
            let new = turns
                .iter()
                .filter(|(turn, _)| fresh.contains(&turn.message));
            new.for_each(|(turn, outcome)| records.settled(&self.key, turn, outcome, at));
            return true;
        }
        // Other branches of the conversation are part of it.
        let Ok(all) = self.app.sessions.cache.turns(&self.key).await else {
            return false;
        };
        let drops = matches!(
            held.reason,
            Some(RotationReason::StateLost | RotationReason::OverBudget)
        );
        records.opened(&self.key, held, drops, at);
        for (turn, outcome) in &all {
            records.settled(&self.key, turn, outcome, at);
        }
        true
    }
}

/// The turns that are not settled under their own chain yet.
fn missing(held: &Held, turns: &[(Turn, Outcome)]) -> Vec<(Turn, Outcome)> {
    let known = held.turns.iter().map(|k| matches!(k, Known::Chain(_)));
    turns
        .iter()
        .zip(known)
        .filter(|(_, known)| !known)
        .map(|(turn, _)| turn.clone())
        .collect()
}

/// The messages of the turns that need a row. A window that slides makes every turn in it a new one each time: what is known by its anchor
/// and has nothing is found again by that, and needs none unless it is asked about.
fn fresh(held: &Held, turns: &[(Turn, Outcome)]) -> Vec<usize> {
    let asked = turns.last().map(|(turn, _)| turn.message);
    let needs_row = |turn: &Turn, outcome: &Outcome, known: &Known| match known {
        Known::Chain(_) => false,
        Known::Anchor(_) => outcome.block().is_some() || asked == Some(turn.message),
        Known::No => true,
    };
    turns
        .iter()
        .zip(&held.turns)
        .filter(|((turn, outcome), known)| needs_row(turn, outcome, known))
        .map(|((turn, _), _)| turn.message)
        .collect()
}

/// The store's revision up to which what others have put in the place of what was offered is checked.
fn seen_at(opened: bool, offered: &[(Turn, Outcome)], winners: &[Outcome]) -> i64 {
    let others = offered.iter().zip(winners).filter(|((_, o), w)| o != *w);
    let blocks = others.filter_map(|(_, winner)| winner.block());
    let least = if opened { i64::MAX } else { 0 };
    blocks.map(|block| block.as_of()).fold(least, i64::min)
}

/// Puts the winners in the place of what was offered.
fn take(turns: &mut [(Turn, Outcome)], offered: &[(Turn, Outcome)], winners: Vec<Outcome>) {
    for ((turn, _), winner) in offered.iter().zip(winners) {
        if let Some((_, outcome)) = turns.iter_mut().find(|(t, _)| t.message == turn.message) {
            *outcome = winner;
        }
    }
}
