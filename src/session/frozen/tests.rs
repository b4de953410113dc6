//! What leaves takes its own bytes along and nothing else.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::{
    Block, Element, Elements, Enveloped, Opening, OpeningParts, Outcome, RotationReason,
    SessionKey, StateDelta, Text,
};
use crate::ids::{AgentId, MemoryId, OrgId};
use crate::session::SessionSecret;
use crate::tokens::{Family, Tally};

fn id(n: usize) -> MemoryId {
    MemoryId::from_bytes([u8::try_from(n).unwrap(); 16])
}

fn owner() -> Arc<SessionKey> {
    Arc::new(SessionKey {
        org: OrgId::new(),
        agent: AgentId::new(),
        user: None,
        id: "trip".parse().unwrap(),
    })
}

fn tokens(n: u32) -> Tally {
    Tally::given(Family::O200kBase, n)
}

/// `[` and `]` around the memories of `texts`, numbered from 0; a token a byte, and two for the brackets.
fn enveloped(texts: &[&str]) -> Enveloped {
    let element = |(n, text): (usize, &&str)| {
        Arc::new(Element {
            id: id(n),
            json: Bytes::copy_from_slice(text.as_bytes()),
            cost: tokens(u32::try_from(text.len()).unwrap()),
        })
    };
    let elements: Vec<_> = texts.iter().enumerate().map(element).collect();
    let elements = Elements::new(&elements).unwrap();
    Enveloped::new("[", Arc::new(elements), "]", tokens(2))
}

fn shown(enveloped: &Enveloped) -> String {
    String::from_utf8(enveloped.pieces().concat()).unwrap()
}

fn state(text: &'static str) -> StateDelta {
    StateDelta {
        json: Bytes::from_static(text.as_bytes()),
        from: 0,
        to: 1,
        cost: tokens(5),
    }
}

fn opening(head: &'static str, line: &'static str, snapshot: Option<Enveloped>) -> Opening {
    let owner = owner();
    Opening::new(OpeningParts {
        nonce: SessionSecret::new(&[1; 32]).nonce(&owner, 3),
        owner,
        epoch: 4,
        nonce_epoch: 3,
        directive: Some(9),
        head: Text::new(head),
        line: Bytes::from_static(line.as_bytes()),
        snapshot,
        cost: tokens(1),
        reason: None,
    })
}

#[test]
fn a_memory_that_leaves_takes_its_bytes_alone() {
    let whole = enveloped(&["one", "two", "three"]);
    for (gone, left, ids) in [
        (vec![0], "[twothree]", vec![1, 2]),
        (vec![1], "[onethree]", vec![0, 2]),
        (vec![2], "[onetwo]", vec![0, 1]),
        (vec![2, 0], "[two]", vec![1]),
        (vec![7], "[onetwothree]", vec![0, 1, 2]),
    ] {
        let gone: Vec<_> = gone.into_iter().map(id).collect();
        let slim = whole.without(&gone).unwrap();
        assert_eq!(shown(&slim), left);
        assert_eq!(
            slim.ids().collect::<Vec<_>>(),
            ids.into_iter().map(id).collect::<Vec<_>>()
        );
        assert_eq!(slim.cost().tokens(Family::O200kBase) as usize, left.len());
    }
    assert_eq!(whole.without(&[id(0), id(1), id(2)]), None);
}

proptest! {
    #[test]
    fn one_after_the_other_is_the_same_as_at_once(
        texts in prop::collection::vec("[a-z]{0,5}", 1..8),
        first in prop::collection::vec(0_usize..8, 0..4),
        second in prop::collection::vec(0_usize..8, 0..4),
    ) {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let ids = |of: &[usize]| of.iter().copied().map(id).collect::<Vec<_>>();
        let (first, second) = (ids(&first), ids(&second));
        let whole = enveloped(&texts);
        let json = |e: Option<Enveloped>| e.map(|e| (shown(&e), e.cost(), e.ids().collect::<Vec<_>>()));
        let stepwise = whole.without(&first).and_then(|e| e.without(&second));
        let at_once = whole.without(&[first, second].concat());
        prop_assert_eq!(json(stepwise), json(at_once));
    }
}

