//! Memories: written and read whole, page by page, and by nobody of another partition.

use std::sync::Arc;

use serde_json::value::RawValue;

use ibex::ids::{AgentId, MemoryId};
use ibex::memory::{Category, Label, Memory, PartitionKey, Source, Status};
use ibex::store::{Committed, ListFilter, Matching, Reading, StoreError};
use ibex::tokens::TokenCounts;

use super::Backend;
use crate::store::fixtures::{
    Engine, history, insert, memory, new_agent, new_partition, of_user, operator, time,
};

async fn ids(
    store: &dyn Engine,
    partitions: &[PartitionKey],
    filter: ListFilter,
) -> (Vec<MemoryId>, bool) {
    let page = store.list_memories(partitions, filter).await.unwrap();
    (page.memories.iter().map(|m| m.id).collect(), page.has_more)
}

pub(crate) async fn a_memory_comes_back_as_it_was_written(backend: &dyn Backend) {
    let store = backend.open().await;
    let partition = of_user(&new_partition(&*store).await, "ann");
    let mut written = memory(&partition, "Tee, 中文, \u{0} and \u{1f375}");
    written.labels.push(Label {
        label: Category::Episodic,
        confidence: 0.1,
    });
    written.valid_until = Some(time(50));
    written.observed_at = Some(time(-50));
    written.source = Source {
        kind: "dialogue".to_owned(),
        session: Some("s1".to_owned()),
        turn: Some(u32::MAX),
    };
    let json = r#"{ "n": 1.50, "n": 1E2, "text":"\u00e9" }"#;
    written.metadata = Some(Arc::from(RawValue::from_string(json.to_owned()).unwrap()));
    written.pinned = true;
    written.tokens = TokenCounts {
        o200k: 1,
        cl100k: 2,
        claude: 3,
        unknown: 4,
    };
    (
        written.retrieval_count,
        written.votes_useful,
        written.votes_not_useful,
    ) = (5, 6, 7);
    let Committed::Inserted { revision, .. } = insert(&*store, written.clone()).await else {
        panic!("not inserted")
    };
    written.revision = revision;
    store.close().await.unwrap();
    let read = backend
        .open()
        .await
        .memory(&[partition], written.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(read.metadata.as_ref().map(|m| m.get()), Some(json));
    assert_eq!(format!("{read:?}"), format!("{written:?}"));
}

pub(crate) async fn a_batch_with_a_fault_stores_nothing(backend: &dyn Backend) {
    let store = backend.open().await;
    let partition = new_partition(&*store).await;
    let taken = memory(&partition, "tea");
    insert(&*store, taken.clone()).await;
    let clash = Memory {
        id: taken.id,
        ..memory(&partition, "milk")
    };
    let failed = store
        .commit_all(vec![memory(&partition, "juice"), clash])
        .await;
    assert!(
        matches!(failed, Err(StoreError::Conflict("memory"))),
        "{failed:?}"
    );
    let nowhere = PartitionKey {
        agent: AgentId::new(),
        ..partition.clone()
    };
    assert!(matches!(
        store.commit_all(vec![memory(&nowhere, "x")]).await,
        Err(StoreError::Missing("agent"))
    ));
    assert_eq!(store.count_memories(&partition).await.unwrap(), 1);
}

/// Partitions that differ from `own` in one part each: user, agent-wide, agent, organisation and agent, organisation alone.
async fn neighbours(store: &dyn Engine, own: &PartitionKey) -> [PartitionKey; 5] {
    let other = of_user(&new_partition(store).await, "ann");
    [
        of_user(own, "bob"),
        PartitionKey {
            user: None,
            ..own.clone()
        },
        PartitionKey {
            agent: new_agent(store, own.org).await,
            ..own.clone()
        },
        PartitionKey {
            org: other.org,
            ..own.clone()
        },
        other,
    ]
}

pub(crate) async fn no_read_reaches_another_partition(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = of_user(&new_partition(&*store).await, "ann");
    let secret = memory(&own, "tea");
    insert(&*store, secret.clone()).await;
    let again = |partition: &PartitionKey| Memory {
        content_hash: secret.content_hash,
        ..memory(partition, "tea")
    };
    for foreign in neighbours(&*store, &own).await {
        let scope = std::slice::from_ref(&foreign);
        assert!(store.memory(scope, secret.id).await.unwrap().is_none());
        assert_eq!(store.duplicate_of(&again(&foreign)).await.unwrap(), None);
        let filter = ListFilter {
            limit: 10,
            ..history(&*store, &own).await
        };
        assert!(ids(&*store, scope, filter).await.0.is_empty());
        assert!(
            store
                .partition_memories(&foreign, None, usize::MAX)
                .await
                .unwrap()
                .is_empty()
        );
        assert_eq!(store.count_memories(&foreign).await.unwrap(), 0);
    }
    let found = store.duplicate_of(&again(&own)).await.unwrap();
    assert_eq!(found, Some(secret.id));
    assert!(
        store
            .memory(&[of_user(&own, "bob"), own], secret.id)
            .await
            .unwrap()
            .is_some()
    );
}

pub(crate) async fn no_write_reaches_another_partition(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = of_user(&new_partition(&*store).await, "ann");
    let secret = memory(&own, "tea");
    insert(&*store, secret.clone()).await;
    for foreign in neighbours(&*store, &own).await {
        let scope = [foreign];
        assert_eq!(
            store
                .forget_memory(&scope, secret.id, time(1))
                .await
                .unwrap(),
            None
        );
        store
            .bump_retrieved(&scope, vec![secret.id], time(1))
            .await
            .unwrap();
    }
    store.close().await.unwrap();
    let read = backend
        .open()
        .await
        .memory(&[own], secret.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((&*read.content, read.retrieval_count), ("tea", 0));
}

pub(crate) async fn pages_go_newest_first_through_all_partitions(backend: &dyn Backend) {
    let store = backend.open().await;
    let shared = new_partition(&*store).await;
    let own = of_user(&shared, "ann");
    let mut written = Vec::new();
    for i in 0..7 {
        let memory = memory(
            if i % 3 == 0 { &shared } else { &own },
            &format!("fact {i}"),
        );
        written.push(memory.id);
        insert(&*store, memory).await;
    }
    insert(&*store, memory(&of_user(&shared, "bob"), "not ann's")).await;
    let both = [shared.clone(), own.clone()];
    let mut seen = Vec::new();
    let all = history(&*store, &shared).await;
    let mut filter = ListFilter {
        limit: 3,
        ..all.clone()
    };
    loop {
        let (page, has_more) = ids(&*store, &both, filter.clone()).await;
        filter.after = page.last().copied();
        seen.extend(page);
        if !has_more {
            break;
        }
    }
    written.reverse();
    assert_eq!(seen, written);
    let twice = ids(&*store, &[own.clone(), own], ListFilter { limit: 7, ..all }).await;
    assert_eq!(
        (twice.0.len(), twice.1),
        (4, false),
        "a partition named twice is listed once"
    );
}

pub(crate) async fn lists_filter_by_status_and_by_any_label(backend: &dyn Backend) {
    let store = backend.open().await;
    let partition = new_partition(&*store).await;
    let active = memory(&partition, "a");
    let held = Memory {
        status: Status::Quarantined,
        ..memory(&partition, "b")
    };
    let mut labelled = memory(&partition, "c");
    labelled.labels.push(Label {
        label: Category::Episodic,
        confidence: 0.2,
    });
    let gone = memory(&partition, "d");
    store
        .commit_all(
            [&active, &held, &labelled, &gone]
                .map(Clone::clone)
                .to_vec(),
        )
        .await
        .unwrap();
    let scope = std::slice::from_ref(&partition);
    store.forget_memory(scope, gone.id, time(1)).await.unwrap();
    let all = history(&*store, &partition).await;
    let list = |status, category| {
        let matching = Matching {
            status,
            category,
            ..Matching::default()
        };
        ids(
            &*store,
            scope,
            ListFilter {
                matching,
                ..all.clone()
            },
        )
    };
    assert_eq!(list(None, None).await.0, [labelled.id, active.id]);
    assert!(list(Some(Status::Quarantined), None).await.0.is_empty());
    assert!(list(Some(Status::Forgotten), None).await.0.is_empty());
    let review = ListFilter {
        reading: Reading::Review(operator(&*store, &partition).await.review().unwrap()),
        ..all.clone()
    };
    assert_eq!(ids(&*store, scope, review).await.0, [held.id]);
    assert_eq!(list(None, Some(Category::Episodic)).await.0, [labelled.id]);
    assert_eq!(
        list(Some(Status::Active), Some(Category::Factual)).await.0,
        [labelled.id, active.id]
    );
    assert_eq!(store.count_memories(&partition).await.unwrap(), 2);
}

pub(crate) async fn lists_match_all_that_is_asked(backend: &dyn Backend) {
    let store = backend.open().await;
    let partition = new_partition(&*store).await;
    let metadata = |json: &str| -> Option<Arc<RawValue>> {
        Some(Arc::from(RawValue::from_string(json.to_owned()).unwrap()))
    };
    let from = |session: &str, kind: &str| Source {
        kind: kind.to_owned(),
        session: Some(session.to_owned()),
        turn: None,
    };
    let first = Memory {
        pinned: true,
        source: from("s1", "chat"),
        metadata: metadata(r#"{"n": 1, "s": "x", "b": true, "deep": {"s": "x"}, "a.b": "dot"}"#),
        valid_from: time(1),
        ..memory(&partition, "first")
    };
    let second = Memory {
        source: from("s2", "chat"),
        metadata: metadata(r#"{"n": "1", "s": "y", "b": false}"#),
        valid_from: time(2),
        ..memory(&partition, "second")
    };
    let third = Memory {
        source: from("s1", "import"),
        valid_from: time(3),
        ..memory(&partition, "third")
    };
    let (first_id, second_id, third_id) = (first.id, second.id, third.id);
    store.commit_all(vec![first, second, third]).await.unwrap();
    let scope = std::slice::from_ref(&partition);
    let all = history(&*store, &partition).await;
    let list = async |matching: Matching| {
        let filter = ListFilter {
            matching,
            ..all.clone()
        };
        ids(&*store, scope, filter).await.0
    };
    let any = Matching::default;
    let pinned = |pinned| Matching {
        pinned: Some(pinned),
        ..any()
    };
    assert_eq!(list(pinned(true)).await, [first_id]);
    assert_eq!(list(pinned(false)).await, [third_id, second_id]);
    let of_first = Matching {
        session: Some("s1".to_owned()),
        ..any()
    };
    assert_eq!(list(of_first.clone()).await, [third_id, first_id]);
    let chat = Matching {
        source: Some("chat".to_owned()),
        ..of_first
    };
    assert_eq!(list(chat).await, [first_id], "all of it");
    let between = Matching {
        from: Some(time(2)),
        until: Some(time(3)),
        ..any()
    };
    assert_eq!(list(between).await, [second_id]);
    let members = |pairs: &[(&str, &str)]| {
        let pairs = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Matching {
            metadata: pairs.collect(),
            ..any()
        }
    };
    for (pairs, expected) in [
        (&[("n", "1")][..], vec![second_id, first_id]),
        (&[("s", "x")], vec![first_id]),
        (&[("b", "true")], vec![first_id]),
        (&[("b", "false")], vec![second_id]),
        (&[("n", "1"), ("s", "y")], vec![second_id]),
        (&[("a.b", "dot")], vec![first_id]),
        (&[("deep", "x")], vec![]),
        (&[("s", "z")], vec![]),
        (&[("absent", "x")], vec![]),
    ] {
        assert_eq!(list(members(pairs)).await, expected, "{pairs:?}");
    }
}

pub(crate) async fn a_current_reading_holds_what_is_valid_then(backend: &dyn Backend) {
    let store = backend.open().await;
    let partition = new_partition(&*store).await;
    let valid = |text: &str, from, until: Option<i64>| Memory {
        valid_from: time(from),
        valid_until: until.map(time),
        ..memory(&partition, text)
    };
    let rows = [
        valid("over", 0, Some(10)),
        valid("begins", 10, Some(11)),
        valid("open", 1, None),
        valid("to come", 11, None),
        Memory {
            status: Status::Superseded,
            ..valid("replaced", 0, None)
        },
    ];
    let [_, begins, open, _, _] = rows.each_ref().map(|row| row.id);
    store.commit_all(rows.to_vec()).await.unwrap();
    let filter = ListFilter {
        reading: Reading::Current(time(10)),
        ..history(&*store, &partition).await
    };
    let scope = std::slice::from_ref(&partition);
    assert_eq!(ids(&*store, scope, filter).await.0, [open, begins]);
}

pub(crate) async fn a_partition_is_read_page_by_page_with_vectors_and_without_what_is_not_active(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let partition = new_partition(&*store).await;
    let mut rows: Vec<Memory> = (0..7)
        .map(|i| memory(&partition, &format!("note {i}")))
        .collect();
    rows[3].status = Status::Quarantined;
    store.commit_all(rows.clone()).await.unwrap();
    let expected = rows.iter().filter(|row| row.status == Status::Active);
    let (mut after, mut pages, mut read) = (None, Vec::new(), Vec::new());
    loop {
        let page = store.partition_memories(&partition, after, 4).await;
        let page = page.unwrap();
        after = page.last().map(|memory| memory.id);
        pages.push(page.len());
        read.extend(page);
        if pages.last() < Some(&4) {
            break;
        }
    }
    assert_eq!(pages, [4, 2]);
    assert!(read.iter().map(|m| m.id).eq(expected.map(|m| m.id)));
    assert!(read.iter().all(|m| m.embedding == rows[0].embedding));
}

pub(crate) async fn use_counts_add_up_without_a_change_of_the_row(backend: &dyn Backend) {
    let store = backend.open().await;
    let partition = new_partition(&*store).await;
    let used = memory(&partition, "tea");
    let Committed::Inserted { revision, .. } = insert(&*store, used.clone()).await else {
        panic!("not inserted")
    };
    for second in 1..=5 {
        store
            .bump_retrieved(
                std::slice::from_ref(&partition),
                vec![used.id, MemoryId::new()],
                time(second),
            )
            .await
            .unwrap();
    }
    store.close().await.unwrap();
    let read = backend
        .open()
        .await
        .memory(&[partition], used.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (read.retrieval_count, read.revision, read.updated_at),
        (5, revision, time(0))
    );
    assert_eq!(backend.retrieved_at(used.id).await, Some(time(5)));
}
