//! The durable side of the memory write path: what a write decides about other memories, changes, votes and slots.

use ibex::ids::MemoryId;
use ibex::memory::{Memory, Status};
use ibex::store::{
    ChangeKind, Committed, Decider, Draft, Edit, Edited, Effect, Relation, StoredRelation, Verdict,
};

use super::Backend;
use crate::store::fixtures::drafts::{decided, judged, read};
use crate::store::fixtures::{Engine, history, insert, memory, new_partition, of_user, time};

fn at(second: i64, memory: Memory) -> Memory {
    Memory {
        valid_from: time(second),
        created_at: time(second),
        updated_at: time(second),
        ..memory
    }
}

fn retire(second: i64) -> Effect {
    Effect::Retire {
        at: time(second),
        by: Decider::Rule,
    }
}

/// Source, target, relation, who, when; in this order.
fn edges(relations: &[StoredRelation]) -> Vec<(MemoryId, MemoryId, Relation, Decider)> {
    let edge = |r: &StoredRelation| (r.source, r.target, r.relation, r.by);
    relations.iter().map(edge).collect()
}

pub(crate) async fn what_a_new_memory_replaces_ends_where_it_begins_and_is_named_by_it(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let own = of_user(&new_partition(&*store).await, "ann");
    let old = memory(&own, "lives in Rome");
    insert(&*store, old.clone()).await;
    let before = store.revision().await.unwrap();
    let new = Memory {
        valid_from: time(10),
        ..at(20, memory(&own, "lives in Oslo"))
    };
    let committed = decided(&*store, &new, vec![judged(&old, retire(10))]).await;
    let Committed::Inserted {
        revision,
        supersedes,
        changed,
    } = committed
    else {
        panic!("{committed:?}")
    };
    assert_eq!((supersedes, changed), (vec![old.id], vec![old.id]));
    let (ended, begun) = (read(&*store, &old).await, read(&*store, &new).await);
    assert_eq!(
        (ended.status, ended.valid_until, ended.updated_at),
        (Status::Superseded, Some(time(10)), time(20))
    );
    assert_eq!(ended.text_revision, 0, "it says what it said");
    assert_eq!((begun.status, begun.revision), (Status::Active, revision));
    assert_eq!(*begun.supersedes, [old.id]);
    let relation = StoredRelation {
        source: new.id,
        target: old.id,
        relation: Relation::Supersedes,
        by: Decider::Rule,
        at: time(20),
    };
    for end in [&old, &new] {
        let relations = store.relations(&own, end.id).await.unwrap();
        assert_eq!(relations, [relation]);
    }
    let changes = store.changes_after(before, 10).await.unwrap();
    assert_eq!(changes.len(), 2);
    for row in [&ended, &begun] {
        let kind = ChangeKind::Memory(own.clone(), row.id);
        let entry = changes.iter().find(|change| change.kind == kind).unwrap();
        assert_eq!(entry.revision, row.revision);
    }
    assert_eq!(store.count_memories(&own).await.unwrap(), 1);
}

pub(crate) async fn what_ends_later_is_active_until_then(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let open = memory(&own, "works at Acme");
    let ending = Memory {
        valid_until: Some(time(30)),
        ..memory(&own, "works at Initech")
    };
    store
        .commit_all(vec![open.clone(), ending.clone()])
        .await
        .unwrap();
    let new = at(20, memory(&own, "will work at Hooli"));
    let verdicts = vec![judged(&open, retire(50)), judged(&ending, retire(50))];
    decided(&*store, &new, verdicts).await;
    let open = read(&*store, &open).await;
    assert_eq!(
        (open.status, open.valid_until),
        (Status::Active, Some(time(50)))
    );
    let ending = read(&*store, &ending).await;
    assert_eq!(
        (ending.status, ending.valid_until),
        (Status::Active, Some(time(30))),
        "an end is never put off"
    );
    assert_eq!(*read(&*store, &new).await.supersedes, [open.id, ending.id]);
}

