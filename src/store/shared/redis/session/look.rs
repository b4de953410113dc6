//! What a lane's hash says: numbers, hashes, and the names of its values. Nothing is taken that is not whole.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;

use super::codec::{self, LAYOUT, Name};
use crate::session::{Anchor, Block, ChainHash, Opening, Outcome, Turn};
use crate::store::shared::matching::{self, Candidates, MOST_CANDIDATES, SettledTurns};
use crate::store::shared::{Held, Sent};

/// Bytes of a turn before the name of its block; of an entry of an anchor, and of it before the name.
const HEAD: usize = 28;
const ENTRY: usize = 40;

/// The fields of a lane that every look asks for.
const META: [&[u8]; 7] = [b"v", b"u", b"o", b"k", b"l", b"r", b"c"];

/// Why a lane cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// A newer program wrote it.
    Newer,
    /// It is not what this lane's key should hold.
    Damaged,
}

/// Whose call made a lane: tells it from another one that was made later under the same name.
pub(super) type Maker = Vec<u8>;

/// Values by their names.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) opening: Option<Arc<Opening>>,
    pub(super) blocks: HashMap<Name, Arc<Block>, RandomState>,
}

impl Values {
    /// What a turn got whose block has this name.
    pub(super) fn outcome(&self, name: Option<Name>) -> Option<Outcome> {
        match name {
            None => Some(Outcome::Nothing),
            Some(name) => self.blocks.get(&name).cloned().map(Outcome::Block),
        }
    }
}

/// One settled turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Settled {
    number: u64,
    message: u32,
    anchor: Anchor,
    block: Option<Name>,
}

impl Settled {
    fn read(value: &[u8]) -> Option<Self> {
        let (head, block) = value.split_at_checked(HEAD)?;
        let (number, rest) = head.split_first_chunk()?;
        let (message, anchor) = rest.split_first_chunk()?;
        Some(Self {
            number: u64::from_be_bytes(*number),
            message: u32::from_be_bytes(*message),
            anchor: Anchor::from_bytes(anchor.try_into().ok()?),
            block: name(block)?,
        })
    }
}

/// A turn as the list of its anchor has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    number: u64,
    chain: ChainHash,
    block: Option<Name>,
}

impl Entry {
    fn read(value: &[u8]) -> Option<Self> {
        let (number, rest) = value.split_first_chunk()?;
        let (chain, block) = rest.split_first_chunk()?;
        let block: Name = block.try_into().ok()?;
        Some(Self {
            number: u64::from_be_bytes(*number),
            chain: ChainHash::from_bytes(*chain),
            block: (block != [0; 16]).then_some(block),
        })
    }
}

/// The name of a block; the inner answer is nothing for a turn that got nothing.
pub(super) fn name(bytes: &[u8]) -> Option<Option<Name>> {
    match bytes {
        [] => Some(None),
        bytes => bytes.try_into().ok().map(Some),
    }
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What a lane says of the turns of one request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) maker: Maker,
    pub(super) opening: Option<Name>,
    checked: i64,
    last: Option<Sent>,
    restored: bool,
    empty: bool,
    turns: Vec<Option<Settled>>,
    /// The settled turns with an anchor that are on none of the request's own chains, newest first.
    anchored: HashMap<Anchor, Vec<Entry>, RandomState>,
}

/// The fields to ask for: of the lane, of these turns, and of these anchors.
pub(super) fn fields(turns: &[Turn], anchors: &[Anchor]) -> Vec<Vec<u8>> {
    let meta = META.iter().map(|field| field.to_vec());
    let turns = turns
        .iter()
        .map(|t| [b"t", &t.chain.as_bytes()[..]].concat());
    let anchors = anchors.iter().map(|a| [b"a", &a.as_bytes()[..]].concat());
    meta.chain(turns).chain(anchors).collect()
}

