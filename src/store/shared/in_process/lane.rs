//! One lane in memory.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::super::matching::{
    self, Candidates, MOST_CANDIDATES, MOST_TURNS, MOST_WITH_ANCHOR, SettledTurns,
};
use super::super::{BlockFate, CacheError, Held, Sent};
use crate::session::{Anchor, ChainHash, Enveloped, Opening, Outcome, Turn};

/// What an empty lane and its key weigh.
const LANE_BYTES: usize = 512;
/// What a settled turn weighs besides its block.
const TURN_BYTES: usize = 80;
/// What a memory in a block weighs besides its text.
const ITEM_BYTES: usize = 36;

#[derive(Debug)]
struct Settled {
    outcome: Outcome,
    anchor: Anchor,
    message: usize,
    /// The order of settling.
    number: u64,
}

/// What one lane has frozen.
#[derive(Debug)]
pub(super) struct LaneState {
    opening: Option<Arc<Opening>>,
    turns: HashMap<ChainHash, Settled, RandomState>,
    settled: u64,
    checked: i64,
    last: Option<Sent>,
    touched: Instant,
    /// Whether it was rendered again from the store, which has no row of some turns that got nothing.
    restored: bool,
}

impl LaneState {
    pub(super) fn new() -> Self {
        Self {
            opening: None,
            turns: HashMap::default(),
            settled: 0,
            checked: 0,
            last: None,
            touched: Instant::now(),
            restored: false,
        }
    }

    pub(super) fn touch(&mut self) {
        self.touched = Instant::now();
    }

    pub(super) fn idle_since(&self) -> Instant {
        self.touched
    }

    pub(super) fn mark_restored(&mut self) {
        self.restored = true;
    }

    pub(super) fn opening(&self) -> Option<&Arc<Opening>> {
        self.opening.as_ref()
    }

    /// What was settled after the lane was asked for its turns has not been looked at with them.
    pub(super) fn note_checked(&mut self, revision: i64, turns: usize) {
        if self.turns.len() == turns {
            self.checked = self.checked.max(revision);
        }
    }

    pub(super) fn note_sent(&mut self, sent: Sent) {
        self.last = Some(sent);
    }

    pub(super) fn held(&self, turns: &[Turn]) -> Held {
        Held {
            opening: self.opening.clone(),
            turns: matching::known(self, turns),
            checked: self.checked,
            last: self.last,
        }
    }

    pub(super) fn open(&mut self, opening: Arc<Opening>) -> Arc<Opening> {
        Arc::clone(self.opening.get_or_insert_with(|| {
            self.checked = 0;
            opening
        }))
    }

