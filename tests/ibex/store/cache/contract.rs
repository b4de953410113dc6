//! What every cache of frozen sessions must do: put if absent, found again, rotated. Each test takes a cache, and runs once for each kind.

use std::sync::Arc;

use ibex::ids::{AgentId, MemoryId, OrgId};
use ibex::session::{Anchor, ChainHash, Lane, Opening, Outcome, Turn};
use ibex::store::shared::{BlockFate, CacheError, Known, SessionCache};

use crate::store::fixtures::lanes::{block, block_at, held, id, key, opening, sent, turn};

/// A cache with nothing in it.
pub(crate) trait Caches: Send + Sync {
    /// A handle of its own, as another replica would have; in one process there is but one.
    fn open(&self) -> Arc<dyn SessionCache>;
}

/// The whole contract for the caches of this type. A test that is not listed is reported as unused.
macro_rules! cache_contract {
    ($caches:ty) => {
        crate::store::cache::contract::each_test! {
            $caches;
            who_opens_first_is_sent_by_all,
            a_turn_is_settled_once_whatever_it_got,
            a_block_under_another_nonce_is_refused,
            a_rotation_of_an_epoch_that_is_over_gets_the_one_that_holds,
            a_rotation_opens_no_lane,
            a_rotation_decides_what_becomes_of_the_blocks,
            a_history_without_its_beginning_is_found_by_anchors_from_its_end,
            a_new_turn_on_a_known_chain_is_new_whatever_its_anchor,
            a_lane_tells_every_turn_of_every_branch_in_the_order_of_settling,
            who_opens_second_settles_under_the_first_ones_nonce_or_not_at_all,
            notes_are_kept_with_a_lane_and_make_none,
            lanes_of_another_session_user_or_model_share_nothing,
            of_very_many_turns_the_oldest_half_goes,
            a_lane_is_no_better_checked_than_its_newest_block,
        }
    };
}

macro_rules! each_test {
    ($caches:ty; $($name:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let caches = <$caches>::new();
                $crate::store::cache::contract::$name(&caches).await;
            }
        )*
    };
}

pub(crate) use {cache_contract, each_test};

pub(crate) async fn who_opens_first_is_sent_by_all(caches: &dyn Caches) {
    let (cache, key) = (caches.open(), key("trip"));
    assert!(cache.read(&key, &[]).await.unwrap().is_none());
    let other = caches.open();
    let (first, second) = (opening(&key, 1, 1, &[1]), opening(&key, 1, 1, &[2]));
    let offer = async |cache: &dyn SessionCache, offered: &Arc<Opening>| {
        let opened = cache.open(&key, Arc::clone(offered), Vec::new());
        opened.await.unwrap().0
    };
    assert!(Arc::ptr_eq(&offer(&*cache, &first).await, &first), "put");
    assert_eq!(offer(&*other, &second).await, first);
    assert_eq!(offer(&*cache, &second).await, first);
    let turns = vec![(turn(1, 1), Outcome::Nothing)];
    other.restore(&key, second, turns).await.unwrap();
    let held = held(&*cache, &key, &[turn(1, 1)]).await;
    assert_eq!(held.opening.unwrap(), first);
    assert_eq!(
        held.turns,
        [Known::No],
        "nothing of a late restore is taken"
    );
}

pub(crate) async fn a_turn_is_settled_once_whatever_it_got(caches: &dyn Caches) {
    let (cache, other, key) = (caches.open(), caches.open(), key("trip"));
    let offer = async |cache: &dyn SessionCache, outcome: Outcome, n| {
        let turns = vec![(turn(n, n), outcome)];
        cache.settle(&key, 1, turns).await.unwrap().remove(0)
    };
    let won = block(&key, &[1]);
    assert_eq!(offer(&*cache, won.clone(), 1).await, won);
    assert_eq!(offer(&*cache, block(&key, &[2]), 1).await, won);
    assert_eq!(offer(&*other, block(&key, &[2]), 1).await, won);
    let nothing = offer(&*other, Outcome::Nothing, 2);
    assert_eq!(nothing.await, Outcome::Nothing);
    assert_eq!(
        offer(&*cache, block(&key, &[2]), 2).await,
        Outcome::Nothing,
        "nothing is an outcome, and is not filled in later"
    );
}