impl Look {
    /// Reads the values of [`fields`]; nothing when there is no lane, or none that this program still reads. A lane that cannot be used
    /// comes with its maker.
    pub(super) fn read(
        values: Vec<Option<Vec<u8>>>,
        turns: &[Turn],
        anchors: &[Anchor],
    ) -> Result<Option<Self>, (Unread, Maker)> {
        let mut values = values.into_iter();
        let (layout, maker) = (values.next().flatten(), values.next().flatten());
        let maker = maker.unwrap_or_default();
        if !is_readable(layout.as_deref(), &maker)? {
            return Ok(None);
        }
        let read = Self::of(&mut values, maker.clone(), turns, anchors);
        read.map(Some).ok_or((Unread::Damaged, maker))
    }

    fn of(
        values: &mut impl Iterator<Item = Option<Vec<u8>>>,
        maker: Maker,
        turns: &[Turn],
        anchors: &[Anchor],
    ) -> Option<Self> {
        let opening = match values.next()? {
            None => None,
            Some(opening) => name(&opening)?,
        };
        let checked = number(&values.next()??)?;
        let last = match values.next()? {
            None => None,
            Some(sent) => Some(codec::read_sent(sent.into())?),
        };
        let restored = values.next()?.is_some();
        let empty = number::<u64>(&values.next()??)? == 0;
        let mut settled = Vec::with_capacity(turns.len());
        for _ in turns {
            settled.push(match values.next()? {
                None => None,
                Some(value) => Some(Settled::read(&value)?),
            });
        }
        let on_chain: HashSet<ChainHash, RandomState> = turns.iter().map(|t| t.chain).collect();
        let mut anchored = HashMap::default();
        for anchor in anchors {
            let list = values.next()?.unwrap_or_default();
            let entries: Option<Vec<Entry>> = list.chunks(ENTRY).rev().map(Entry::read).collect();
            let mut entries = entries?;
            entries.retain(|entry| !on_chain.contains(&entry.chain));
            entries.truncate(MOST_CANDIDATES);
            anchored.insert(*anchor, entries);
        }
        Some(Self {
            maker,
            opening,
            checked,
            last,
            restored,
            empty,
            turns: settled,
            anchored,
        })
    }

    /// The anchors by which turns may have to be found, as [`matching::known`] will ask for them, and which were not looked at.
    pub(super) fn wanted(&self, turns: &[Turn]) -> Vec<Anchor> {
        if self.empty {
            return Vec::new();
        }
        let none_known = self.turns.iter().all(Option::is_none);
        let mut wanted: Vec<Anchor> = Vec::new();
        for (place, (turn, settled)) in turns.iter().zip(&self.turns).enumerate() {
            let last = place + 1 == turns.len();
            if settled.is_none() && (!last || none_known || self.restored) {
                wanted.push(turn.anchor);
            }
        }
        let mut seen: HashSet<Anchor, RandomState> = self.anchored.keys().copied().collect();
        wanted.retain(|anchor| seen.insert(*anchor));
        wanted
    }

    /// The blocks that it takes to answer.
    pub(super) fn blocks(&self) -> HashSet<Name, RandomState> {
        let settled = self.turns.iter().flatten().filter_map(|turn| turn.block);
        let entries = self.anchored.values().flatten();
        settled.chain(entries.filter_map(|e| e.block)).collect()
    }

    /// The answer; nothing when a value is missing.
    pub(super) fn held(&self, turns: &[Turn], values: &Values) -> Option<Held> {
        let mut found = Found {
            empty: self.empty,
            restored: self.restored,
            outcomes: HashMap::default(),
            candidates: HashMap::default(),
        };
        for (turn, settled) in turns.iter().zip(&self.turns) {
            if let Some(settled) = settled {
                let outcome = values.outcome(settled.block)?;
                found.outcomes.insert(turn.chain, outcome);
            }
        }
        for (anchor, entries) in &self.anchored {
            let outcome = |e: &Entry| Some((e.number, values.outcome(e.block)?));
            let candidates: Option<Vec<(u64, Outcome)>> = entries.iter().map(outcome).collect();
            found.candidates.insert(*anchor, candidates?);
        }
        Some(Held {
            opening: values.opening.clone(),
            turns: matching::known(&found, turns),
            checked: self.checked,
            last: self.last,
        })
    }
}

