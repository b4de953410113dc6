//! A whole store moves from the embedded engine to this one and back, and no value of any table is another one afterwards.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::mpsc;

use ibex::memory::{Embedding, Memory, PartitionKey, Status};
use ibex::session::record::SessionRecord::{Opened, Settled};
use ibex::session::record::TurnRecord;
use ibex::store::transfer::{Batch, Sums, TABLES, TransferStore};
use ibex::store::{
    ChangeFeed, Committed, DeadLetter, Decider, DirectiveMode, DirectiveStore, Draft, Effect,
    LedgerEntry, LedgerKey, LedgerMember, NewDirective, Refined, Relation, StoreError,
};

use super::databases::Postgres;
use crate::store::fixtures::drafts::{decided, judged};
use crate::store::fixtures::sessions::{self, ended, opening, record, settle};
use crate::store::fixtures::{Engine, insert, memory, new_partition, of_user, secret, time, token};
use crate::store::sqlite::Files;

const EXPORT: [u8; 16] = [9; 16];

/// Something in every table, with and without what may be missing.
async fn fill(store: &dyn Engine) -> PartitionKey {
    let shared = new_partition(store).await;
    let anns = of_user(&shared, "ann");
    for agent in [None, Some(shared.agent)] {
        store.create_token(token(shared.org, agent)).await.unwrap();
    }
    for content in ["Be brief.", "Be brief.\nBe kind — 你好 😀"] {
        let new = NewDirective {
            org: shared.org,
            agent: shared.agent,
            content: content.into(),
            mode: DirectiveMode::SystemFirst,
            created_at: time(1),
        };
        let added = store.add_directive(new).await.unwrap();
        let promoted = store.promote_directive(shared.org, shared.agent, added.version);
        promoted.await.unwrap();
    }
    let revoked = store.revoke_directive(shared.org, shared.agent, 1, time(2));
    revoked.await.unwrap();
    remember(store, &shared, &anns).await;
    converse(store, &anns).await;
    shared
}

