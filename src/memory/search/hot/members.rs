//! The members of one partition's hot set: chosen once in a while, kept up to date with every change between.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use jiff::Timestamp;

use super::super::standing;
use super::super::terms::{Side, Term, terms};
use crate::memory::Memory;

/// Standing decays by days, so a ranking of members may be this old.
const REFRESH_SECONDS: i64 = 600;

/// A member, with its terms for the overlap.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) row: u32,
    pub(super) standing: f32,
    pub(super) pinned: bool,
    /// Distinct, in order of appearance.
    pub(super) terms: Box<[Term]>,
}

impl Member {
    pub(super) fn new(row: u32, memory: &Memory, mut terms: Vec<Term>, now: Timestamp) -> Self {
        let mut seen = HashSet::with_capacity_and_hasher(terms.len(), RandomState::default());
        terms.retain(|term| seen.insert(*term));
        Self {
            row,
            standing: standing::standing(memory, now),
            pinned: memory.pinned,
            terms: terms.into(),
        }
    }
}

/// The members of one partition: unknown until first asked for, then kept up to date with every change.
#[derive(Debug, Default)]
pub(in crate::memory::search) struct HotMembers {
    pub(super) size: usize,
    pub(super) members: Vec<Member>,
    pub(super) chosen_at: Option<Timestamp>,
    /// Counts changes, so that a choice made outside the lock notices that it is outdated.
    pub(super) changes: u64,
    /// A choice is being made in the background.
    pub(super) choosing: bool,
}

impl HotMembers {
    /// Room for `size` members; pinned ones come on top, up to as many again.
    pub(in crate::memory::search) fn new(size: usize) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// A row was added.
    pub(in crate::memory::search) fn added(&mut self, row: u32, memory: &Memory, terms: Vec<Term>) {
        self.changes += 1;
        let Some(now) = self.chosen_at else { return };
        self.members.push(Member::new(row, memory, terms, now));
        self.trim();
    }

    /// A row's standing has changed, its text has not.
    pub(in crate::memory::search) fn changed(&mut self, row: u32, memory: &Memory) {
        self.changes += 1;
        let Some(now) = self.chosen_at else { return };
        let standing = standing::standing(memory, now);
        if let Some(member) = self.members.iter_mut().find(|member| member.row == row) {
            (member.standing, member.pinned) = (standing, memory.pinned);
        } else if memory.pinned || self.admits(standing) {
            let terms = terms(&memory.content, Side::Document);
            self.members.push(Member::new(row, memory, terms, now));
        } else {
            return;
        }
        self.trim();
    }

    /// Whether a memory that is not pinned would be a member.
    pub(super) fn admits(&self, standing: f32) -> bool {
        let others = || self.members.iter().filter(|member| !member.pinned);
        others().count() < self.size || others().any(|member| member.standing < standing)
    }

    /// A row is gone. Its place stays empty until the next choice, unless many are.
    pub(in crate::memory::search) fn removed(&mut self, row: u32) {
        self.changes += 1;
        let before = self.members.len();
        self.members.retain(|member| member.row != row);
        if self.members.len() < before && self.members.len() * 2 < self.size {
            self.chosen_at = None;
        }
    }

    /// Rows have moved: the members must be chosen again.
    pub(in crate::memory::search) fn stale(&mut self) {
        self.changes += 1;
        self.chosen_at = None;
        self.members.clear();
    }

    /// Whether a choice in the background is needed, and noted as begun.
    pub(super) fn begin_choosing(&mut self, now: Timestamp) -> bool {
        let begin = !self.choosing && !self.is_fresh(now);
        self.choosing |= begin;
        begin
    }

    pub(super) fn is_fresh(&self, now: Timestamp) -> bool {
        self.chosen_at
            .is_some_and(|at| (now.as_second() - at.as_second()).abs() < REFRESH_SECONDS)
    }

    pub(super) fn install(&mut self, members: Vec<Member>, now: Timestamp) {
        self.members = members;
        self.chosen_at = Some(now);
        self.trim();
    }

    /// Keeps the pinned and the highest others.
    pub(super) fn trim(&mut self) {
        self.members.sort_by(|a, b| {
            b.pinned
                .cmp(&a.pinned)
                .then(b.standing.total_cmp(&a.standing))
        });
        let pinned = self
            .members
            .iter()
            .take_while(|member| member.pinned)
            .count()
            .min(self.size);
        self.members.truncate(pinned + self.size);
    }
}
