//! What is the in-process cache's own: it shares what it holds, is bounded, and drops what is idle. What every cache must do is in
//! `tests/ibex/store/cache`.

use std::sync::Arc;
use std::time::Duration;

use super::super::{BlockFate, SessionCache};
use super::InProcess;
use crate::config::SessionConfig;
use crate::store::testing::lanes::{held, key, opening};

fn cache() -> InProcess {
    InProcess::new(&SessionConfig::default())
}

#[tokio::test]
async fn what_is_frozen_is_handed_out_without_a_copy() {
    let (cache, key) = (cache(), key("trip"));
    let (first, second) = (opening(&key, 1, 1, &[1]), opening(&key, 1, 1, &[2]));
    for offered in [&first, &second] {
        let opened = cache.open(&key, Arc::clone(offered), Vec::new());
        assert!(Arc::ptr_eq(&opened.await.unwrap().0, &first));
    }
    let next = opening(&key, 2, 1, &[2]);
    for offered in [&next, &second] {
        let rotated = cache.rotate(&key, 1, Arc::clone(offered), BlockFate::Keep);
        assert!(Arc::ptr_eq(&rotated.await.unwrap(), &next));
    }
    let holds = held(&cache, &key, &[]).await.opening.unwrap();
    assert!(Arc::ptr_eq(&holds, &next));
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
async fn cleared_it_knows_nothing() {
    let (cache, key) = (cache(), key("trip"));
    cache
        .open(&key, opening(&key, 1, 1, &[]), Vec::new())
        .await
        .unwrap();
    cache.clear();
    assert!(cache.read(&key, &[]).await.unwrap().is_none());
}
