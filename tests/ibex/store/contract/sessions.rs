//! Sessions: records, what a lane is rendered from again, the view, ends and removal.

use jiff::Timestamp;

use ibex::ids::{AgentId, MemoryId};
use ibex::memory::PartitionKey;
use ibex::session::record::{OpeningRecord, SessionRecord, TurnEnd, TurnRecord, TurnView};
use ibex::session::{LaneKey, RotationReason, SessionKey};
use ibex::store::StoreError;

use super::Backend;
use crate::store::fixtures::sessions::{
    MODEL, chain, end, ended, key, lane, live, open, opened, opening, record, remembered, settle,
    settled, turn, view,
};
use crate::store::fixtures::{Engine, new_agent, new_org, new_partition, of_user, time};

pub(crate) async fn a_lane_is_read_back_as_it_was_recorded_also_after_a_restart(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let lane = lane(&key(&new_partition(&*store).await, "s"), MODEL);
    assert_eq!(store.session_lane(&lane).await.unwrap(), None);
    assert_eq!(view(&*store, &lane.session).await, None);
    let first = OpeningRecord {
        directive: Some(3),
        snapshot: vec![MemoryId::new(), MemoryId::new(), MemoryId::new()],
        ..opening(1, 1)
    };
    let second = OpeningRecord {
        snapshot: first.snapshot[1..].to_vec(),
        nonce_epoch: 1,
        reason: Some(RotationReason::Forget),
        ..opening(2, 3)
    };
    let full = TurnRecord {
        memories: vec![MemoryId::new(), MemoryId::new()],
        state: Some((0, 2)),
        digest: Some([9; 16]),
        ..turn(1, 2)
    };
    let empty = turn(2, 4);
    record(
        &*store,
        &[
            SessionRecord::Opened(lane.clone(), first.clone()),
            SessionRecord::Settled(lane.clone(), full.clone()),
            SessionRecord::Opened(lane.clone(), second.clone()),
            SessionRecord::Settled(lane.clone(), empty.clone()),
        ],
    )
    .await;
    store.close().await.unwrap();
    let store = backend.open().await;
    let stored = store.session_lane(&lane).await.unwrap().unwrap();
    assert_eq!(stored.opening, second, "the newest epoch");
    assert_eq!(stored.turns, [full.clone(), empty.clone()], "oldest first");
    let view = view(&*store, &lane.session).await.unwrap();
    assert_eq!((view.created_at, view.used_at), (time(1), time(4)));
    assert_eq!((view.terminated_at, view.turns), (None, 2));
    assert_eq!(view.lanes.len(), 1);
    assert_eq!(view.lanes[0].lane, lane.lane);
    assert_eq!(view.lanes[0].epochs, [first, second]);
    let turn = |index, turn| TurnView {
        lane: lane.lane.clone(),
        index,
        turn,
        calls: 0,
        end: None,
    };
    assert_eq!(view.latest, [turn(1, empty), turn(0, full)], "newest first");
}

pub(crate) async fn sessions_are_in_no_change_feed(backend: &dyn Backend) {
    let store = backend.open().await;
    let lane = opened(&*store).await;
    record(&*store, &[settle(&lane, 1, 2), ended(&lane, 1, end(3))]).await;
    let session = &lane.session;
    store
        .put_working_state(session, "{}".to_owned(), time(4))
        .await
        .unwrap();
    assert_eq!(store.revision().await.unwrap(), 2, "organisation and agent");
}

