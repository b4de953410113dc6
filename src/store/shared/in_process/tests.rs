//! The in-process cache: put if absent, found again, rotated, bounded and dropped when idle.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::{BlockFate, CacheError, Held, Known, Sent, SessionCache};
use super::InProcess;
use crate::config::SessionConfig;
use crate::ids::{AgentId, MemoryId, OrgId};
use crate::session::{
    Anchor, Block, ChainHash, Element, Elements, Enveloped, Lane, LaneKey, Opening, OpeningParts,
    Outcome, RotationReason, SessionKey, SessionSecret, Text, Turn,
};
use crate::tokens::{Family, Tally};

fn key(id: &str) -> LaneKey {
    LaneKey {
        session: SessionKey {
            org: OrgId::from_bytes([1; 16]),
            agent: AgentId::from_bytes([2; 16]),
            user: None,
            id: id.parse().unwrap(),
        },
        lane: Lane::new("openai", "gpt-4o"),
    }
}

fn id(n: u8) -> MemoryId {
    MemoryId::from_bytes([n; 16])
}

const FREE: Tally = Tally::given(Family::Unknown, 0);

/// These memories in one envelope.
fn enveloped(memories: &[u8]) -> Enveloped {
    let element = |n: &u8| {
        Arc::new(Element {
            id: id(*n),
            json: n.to_string().into(),
            cost: FREE,
        })
    };
    let elements: Vec<_> = memories.iter().map(element).collect();
    Enveloped::new("", Arc::new(Elements::new(&elements).unwrap()), "", FREE)
}

fn opening(key: &LaneKey, epoch: u32, nonce_epoch: u32, snapshot: &[u8]) -> Arc<Opening> {
    let owner = Arc::new(key.session.clone());
    Arc::new(Opening::new(OpeningParts {
        nonce: SessionSecret::new(&[1; 32]).nonce(&owner, nonce_epoch),
        owner,
        epoch,
        nonce_epoch,
        directive: None,
        head: Text::new("head"),
        line: Bytes::from_static(b"line"),
        snapshot: (!snapshot.is_empty()).then(|| enveloped(snapshot)),
        cost: FREE,
        reason: (epoch > 1).then_some(RotationReason::Forget),
    }))
}

fn block(key: &LaneKey, memories: &[u8]) -> Outcome {
    let owner = Arc::new(key.session.clone());
    let block = Block::new(owner, 1, Some(enveloped(memories)), None);
    Outcome::Block(Arc::new(block.unwrap()))
}

/// The turn `chain` whose message and predecessor are `anchor`.
fn turn(chain: u8, anchor: u8) -> Turn {
    Turn {
        message: 0,
        chain: ChainHash::from_bytes([chain; 16]),
        anchor: Anchor::from_bytes([anchor; 16]),
    }
}

fn cache() -> InProcess {
    InProcess::new(&SessionConfig::default())
}

async fn held(cache: &InProcess, key: &LaneKey, turns: &[Turn]) -> Held {
    cache.read(key, turns).await.unwrap().expect("a lane")
}

#[tokio::test]
async fn who_opens_first_is_sent_by_all() {
    let (cache, key) = (cache(), key("trip"));
    assert!(cache.read(&key, &[]).await.unwrap().is_none());
    let (first, second) = (opening(&key, 1, 1, &[1]), opening(&key, 1, 1, &[2]));
    for offered in [&first, &second] {
        let holds = cache
            .open(&key, Arc::clone(offered), Vec::new())
            .await
            .unwrap()
            .0;
        assert!(Arc::ptr_eq(&holds, &first));
    }
    let turns = vec![(turn(1, 1), Outcome::Nothing)];
    cache.restore(&key, second, turns).await.unwrap();
    let held = held(&cache, &key, &[turn(1, 1)]).await;
    assert!(Arc::ptr_eq(&held.opening.unwrap(), &first));
    assert_eq!(
        held.turns,
        [Known::No],
        "nothing of a late restore is taken"
    );
}

#[tokio::test]
async fn a_turn_is_settled_once_whatever_it_got() {
    let (cache, key) = (cache(), key("trip"));
    let offer = async |outcome: Outcome, n| {
        let turns = vec![(turn(n, n), outcome)];
        cache.settle(&key, 1, turns).await.unwrap().remove(0)
    };
    let won = block(&key, &[1]);
    assert_eq!(offer(won.clone(), 1).await, won);
    assert_eq!(offer(block(&key, &[2]), 1).await, won);
    assert_eq!(offer(Outcome::Nothing, 2).await, Outcome::Nothing);
    assert_eq!(
        offer(block(&key, &[2]), 2).await,
        Outcome::Nothing,
        "nothing is an outcome, and is not filled in later"
    );
}