#[test]
fn a_block_keeps_its_state_and_nonce_when_its_memories_leave() {
    let block = Block::new(owner(), 2, Some(enveloped(&["one"])), Some(state("s"))).unwrap();
    assert_eq!(block.tokens(Family::O200kBase), 10);
    let slim = block.without(&[id(0)]).unwrap();
    assert_eq!(
        (slim.recall(), slim.state(), slim.nonce_epoch()),
        (None, block.state(), 2)
    );
    assert_ne!(slim.digest(), block.digest());
    let known = block.known_at(7);
    assert_eq!(known.without(&[id(0)]).unwrap().as_of(), 7);
    let alone = Block::new(owner(), 2, Some(enveloped(&["one"])), None).unwrap();
    assert_eq!(alone.without(&[id(0)]), None);
    assert_eq!(Block::new(owner(), 2, None, None), None);
}

#[test]
fn an_outcome_that_held_nothing_else_becomes_nothing() {
    let block = Block::new(owner(), 1, Some(enveloped(&["one", "two"])), None).unwrap();
    let outcome = Outcome::Block(Arc::new(block));
    assert_eq!(outcome.without(&[id(5)]), outcome);
    assert_eq!(outcome.without(&[id(0), id(1)]), Outcome::Nothing);
    assert_eq!(Outcome::Nothing.without(&[id(0)]), Outcome::Nothing);
    let slim = outcome.without(&[id(0)]);
    assert_eq!(
        slim.block().unwrap().ids().collect::<Vec<_>>(),
        [id(1)],
        "the other one stays"
    );
}

#[test]
fn a_prefix_that_lost_a_memory_is_the_next_epoch_and_the_same_otherwise() {
    let opening = opening("head", "line", Some(enveloped(&["one", "two"])));
    let next = opening.without(&[id(0)]);
    assert_eq!(shown(next.snapshot.as_ref().unwrap()), "[two]");
    assert_eq!(next.ids().collect::<Vec<_>>(), [id(1)]);
    assert_ne!(next.sha256(), opening.sha256());
    let expected = OpeningParts {
        epoch: 5,
        snapshot: next.snapshot.clone(),
        reason: Some(RotationReason::Forget),
        ..opening.parts()
    };
    assert_eq!(next.parts(), expected);
    assert_eq!(opening.without(&[id(0), id(1)]).snapshot, None);
    let untouched = opening.without(&[id(7)]);
    assert_eq!(
        (untouched.epoch, untouched.sha256()),
        (5, opening.sha256()),
        "a block's memory was forgotten: the prefix keeps every byte"
    );
}

#[test]
fn the_hashes_are_over_the_bytes_and_know_state_from_memory() {
    let hash = |head, line, snapshot| *opening(head, line, snapshot).sha256();
    let base = hash("ab", "c", Some(enveloped(&["x"])));
    assert_eq!(base, hash("ab", "c", Some(enveloped(&["x"]))));
    for other in [
        hash("ad", "c", Some(enveloped(&["x"]))),
        hash("ab", "d", Some(enveloped(&["x"]))),
        hash("ab", "c", Some(enveloped(&["y"]))),
        hash("ab", "c", None),
    ] {
        assert_ne!(base, other);
    }
    let recalled = Block::new(owner(), 1, Some(enveloped(&["x"])), None).unwrap();
    let same = Block::new(owner(), 9, Some(enveloped(&["x"])), None).unwrap();
    let told = Block::new(owner(), 1, None, Some(state("[x]"))).unwrap();
    assert_eq!(recalled.digest(), same.digest());
    assert_ne!(recalled.digest(), told.digest());
}

#[test]
fn every_reason_is_read_back_from_its_text() {
    for reason in RotationReason::ALL {
        assert_eq!(RotationReason::parse(reason.as_str()), Some(reason));
        assert_eq!(
            serde_json::to_value(reason).unwrap(),
            serde_json::Value::from(reason.as_str())
        );
    }
    assert_eq!(RotationReason::parse("whim"), None);
}