pub(crate) async fn the_same_id_in_another_scope_is_another_session(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let second_agent = PartitionKey {
        agent: new_agent(&*store, own.org).await,
        ..own.clone()
    };
    let scopes = [
        own.clone(),
        of_user(&own, "ann"),
        of_user(&own, "bob"),
        second_agent,
        new_partition(&*store).await,
    ];
    let keys = scopes.map(|scope| key(&scope, "s"));
    for (n, session) in (1..).zip(&keys) {
        let lane = lane(session, MODEL);
        record(
            &*store,
            &[
                open(session, i64::from(n)),
                settle(&lane, n, i64::from(n)),
                settle(&lane, 99, i64::from(n)),
            ],
        )
        .await;
    }
    let marked = lane(&keys[1], MODEL);
    record(&*store, &[ended(&marked, 99, end(50))]).await;
    assert_eq!(
        store.terminate_session(&keys[1], time(60)).await.unwrap(),
        Some(true)
    );
    let state = "{}".to_owned();
    let state = store
        .put_working_state(&keys[2], state, time(70))
        .await
        .unwrap();
    assert_eq!(state.version, 1);
    for (n, session) in (1..).zip(&keys) {
        assert_eq!(
            live(&*store, &lane(session, MODEL)).await,
            [chain(n), chain(99)]
        );
        let seen = view(&*store, session).await.unwrap();
        assert_eq!(seen.created_at, time(i64::from(n)));
        assert_eq!(seen.turns, 2);
        assert_eq!(seen.latest[0].calls, u32::from(n == 2), "{n}");
        assert_eq!(seen.terminated_at.is_some(), n == 2, "{n}");
        let state = store.working_state(session, None).await.unwrap();
        assert_eq!(state.is_some(), n == 3, "{n}");
    }
}

pub(crate) async fn an_agent_of_another_organisation_is_nobody(backend: &dyn Backend) {
    let store = backend.open().await;
    let lane = opened(&*store).await;
    let crossed = SessionKey {
        org: new_org(&*store).await,
        ..lane.session
    };
    assert_eq!(view(&*store, &crossed).await, None);
    assert_eq!(
        store.terminate_session(&crossed, time(90)).await.unwrap(),
        None
    );
}

pub(crate) async fn an_unknown_agent_has_no_sessions_and_a_refused_batch_leaves_nothing(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let known = key(&new_partition(&*store).await, "s");
    let nobody = SessionKey {
        org: new_org(&*store).await,
        agent: AgentId::new(),
        ..known.clone()
    };
    let batch = vec![open(&known, 1), open(&nobody, 1)];
    assert!(matches!(
        store.record_sessions(batch).await,
        Err(StoreError::Missing("agent"))
    ));
    assert_eq!(view(&*store, &known).await, None);
    let state = store.put_working_state(&nobody, "{}".to_owned(), time(1));
    assert!(matches!(state.await, Err(StoreError::Missing("agent"))));
}

pub(crate) async fn opening_and_settling_twice_is_like_once(backend: &dyn Backend) {
    let store = backend.open().await;
    let lane = opened(&*store).await;
    let dropping = OpeningRecord {
        drops_blocks: true,
        ..opening(2, 3)
    };
    let batch = [
        SessionRecord::Opened(lane.clone(), opening(1, 1)),
        settle(&lane, 1, 2),
        SessionRecord::Opened(lane.clone(), dropping),
        settle(&lane, 2, 4),
    ];
    record(&*store, &batch).await;
    let read = async || {
        (
            store.session_lane(&lane).await.unwrap(),
            view(&*store, &lane.session).await,
        )
    };
    let once = read().await;
    record(&*store, &batch).await;
    assert_eq!(read().await, once);
    assert_eq!(live(&*store, &lane).await, [chain(2)]);
}

pub(crate) async fn what_was_recorded_first_stays(backend: &dyn Backend) {
    let store = backend.open().await;
    let lane = opened(&*store).await;
    record(&*store, &[settle(&lane, 1, 2)]).await;
    let other = TurnRecord {
        memories: vec![MemoryId::new()],
        digest: Some([1; 16]),
        nonce_epoch: 2,
        ..turn(1, 5)
    };
    let rival = OpeningRecord {
        sha256: [77; 32],
        ..opening(1, 4)
    };
    record(
        &*store,
        &[
            SessionRecord::Settled(lane.clone(), other),
            SessionRecord::Opened(lane.clone(), rival),
        ],
    )
    .await;
    let stored = store.session_lane(&lane).await.unwrap().unwrap();
    assert_eq!(
        (stored.opening, stored.turns),
        (opening(1, 1), vec![turn(1, 2)])
    );
    assert_eq!(view(&*store, &lane.session).await.unwrap().turns, 1);
}

