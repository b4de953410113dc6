//! Frozen text as bytes, tagged: what is read back is what was frozen for this very lane, or it is not read.
//!
//! A tag covers the lane's key, so no value carries its owner, and a value that was put under another lane's name is refused like a damaged
//! one. It is keyed by the server's session key: nobody who can write to Redis alone can put words into a session.
//!
//! [`LAYOUT`] counts the versions of all that a lane's keys hold. A lane that an older program wrote is as good as lost: it is rendered again
//! from the store. A lane that a newer one wrote is left alone, and its sessions get the directive alone from this program. So while an
//! update is rolled out each lane goes from old to new once and never back, and no two programs freeze different text for it.

use std::sync::Arc;

use bytes::Bytes;

use super::super::wire::{Reader, Writer};
use crate::session::{
    Block, ChainHash, Elements, Enveloped, LaneKey, Opening, OpeningParts, Place, RotationReason,
    SessionKey, SessionNonce, StateDelta, Tagger, Text,
};
use crate::store::shared::Sent;

/// The version of what is written. To be raised with every change of this file or of the scripts that an older program could not read.
pub(super) const LAYOUT: u32 = 1;

/// The tag of a value, which is its name within the lane.
pub(super) type Name = [u8; 16];

/// What a tag is of.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Opening = 1,
    Block,
}

/// Writes and reads the values of one lane.
#[derive(Debug)]
pub(super) struct Codec {
    owner: Arc<SessionKey>,
    tagger: Tagger,
}

impl Codec {
    /// The lane in short, for the process's own memory.
    pub(super) fn lane(&self) -> Name {
        self.tagger.tag(b"lane")
    }

    /// The codec of a lane.
    pub(super) fn new(tagger: &Tagger, key: &LaneKey) -> Self {
        let SessionKey {
            org,
            agent,
            user,
            id,
        } = &key.session;
        let user = user.as_ref().map_or("", |user| user.as_str());
        let tagger = tagger
            .clone()
            .of(&LAYOUT.to_be_bytes())
            .of(org.as_bytes())
            .of(agent.as_bytes())
            .of(user.as_bytes())
            .of(id.as_str().as_bytes())
            .of(key.lane.as_str().as_bytes());
        Self {
            owner: Arc::new(key.session.clone()),
            tagger,
        }
    }

    fn tag(&self, kind: Kind, value: &[u8]) -> Name {
        self.tagger.clone().of(&[kind as u8]).tag(value)
    }

    /// Region A, and its name.
    pub(super) fn opening(&self, opening: &Opening) -> (Name, Vec<u8>) {
        let room = opening.head.json().len() + opening.line.len() + 256;
        let snapshot = opening.snapshot.as_ref().map_or(0, size);
        let mut out = Writer::with_room(room + snapshot);
        out.number(opening.epoch);
        out.number(opening.nonce_epoch);
        out.optional(opening.directive);
        out.byte(opening.reason.map_or(0, reason_code));
        out.bytes(opening.nonce.as_str().as_bytes());
        out.bytes(opening.head.json());
        out.bytes(&opening.line);
        out.tally(opening.cost);
        out.byte(opening.snapshot.is_some().into());
        if let Some(snapshot) = &opening.snapshot {
            enveloped(&mut out, snapshot);
        }
        let value = out.finish();
        (self.tag(Kind::Opening, &value), value)
    }

    /// The Region A of this name, if these bytes are it.
    pub(super) fn read_opening(&self, name: &Name, value: Bytes) -> Option<Opening> {
        if *name != self.tag(Kind::Opening, &value) {
            return None;
        }
        let mut from = Reader::new(value);
        let parts = OpeningParts {
            owner: Arc::clone(&self.owner),
            epoch: from.small()?,
            nonce_epoch: from.small()?,
            directive: from.optional()?,
            reason: reason(from.byte()?)?,
            nonce: SessionNonce::kept(&from.text()?)?,
            head: Text::new(from.bytes()?),
            line: from.bytes()?,
            cost: from.tally()?,
            snapshot: match from.byte()? {
                0 => None,
                1 => Some(read_enveloped(&mut from)?),
                _ => return None,
            },
        };
        from.whole(Opening::new(parts))
    }

