//! What one lane is: bounded, gone when idle, read by its own key's programs only.

use std::sync::Arc;

use ibex::ids::{AgentId, OrgId};
use ibex::session::{Anchor, Block, ChainHash, Lane, LaneKey, Outcome, Turn};
use ibex::store::shared::{BlockFate, CacheError, Known, SessionCache};

use super::items::Pair;
use crate::store::fixtures::lanes::{block, held, id, key, opening, sent, turn};

fn is_unavailable<T>(answer: Result<T, CacheError>) -> bool {
    matches!(answer, Err(CacheError::Unavailable(_)))
}

/// A lane with two settled turns, put by the first replica.
async fn opened(pair: &Pair, key: &LaneKey) {
    let turns = vec![
        (turn(1, 1), block(key, &[1, 2])),
        (turn(2, 2), Outcome::Nothing),
    ];
    let opened = pair.replicas[0].open(key, opening(key, 1, 1, &[1]), turns);
    opened.await.unwrap();
}

#[tokio::test]
async fn a_use_lets_a_lane_live_on_and_a_note_is_none() {
    let (mut pair, key) = (Pair::new().await, key("trip"));
    opened(&pair, &key).await;
    let name = pair.name(&key);
    let almost = 1_000_000;
    for (n, is_use) in [true, true, true, true, true, false, false, false]
        .into_iter()
        .enumerate()
    {
        pair.raw.let_live(&name, almost).await;
        let cache = &pair.replicas[1];
        let rotation = || (opening(&key, 9, 1, &[]), BlockFate::Keep);
        match n {
            0 => drop(cache.read(&key, &[]).await.unwrap()),
            1 => drop(cache.settle(&key, 1, Vec::new()).await.unwrap()),
            2 => drop(cache.settle(&key, 7, Vec::new()).await.unwrap_err()),
            3 => drop(
                cache
                    .open(&key, opening(&key, 1, 1, &[]), Vec::new())
                    .await
                    .unwrap(),
            ),
            4 => {
                let (opening, fate) = rotation();
                drop(cache.rotate(&key, 8, opening, fate).await.unwrap());
            }
            5 => drop(cache.turns(&key).await.unwrap()),
            6 => cache.checked(&key, 4, 2).await.unwrap(),
            _ => cache.sent(&key, sent(1)).await.unwrap(),
        }
        let left = pair.left(&key).await;
        assert_eq!(left > i64::from(almost), is_use, "{n}: {left}");
        assert!(left > 0, "{n}: {left}");
    }
}

#[tokio::test]
async fn notes_make_no_lane() {
    let (mut pair, key) = (Pair::new().await, key("trip"));
    let [cache, _] = &pair.replicas;
    cache.checked(&key, 5, 0).await.unwrap();
    cache.sent(&key, sent(1)).await.unwrap();
    assert!(cache.read(&key, &[]).await.unwrap().is_none());
    assert_eq!(cache.turns(&key).await.unwrap(), []);
    let name = pair.name(&key);
    assert!(!pair.raw.exists(&name).await);
}