#[tokio::test]
async fn a_block_under_another_nonce_is_refused() {
    let (cache, key) = (cache(), key("trip"));
    cache
        .open(&key, opening(&key, 4, 3, &[]), Vec::new())
        .await
        .unwrap();
    for (nonce_epoch, taken) in [(3, true), (4, false), (1, false)] {
        let turns = vec![(turn(nonce_epoch, 1), Outcome::Nothing)];
        let settled = cache.settle(&key, u32::from(nonce_epoch), turns).await;
        assert_eq!(settled.is_ok(), taken);
        assert!(taken || matches!(settled, Err(CacheError::Rotated)));
    }
}

#[tokio::test]
async fn a_rotation_of_an_epoch_that_is_over_gets_the_one_that_holds() {
    let (cache, key) = (cache(), key("trip"));
    cache
        .open(&key, opening(&key, 1, 1, &[1, 2]), Vec::new())
        .await
        .unwrap();
    let second = opening(&key, 2, 1, &[2]);
    let rotate = async |from, next: &Arc<Opening>| {
        let next = Arc::clone(next);
        cache
            .rotate(&key, from, next, BlockFate::Keep)
            .await
            .unwrap()
    };
    assert!(Arc::ptr_eq(&rotate(1, &second).await, &second));
    let late = opening(&key, 2, 1, &[]);
    assert!(Arc::ptr_eq(&rotate(1, &late).await, &second));
    let holds = held(&cache, &key, &[]).await.opening.unwrap();
    assert!(Arc::ptr_eq(&holds, &second));
}

#[tokio::test]
async fn a_rotation_decides_what_becomes_of_the_blocks() {
    let turns = [turn(1, 1), turn(2, 2), turn(3, 3)];
    for (fate, expected) in [
        (BlockFate::Keep, [vec![1, 2], vec![3], vec![]]),
        (BlockFate::Drop, [vec![], vec![], vec![]]),
        (BlockFate::Without(vec![id(1)]), [vec![2], vec![3], vec![]]),
        (
            BlockFate::Without(vec![id(3)]),
            [vec![1, 2], vec![], vec![]],
        ),
    ] {
        let (cache, key) = (cache(), key("trip"));
        cache
            .open(&key, opening(&key, 1, 1, &[]), Vec::new())
            .await
            .unwrap();
        let outcomes = [block(&key, &[1, 2]), block(&key, &[3]), Outcome::Nothing];
        let settled = turns.into_iter().zip(outcomes).collect();
        cache.settle(&key, 1, settled).await.unwrap();
        cache
            .rotate(&key, 1, opening(&key, 2, 1, &[]), fate)
            .await
            .unwrap();
        for (known, left) in held(&cache, &key, &turns).await.turns.iter().zip(expected) {
            let Known::Chain(outcome) = known else {
                panic!("a settled turn stays known")
            };
            let ids = outcome.block().map(|b| b.ids().collect::<Vec<_>>());
            let left: Vec<MemoryId> = left.into_iter().map(id).collect();
            assert_eq!(ids.unwrap_or_default(), left);
        }
    }
}

#[tokio::test]
async fn a_history_without_its_beginning_is_found_by_anchors_from_its_end() {
    let (cache, key) = (cache(), key("trip"));
    // The second and the fourth turn are the same short answer to the same question.
    let settled = [turn(1, 1), turn(2, 2), turn(3, 3), turn(4, 2), turn(5, 5)];
    let outcomes = settled
        .iter()
        .zip(1..)
        .map(|(turn, n)| (*turn, block(&key, &[n])));
    cache.settle(&key, 1, outcomes.collect()).await.unwrap();
    let anchored = |n| Known::Anchor(block(&key, &[n]));
    let asked = |anchors: &[u8]| -> Vec<Turn> {
        anchors.iter().zip(20..).map(|(a, c)| turn(c, *a)).collect()
    };
    let known = held(&cache, &key, &asked(&[2, 3, 2, 5])).await.turns;
    assert_eq!(known, [anchored(2), anchored(3), anchored(4), anchored(5)]);
    let known = held(&cache, &key, &asked(&[2, 5])).await.turns;
    assert_eq!(known, [anchored(4), anchored(5)], "the newest one first");
    let known = held(&cache, &key, &asked(&[5, 3])).await.turns;
    assert_eq!(known, [anchored(5), Known::No], "never against the order");
    let known = held(&cache, &key, &asked(&[5, 2, 3, 9])).await.turns;
    let most = [Known::No, anchored(2), anchored(3), Known::No];
    assert_eq!(known, most, "as many as can be");
    let known = held(&cache, &key, &asked(&[9, 3, 9])).await.turns;
    assert_eq!(known, [Known::No, anchored(3), Known::No]);
}