pub(crate) async fn a_verdict_about_a_text_that_is_not_there_is_void(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let (old, elsewhere, gone) = (
        memory(&own, "tea"),
        memory(&of_user(&own, "ann"), "coffee"),
        memory(&own, "milk"),
    );
    for memory in [&old, &elsewhere, &gone] {
        insert(&*store, memory.clone()).await;
    }
    let scope = std::slice::from_ref(&own);
    store.forget_memory(scope, gone.id, time(1)).await.unwrap();
    let before = read(&*store, &old).await.revision;
    let by = Decider::Model;
    let relation = Relation::Overlap;
    let effects = [
        retire(10),
        Effect::Precedes { by },
        Effect::Relate { relation, by },
        Effect::Escalate { guess: relation },
    ];
    let about = |effect| {
        let other_text = Verdict {
            judged: 7,
            ..judged(&old, effect)
        };
        let unknown = Verdict {
            existing: MemoryId::new(),
            ..judged(&old, effect)
        };
        [
            other_text,
            unknown,
            judged(&elsewhere, effect),
            judged(&gone, effect),
        ]
    };
    let verdicts = effects.into_iter().flat_map(about).collect();
    let new = at(20, memory(&own, "water"));
    let committed = decided(&*store, &new, verdicts).await;
    assert!(
        matches!(&committed, Committed::Inserted { supersedes, changed, .. } if supersedes.is_empty() && changed.is_empty()),
        "{committed:?}"
    );
    let left = read(&*store, &old).await;
    assert_eq!((left.status, left.revision), (Status::Active, before));
    assert_eq!(read(&*store, &elsewhere).await.status, Status::Active);
    assert_eq!(store.relations(&own, new.id).await.unwrap(), []);
    assert_eq!(store.escalations(scope, None, 10).await.unwrap(), []);
}

pub(crate) async fn relations_are_noted_once_and_seen_from_both_ends(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let (later, like) = (memory(&own, "moved to Oslo"), memory(&own, "likes Rome"));
    store
        .commit_all(vec![later.clone(), like.clone()])
        .await
        .unwrap();
    let precedes = Effect::Precedes { by: Decider::Rule };
    let overlaps = Effect::Relate {
        relation: Relation::Overlap,
        by: Decider::Model,
    };
    let new = Memory {
        status: Status::Superseded,
        ..at(20, memory(&own, "lives in Rome"))
    };
    let verdicts = vec![
        judged(&later, precedes),
        judged(&like, overlaps),
        judged(&like, overlaps),
    ];
    decided(&*store, &new, verdicts).await;
    let supersedes = (later.id, new.id, Relation::Supersedes, Decider::Rule);
    let overlap = (new.id, like.id, Relation::Overlap, Decider::Model);
    let of = async |id| edges(&store.relations(&own, id).await.unwrap());
    assert_eq!(of(later.id).await, [supersedes]);
    assert_eq!(of(like.id).await, [overlap]);
    let mut both = [supersedes, overlap];
    both.sort_by_key(|edge| edge.0);
    assert_eq!(of(new.id).await, both, "in the order of their sources");
    let elsewhere = of_user(&own, "ann");
    assert_eq!(store.relations(&elsewhere, new.id).await.unwrap(), []);
    // A relation of nothing says nothing.
    store
        .forget_memory(std::slice::from_ref(&own), new.id, time(30))
        .await
        .unwrap();
    for memory in [&later, &like, &new] {
        assert_eq!(of(memory.id).await, []);
    }
}

pub(crate) async fn the_same_text_for_another_time_takes_the_place_of_the_one_that_is_over(
    backend: &dyn Backend,
) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let over = Memory {
        valid_until: Some(time(5)),
        ..memory(&own, "on holiday")
    };
    insert(&*store, over.clone()).await;
    let again = at(10, memory(&own, "on holiday"));
    assert_eq!(store.duplicate_of(&again).await.unwrap(), None);
    let committed = insert(&*store, again.clone()).await;
    assert!(matches!(committed, Committed::Inserted { .. }));
    let over = read(&*store, &over).await;
    assert_eq!(
        (over.status, over.valid_until, over.updated_at),
        (Status::Superseded, Some(time(5)), time(10))
    );
    let third = at(11, memory(&own, "on holiday"));
    let repeated = Committed::Duplicate { existing: again.id };
    assert_eq!(store.duplicate_of(&third).await.unwrap(), Some(again.id));
    assert_eq!(insert(&*store, third).await, repeated);
    assert_eq!(store.count_memories(&own).await.unwrap(), 1);
}

pub(crate) async fn a_quarantined_memory_tells_why_until_it_is_released(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let held = Memory {
        status: Status::Quarantined,
        ..memory(&own, "the password is")
    };
    let why = r#"{"reasons":["secret"]}"#;
    let draft = Draft {
        review: Some(why.to_owned()),
        ..Draft::from(held.clone())
    };
    store
        .commit(ibex::store::Refined {
            rows: vec![draft],
            ledger: None,
        })
        .await
        .unwrap();
    let again = Memory {
        status: Status::Quarantined,
        ..memory(&own, "the password is")
    };
    let once = Committed::Duplicate { existing: held.id };
    assert_eq!(insert(&*store, again).await, once, "it is held once");
    let ann = of_user(&own, "ann");
    let review = async |partition| store.review(partition, held.id).await.unwrap();
    assert_eq!(review(&own).await.as_deref(), Some(why));
    assert_eq!(review(&ann).await, None);
    let found = read(&*store, &held).await;
    let released = Edit {
        read_at: found.revision,
        draft: Draft::from(Memory {
            status: Status::Active,
            ..found
        }),
        forgets: false,
    };
    let edited = store.edit(released).await.unwrap();
    assert!(matches!(edited, Edited::Done(Committed::Inserted { .. })));
    assert_eq!(review(&own).await, None);
    assert_eq!(read(&*store, &held).await.status, Status::Active);
}