    pub(super) fn settle(
        &mut self,
        nonce_epoch: u32,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<Vec<Outcome>, CacheError> {
        let other = |o: &Arc<Opening>| o.nonce_epoch != nonce_epoch;
        if self.opening.as_ref().is_some_and(other) {
            return Err(CacheError::Rotated);
        }
        let held = turns
            .into_iter()
            .map(|(turn, outcome)| {
                let number = self.settled;
                let settled = self.turns.entry(turn.chain).or_insert_with(|| Settled {
                    outcome,
                    anchor: turn.anchor,
                    message: turn.message,
                    number,
                });
                let is_new = settled.number == number;
                self.settled += u64::from(is_new);
                // A search may have been behind the store: the lane is no better known than its newest block.
                if let (true, Some(block)) = (is_new, settled.outcome.block()) {
                    self.checked = self.checked.min(block.as_of());
                }
                settled.outcome.clone()
            })
            .collect();
        if self.turns.len() > MOST_TURNS {
            self.drop_oldest();
        }
        Ok(held)
    }

    fn drop_oldest(&mut self) {
        let mut numbers: Vec<u64> = self.turns.values().map(|s| s.number).collect();
        let middle = numbers.len() / 2;
        let (_, least, _) = numbers.select_nth_unstable(middle);
        let least = *least;
        // What has a block goes last: a conversation may be long, and other branches of it longer.
        self.turns
            .retain(|_, s| s.number >= least || s.outcome.block().is_some());
        if self.turns.len() > MOST_TURNS {
            self.turns.retain(|_, settled| settled.number >= least);
        }
    }

    pub(super) fn rotate(
        &mut self,
        from: u32,
        opening: Arc<Opening>,
        blocks: &BlockFate,
    ) -> Result<Arc<Opening>, CacheError> {
        let held = self.opening.as_ref().ok_or(CacheError::Rotated)?;
        if held.epoch != from {
            return Ok(Arc::clone(held));
        }
        self.opening = Some(Arc::clone(&opening));
        for settled in self.turns.values_mut() {
            match blocks {
                BlockFate::Keep => {}
                BlockFate::Drop => settled.outcome = Outcome::Nothing,
                BlockFate::Without(gone) => settled.outcome = settled.outcome.without(gone),
            }
        }
        Ok(opening)
    }

    pub(super) fn all(&self) -> Vec<(Turn, Outcome)> {
        let mut all: Vec<(u64, Turn, Outcome)> = self
            .turns
            .iter()
            .map(|(chain, settled)| {
                let turn = Turn {
                    message: settled.message,
                    chain: *chain,
                    anchor: settled.anchor,
                };
                (settled.number, turn, settled.outcome.clone())
            })
            .collect();
        all.sort_unstable_by_key(|(number, ..)| *number);
        all.into_iter()
            .map(|(_, turn, outcome)| (turn, outcome))
            .collect()
    }

    /// What it weighs, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let enveloped = |e: &Enveloped| {
            let (bytes, memories) = e.held();
            bytes + memories * ITEM_BYTES
        };
        let blocks: usize = self
            .turns
            .values()
            .filter_map(|s| s.outcome.block())
            .map(|b| b.recall().map_or(0, enveloped) + b.state().map_or(0, |s| s.json.len()))
            .sum();
        let opening = self.opening.as_ref().map_or(0, |o| {
            o.head.json().len() + o.line.len() + o.snapshot.as_ref().map_or(0, enveloped)
        });
        LANE_BYTES + opening + blocks + self.turns.len() * TURN_BYTES
    }
}

impl SettledTurns for LaneState {
    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    fn is_restored(&self) -> bool {
        self.restored
    }

    fn outcome(&self, chain: &ChainHash) -> Option<&Outcome> {
        self.turns.get(chain).map(|settled| &settled.outcome)
    }

    fn candidates<'l>(&'l self, turns: &[Turn], wanted: &[Turn]) -> Candidates<'l> {
        let wanted: HashSet<Anchor, RandomState> = wanted.iter().map(|t| t.anchor).collect();
        let on_chain: HashSet<ChainHash, RandomState> = turns.iter().map(|t| t.chain).collect();
        let mut found: HashMap<Anchor, Vec<(u64, &ChainHash, &Outcome)>, RandomState> =
            HashMap::default();
        for (chain, settled) in &self.turns {
            if wanted.contains(&settled.anchor) {
                let numbered = (settled.number, chain, &settled.outcome);
                found.entry(settled.anchor).or_default().push(numbered);
            }
        }
        let newest = |mut with_anchor: Vec<(u64, &ChainHash, &'l Outcome)>| {
            with_anchor.sort_unstable_by_key(|(number, ..)| Reverse(*number));
            with_anchor.truncate(MOST_WITH_ANCHOR);
            let others = with_anchor
                .iter()
                .filter(|(_, c, _)| !on_chain.contains(*c));
            let numbered = others.map(|(number, _, outcome)| (*number, *outcome));
            numbered.take(MOST_CANDIDATES).collect()
        };
        let found = found.into_iter();
        found.map(|(anchor, all)| (anchor, newest(all))).collect()
    }
}
