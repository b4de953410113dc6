//! The codec: what is read back is what was written, for this lane and no other. The cache itself is tested against a real Redis.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::codec::{Codec, read_sent, sent};
use crate::ids::{AgentId, MemoryId, OrgId};
use crate::session::{
    Block, ChainHash, Element, Elements, Enveloped, Lane, LaneKey, Opening, OpeningParts,
    RotationReason, SessionKey, SessionSecret, StateDelta, Text,
};
use crate::store::shared::Sent;
use crate::tokens::{Family, Tally};

fn lane() -> LaneKey {
    LaneKey {
        session: SessionKey {
            org: OrgId::from_bytes([1; 16]),
            agent: AgentId::from_bytes([2; 16]),
            user: Some("ann".parse().unwrap()),
            id: "trip".parse().unwrap(),
        },
        lane: Lane::new("openai", "gpt-4o"),
    }
}

fn codec_of(lane: &LaneKey) -> Codec {
    Codec::new(&SessionSecret::new(&[1; 32]).tagger("test"), lane)
}

fn tally() -> impl Strategy<Value = Tally> {
    (0..Family::ALL.len(), any::<u32>(), any::<u32>())
        .prop_map(|(family, tokens, bytes)| Tally::kept(Family::ALL[family], tokens, bytes))
}

fn element() -> impl Strategy<Value = Arc<Element>> {
    (any::<[u8; 16]>(), ".{0,40}", tally()).prop_map(|(id, json, cost)| {
        Arc::new(Element {
            id: MemoryId::from_bytes(id),
            json: json.into(),
            cost,
        })
    })
}

fn enveloped() -> impl Strategy<Value = Enveloped> {
    let elements = prop::collection::vec(element(), 1..6);
    (".{0,30}", elements, ".{0,10}", tally()).prop_map(|(open, elements, close, tags)| {
        let elements = Arc::new(Elements::new(&elements).unwrap());
        Enveloped::new(open, elements, close, tags)
    })
}

fn opening() -> impl Strategy<Value = Opening> {
    let numbers = any::<(u32, u32, Option<u32>)>();
    let reason = prop::option::of(0..RotationReason::ALL.len());
    let snapshot = prop::option::of(enveloped());
    let parts = (numbers, ".{0,60}", ".{0,60}", snapshot, tally(), reason);
    parts.prop_map(
        |((epoch, nonce_epoch, directive), head, line, snapshot, cost, reason)| {
            let owner = Arc::new(lane().session);
            Opening::new(OpeningParts {
                nonce: SessionSecret::new(&[1; 32]).nonce(&owner, nonce_epoch),
                owner,
                epoch,
                nonce_epoch,
                directive,
                head: Text::new(head),
                line: line.into(),
                snapshot,
                cost,
                reason: reason.map(|n| RotationReason::ALL[n]),
            })
        },
    )
}

fn state() -> impl Strategy<Value = StateDelta> {
    (any::<(u32, u32)>(), ".{0,60}", tally()).prop_map(|((from, to), json, cost)| StateDelta {
        json: json.into(),
        from,
        to,
        cost,
    })
}

fn block() -> impl Strategy<Value = Block> {
    let parts = (prop::option::of(enveloped()), prop::option::of(state()));
    let parts = parts.prop_filter("not empty", |(recall, state)| {
        recall.is_some() || state.is_some()
    });
    (parts, any::<(u32, i64)>()).prop_map(|((recall, state), (nonce_epoch, as_of))| {
        let block = Block::new(Arc::new(lane().session), nonce_epoch, recall, state);
        block.unwrap().known_at(as_of)
    })
}

/// Each of the other lanes that a value may not be read in.
fn others() -> Vec<LaneKey> {
    let mut others = vec![lane(); 6];
    others[0].session.org = OrgId::from_bytes([2; 16]);
    others[1].session.agent = AgentId::from_bytes([1; 16]);
    others[2].session.user = None;
    others[3].session.user = Some("an".parse().unwrap());
    others[4].session.id = "strip".parse().unwrap();
    others[5].lane = Lane::new("openai", "gpt-4");
    others
}

