//! Which of a lane's settled turns a request's turns are: the same answer from every cache.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::Known;
use crate::session::{Anchor, ChainHash, Outcome, Turn};

/// Settled turns that a lane keeps; beyond it the oldest half goes. A history that long has left every model's window.
pub(super) const MOST_TURNS: usize = 8_192;
/// Settled turns with one anchor that may be found by it, the newest: the same short answer is given often.
pub(super) const MOST_WITH_ANCHOR: usize = 64;
/// Of these, the ones that are looked at for one request.
pub(super) const MOST_CANDIDATES: usize = 16;

/// Settled turns by their anchors, with their numbers in the order of settling.
pub(super) type Candidates<'l> = HashMap<Anchor, Vec<(u64, &'l Outcome)>, RandomState>;

/// What matching asks of a lane.
pub(super) trait SettledTurns {
    /// Whether there are none.
    fn is_empty(&self) -> bool;

    /// Whether the lane was rendered again from the store, which has no row of some turns that got nothing.
    fn is_restored(&self) -> bool;

    /// What the turn with this chain got.
    fn outcome(&self, chain: &ChainHash) -> Option<&Outcome>;

    /// Of the newest [`MOST_WITH_ANCHOR`] settled turns with each anchor of `wanted`: those that are on none of the chains of `turns`, the
    /// newest [`MOST_CANDIDATES`] of each anchor, newest first.
    fn candidates(&self, turns: &[Turn], wanted: &[Turn]) -> Candidates<'_>;
}

/// How each of `turns`, all the turns of one request, is known in a lane.
pub(super) fn known(lane: &impl SettledTurns, turns: &[Turn]) -> Vec<Known> {
    let of_chain = |turn: &Turn| match lane.outcome(&turn.chain) {
        Some(outcome) => Known::Chain(outcome.clone()),
        None => Known::No,
    };
    let mut known: Vec<Known> = turns.iter().map(of_chain).collect();
    let hits = known.iter().filter(|k| **k != Known::No).count();
    let Some((last, earlier)) = turns.split_last() else {
        return known;
    };
    let missing = known.iter().take(earlier.len()).any(|k| *k == Known::No);
    // The last turn is mostly a new one. Only in a history whose beginning is missing can it be one that is known.
    let maybe_last = hits == 0;
    if (missing || maybe_last) && !lane.is_empty() {
        let newest = by_anchor(lane, turns, &mut known);
        let follows = newest.is_some() || earlier.is_empty();
        if maybe_last && follows {
            let found = lane.candidates(turns, &[*last]);
            let candidates = found.get(&last.anchor).into_iter().flatten();
            let mut behind = candidates.filter(|(number, _)| newest.is_none_or(|n| *number > n));
            if let (Some((_, outcome)), Some(known)) = (behind.next(), known.last_mut()) {
                *known = Known::Anchor((*outcome).clone());
            }
        }
    }
    if lane.is_restored()
        && known.last() == Some(&Known::No)
        && had_nothing(lane, turns, last)
        && let Some(known) = known.last_mut()
    {
        *known = Known::Anchor(Outcome::Nothing);
    }
    known
}

/// Whether a turn with this anchor is settled with nothing: in a restored lane it may be this very one. Taken for another one it would
/// get a block, and where it was sent before, it was sent without.
fn had_nothing(lane: &impl SettledTurns, turns: &[Turn], last: &Turn) -> bool {
    let found = lane.candidates(turns, std::slice::from_ref(last));
    let mut candidates = found.get(&last.anchor).into_iter().flatten();
    candidates.any(|(_, outcome)| **outcome == Outcome::Nothing)
}

/// Finds earlier turns by their anchors: as many of them as can be in the order in which they were settled, each settled turn once,
/// so that a short answer given twice stays two turns and costs none of the others. Answers the number of the newest one.
fn by_anchor(lane: &impl SettledTurns, turns: &[Turn], known: &mut [Known]) -> Option<u64> {
    let (_, earlier) = turns.split_last()?;
    let found = lane.candidates(turns, earlier);
    // The longest decreasing subsequence, from the tail: `ends[n]` is the pick with the greatest number that a run of n + 1 ends with.
    let mut ends: Vec<usize> = Vec::new();
    let mut picks: Vec<(usize, u64, &Outcome, Option<usize>)> = Vec::new();
    for (place, turn) in earlier.iter().enumerate().rev() {
        if known.get(place) != Some(&Known::No) {
            continue;
        }
        // The oldest first, so that no turn follows another candidate of its own.
        for (number, outcome) in found.get(&turn.anchor).into_iter().flatten().rev() {
            let at = |pick: &usize| picks.get(*pick).map_or(0, |p| p.1);
            let length = ends.partition_point(|pick| at(pick) > *number);
            let before = length.checked_sub(1).and_then(|l| ends.get(l).copied());
            picks.push((place, *number, outcome, before));
            let pick = picks.len() - 1;
            match ends.get_mut(length) {
                Some(end) => *end = pick,
                None => ends.push(pick),
            }
        }
    }
    let (mut next, mut newest) = (ends.last().copied(), None);
    while let Some((place, number, outcome, before)) = next.and_then(|pick| picks.get(pick)) {
        if let Some(known) = known.get_mut(*place) {
            *known = Known::Anchor((*outcome).clone());
        }
        newest = Some(*number);
        next = *before;
    }
    newest
}