pub(crate) async fn a_block_under_another_nonce_is_refused(caches: &dyn Caches) {
    let (cache, key) = (caches.open(), key("trip"));
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

pub(crate) async fn a_rotation_of_an_epoch_that_is_over_gets_the_one_that_holds(
    caches: &dyn Caches,
) {
    let (cache, key) = (caches.open(), key("trip"));
    cache
        .open(&key, opening(&key, 1, 1, &[1, 2]), Vec::new())
        .await
        .unwrap();
    let second = opening(&key, 2, 1, &[2]);
    let other = caches.open();
    let rotate = async |cache: &dyn SessionCache, next: &Arc<Opening>| {
        let rotated = cache.rotate(&key, 1, Arc::clone(next), BlockFate::Keep);
        rotated.await.unwrap()
    };
    assert!(Arc::ptr_eq(&rotate(&*cache, &second).await, &second), "put");
    let late = opening(&key, 2, 1, &[]);
    assert_eq!(rotate(&*other, &late).await, second);
    assert_eq!(rotate(&*cache, &late).await, second);
    let holds = held(&*other, &key, &[]).await.opening.unwrap();
    assert_eq!(holds, second);
}

/// It was lost since it was read: opened here, it would look whole without its turns.
pub(crate) async fn a_rotation_opens_no_lane(caches: &dyn Caches) {
    let (cache, other) = (caches.open(), caches.open());
    let fates = [
        BlockFate::Keep,
        BlockFate::Drop,
        BlockFate::Without(vec![id(1)]),
    ];
    for (n, fate) in (0..).zip(fates) {
        let key = key(&format!("lost-{n}"));
        let next = || opening(&key, 2, 1, &[]);
        let rotated = cache.rotate(&key, 1, next(), fate.clone()).await;
        assert!(matches!(rotated, Err(CacheError::Rotated)), "{rotated:?}");
        assert!(other.read(&key, &[]).await.unwrap().is_none());
        // Nor one in which turns were settled before it was opened.
        let settled = vec![(turn(1, 1), Outcome::Nothing)];
        cache.settle(&key, 1, settled).await.unwrap();
        let rotated = cache.rotate(&key, 1, next(), fate).await;
        assert!(matches!(rotated, Err(CacheError::Rotated)), "{rotated:?}");
        assert!(held(&*other, &key, &[]).await.opening.is_none());
    }
}

pub(crate) async fn a_rotation_decides_what_becomes_of_the_blocks(caches: &dyn Caches) {
    let turns = [turn(1, 1), turn(2, 2), turn(3, 3)];
    let (cache, other) = (caches.open(), caches.open());
    for (n, (fate, expected)) in (0..).zip([
        (BlockFate::Keep, [vec![1, 2], vec![3], vec![]]),
        (BlockFate::Drop, [vec![], vec![], vec![]]),
        (BlockFate::Without(vec![id(1)]), [vec![2], vec![3], vec![]]),
        (
            BlockFate::Without(vec![id(3)]),
            [vec![1, 2], vec![], vec![]],
        ),
    ]) {
        let key = key(&format!("trip-{n}"));
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
        for (known, left) in held(&*other, &key, &turns).await.turns.iter().zip(expected) {
            let Known::Chain(outcome) = known else {
                panic!("a settled turn stays known")
            };
            let ids = outcome.block().map(|b| b.ids().collect::<Vec<_>>());
            let left: Vec<MemoryId> = left.into_iter().map(id).collect();
            assert_eq!(ids.unwrap_or_default(), left);
        }
    }
}

pub(crate) async fn a_history_without_its_beginning_is_found_by_anchors_from_its_end(
    caches: &dyn Caches,
) {
    let (cache, other, key) = (caches.open(), caches.open(), key("trip"));
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
    let known = held(&*other, &key, &asked(&[2, 3, 2, 5])).await.turns;
    assert_eq!(known, [anchored(2), anchored(3), anchored(4), anchored(5)]);
    let known = held(&*other, &key, &asked(&[2, 5])).await.turns;
    assert_eq!(known, [anchored(4), anchored(5)], "the newest one first");
    let known = held(&*other, &key, &asked(&[5, 3])).await.turns;
    assert_eq!(known, [anchored(5), Known::No], "never against the order");
    let known = held(&*other, &key, &asked(&[5, 2, 3, 9])).await.turns;
    let most = [Known::No, anchored(2), anchored(3), Known::No];
    assert_eq!(known, most, "as many as can be");
    let known = held(&*other, &key, &asked(&[9, 3, 9])).await.turns;
    assert_eq!(known, [Known::No, anchored(3), Known::No]);
}

pub(crate) async fn a_new_turn_on_a_known_chain_is_new_whatever_its_anchor(caches: &dyn Caches) {
    let (cache, key) = (caches.open(), key("trip"));
    let settled = vec![
        (turn(1, 1), block(&key, &[1])),
        (turn(2, 2), block(&key, &[2])),
    ];
    cache.settle(&key, 1, settled).await.unwrap();
    let known = held(&*cache, &key, &[turn(1, 1), turn(2, 2), turn(3, 2)]).await;
    let own = |n| Known::Chain(block(&key, &[n]));
    assert_eq!(known.turns, [own(1), own(2), Known::No]);
    // A turn that is on the chain itself is nobody else's.
    let known = held(&*cache, &key, &[turn(9, 2), turn(2, 2), turn(3, 3)]).await;
    assert_eq!(known.turns, [Known::No, own(2), Known::No]);
}

pub(crate) async fn a_lane_tells_every_turn_of_every_branch_in_the_order_of_settling(
    caches: &dyn Caches,
) {
    let (cache, other, key) = (caches.open(), caches.open(), key("trip"));
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
    assert_eq!(other.turns(&key).await.unwrap(), [first, more].concat());
}

pub(crate) async fn who_opens_second_settles_under_the_first_ones_nonce_or_not_at_all(
    caches: &dyn Caches,
) {
    let (cache, key) = (caches.open(), key("trip"));
    let first = opening(&key, 1, 1, &[]);
    cache
        .open(&key, Arc::clone(&first), Vec::new())
        .await
        .unwrap();
    let turns = |n| vec![(turn(n, n), Outcome::Nothing)];
    let same = cache.open(&key, opening(&key, 1, 1, &[1]), turns(1)).await;
    let (holds, settled) = same.unwrap();
    assert_eq!(holds, first);
    assert_eq!(settled, [Outcome::Nothing]);
    let other = cache.open(&key, opening(&key, 2, 2, &[]), turns(2)).await;
    assert!(matches!(other, Err(CacheError::Rotated)));
    let known = held(&*cache, &key, &[turn(1, 1), turn(2, 2)]).await.turns;
    assert_eq!(known, [Known::Chain(Outcome::Nothing), Known::No]);
}

pub(crate) async fn notes_are_kept_with_a_lane_and_make_none(caches: &dyn Caches) {
    let (cache, key) = (caches.open(), key("trip"));
    let sent = sent(1);
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
    let held = held(&*cache, &key, &[]).await;
    assert_eq!((held.checked, held.last), (5, Some(sent)), "the later look");
}

pub(crate) async fn lanes_of_another_session_user_or_model_share_nothing(caches: &dyn Caches) {
    let (cache, reader, key) = (caches.open(), caches.open(), key("trip"));
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
        assert!(reader.read(other, &[]).await.unwrap().is_none());
    }
}