pub(crate) async fn turns_before_a_dropping_epoch_count_no_more_but_are_seen(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let own = opened(&*store).await;
    let other = lane(&own.session, "o3");
    let keeping = opening(2, 3);
    let dropping = OpeningRecord {
        drops_blocks: true,
        ..opening(3, 5)
    };
    record(
        &*store,
        &[
            SessionRecord::Opened(other.clone(), opening(1, 1)),
            settle(&own, 1, 2),
            settle(&other, 1, 2),
            SessionRecord::Opened(own.clone(), keeping),
            settle(&own, 2, 4),
        ],
    )
    .await;
    assert_eq!(live(&*store, &own).await, [chain(1), chain(2)]);
    record(
        &*store,
        &[
            SessionRecord::Opened(own.clone(), dropping.clone()),
            settle(&own, 3, 6),
        ],
    )
    .await;
    assert_eq!(live(&*store, &own).await, [chain(3)]);
    assert_eq!(live(&*store, &other).await, [chain(1)], "another lane");
    let seen = view(&*store, &own.session).await.unwrap();
    assert_eq!(seen.turns, 4);
    let places: Vec<_> = seen
        .latest
        .iter()
        .map(|t| (t.index, &t.lane, t.turn.chain))
        .collect();
    assert_eq!(
        places,
        [
            (3, &own.lane, chain(3)),
            (2, &own.lane, chain(2)),
            (1, &other.lane, chain(1)),
            (0, &own.lane, chain(1))
        ]
    );
    let epochs: Vec<(&str, Vec<u32>)> = seen
        .lanes
        .iter()
        .map(|l| (l.lane.as_str(), l.epochs.iter().map(|e| e.epoch).collect()))
        .collect();
    assert_eq!(
        epochs,
        [("openai/gpt-4o", vec![1, 2, 3]), ("openai/o3", vec![1])]
    );
    assert_eq!(seen.lanes[0].epochs[2], dropping);
}

pub(crate) async fn a_view_holds_the_newest_turns_only(backend: &dyn Backend) {
    let store = backend.open().await;
    let lane = opened(&*store).await;
    record(&*store, &settled(&lane.session, 5)).await;
    let seen = store.session(&lane.session, 2).await.unwrap().unwrap();
    let chains: Vec<_> = seen.latest.iter().map(|t| t.turn.chain).collect();
    assert_eq!((seen.turns, chains), (5, vec![chain(5), chain(4)]));
    let none = store.session(&lane.session, 0).await.unwrap().unwrap();
    assert_eq!(none.latest, []);
}

pub(crate) async fn calls_of_a_turn_are_summed(backend: &dyn Backend) {
    let store = backend.open().await;
    let lane = opened(&*store).await;
    record(&*store, &[settle(&lane, 1, 2), settle(&lane, 2, 2)]).await;
    let calls = |n| {
        let store = &*store;
        let session = &lane.session;
        async move {
            let seen = view(store, session).await.unwrap();
            let turn = seen
                .latest
                .into_iter()
                .find(|t| t.turn.chain == chain(n))
                .unwrap();
            (turn.calls, turn.end)
        }
    };
    assert_eq!(calls(1).await, (0, None));
    record(&*store, &[ended(&lane, 1, end(9))]).await;
    assert_eq!(calls(1).await, (1, Some(end(9))));
    let streamed = TurnEnd {
        stream: true,
        complete: false,
        ..end(4)
    };
    record(
        &*store,
        &[ended(&lane, 1, streamed), ended(&lane, 1, end(5))],
    )
    .await;
    let sum = TurnEnd {
        prompt_tokens: 300,
        cached_tokens: 180,
        completion_tokens: 21,
        ms: 1_500,
        stream: true,
        complete: false,
        at: time(9),
    };
    assert_eq!(calls(1).await, (3, Some(sum)));
    assert_eq!(calls(2).await, (0, None), "another turn");
}

pub(crate) async fn numbers_that_no_provider_can_mean_break_no_batch(backend: &dyn Backend) {
    let store = backend.open().await;
    let lane = opened(&*store).await;
    let absurd = TurnEnd {
        prompt_tokens: u64::MAX,
        ms: u64::MAX,
        ..end(3)
    };
    record(
        &*store,
        &[
            settle(&lane, 1, 2),
            ended(&lane, 1, absurd.clone()),
            ended(&lane, 1, absurd),
        ],
    )
    .await;
    let seen = view(&*store, &lane.session).await.unwrap();
    let sum = seen.latest[0].end.clone().unwrap();
    assert_eq!(sum.prompt_tokens, 2 * u64::from(u32::MAX));
}