/// A memory that replaced one, overlaps with one, and is part of an open question.
async fn connected(store: &dyn Engine) -> (Memory, [Memory; 3]) {
    let own = new_partition(store).await;
    let others = ["one", "two", "three"].map(|text| memory(&own, text));
    store.commit_all(others.to_vec()).await.unwrap();
    let new = at(20, memory(&own, "before"));
    let overlap = Relation::Overlap;
    let verdicts = vec![
        judged(&others[0], retire(10)),
        judged(
            &others[1],
            Effect::Relate {
                relation: overlap,
                by: Decider::Rule,
            },
        ),
        judged(&others[2], Effect::Escalate { guess: overlap }),
    ];
    decided(store, &new, verdicts).await;
    (read(store, &new).await, others)
}

pub(crate) async fn a_changed_text_is_a_forgotten_one(backend: &dyn Backend) {
    let store = backend.open().await;
    let (found, _) = connected(&*store).await;
    let own = found.partition.clone();
    let scope = std::slice::from_ref(&own);
    let changed = Memory {
        updated_at: time(30),
        pinned: true,
        ..at(20, memory(&own, "after"))
    };
    let changed = Memory {
        id: found.id,
        ..changed
    };
    let edit = Edit {
        draft: changed.clone().into(),
        read_at: found.revision,
        forgets: true,
    };
    let edited = store.edit(edit).await.unwrap();
    let revision = store.revision().await.unwrap();
    let done = Committed::Inserted {
        revision,
        supersedes: vec![],
        changed: vec![],
    };
    assert_eq!(edited, Edited::Done(done));
    let expected = Memory {
        revision,
        text_revision: revision,
        ..changed
    };
    let read = read(&*store, &found).await;
    assert_eq!(format!("{read:?}"), format!("{expected:?}"));
    let tombstoned = async |hash| store.is_tombstoned(&own, hash).await.unwrap();
    assert!(tombstoned(found.content_hash).await);
    assert!(!tombstoned(expected.content_hash).await);
    assert!(
        !store
            .is_tombstoned(&of_user(&own, "ann"), found.content_hash)
            .await
            .unwrap()
    );
    assert_eq!(store.forget_fence(scope).await.unwrap(), revision);
    assert_eq!(store.relations(&own, found.id).await.unwrap(), []);
    assert_eq!(store.escalations(scope, None, 10).await.unwrap(), []);
    let listed = store.list_memories(scope, history(&*store, &own).await);
    let texts: Vec<_> = listed.await.unwrap().memories;
    assert!(texts.iter().all(|m| &*m.content != "before"));
    assert_eq!(texts.len(), 4, "the one that was replaced is history");
}

pub(crate) async fn a_change_without_a_new_text_forgets_nothing(backend: &dyn Backend) {
    let store = backend.open().await;
    let (found, others) = connected(&*store).await;
    let own = found.partition.clone();
    let scope = std::slice::from_ref(&own);
    let relations = store.relations(&own, found.id).await.unwrap();
    assert_eq!(relations.len(), 2);
    let changed = Memory {
        pinned: true,
        valid_until: Some(time(90)),
        updated_at: time(30),
        ..found.clone()
    };
    let edit = Edit {
        draft: changed.clone().into(),
        read_at: found.revision,
        forgets: false,
    };
    store.edit(edit).await.unwrap();
    let expected = Memory {
        revision: store.revision().await.unwrap(),
        ..changed
    };
    let read = read(&*store, &found).await;
    assert_eq!(format!("{read:?}"), format!("{expected:?}"));
    assert_eq!(*read.supersedes, [others[0].id]);
    assert_eq!(store.relations(&own, found.id).await.unwrap(), relations);
    assert_eq!(store.escalations(scope, None, 10).await.unwrap().len(), 1);
    assert_eq!(store.forget_fence(scope).await.unwrap(), 0);
    assert!(!store.is_tombstoned(&own, found.content_hash).await.unwrap());
}

pub(crate) async fn a_change_of_what_changed_meanwhile_is_stale(backend: &dyn Backend) {
    let store = backend.open().await;
    let (found, others) = connected(&*store).await;
    let scope = std::slice::from_ref(&found.partition);
    let edit = |memory: &Memory, read_at| Edit {
        draft: Memory {
            pinned: true,
            ..memory.clone()
        }
        .into(),
        read_at,
        forgets: false,
    };
    let unknown = Memory {
        id: MemoryId::new(),
        ..found.clone()
    };
    let gone = read(&*store, &others[1]).await;
    store.forget_memory(scope, gone.id, time(40)).await.unwrap();
    let before = store.revision().await.unwrap();
    let edits = [
        edit(&found, found.revision - 1),
        edit(&unknown, found.revision),
        edit(&gone, gone.revision),
        edit(&gone, before),
    ];
    for stale in edits {
        assert_eq!(store.edit(stale).await.unwrap(), Edited::Stale);
    }
    assert_eq!(store.revision().await.unwrap(), before);
    assert!(!read(&*store, &found).await.pinned);
}