    /// A block, and its name.
    pub(super) fn block(&self, block: &Block) -> (Name, Vec<u8>) {
        let recall = block.recall().map_or(0, size);
        let state = block.state().map_or(0, |s| s.json.len());
        let mut out = Writer::with_room(recall + state + 64);
        out.number(block.nonce_epoch());
        out.signed(block.as_of());
        out.byte(u8::from(block.recall().is_some()) | u8::from(block.state().is_some()) << 1);
        if let Some(recall) = block.recall() {
            enveloped(&mut out, recall);
        }
        if let Some(state) = block.state() {
            out.number(state.from);
            out.number(state.to);
            out.bytes(&state.json);
            out.tally(state.cost);
        }
        let value = out.finish();
        (self.tag(Kind::Block, &value), value)
    }

    /// The block of this name, if these bytes are it.
    pub(super) fn read_block(&self, name: &Name, value: Bytes) -> Option<Block> {
        if *name != self.tag(Kind::Block, &value) {
            return None;
        }
        let mut from = Reader::new(value);
        let (nonce_epoch, as_of, parts) = (from.small()?, from.signed()?, from.byte()?);
        let recall = match parts & 1 {
            0 => None,
            _ => Some(read_enveloped(&mut from)?),
        };
        let state = match parts & 2 {
            0 => None,
            _ => Some(StateDelta {
                from: from.small()?,
                to: from.small()?,
                json: from.bytes()?,
                cost: from.tally()?,
            }),
        };
        let block = Block::new(Arc::clone(&self.owner), nonce_epoch, recall, state)?;
        from.whole(block.known_at(as_of))
    }
}

/// The last request: numbers and hashes, no text, so it bears no tag.
pub(super) fn sent(sent: &Sent) -> Vec<u8> {
    let mut out = Writer::with_room(64);
    out.number(sent.messages as u64);
    out.raw(sent.link.as_bytes());
    out.raw(sent.client_prefix.as_bytes());
    out.raw(sent.sent.as_bytes());
    out.number(sent.epoch);
    out.byte(sent.recorded.into());
    out.finish()
}

pub(super) fn read_sent(value: Bytes) -> Option<Sent> {
    let mut from = Reader::new(value);
    let sent = Sent {
        messages: usize::try_from(from.number()?).ok()?,
        link: ChainHash::from_bytes(from.array()?),
        client_prefix: ChainHash::from_bytes(from.array()?),
        sent: ChainHash::from_bytes(from.array()?),
        epoch: from.small()?,
        recorded: match from.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        },
    };
    from.whole(sent)
}

/// About what it takes.
fn size(enveloped: &Enveloped) -> usize {
    let elements = enveloped.elements();
    let [open, _, close] = enveloped.pieces();
    open.len() + close.len() + elements.len() + elements.places().len() * 32 + 32
}

fn enveloped(out: &mut Writer, enveloped: &Enveloped) {
    let [open, json, close] = enveloped.pieces();
    out.bytes(&open);
    out.bytes(&close);
    out.tally(enveloped.tags());
    let places = enveloped.elements().places();
    out.number(places.len() as u64);
    for place in places {
        out.raw(place.id.as_bytes());
        out.number(place.bytes);
        out.tally(place.cost);
    }
    out.bytes(&json);
}

fn read_enveloped(from: &mut Reader) -> Option<Enveloped> {
    let (open, close, tags) = (from.bytes()?, from.bytes()?, from.tally()?);
    let count = from.number()?;
    // Collected one by one: a number that is too great finds no bytes long before it takes any room.
    let place = |from: &mut Reader| {
        Some(Place {
            id: from.memory_id()?,
            bytes: from.small()?,
            cost: from.tally()?,
        })
    };
    let places: Option<Vec<Place>> = (0..count).map(|_| place(from)).collect();
    let elements = Elements::placed(from.bytes()?, places?)?;
    Some(Enveloped::new(open, Arc::new(elements), close, tags))
}

const fn reason_code(reason: RotationReason) -> u8 {
    match reason {
        RotationReason::Forget => 1,
        RotationReason::Revoked => 2,
        RotationReason::OverBudget => 3,
        RotationReason::StateLost => 4,
    }
}

/// The outer answer is nothing when there is no such code.
const fn reason(code: u8) -> Option<Option<RotationReason>> {
    Some(match code {
        0 => None,
        1 => Some(RotationReason::Forget),
        2 => Some(RotationReason::Revoked),
        3 => Some(RotationReason::OverBudget),
        4 => Some(RotationReason::StateLost),
        _ => return None,
    })
}
