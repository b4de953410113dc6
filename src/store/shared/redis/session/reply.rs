//! What the scripts answer, read. Nothing is taken that is not whole.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use redis::Value;

use super::codec::{self, BlockName, Codec, LAYOUT};
use crate::session::{Anchor, ChainHash, Opening, Outcome, Turn};
use crate::store::shared::Held;
use crate::store::shared::matching::{self, Candidates, SettledTurns};

/// Bytes of a turn before the name of its block.
const HEAD: usize = 28;

/// Why an answer cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// A newer program wrote the lane.
    Newer,
    /// It is not what this lane's key should hold.
    Damaged,
}

/// Whose call made a lane: tells it from another one that was made later under the same name.
pub(super) type Maker = Vec<u8>;

/// The values of an answer, one after the other.
pub(super) struct Items(std::vec::IntoIter<Value>);

impl Items {
    pub(super) fn of(value: Value) -> Option<Self> {
        match value {
            Value::Array(items) => Some(Self(items.into_iter())),
            Value::Map(pairs) => {
                let flat: Vec<Value> = pairs.into_iter().flat_map(|(k, v)| [k, v]).collect();
                Some(Self(flat.into_iter()))
            }
            _ => None,
        }
    }

    pub(super) fn bytes(&mut self) -> Option<Bytes> {
        match self.0.next()? {
            Value::BulkString(bytes) => Some(bytes.into()),
            _ => None,
        }
    }

    fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        number(&self.bytes()?)
    }

    fn list(&mut self) -> Option<Self> {
        Self::of(self.0.next()?)
    }

    fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// One settled turn.
#[derive(Debug, Clone, Copy)]
struct Settled {
    number: u64,
    message: u32,
    anchor: Anchor,
    block: Option<BlockName>,
}

impl Settled {
    fn read(value: &[u8]) -> Option<Self> {
        let (head, block) = value.split_at_checked(HEAD)?;
        let (number, rest) = head.split_first_chunk::<8>()?;
        let (message, anchor) = rest.split_first_chunk::<4>()?;
        Some(Self {
            number: u64::from_be_bytes(*number),
            message: u32::from_be_bytes(*message),
            anchor: Anchor::from_bytes(anchor.try_into().ok()?),
            block: name(block)?,
        })
    }
}

/// The name of a block; the inner answer is nothing for a turn that got nothing.
pub(super) fn name(bytes: &[u8]) -> Option<Option<BlockName>> {
    match bytes {
        [] => Some(None),
        bytes => bytes.try_into().ok().map(Some),
    }
}

/// The blocks of an answer.
#[derive(Debug, Default)]
pub(super) struct Blocks(HashMap<BlockName, Outcome, RandomState>);

impl Blocks {
    fn read(mut items: Items, codec: &Codec) -> Option<Self> {
        let mut blocks = Self::default();
        while !items.is_empty() {
            let name = items.bytes()?.as_ref().try_into().ok()?;
            blocks.add(codec, name, items.bytes()?)?;
        }
        Some(blocks)
    }

    fn add(&mut self, codec: &Codec, name: BlockName, value: Bytes) -> Option<()> {
        let block = codec.read_block(&name, value)?;
        self.0.insert(name, Outcome::Block(Arc::new(block)));
        Some(())
    }

    /// What a turn got whose block has this name.
    pub(super) fn outcome(&self, name: Option<BlockName>) -> Option<Outcome> {
        match name {
            None => Some(Outcome::Nothing),
            Some(name) => self.0.get(&name).cloned(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&BlockName, &Outcome)> {
        self.0.iter()
    }
}

/// What `read.lua` found of a lane's turns.
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

    /// The script has left out those on the chains of the request, and knows which anchors can be asked for.
    fn candidates(&self, _turns: &[Turn], wanted: &[Turn]) -> Candidates<'_> {
        let of = |turn: &Turn| {
            let found = self.candidates.get(&turn.anchor)?;
            let found = found.iter().map(|(number, outcome)| (*number, outcome));
            Some((turn.anchor, found.collect()))
        };
        wanted.iter().filter_map(of).collect()
    }
}

/// Reads the answer of `read.lua` for `turns`. A lane that is damaged comes with its maker, if that can be read.
pub(super) fn held(
    value: Value,
    codec: &Codec,
    turns: &[Turn],
) -> Result<Option<Held>, (Unread, Maker)> {
    let damaged = (Unread::Damaged, Maker::new());
    let mut items = Items::of(value).ok_or_else(|| damaged.clone())?;
    match items.bytes().as_deref() {
        Some(b"held") => {}
        Some(b"none") => return Ok(None),
        Some(b"newer") => return Err((Unread::Newer, Maker::new())),
        _ => return Err(damaged),
    }
    let maker: Maker = items.bytes().ok_or(damaged)?.into();
    let held = whole(items, codec, turns).ok_or((Unread::Damaged, maker))?;
    Ok(Some(held))
}