#[tokio::test]
async fn a_new_turn_on_a_known_chain_is_new_whatever_its_anchor() {
    let (cache, key) = (cache(), key("trip"));
    let settled = vec![
        (turn(1, 1), block(&key, &[1])),
        (turn(2, 2), block(&key, &[2])),
    ];
    cache.settle(&key, 1, settled).await.unwrap();
    let known = held(&cache, &key, &[turn(1, 1), turn(2, 2), turn(3, 2)]).await;
    let own = |n| Known::Chain(block(&key, &[n]));
    assert_eq!(known.turns, [own(1), own(2), Known::No]);
    // A turn that is on the chain itself is nobody else's.
    let known = held(&cache, &key, &[turn(9, 2), turn(2, 2), turn(3, 3)]).await;
    assert_eq!(known.turns, [Known::No, own(2), Known::No]);
}

#[tokio::test]
async fn a_lane_tells_every_turn_of_every_branch_in_the_order_of_settling() {
    let (cache, key) = (cache(), key("trip"));
    assert_eq!(cache.turns(&key).await.unwrap(), []);
    let first = vec![(turn(9, 1), block(&key, &[1]))];
    let opened = cache.open(&key, opening(&key, 1, 1, &[]), first.clone());
    assert_eq!(opened.await.unwrap().1, [block(&key, &[1])]);
    let more = vec![
        (turn(3, 2), Outcome::Nothing),
        (turn(5, 2), block(&key, &[2])),
    ];
    cache.settle(&key, 1, more.clone()).await.unwrap();
    cache.settle(&key, 1, first.clone()).await.unwrap();
    assert_eq!(cache.turns(&key).await.unwrap(), [first, more].concat());
}

#[tokio::test]
async fn who_opens_second_settles_under_the_first_ones_nonce_or_not_at_all() {
    let (cache, key) = (cache(), key("trip"));
    let first = opening(&key, 1, 1, &[]);
    cache
        .open(&key, Arc::clone(&first), Vec::new())
        .await
        .unwrap();
    let turns = |n| vec![(turn(n, n), Outcome::Nothing)];
    let same = cache.open(&key, opening(&key, 1, 1, &[1]), turns(1)).await;
    let (holds, settled) = same.unwrap();
    assert!(Arc::ptr_eq(&holds, &first));
    assert_eq!(settled, [Outcome::Nothing]);
    let other = cache.open(&key, opening(&key, 2, 2, &[]), turns(2)).await;
    assert!(matches!(other, Err(CacheError::Rotated)));
    let known = held(&cache, &key, &[turn(1, 1), turn(2, 2)]).await.turns;
    assert_eq!(known, [Known::Chain(Outcome::Nothing), Known::No]);
}

#[tokio::test]
async fn notes_are_kept_with_a_lane_and_make_none() {
    let (cache, key) = (cache(), key("trip"));
    let sent = Sent {
        messages: 1,
        link: ChainHash::from_bytes([1; 16]),
        client_prefix: ChainHash::from_bytes([2; 16]),
        sent: ChainHash::from_bytes([3; 16]),
        epoch: 1,
        recorded: true,
    };
    cache.checked(&key, 5, 0).await.unwrap();
    cache.sent(&key, sent).await.unwrap();
    assert!(cache.read(&key, &[]).await.unwrap().is_none());
    cache
        .open(&key, opening(&key, 1, 1, &[]), Vec::new())
        .await
        .unwrap();
    cache.checked(&key, 5, 0).await.unwrap();
    cache.checked(&key, 4, 0).await.unwrap();
    cache.sent(&key, sent).await.unwrap();
    let held = held(&cache, &key, &[]).await;
    assert_eq!((held.checked, held.last), (5, Some(sent)), "the later look");
}