pub(crate) async fn of_very_many_turns_the_oldest_half_goes(caches: &dyn Caches) {
    let (cache, key) = (caches.open(), key("trip"));
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
        &*cache,
        &key,
        &[turn(0), turn(4_095), turn(4_096), turn(8_192)],
    )
    .await;
    let is_known: Vec<bool> = known.turns.iter().map(|k| *k != Known::No).collect();
    assert_eq!(is_known, [false, false, true, true]);
}

pub(crate) async fn a_lane_is_no_better_checked_than_its_newest_block(caches: &dyn Caches) {
    let (cache, key) = (caches.open(), key("trip"));
    cache
        .open(&key, opening(&key, 1, 1, &[]), Vec::new())
        .await
        .unwrap();
    cache.checked(&key, 9, 0).await.unwrap();
    let known_at = |revision, n| block_at(&key, &[n], false, revision);
    let settle = async |n, outcome| {
        let settled = cache.settle(&key, 1, vec![(turn(n, n), outcome)]);
        settled.await.unwrap();
        held(&*cache, &key, &[]).await.checked
    };
    assert_eq!(settle(1, Outcome::Nothing).await, 9);
    assert_eq!(settle(2, known_at(12, 2)).await, 9);
    assert_eq!(settle(2, known_at(1, 2)).await, 9, "it was not put");
    assert_eq!(settle(3, known_at(5, 3)).await, 5);
    cache.checked(&key, 9, 2).await.unwrap();
    let unchanged = held(&*cache, &key, &[]).await.checked;
    assert_eq!(unchanged, 5, "nobody who checked knew of the new block");
    cache.checked(&key, 9, 3).await.unwrap();
    assert_eq!(held(&*cache, &key, &[]).await.checked, 9);
}