#[tokio::test]
async fn lanes_of_another_session_user_or_model_share_nothing() {
    let (pair, key) = (Pair::new().await, key("trip"));
    opened(&pair, &key).await;
    let mut others = vec![key.clone(); 5];
    others[0].session.id = "trap".parse().unwrap();
    others[1].session.user = Some("ann".parse().unwrap());
    others[2].session.agent = AgentId::new();
    others[3].session.org = OrgId::new();
    others[4].lane = Lane::new("other", "gpt-4o");
    for other in &others {
        assert!(pair.replicas[1].read(other, &[]).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn what_was_read_is_the_owners_and_byte_for_byte_what_was_put() {
    let (pair, key) = (Pair::new().await, key("trip"));
    opened(&pair, &key).await;
    let (mine, theirs) = (
        held(&pair.replicas[0], &key, &[turn(1, 1)]).await,
        held(&pair.replicas[1], &key, &[turn(1, 1)]).await,
    );
    let (mine, theirs) = (mine.opening.unwrap(), theirs.opening.unwrap());
    assert_eq!(mine, theirs);
    assert_eq!(mine.owner.as_ref(), &key.session);
    assert_eq!(theirs.owner.as_ref(), &key.session);
    let pieces = |o: &ibex::session::Opening| o.snapshot.as_ref().unwrap().pieces().concat();
    assert_eq!(pieces(&mine), pieces(&theirs));
}

fn numbered(n: u32, anchor: u32) -> Turn {
    let bytes = |n: u32| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&n.to_le_bytes());
        bytes
    };
    Turn {
        message: 0,
        chain: ChainHash::from_bytes(bytes(n)),
        anchor: Anchor::from_bytes(bytes(anchor)),
    }
}

/// Settles so many turns with a few anchors, every third with a block.
async fn settle_many(cache: &dyn SessionCache, key: &LaneKey, first: u32, count: u32) {
    let some = block(key, &[1]);
    let turns = (first..first + count).map(|n| {
        let outcome = if n % 3 == 0 {
            some.clone()
        } else {
            Outcome::Nothing
        };
        (numbered(n, n % 50), outcome)
    });
    cache.settle(key, 1, turns.collect()).await.unwrap();
}

#[tokio::test]
async fn of_very_many_turns_the_same_ones_go_as_in_one_process() {
    let (pair, key, model) = (Pair::new().await, key("trip"), super::model::model());
    let [one, other] = &pair.replicas;
    for (first, count) in [
        (0, 8_000),
        (8_000, 192),
        (8_192, 1),
        (8_193, 4_000),
        (12_193, 1),
    ] {
        settle_many(&model, &key, first, count).await;
        settle_many(one, &key, first, count).await;
        let (expected, got) = (
            model.turns(&key).await.unwrap(),
            other.turns(&key).await.unwrap(),
        );
        assert_eq!(got.len(), expected.len(), "{first}");
        assert!(got == expected, "{first}");
        // By chain, and by anchors in a history that was cut off.
        let asked: Vec<Turn> = (0..12_200)
            .step_by(7)
            .map(|n| numbered(n, n % 50))
            .collect();
        let cut: Vec<Turn> = (0..60).map(|n| numbered(n + 100_000, n % 50)).collect();
        for asked in [&asked, &cut] {
            let expected = held(&model, &key, asked).await.turns;
            assert!(held(other, &key, asked).await.turns == expected, "{first}");
        }
    }
}

#[tokio::test]
async fn turns_that_got_the_same_block_share_it() {
    let (mut pair, key) = (Pair::new().await, key("trip"));
    opened(&pair, &key).await;
    let some = block(&key, &[1, 2, 3, 4]);
    let turns = (10..200).map(|n| (turn(n, n), some.clone())).collect();
    pair.replicas[0].settle(&key, 1, turns).await.unwrap();
    let name = pair.name(&key);
    let fields: Vec<Vec<u8>> = pair.raw.ask(&[b"HKEYS", name.as_bytes()]).await;
    let values = fields
        .iter()
        .filter(|f| f.len() > 1 && f[0] == b'b')
        .count();
    assert_eq!(values, 3, "Region A, and two blocks");
    let next = opening(&key, 2, 1, &[]);
    let gone = BlockFate::Without(vec![id(1), id(2)]);
    pair.replicas[1].rotate(&key, 1, next, gone).await.unwrap();
    let fields: Vec<Vec<u8>> = pair.raw.ask(&[b"HKEYS", name.as_bytes()]).await;
    let values = fields
        .iter()
        .filter(|f| f.len() > 1 && f[0] == b'b')
        .count();
    assert_eq!(values, 2, "Region A, and what is left of one block");
    let known = held(&pair.fresh(), &key, &[turn(1, 1), turn(77, 77)])
        .await
        .turns;
    let left = block(&key, &[3, 4]);
    assert_eq!(known, [Known::Chain(Outcome::Nothing), Known::Chain(left)]);
}

#[tokio::test]
async fn a_forgotten_memory_leaves_redis_with_the_rotation() {
    let (mut pair, key) = (Pair::new().await, key("trip"));
    opened(&pair, &key).await;
    let name = pair.name(&key);
    let holds = async |pair: &mut Pair| {
        let all: Vec<Vec<u8>> = pair.raw.ask(&[b"HVALS", name.as_bytes()]).await;
        all.concat().windows(8).any(|bytes| bytes == b"Memory 1")
    };
    assert!(holds(&mut pair).await);
    let before = held(&pair.replicas[1], &key, &[]).await.opening.unwrap();
    let next = Arc::new(before.without(&[id(1)]));
    let fate = BlockFate::Without(vec![id(1)]);
    let rotated = pair.replicas[1].rotate(&key, 1, Arc::clone(&next), fate);
    assert!(Arc::ptr_eq(&rotated.await.unwrap(), &next));
    assert!(!holds(&mut pair).await);
}

#[tokio::test]
async fn a_lane_of_a_newer_program_is_left_alone() {
    let (mut pair, key) = (Pair::new().await, key("trip"));
    opened(&pair, &key).await;
    let name = pair.name(&key);
    let _: i64 = pair.raw.ask(&[b"HSET", name.as_bytes(), b"v", b"2"]).await;
    let before: Vec<u8> = pair.raw.ask(&[b"DUMP", name.as_bytes()]).await;
    let [cache, _] = &pair.replicas;
    let next = || opening(&key, 2, 1, &[]);
    let turns = || vec![(turn(7, 7), Outcome::Nothing)];
    assert!(is_unavailable(cache.read(&key, &[turn(1, 1)]).await));
    assert!(is_unavailable(cache.open(&key, next(), turns()).await));
    assert!(is_unavailable(cache.restore(&key, next(), turns()).await));
    assert!(is_unavailable(cache.settle(&key, 1, turns()).await));
    for fate in [BlockFate::Keep, BlockFate::Without(vec![id(1)])] {
        assert!(is_unavailable(cache.rotate(&key, 1, next(), fate).await));
    }
    assert!(is_unavailable(cache.turns(&key).await));
    cache.checked(&key, 5, 2).await.unwrap();
    cache.sent(&key, sent(1)).await.unwrap();
    let after: Vec<u8> = pair.raw.ask(&[b"DUMP", name.as_bytes()]).await;
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_lane_of_an_older_program_is_as_good_as_none_and_makes_room() {
    let (mut pair, key) = (Pair::new().await, key("trip"));
    opened(&pair, &key).await;
    let name = pair.name(&key);
    let _: i64 = pair
        .raw
        .ask(&[b"HSET", name.as_bytes(), b"v", b"0", b"x", b"odd"])
        .await;
    let [cache, _] = &pair.replicas;
    assert!(cache.read(&key, &[turn(1, 1)]).await.unwrap().is_none());
    assert_eq!(cache.turns(&key).await.unwrap(), []);
    let next = opening(&key, 2, 2, &[]);
    let opened = cache.open(&key, Arc::clone(&next), Vec::new()).await;
    assert!(Arc::ptr_eq(&opened.unwrap().0, &next));
    let known = held(cache, &key, &[turn(1, 1)]).await.turns;
    assert_eq!(known, [Known::No]);
    let odd: Option<Vec<u8>> = pair.raw.ask(&[b"HGET", name.as_bytes(), b"x"]).await;
    assert_eq!(odd, None);
    assert!(pair.left(&key).await > 0);
}

/// Spoils a lane, and has a replica that has seen nothing of it look.
async fn spoilt(field: &[u8], value: Option<&[u8]>) {
    let (mut pair, key) = (Pair::new().await, key("trip"));
    opened(&pair, &key).await;
    let name = pair.name(&key);
    let fields: Vec<Vec<u8>> = pair.raw.ask(&[b"HKEYS", name.as_bytes()]).await;
    let hits: Vec<&Vec<u8>> = fields.iter().filter(|f| f.starts_with(field)).collect();
    assert!(!hits.is_empty());
    for field in hits {
        match value {
            Some(value) => {
                let _: i64 = pair
                    .raw
                    .ask(&[b"HSET", name.as_bytes(), field, value])
                    .await;
            }
            None => {
                let _: i64 = pair.raw.ask(&[b"HDEL", name.as_bytes(), field]).await;
            }
        }
    }
    let cache = pair.fresh();
    let read = cache.read(&key, &[turn(1, 1), turn(2, 2)]).await;
    assert!(read.unwrap().is_none(), "{field:?}");
    assert!(!pair.raw.exists(&name).await, "{field:?}");
    let next = opening(&key, 1, 1, &[3]);
    let opened = cache.open(&key, Arc::clone(&next), Vec::new()).await;
    assert!(Arc::ptr_eq(&opened.unwrap().0, &next));
}

#[tokio::test]
async fn a_damaged_lane_is_dropped_and_opened_anew() {
    for field in ["b", "t", "o", "k"] {
        spoilt(field.as_bytes(), Some(b"odd")).await;
    }
    spoilt(b"b", None).await;
}

#[tokio::test]
async fn a_lane_that_was_frozen_under_another_session_key_is_dropped() {
    let (mut pair, key) = (Pair::new().await, key("trip"));
    opened(&pair, &key).await;
    let read = pair.foreign().read(&key, &[turn(1, 1)]).await;
    assert!(read.unwrap().is_none());
    let name = pair.name(&key);
    assert!(!pair.raw.exists(&name).await);
}

#[tokio::test]
async fn another_lanes_text_is_not_read() {
    let (mut pair, mine) = (Pair::new().await, key("trip"));
    let theirs = LaneKey {
        session: ibex::session::SessionKey {
            org: OrgId::from_bytes([7; 16]),
            ..mine.session.clone()
        },
        lane: mine.lane.clone(),
    };
    opened(&pair, &theirs).await;
    let (from, to) = (pair.name(&theirs), pair.name(&mine));
    let copied: i64 = pair
        .raw
        .ask(&[b"COPY", from.as_bytes(), to.as_bytes()])
        .await;
    assert_eq!(copied, 1);
    // The first replica knows these values by their names, and the other one does not.
    for cache in &pair.replicas {
        assert!(cache.read(&mine, &[turn(1, 1)]).await.unwrap().is_none());
        let _: i64 = pair
            .raw
            .ask(&[b"COPY", from.as_bytes(), to.as_bytes()])
            .await;
    }
    assert!(is_unavailable(pair.replicas[0].turns(&mine).await));
    assert!(!pair.raw.exists(&to).await);
    assert!(pair.raw.exists(&from).await);
}

#[tokio::test]
async fn a_lane_that_was_made_anew_is_not_taken_for_the_damaged_one() {
    let (mut pair, key) = (Pair::new().await, key("trip"));
    opened(&pair, &key).await;
    let name = pair.name(&key);
    let maker: Vec<u8> = pair.raw.ask(&[b"HGET", name.as_bytes(), b"u"]).await;
    let _: i64 = pair.raw.ask(&[b"DEL", name.as_bytes()]).await;
    opened(&pair, &key).await;
    let newer: Vec<u8> = pair.raw.ask(&[b"HGET", name.as_bytes(), b"u"]).await;
    assert_ne!(maker, newer);
}

#[tokio::test]
async fn no_error_and_no_key_says_what_a_session_says() {
    let (mut pair, key) = (Pair::new().await, key("my-secret-trip"));
    let owner = Arc::new(key.session.clone());
    let recall = ibex::session::StateDelta {
        json: "my secret state".into(),
        from: 0,
        to: 1,
        cost: ibex::tokens::Tally::given(ibex::tokens::Family::Unknown, 1),
    };
    let told = Block::new(owner, 1, None, Some(recall)).unwrap();
    let turns = vec![(turn(1, 1), Outcome::Block(Arc::new(told)))];
    pair.replicas[0]
        .settle(&key, 1, turns.clone())
        .await
        .unwrap();
    let name = pair.name(&key);
    assert!(!name.contains("secret"));
    let _: String = pair
        .raw
        .ask(&[b"RENAME", name.as_bytes(), b"elsewhere"])
        .await;
    let _: String = pair.raw.ask(&[b"SET", name.as_bytes(), b"no hash"]).await;
    for answer in [
        pair.replicas[0].settle(&key, 1, turns).await.map(drop),
        pair.replicas[0].read(&key, &[turn(1, 1)]).await.map(drop),
        pair.replicas[0].turns(&key).await.map(drop),
    ] {
        let error = answer.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the session cache is unavailable: Redis has not done what it was asked"
        );
    }
    let _: i64 = pair.raw.ask(&[b"DEL", name.as_bytes(), b"elsewhere"]).await;
}