async fn remember(store: &dyn Engine, shared: &PartitionKey, anns: &PartitionKey) {
    let odd = Memory {
        // What JSON allows and the engine's own JSON types do not.
        metadata: Some(Arc::from(
            RawValue::from_string(r#"{"n": 1e400, "t": "a\u0000b", "t": 2}"#.to_owned()).unwrap(),
        )),
        embedding: Some(Embedding {
            model: "test/3".into(),
            vector: [f32::MIN_POSITIVE, -0.0, 1.0 / 3.0].into(),
        }),
        confidence: 0.1,
        valid_until: Some(time(1_000)),
        observed_at: Some(time(-5)),
        pinned: true,
        ..memory(anns, "Ann's \u{feff}key\r\nis 'under' the \\mat\u{7f}")
    };
    let bare = Memory {
        embedding: None,
        ..memory(shared, "no vector")
    };
    let empty = Memory {
        embedding: Some(Embedding {
            model: "test/3".into(),
            vector: [].into(),
        }),
        ..memory(shared, "a vector without numbers")
    };
    let (older, gone) = (memory(shared, "older"), memory(shared, "gone"));
    for row in [secret(anns), odd, bare, empty, older.clone(), gone.clone()] {
        insert(store, row).await;
    }
    let own = std::slice::from_ref(shared);
    store.forget_memory(own, gone.id, time(5)).await.unwrap();
    let by = Decider::Rule;
    for (text, effect) in [
        (
            "asked",
            Effect::Escalate {
                guess: Relation::Contradiction,
            },
        ),
        ("newer", Effect::Retire { at: time(3), by }),
    ] {
        let newer = Memory {
            valid_from: time(3),
            updated_at: time(6),
            ..memory(shared, text)
        };
        decided(store, &newer, vec![judged(&older, effect)]).await;
    }
    let held = Draft {
        review: Some("injection".to_owned()),
        slot: Some([4; 16]),
        ..Draft::from(Memory {
            status: Status::Quarantined,
            ..memory(anns, "held")
        })
    };
    let key = LedgerKey {
        org: shared.org,
        agent: shared.agent,
        key: "k".parse().unwrap(),
    };
    let ledger = LedgerEntry {
        key,
        asked: [1; 32],
        members: vec![LedgerMember::Row(0)],
        at: time(4),
        since: time(0),
    };
    let write = Refined {
        rows: vec![held],
        ledger: Some(ledger),
    };
    store.commit(write).await.unwrap();
    let letter = DeadLetter {
        partition: anns.clone(),
        session: "s".parse().unwrap(),
        turn: 3,
        reason: "timeout".to_owned(),
        attempts: 5,
        at: time(8),
    };
    store.add_dead_letter(letter).await.unwrap();
}

async fn converse(store: &dyn Engine, anns: &PartitionKey) {
    let session = sessions::key(anns, "s");
    let lane = sessions::lane(&session, sessions::MODEL);
    let told = TurnRecord {
        state: Some((0, 1)),
        digest: None,
        memories: Vec::new(),
        ..sessions::turn(2, 3)
    };
    let mut directed = opening(1, 1);
    directed.directive = Some(2);
    directed.snapshot = vec![sessions::remembered(1), sessions::remembered(2)];
    record(
        store,
        &[
            Opened(lane.clone(), directed),
            settle(&lane, 1, 2),
            Settled(lane.clone(), told),
            ended(&lane, 1, sessions::end(5)),
        ],
    )
    .await;
    let state = r#"{"facts": []}"#.to_owned();
    store
        .put_working_state(&session, state, time(6))
        .await
        .unwrap();
    store.terminate_session(&session, time(9)).await.unwrap();
}

/// Everything that a store holds, and its sums.
async fn dumped(store: &dyn TransferStore) -> (Vec<Batch>, Sums, i64) {
    let (to, mut from) = mpsc::channel(4);
    let collect = async {
        let mut batches = Vec::new();
        while let Some(batch) = from.recv().await {
            batches.push(batch);
        }
        batches
    };
    let (revision, batches) = tokio::join!(store.dump(Vec::new(), to), collect);
    let mut sums = Sums::default();
    batches.iter().for_each(|batch| sums.add(batch));
    (batches, sums, revision.unwrap())
}

async fn load(store: &dyn TransferStore, batches: &[Batch], revision: i64) {
    for (number, batch) in (0..).zip(batches) {
        store.load(EXPORT, number, batch.clone()).await.unwrap();
    }
    store.end_load(EXPORT, revision).await.unwrap();
}

#[tokio::test]
async fn every_table_comes_over_and_goes_back_as_it_was() {
    let (files, database, back) = (Files::new(), Postgres::new(), Files::new());
    let from = files.open();
    let partitions = [fill(&*from).await, fill(&*from).await];
    let (batches, sums, revision) = dumped(&*from).await;
    let filled: Vec<&str> = sums
        .iter()
        .filter(|(_, sum)| sum.rows > 0)
        .map(|(name, _)| name)
        .collect();
    let mut tables: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
    tables.sort_unstable();
    assert_eq!(filled, tables, "something in every table");
    let moved = database.connect().await;
    load(&*moved, &batches, revision).await;
    let (again, there, later) = dumped(&*moved).await;
    assert_eq!(sums.differences(&there), Vec::<String>::new());
    assert!(later >= revision);
    let last = back.open();
    load(&*last, &again, later).await;
    assert_eq!(
        sums.differences(&dumped(&*last).await.1),
        Vec::<String>::new()
    );
    // It is a store like any other: what is there is found, and numbers go on where they were.
    for shared in &partitions {
        let again = insert(&*moved, memory(shared, "no vector")).await;
        assert!(matches!(again, Committed::Duplicate { .. }), "{again:?}");
        let active = moved.active_directive(shared.org, shared.agent).await;
        assert_eq!(active.unwrap().unwrap().version, 2);
        moved
            .rollback_directive(shared.org, shared.agent)
            .await
            .unwrap_err();
    }
    assert!(moved.revision().await.unwrap() > revision);
}

#[tokio::test]
async fn a_load_goes_on_where_it_stopped_and_stores_nothing_twice() {
    let (files, database) = (Files::new(), Postgres::new());
    let from = files.open();
    fill(&*from).await;
    let (batches, sums, revision) = dumped(&*from).await;
    let moved = database.connect().await;
    let half = batches.len() / 2;
    for (number, batch) in (0..).zip(&batches[..half]) {
        moved.load(EXPORT, number, batch.clone()).await.unwrap();
    }
    let standing = moved.load_standing(EXPORT).await.unwrap().unwrap();
    assert_eq!((standing.batches, standing.finished), (half as u64, false));
    assert_eq!(moved.load_standing([1; 16]).await.unwrap(), None);
    load(&*moved, &batches, revision).await;
    assert_eq!(
        sums.differences(&dumped(&*moved).await.1),
        Vec::<String>::new()
    );
    let standing = moved.load_standing(EXPORT).await.unwrap().unwrap();
    assert_eq!(
        (standing.batches, standing.finished),
        (batches.len() as u64, true)
    );
    // Another export of the same rows is refused, and leaves nothing.
    let conflict = moved.load([1; 16], 0, batches[0].clone()).await;
    assert!(
        matches!(conflict, Err(StoreError::Conflict(_))),
        "{conflict:?}"
    );
    assert_eq!(moved.load_standing([1; 16]).await.unwrap(), None);
}