#[tokio::test]
async fn lanes_of_another_session_user_or_model_share_nothing() {
    let (cache, key) = (cache(), key("trip"));
    cache
        .open(&key, opening(&key, 1, 1, &[]), Vec::new())
        .await
        .unwrap();
    let mut others = [
        key.clone(),
        key.clone(),
        key.clone(),
        key.clone(),
        key.clone(),
    ];
    others[0].session.id = "trap".parse().unwrap();
    others[1].session.user = Some("ann".parse().unwrap());
    others[2].session.agent = AgentId::new();
    others[3].session.org = OrgId::new();
    others[4].lane = Lane::new("other", "gpt-4o");
    for other in &others {
        assert!(cache.read(other, &[]).await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_is_dropped_when_it_was_idle_for_its_time() {
    let (cache, key) = (cache(), key("trip"));
    cache
        .open(&key, opening(&key, 1, 1, &[1]), Vec::new())
        .await
        .unwrap();
    let almost = Duration::from_secs(45 * 60 - 1);
    for _ in 0..3 {
        tokio::time::advance(almost).await;
        assert!(
            cache.read(&key, &[]).await.unwrap().is_some(),
            "a read is a use"
        );
    }
    tokio::time::advance(almost).await;
    assert_eq!(cache.sweep().0, 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(cache.read(&key, &[]).await.unwrap().is_none());
    let second = opening(&key, 1, 1, &[2]);
    let holds = cache
        .open(&key, Arc::clone(&second), Vec::new())
        .await
        .unwrap()
        .0;
    assert!(
        Arc::ptr_eq(&holds, &second),
        "nothing of the old one is left"
    );
    tokio::time::advance(Duration::from_secs(45 * 60)).await;
    assert_eq!(cache.sweep(), (0, 0), "a sweep drops it unasked");
}

#[tokio::test]
async fn lanes_are_bounded_in_number_and_bytes_and_the_newest_stay() {
    let lanes = |settings: SessionConfig| async move {
        let cache = InProcess::new(&settings);
        for n in 0..40 {
            let key = key(&format!("trip-{n}"));
            cache
                .open(&key, opening(&key, 1, 1, &[]), Vec::new())
                .await
                .unwrap();
            cache.sweep();
        }
        let (count, bytes) = cache.sweep();
        assert!(bytes <= settings.max_bytes, "{bytes}");
        let (newest, oldest) = (key("trip-39"), key("trip-0"));
        assert!(cache.read(&newest, &[]).await.unwrap().is_some());
        assert!(cache.read(&oldest, &[]).await.unwrap().is_none());
        count
    };
    let number = SessionConfig {
        max_lanes: 10,
        ..SessionConfig::default()
    };
    assert_eq!(lanes(number).await, 10);
    let bytes = SessionConfig {
        max_bytes: 6_000,
        ..SessionConfig::default()
    };
    assert!((5..=11).contains(&lanes(bytes).await));
}

#[tokio::test]
async fn of_very_many_turns_the_oldest_half_goes() {
    let (cache, key) = (cache(), key("trip"));
    let turn = |n: u32| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&n.to_le_bytes());
        Turn {
            message: 0,
            chain: ChainHash::from_bytes(bytes),
            anchor: Anchor::from_bytes(bytes),
        }
    };
    let turns = (0..8_193).map(|n| (turn(n), block(&key, &[1])));
    cache.settle(&key, 1, turns.collect()).await.unwrap();
    let known = held(
        &cache,
        &key,
        &[turn(0), turn(4_095), turn(4_096), turn(8_192)],
    )
    .await;
    let is_known: Vec<bool> = known.turns.iter().map(|k| *k != Known::No).collect();
    assert_eq!(is_known, [false, false, true, true]);
}

#[tokio::test]
async fn cleared_it_knows_nothing() {
    let (cache, key) = (cache(), key("trip"));
    cache
        .open(&key, opening(&key, 1, 1, &[]), Vec::new())
        .await
        .unwrap();
    cache.clear();
    assert!(cache.read(&key, &[]).await.unwrap().is_none());
}

#[tokio::test]
async fn a_lane_is_no_better_checked_than_its_newest_block() {
    let (cache, key) = (cache(), key("trip"));
    cache
        .open(&key, opening(&key, 1, 1, &[]), Vec::new())
        .await
        .unwrap();
    cache.checked(&key, 9, 0).await.unwrap();
    let known_at = |revision, n| {
        let owner = Arc::new(key.session.clone());
        let block = Block::new(owner, 1, Some(enveloped(&[n])), None).unwrap();
        Outcome::Block(Arc::new(block.known_at(revision)))
    };
    let settle = async |n, outcome| {
        let settled = cache.settle(&key, 1, vec![(turn(n, n), outcome)]);
        settled.await.unwrap();
        held(&cache, &key, &[]).await.checked
    };
    assert_eq!(settle(1, Outcome::Nothing).await, 9);
    assert_eq!(settle(2, known_at(12, 2)).await, 9);
    assert_eq!(settle(2, known_at(1, 2)).await, 9, "it was not put");
    assert_eq!(settle(3, known_at(5, 3)).await, 5);
    cache.checked(&key, 9, 2).await.unwrap();
    let unchanged = held(&cache, &key, &[]).await.checked;
    assert_eq!(unchanged, 5, "nobody who checked knew of the new block");
    cache.checked(&key, 9, 3).await.unwrap();
    assert_eq!(held(&cache, &key, &[]).await.checked, 9);
}