/// Whether there is a lane that this program reads. One that an older program wrote is as good as none.
fn is_readable(layout: Option<&[u8]>, maker: &Maker) -> Result<bool, (Unread, Maker)> {
    let Some(layout) = layout else {
        return Ok(false);
    };
    match number::<u32>(layout) {
        Some(layout) if layout > LAYOUT => Err((Unread::Newer, maker.clone())),
        Some(layout) => Ok(layout == LAYOUT),
        None => Err((Unread::Damaged, maker.clone())),
    }
}

/// A lane's turns, as far as matching may ask for them.
struct Found {
    empty: bool,
    restored: bool,
    outcomes: HashMap<ChainHash, Outcome, RandomState>,
    candidates: HashMap<Anchor, Vec<(u64, Outcome)>, RandomState>,
}

impl SettledTurns for Found {
    fn is_empty(&self) -> bool {
        self.empty
    }

    fn is_restored(&self) -> bool {
        self.restored
    }

    fn outcome(&self, chain: &ChainHash) -> Option<&Outcome> {
        self.outcomes.get(chain)
    }

    /// Those on the chains of the request were left out before.
    fn candidates(&self, _turns: &[Turn], wanted: &[Turn]) -> Candidates<'_> {
        let of = |turn: &Turn| {
            let found = self.candidates.get(&turn.anchor)?;
            let found = found.iter().map(|(number, outcome)| (*number, outcome));
            Some((turn.anchor, found.collect()))
        };
        wanted.iter().filter_map(of).collect()
    }
}

/// All of a lane.
#[derive(Debug, Default)]
pub(super) struct Whole {
    pub(super) maker: Maker,
    /// How many turns were ever settled, as the lane writes it.
    pub(super) settled: Vec<u8>,
    /// The blocks, not read yet.
    pub(super) blocks: Vec<(Name, Bytes)>,
    turns: Vec<(ChainHash, Settled)>,
}

impl Whole {
    /// Reads a lane's hash. One that is not there, or was written by an older program, is empty.
    pub(super) fn read(fields: HashMap<Vec<u8>, Vec<u8>>) -> Result<Self, (Unread, Maker)> {
        let field = |name: &[u8]| fields.get(name).cloned();
        let maker = field(b"u").unwrap_or_default();
        if !is_readable(field(b"v").as_deref(), &maker)? {
            return Ok(Self::default());
        }
        let mut this = Self {
            maker: maker.clone(),
            settled: field(b"s").unwrap_or_default(),
            ..Self::default()
        };
        let opening = field(b"o");
        let is_block = |field: &[u8]| field.get(1..) != opening.as_deref();
        fields
            .into_iter()
            .try_for_each(|(field, value)| this.add(&field, value, is_block(&field)))
            .ok_or((Unread::Damaged, maker))?;
        this.turns.sort_unstable_by_key(|(_, turn)| turn.number);
        Ok(this)
    }

    fn add(&mut self, field: &[u8], value: Vec<u8>, is_block: bool) -> Option<()> {
        match field {
            [b't', chain @ ..] if !chain.is_empty() => {
                let chain = ChainHash::from_bytes(chain.try_into().ok()?);
                self.turns.push((chain, Settled::read(&value)?));
            }
            [b'b', name @ ..] if !name.is_empty() && is_block => {
                self.blocks.push((name.try_into().ok()?, value.into()));
            }
            // Region A, numbers, and what is there to be found by.
            _ => {}
        }
        Some(())
    }

    /// Its turns, in the order of their settling; nothing when a block is missing.
    pub(super) fn turns(&self, values: &Values) -> Option<Vec<(Turn, Outcome)>> {
        let turn = |(chain, settled): &(ChainHash, Settled)| {
            let turn = Turn {
                message: usize::try_from(settled.message).ok()?,
                chain: *chain,
                anchor: settled.anchor,
            };
            Some((turn, values.outcome(settled.block)?))
        };
        self.turns.iter().map(turn).collect()
    }
}