pub(crate) async fn records_of_an_unknown_lane_are_passed_over(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = opened(&*store).await;
    let (elsewhere, unknown) = (
        lane(&own.session, "o3"),
        lane(
            &SessionKey {
                id: "gone".parse().unwrap(),
                ..own.session.clone()
            },
            MODEL,
        ),
    );
    let before = view(&*store, &own.session).await;
    record(
        &*store,
        &[
            settle(&elsewhere, 1, 9),
            settle(&unknown, 1, 9),
            ended(&unknown, 1, end(9)),
            ended(&own, 1, end(9)),
        ],
    )
    .await;
    assert_eq!(view(&*store, &unknown.session).await, None);
    assert_eq!(store.session_lane(&elsewhere).await.unwrap(), None);
    assert_eq!(
        view(&*store, &own.session).await,
        before,
        "nothing was counted"
    );
}

async fn times(store: &dyn Engine, lane: &LaneKey) -> (Timestamp, Option<Timestamp>) {
    let view = view(store, &lane.session).await.unwrap();
    (view.used_at, view.terminated_at)
}

pub(crate) async fn a_session_ends_once_and_is_active_again_when_it_is_used_again(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let lane = opened(&*store).await;
    let terminate = async |second| {
        store
            .terminate_session(&lane.session, time(second))
            .await
            .unwrap()
    };
    assert_eq!(terminate(10).await, Some(true));
    assert_eq!(terminate(11).await, Some(false));
    assert_eq!(times(&*store, &lane).await, (time(1), Some(time(10))));
    // What happened before the end may be written after it.
    record(&*store, &[settle(&lane, 1, 9)]).await;
    assert_eq!(times(&*store, &lane).await, (time(9), Some(time(10))));
    // A request that was under way at the end: it began five seconds before its answer was over.
    let late = TurnEnd {
        ms: 5_000,
        ..end(12)
    };
    record(&*store, &[ended(&lane, 1, late)]).await;
    assert_eq!(times(&*store, &lane).await, (time(12), Some(time(10))));
    record(&*store, &[ended(&lane, 1, end(13))]).await;
    assert_eq!(
        times(&*store, &lane).await,
        (time(13), None),
        "a call of a known turn"
    );
    assert_eq!(terminate(14).await, Some(true));
    record(&*store, &[settle(&lane, 2, 15)]).await;
    assert_eq!(times(&*store, &lane).await, (time(15), None), "a new turn");
    assert_eq!(terminate(16).await, Some(true));
    record(&*store, &[open(&lane.session, 17)]).await;
    assert_eq!(times(&*store, &lane).await, (time(17), None), "an opening");
    assert_eq!(terminate(18).await, Some(true));
    let state = store.put_working_state(&lane.session, "{}".to_owned(), time(19));
    state.await.unwrap();
    assert_eq!(times(&*store, &lane).await, (time(19), None), "a state");
    record(&*store, &[settle(&lane, 3, 5)]).await;
    assert_eq!(
        times(&*store, &lane).await.0,
        time(19),
        "never back in time"
    );
}

