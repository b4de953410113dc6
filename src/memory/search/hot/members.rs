//! The members of one partition's hot set: chosen once in a while, kept up to date with every change between.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use jiff::Timestamp;

use super::super::blocks::fit;
use super::super::columns::Row;
use super::super::kept::Kept;
use super::super::terms::{Side, Term, terms};
use crate::memory::{Label, Memory, PartitionKey};

/// Standing decays by days, so a ranking of members may be this old.
const REFRESH_SECONDS: i64 = 600;

/// A member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) row: u32,
    pub(super) standing: f32,
    pub(super) pinned: bool,
    /// Distinct, in order of appearance; none where the partition has so few that its lexicon tells the overlap at once.
    pub(super) terms: Box<[Term]>,
    /// Bytes that it owns as a memory besides its text, which it shares.
    owned: usize,
    /// What it is handed on as, since it was last asked for; members are asked for with every request.
    memory: OnceLock<Arc<Memory>>,
}

impl Member {
    /// Without terms.
    pub(super) fn new(row: u32, columns: &Row, kept: &Kept, now: Timestamp) -> Self {
        Self {
            row,
            standing: kept.merits(columns).standing(now),
            pinned: kept.pinned,
            terms: Box::default(),
            owned: kept.details_bytes(),
            memory: OnceLock::new(),
        }
    }

    /// The member as a memory, made once until its row changes.
    pub(super) fn memory(&self, columns: &Row, kept: &Kept, key: &PartitionKey) -> Arc<Memory> {
        Arc::clone(self.memory.get_or_init(|| kept.restore(columns, key)))
    }

    /// With the terms of its text, in any number.
    pub(super) fn with_terms(self, mut terms: Vec<Term>) -> Self {
        let mut seen = HashSet::with_capacity_and_hasher(terms.len(), RandomState::default());
        terms.retain(|term| seen.insert(*term));
        Self {
            terms: terms.into(),
            ..self
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

    /// A row was added; its terms are wanted unless the partition has few.
    pub(in crate::memory::search) fn added(
        &mut self,
        row: u32,
        columns: &Row,
        kept: &Kept,
        terms: Option<Vec<Term>>,
    ) {
        self.changes += 1;
        let Some(now) = self.chosen_at else { return };
        let member = Member::new(row, columns, kept, now);
        self.members
            .push(member.with_terms(terms.unwrap_or_default()));
        self.trim();
    }

    /// A row's standing has changed, its text has not.
    pub(in crate::memory::search) fn changed(
        &mut self,
        row: u32,
        columns: &Row,
        kept: &Kept,
        few: bool,
    ) {
        self.changes += 1;
        let place = self.members.iter().position(|member| member.row == row);
        let mut member = place.and_then(|place| self.members.get_mut(place));
        if let Some(member) = &mut member {
            // Also while they wait for the next choice, members serve.
            member.memory = OnceLock::new();
        }
        let Some(now) = self.chosen_at else { return };
        let fresh = Member::new(row, columns, kept, now);
        if let Some(member) = member {
            (member.standing, member.pinned) = (fresh.standing, fresh.pinned);
            member.owned = fresh.owned;
        } else if fresh.pinned || self.admits(fresh.standing) {
            let terms = match few {
                true => Vec::new(),
                false => terms(&kept.content, Side::Document),
            };
            self.members.push(fresh.with_terms(terms));
        } else {
            return;
        }
        self.trim();
    }

    /// What the members take.
    pub(in crate::memory::search) fn bytes(&self) -> usize {
        let terms: usize = self.members.iter().map(|m| m.terms.len()).sum();
        // Readers make the memories, and nothing is weighed again for them: each has its room from the beginning.
        let made = size_of::<Member>() + size_of::<Memory>() + size_of::<Label>();
        let owned: usize = self.members.iter().map(|m| m.owned).sum();
        self.members.capacity() * made + terms * size_of::<Term>() + owned
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
        fit(&mut self.members);
        self.chosen_at = Some(now);
        self.trim();
    }

    /// Keeps the pinned and the highest others.
    pub(super) fn trim(&mut self) {
        keep_best(&mut self.members, self.size);
    }
}

/// Keeps the pinned, and the `size` others that stand highest.
pub(super) fn keep_best(members: &mut Vec<Member>, size: usize) {
    members.sort_by(|a, b| {
        b.pinned
            .cmp(&a.pinned)
            .then(b.standing.total_cmp(&a.standing))
    });
    let pinned = members.iter().take_while(|m| m.pinned).count().min(size);
    members.truncate(pinned + size);
}