fn whole(mut items: Items, codec: &Codec, turns: &[Turn]) -> Option<Held> {
    let opening = match items.bytes()? {
        none if none.is_empty() => None,
        tagged => Some(Arc::new(codec.read_opening(tagged)?)),
    };
    let checked = items.number()?;
    let last = match items.bytes()? {
        none if none.is_empty() => None,
        sent => Some(codec::read_sent(sent)?),
    };
    let restored = !items.bytes()?.is_empty();
    let empty = items.number::<u64>()? == 0;
    let (mut settled, mut anchored) = (items.list()?, items.list()?);
    let blocks = Blocks::read(items.list()?, codec)?;
    let mut found = Found {
        empty,
        restored,
        outcomes: HashMap::default(),
        candidates: HashMap::default(),
    };
    for turn in turns {
        let value = settled.bytes()?;
        if !value.is_empty() {
            let outcome = blocks.outcome(Settled::read(&value)?.block)?;
            found.outcomes.insert(turn.chain, outcome);
        }
    }
    while !anchored.is_empty() {
        let anchor = Anchor::from_bytes(anchored.bytes()?.as_ref().try_into().ok()?);
        let (mut values, mut candidates) = (anchored.list()?, Vec::new());
        while !values.is_empty() {
            let settled = Settled::read(&values.bytes()?)?;
            candidates.push((settled.number, blocks.outcome(settled.block)?));
        }
        found.candidates.insert(anchor, candidates);
    }
    Some(Held {
        opening,
        turns: matching::known(&found, turns),
        checked,
        last,
    })
}

/// What a lane's other scripts answer.
pub(super) enum Put {
    /// It is done, or was not needed.
    Done(Items),
    /// The lane has another nonce.
    Rotated,
    /// The lane is not what was looked at.
    Again,
}

/// Reads the answer of a script that writes.
pub(super) fn put(value: Value) -> Result<Put, Unread> {
    let mut items = Items::of(value).ok_or(Unread::Damaged)?;
    match items.bytes().as_deref() {
        Some(b"put") => Ok(Put::Done(items)),
        Some(b"rotated") => Ok(Put::Rotated),
        Some(b"again") => Ok(Put::Again),
        Some(b"newer") => Err(Unread::Newer),
        _ => Err(Unread::Damaged),
    }
}

/// The Region A that holds: `own` when the answer has no other one.
pub(super) fn opening(
    items: &mut Items,
    codec: &Codec,
    own: &Arc<Opening>,
) -> Result<Arc<Opening>, Unread> {
    let tagged = items.bytes().ok_or(Unread::Damaged)?;
    if tagged.is_empty() {
        return Ok(Arc::clone(own));
    }
    let opening = codec.read_opening(tagged).ok_or(Unread::Damaged)?;
    Ok(Arc::new(opening))
}

/// What each offered turn holds. An outcome that was offered itself comes back as it is.
pub(super) fn winners(
    mut items: Items,
    codec: &Codec,
    offered: &[(Option<BlockName>, Outcome)],
) -> Option<Vec<Outcome>> {
    let mut names = items.list()?;
    let blocks = Blocks::read(items.list()?, codec)?;
    let known: HashMap<BlockName, &Outcome, RandomState> = offered
        .iter()
        .filter_map(|(name, outcome)| Some(((*name)?, outcome)))
        .collect();
    let winner = |_: &_| {
        let name = name(&names.bytes()?)?;
        let own = name.and_then(|name| known.get(&name).copied().cloned());
        own.or_else(|| blocks.outcome(name))
    };
    offered.iter().map(winner).collect()
}

/// All of a lane.
#[derive(Debug, Default)]
pub(super) struct Whole {
    pub(super) maker: Maker,
    /// How many turns were ever settled, as the lane writes it.
    pub(super) settled: Vec<u8>,
    pub(super) blocks: Blocks,
    turns: Vec<(ChainHash, Settled)>,
}

impl Whole {
    /// Reads a lane's hash. One that is not there, or was written by an older program, is empty.
    pub(super) fn read(value: Value, codec: &Codec) -> Result<Self, (Unread, Maker)> {
        let damaged = || (Unread::Damaged, Maker::new());
        let mut items = Items::of(value).ok_or_else(damaged)?;
        let mut fields: HashMap<Bytes, Bytes, RandomState> = HashMap::default();
        while !items.is_empty() {
            let field = items.bytes().ok_or_else(damaged)?;
            fields.insert(field, items.bytes().ok_or_else(damaged)?);
        }
        let field = |name: &[u8]| fields.get(name).map(|value| value.to_vec());
        let Some(layout) = field(b"v") else {
            return Ok(Self::default());
        };
        let maker = field(b"u").unwrap_or_default();
        match number::<u32>(&layout) {
            Some(LAYOUT) => {}
            Some(layout) if layout > LAYOUT => return Err((Unread::Newer, maker)),
            Some(_) => return Ok(Self::default()),
            None => return Err((Unread::Damaged, maker)),
        }
        let mut this = Self {
            maker: maker.clone(),
            settled: field(b"s").unwrap_or_default(),
            ..Self::default()
        };
        fields
            .into_iter()
            .try_for_each(|(field, value)| this.add(codec, &field, value))
            .ok_or((Unread::Damaged, maker))?;
        this.turns.sort_unstable_by_key(|(_, turn)| turn.number);
        Ok(this)
    }

    fn add(&mut self, codec: &Codec, field: &[u8], value: Bytes) -> Option<()> {
        match field {
            [b't', chain @ ..] if !chain.is_empty() => {
                let chain = ChainHash::from_bytes(chain.try_into().ok()?);
                self.turns.push((chain, Settled::read(&value)?));
            }
            [b'b', name @ ..] if !name.is_empty() => {
                self.blocks.add(codec, name.try_into().ok()?, value)?;
            }
            // Numbers and hashes of no use here.
            _ => {}
        }
        Some(())
    }

    /// Its turns, in the order of their settling; nothing when a block is missing.
    pub(super) fn turns(&self) -> Option<Vec<(Turn, Outcome)>> {
        let turn = |(chain, settled): &(ChainHash, Settled)| {
            let turn = Turn {
                message: usize::try_from(settled.message).ok()?,
                chain: *chain,
                anchor: settled.anchor,
            };
            Some((turn, self.blocks.outcome(settled.block)?))
        };
        self.turns.iter().map(turn).collect()
    }
}