pub(crate) async fn old_sessions_are_deleted_with_all_that_is_theirs(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let keys = ["a", "b", "c", "d"].map(|id| key(&own, id));
    for (second, session) in (1..).zip(&keys) {
        let lane = lane(session, MODEL);
        record(&*store, &[open(session, second), settle(&lane, 1, second)]).await;
        let json = format!(r#"{{"note":"statesecret{second}"}}"#);
        let state = store.put_working_state(session, json, time(second));
        state.await.unwrap();
    }
    assert_eq!(store.delete_sessions(time(1), 10).await.unwrap(), 0);
    assert_eq!(store.delete_sessions(time(4), 2).await.unwrap(), 2);
    let left = async || {
        let mut left = Vec::new();
        for session in &keys {
            left.push(view(&*store, session).await.is_some());
        }
        left
    };
    assert_eq!(
        left().await,
        [false, false, true, true],
        "the oldest of three"
    );
    let state = store.working_state(&keys[0], None).await.unwrap();
    assert_eq!(state, None);
    assert_eq!(
        store.session_lane(&lane(&keys[0], MODEL)).await.unwrap(),
        None
    );
    assert_eq!(store.delete_sessions(time(4), 2).await.unwrap(), 1);
    assert_eq!(left().await, [false, false, false, true]);
    for table in [
        "sessions",
        "session_lanes",
        "session_turns",
        "session_states",
    ] {
        assert_eq!(backend.rows(table).await, 1, "{table}");
    }
    // A session of the same name starts anew.
    record(&*store, &[open(&keys[0], 9)]).await;
    let anew = view(&*store, &keys[0]).await.unwrap();
    assert_eq!((anew.turns, anew.created_at), (0, time(9)));
    assert_eq!(store.working_state(&keys[0], None).await.unwrap(), None);
}

pub(crate) async fn versions_of_a_working_state_that_no_turn_tells_of_are_not_kept_for_ever(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let own = opened(&*store).await;
    let told = TurnRecord {
        state: Some((1, 3)),
        ..turn(1, 2)
    };
    record(&*store, &[SessionRecord::Settled(own.clone(), told)]).await;
    for second in 1..=70 {
        let state = store.put_working_state(&own.session, "{}".to_owned(), time(second));
        assert_eq!(i64::from(state.await.unwrap().version), second);
    }
    let mut kept = Vec::new();
    for version in 1..=70 {
        let state = store.working_state(&own.session, Some(version));
        kept.extend(state.await.unwrap().map(|s| s.version));
    }
    let expected: Vec<u32> = [1, 3].into_iter().chain(7..=70).collect();
    assert_eq!(kept, expected);
}

pub(crate) async fn a_forgotten_memory_leaves_the_lanes_turns_and_takes_their_digest_along(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let own = opened(&*store).await;
    let other = lane(&own.session, "o3");
    let both = TurnRecord {
        memories: vec![remembered(1), remembered(2)],
        ..turn(2, 3)
    };
    let batch = [
        SessionRecord::Opened(other.clone(), opening(1, 1)),
        settle(&own, 1, 2),
        settle(&other, 1, 2),
        SessionRecord::Settled(own.clone(), both),
        settle(&own, 3, 4),
        SessionRecord::Forgotten(own.clone(), vec![remembered(1)]),
    ];
    record(&*store, &batch).await;
    let read = store.session_lane(&own).await.unwrap().unwrap();
    let left: Vec<_> = read
        .turns
        .iter()
        .map(|t| (t.memories.clone(), t.digest))
        .collect();
    let expected = [
        (vec![], None),
        (vec![remembered(2)], None),
        (vec![remembered(3)], Some([3; 16])),
    ];
    assert_eq!(left, expected);
    assert_eq!(
        live(&*store, &other).await,
        [chain(1)],
        "another lane has forgotten nothing"
    );
}

pub(crate) async fn a_turn_whose_block_was_dropped_takes_the_one_of_a_later_nonce(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let lane = opened(&*store).await;
    let dropping = OpeningRecord {
        drops_blocks: true,
        ..opening(2, 3)
    };
    record(
        &*store,
        &[
            settle(&lane, 1, 2),
            SessionRecord::Opened(lane.clone(), dropping),
        ],
    )
    .await;
    let read = store.session_lane(&lane).await.unwrap().unwrap();
    let dropped = TurnRecord {
        memories: Vec::new(),
        digest: None,
        ..turn(1, 2)
    };
    assert_eq!(read.turns, [dropped], "it is settled all the same");
    let later = TurnRecord {
        nonce_epoch: 2,
        memories: vec![remembered(9)],
        ..turn(1, 2)
    };
    record(
        &*store,
        &[SessionRecord::Settled(lane.clone(), later.clone())],
    )
    .await;
    let read = store.session_lane(&lane).await.unwrap().unwrap();
    assert_eq!(read.turns, [later]);
    assert_eq!(
        view(&*store, &lane.session).await.unwrap().turns,
        1,
        "it is one turn"
    );
}
