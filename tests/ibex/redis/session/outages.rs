//! Redis away, full, empty again, or cut off in the middle of a call: nothing is settled twice, and nothing lives without an end.

use std::sync::Arc;

use ibex::session::Outcome;
use ibex::store::shared::{BlockFate, CacheError, Known, SessionCache};

use super::super::proxy::Proxy;
use super::super::replica_at;
use super::items::{Pair, sessions};
use crate::store::fixtures::lanes::{block, held, id, key, opening, sent, turn};
use crate::support::services::{OwnRedis, fresh_prefix, redis_url};

#[tokio::test]
async fn a_call_whose_answer_is_lost_is_made_again_and_is_still_the_first() {
    let proxy = Proxy::before(redis_url()).await;
    let redis = replica_at(proxy.url(), &fresh_prefix());
    let (cache, key) = (sessions(&redis), key("trip"));
    let first = opening(&key, 1, 1, &[1, 2]);
    let turns = vec![(turn(1, 1), block(&key, &[1]))];
    // The scripts are loaded: what is lost is the answer of a call.
    cache
        .open(&key, Arc::clone(&first), Vec::new())
        .await
        .unwrap();
    let next = opening(&key, 2, 1, &[2]);
    cache
        .rotate(&key, 1, Arc::clone(&next), BlockFate::Keep)
        .await
        .unwrap();
    let other = crate::store::fixtures::lanes::key("other");
    proxy.lose(1);
    let (holds, settled) = cache
        .open(&other, Arc::clone(&first), turns.clone())
        .await
        .unwrap();
    assert!(Arc::ptr_eq(&holds, &first));
    assert_eq!(settled, [block(&key, &[1])]);
    proxy.lose(1);
    let second = vec![(turn(2, 2), block(&key, &[2]))];
    let settled = cache.settle(&other, 1, second.clone()).await.unwrap();
    assert_eq!(settled, [block(&key, &[2])]);
    for (epoch, fate) in [
        (2, BlockFate::Keep),
        (3, BlockFate::Without(vec![id(1)])),
        (4, BlockFate::Drop),
    ] {
        proxy.lose(1);
        let next = opening(&other, epoch, 1, &[]);
        let holds = cache
            .rotate(&other, epoch - 1, Arc::clone(&next), fate)
            .await
            .unwrap();
        assert!(Arc::ptr_eq(&holds, &next), "{epoch}");
    }
    proxy.lose(1);
    cache.sent(&other, sent(3)).await.unwrap();
    proxy.lose(1);
    cache.checked(&other, 9, 2).await.unwrap();
    proxy.lose(1);
    let now = held(&cache, &other, &[turn(1, 1), turn(2, 2)]).await;
    assert_eq!((now.checked, now.last), (9, Some(sent(3))));
    let nothing = Known::Chain(Outcome::Nothing);
    assert_eq!(now.turns, [nothing.clone(), nothing]);
    assert_eq!(cache.turns(&other).await.unwrap().len(), 2);
    assert_eq!(proxy.lost(), 8);
}

#[tokio::test]
async fn connections_that_are_killed_all_the_time_settle_no_turn_twice() {
    let engine = OwnRedis::start();
    let mut pair = Pair::at(engine.url()).await;
    let key = key("trip");
    pair.replicas[0]
        .open(&key, opening(&key, 1, 1, &[]), Vec::new())
        .await
        .unwrap();
    for n in 0..200_u8 {
        let [one, other] = &pair.replicas;
        let offer = |memory| vec![(turn(n, n), block(&key, &[memory]))];
        let kill = pair
            .raw
            .ask::<i64>(&[b"CLIENT", b"KILL", b"TYPE", b"normal", b"SKIPME", b"yes"]);
        let (first, second, _) = tokio::join!(
            one.settle(&key, 1, offer(1)),
            other.settle(&key, 1, offer(2)),
            kill
        );
        // Whoever was answered was answered the same.
        let answered: Vec<Vec<Outcome>> = [first, second].into_iter().flatten().collect();
        let holds = loop {
            // A breaker may rest for a moment.
            match one.settle(&key, 1, offer(3)).await {
                Ok(holds) => break holds,
                Err(CacheError::Unavailable(_)) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        assert!(
            answered.iter().all(|answer| *answer == holds),
            "{n}: {answered:?}"
        );
    }
    assert!(pair.left(&key).await > 0);
}

#[tokio::test]
async fn a_redis_that_comes_back_empty_has_no_lanes_and_takes_new_ones() {
    let engine = OwnRedis::start();
    let pair = Pair::at(engine.url()).await;
    let key = key("trip");
    let [one, other] = &pair.replicas;
    let turns = vec![(turn(1, 1), block(&key, &[1]))];
    one.open(&key, opening(&key, 1, 1, &[1]), turns)
        .await
        .unwrap();
    engine.stop();
    let read = other.read(&key, &[turn(1, 1)]).await;
    assert!(matches!(read, Err(CacheError::Unavailable(_))));
    engine.restart();
    let read = loop {
        match one.read(&key, &[turn(1, 1)]).await {
            Ok(read) => break read,
            Err(CacheError::Unavailable(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(
        read.is_none(),
        "what the replica has seen does not stand in for the lane"
    );
    let second = opening(&key, 1, 1, &[2]);
    let holds = one
        .open(&key, Arc::clone(&second), Vec::new())
        .await
        .unwrap()
        .0;
    assert!(Arc::ptr_eq(&holds, &second));
    let known = held(one, &key, &[turn(1, 1)]).await.turns;
    assert_eq!(known, [Known::No]);
}

#[tokio::test]
async fn a_full_redis_takes_nothing_and_is_still_read() {
    let engine = OwnRedis::start();
    let mut pair = Pair::at(engine.url()).await;
    let (trip, trap) = (key("trip"), key("trap"));
    let [one, other] = &pair.replicas;
    let turns = vec![(turn(1, 1), block(&trip, &[1]))];
    one.open(&trip, opening(&trip, 1, 1, &[1]), turns.clone())
        .await
        .unwrap();
    engine.fill();
    let unavailable = |answer: Result<(), CacheError>| {
        assert!(
            matches!(answer, Err(CacheError::Unavailable(_))),
            "{answer:?}"
        );
    };
    unavailable(
        one.open(&trap, opening(&trap, 1, 1, &[1]), turns)
            .await
            .map(drop),
    );
    let more = vec![(turn(2, 2), block(&trip, &[2]))];
    unavailable(one.settle(&trip, 1, more).await.map(drop));
    let read = held(other, &trip, &[turn(1, 1), turn(2, 2)]).await;
    assert_eq!(read.turns, [Known::Chain(block(&trip, &[1])), Known::No]);
    assert_eq!(read.opening.unwrap().epoch, 1);
    assert!(other.read(&trap, &[]).await.unwrap().is_none());
    // What was forgotten leaves all the same.
    let (next, fate) = (opening(&trip, 2, 1, &[]), BlockFate::Without(vec![id(1)]));
    let rotated = one.rotate(&trip, 1, Arc::clone(&next), fate).await;
    assert!(Arc::ptr_eq(&rotated.unwrap(), &next));
    let read = held(other, &trip, &[turn(1, 1)]).await;
    assert_eq!(read.turns, [Known::Chain(Outcome::Nothing)]);
    engine.make_space();
    let more = vec![(turn(2, 2), block(&trip, &[3]))];
    assert_eq!(
        other.settle(&trip, 1, more).await.unwrap(),
        [block(&trip, &[3])]
    );
    assert!(pair.left(&trip).await > 0);
}