proptest! {
    #[test]
    fn an_opening_is_read_as_it_was_written(opening in opening()) {
        let codec = codec_of(&lane());
        let (name, value) = codec.opening(&opening);
        let read = codec.read_opening(&name, value.into()).unwrap();
        prop_assert_eq!(read.sha256(), opening.sha256());
        let pieces = |o: &Opening| o.snapshot.as_ref().map(Enveloped::pieces);
        prop_assert_eq!(pieces(&read), pieces(&opening));
        prop_assert_eq!(read, opening);
    }

    #[test]
    fn a_block_is_read_as_it_was_written(block in block()) {
        let codec = codec_of(&lane());
        let (name, value) = codec.block(&block);
        let read = codec.read_block(&name, value.into()).unwrap();
        prop_assert_eq!(read.digest(), block.digest());
        let pieces = |b: &Block| b.recall().map(Enveloped::pieces);
        prop_assert_eq!(pieces(&read), pieces(&block));
        let ids: Vec<MemoryId> = block.ids().collect();
        let half = &ids[..ids.len() / 2];
        prop_assert_eq!(read.without(half), block.without(half));
        prop_assert_eq!(read, block);
    }

    #[test]
    fn a_changed_byte_is_noticed(opening in opening(), block in block(), at: prop::sample::Index, bit in 0..8_u8) {
        let codec = codec_of(&lane());
        let changed = |mut bytes: Vec<u8>| {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            Bytes::from(bytes)
        };
        let (name, value) = codec.opening(&opening);
        prop_assert_eq!(codec.read_opening(&name, changed(value)), None);
        let (name, value) = codec.block(&block);
        prop_assert_eq!(codec.read_block(&name, changed(value.clone())), None);
        let name: [u8; 16] = changed(name.to_vec()).as_ref().try_into().unwrap();
        prop_assert_eq!(codec.read_block(&name, value.into()), None);
    }

    #[test]
    fn what_is_cut_off_is_noticed(opening in opening(), at: prop::sample::Index) {
        let codec = codec_of(&lane());
        let (name, mut bytes) = codec.opening(&opening);
        bytes.truncate(at.index(bytes.len()));
        prop_assert_eq!(codec.read_opening(&name, bytes.into()), None);
    }

    #[test]
    fn a_note_of_what_was_sent_is_read_as_it_was_written(messages: u32, hashes: [[u8; 16]; 3], epoch: u32, recorded: bool) {
        let [link, client_prefix, hash] = hashes.map(ChainHash::from_bytes);
        let note = Sent { messages: messages as usize, link, client_prefix, sent: hash, epoch, recorded };
        let mut bytes = sent(&note);
        prop_assert_eq!(read_sent(bytes.clone().into()), Some(note));
        bytes.push(0);
        prop_assert_eq!(read_sent(bytes.into()), None);
    }
}

#[test]
fn a_value_belongs_to_its_lane_its_kind_and_the_server_s_key() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut some = |strategy: BoxedStrategy<(Opening, Block)>| {
        strategy.new_tree(&mut runner).unwrap().current()
    };
    let (opening, block) = some((opening(), block()).boxed());
    let codec = codec_of(&lane());
    let (name, value) = codec.block(&block);
    let (region, prefix) = codec.opening(&opening);
    let (value, prefix) = (Bytes::from(value), Bytes::from(prefix));
    assert!(codec.read_block(&name, value.clone()).is_some());
    assert!(codec.read_opening(&region, prefix.clone()).is_some());
    let mut others: Vec<Codec> = others().iter().map(codec_of).collect();
    let foreign = SessionSecret::new(&[2; 32]).tagger("test");
    others.push(Codec::new(&foreign, &lane()));
    for other in others {
        assert_eq!(other.read_block(&name, value.clone()), None);
        assert_eq!(other.read_opening(&region, prefix.clone()), None);
        assert_ne!(other.lane(), codec.lane());
    }
    assert_eq!(
        codec.read_opening(&name, value),
        None,
        "a block is no opening"
    );
}