pub(crate) async fn a_change_into_the_text_of_another_is_not_made(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let (first, second) = (memory(&own, "tea"), memory(&own, "coffee"));
    store
        .commit_all(vec![first.clone(), second.clone()])
        .await
        .unwrap();
    let found = read(&*store, &second).await;
    let before = store.revision().await.unwrap();
    let edit = Edit {
        draft: Memory {
            content: first.content.clone(),
            content_hash: first.content_hash,
            ..found.clone()
        }
        .into(),
        read_at: found.revision,
        forgets: true,
    };
    let same = Committed::Duplicate { existing: first.id };
    assert_eq!(store.edit(edit).await.unwrap(), Edited::Done(same));
    assert_eq!(
        format!("{:?}", read(&*store, &second).await),
        format!("{found:?}")
    );
    assert_eq!(store.revision().await.unwrap(), before);
}

pub(crate) async fn votes_count_for_active_memories_of_the_partitions(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = of_user(&new_partition(&*store).await, "ann");
    let (liked, over) = (
        memory(&own, "tea"),
        Memory {
            status: Status::Superseded,
            ..memory(&own, "coffee")
        },
    );
    store
        .commit_all(vec![liked.clone(), over.clone()])
        .await
        .unwrap();
    let before = store.revision().await.unwrap();
    let scope = [of_user(&own, "bob"), own.clone()];
    let vote = async |partitions, id, useful, second| {
        let vote = store.vote(partitions, id, useful, time(second));
        vote.await.unwrap()
    };
    let first = vote(&scope, liked.id, true, 5).await.unwrap();
    assert_eq!((first.votes_useful, first.votes_not_useful), (1, 0));
    assert_eq!((first.revision, first.updated_at), (before + 1, time(5)));
    vote(&scope, liked.id, true, 3).await;
    let last = vote(&scope, liked.id, false, 4).await.unwrap();
    assert_eq!((last.votes_useful, last.votes_not_useful), (2, 1));
    assert_eq!((last.revision, last.updated_at), (before + 3, time(5)));
    let stored = read(&*store, &liked).await;
    assert_eq!(format!("{stored:?}"), format!("{last:?}"));
    assert!(vote(&scope[..1], liked.id, true, 6).await.is_none());
    assert!(vote(&scope, over.id, true, 6).await.is_none());
    assert!(vote(&scope, MemoryId::new(), true, 6).await.is_none());
    let kinds: Vec<_> = store.changes_after(before, 10).await.unwrap();
    assert_eq!(kinds.len(), 3);
}

pub(crate) async fn mates_of_a_slot_come_with_the_newest_start_first(backend: &dyn Backend) {
    let store = backend.open().await;
    let own = new_partition(&*store).await;
    let slot = [7; 16];
    let placed = |text: &str, second, status, partition, slot| Draft {
        slot: Some(slot),
        ..Draft::from(Memory {
            status,
            valid_from: time(second),
            ..memory(partition, text)
        })
    };
    let rows = vec![
        placed("first", 1, Status::Active, &own, slot),
        placed("third", 3, Status::Superseded, &own, slot),
        placed("second", 2, Status::Active, &own, slot),
        placed("held", 9, Status::Quarantined, &own, slot),
        placed("another slot", 9, Status::Active, &own, [8; 16]),
        placed(
            "another user",
            9,
            Status::Active,
            &of_user(&own, "ann"),
            slot,
        ),
        Draft::from(memory(&own, "no slot")),
    ];
    let second = rows[2].memory.clone();
    let refined = ibex::store::Refined { rows, ledger: None };
    store.commit(refined).await.unwrap();
    let mates = async |most| {
        let mates = store.slot_mates(&own, slot, most).await.unwrap();
        let texts = mates.iter().map(|m| m.content.to_string());
        texts.collect::<Vec<_>>()
    };
    assert_eq!(mates(10).await, ["third", "second", "first"]);
    assert_eq!(mates(2).await, ["third", "second"]);
    let whole = store.slot_mates(&own, slot, 2).await.unwrap().remove(1);
    let stored = read(&*store, &second).await;
    assert_eq!(format!("{whole:?}"), format!("{stored:?}"));
    store
        .forget_memory(std::slice::from_ref(&own), second.id, time(30))
        .await
        .unwrap();
    assert_eq!(mates(10).await, ["third", "first"]);
}
