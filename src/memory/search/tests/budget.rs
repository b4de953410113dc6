//! The budget: who leaves, who stays, and that nobody can tell from the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::prop;

use crate::auth::Scope;
use crate::ids::{AgentId, MemoryId, OrgId};
use crate::memory::search::{Index, IndexSettings};
use crate::memory::{Memory, PartitionKey};
use crate::telemetry::IndexFigures;

use super::{Shelf, contents, far, index_with, memory, settings, words};

/// The agent-wide partition of agent number `n`.
fn agent(n: u8) -> PartitionKey {
    PartitionKey {
        org: OrgId::from_bytes([1; 16]),
        agent: AgentId::from_bytes([n; 16]),
        user: None,
    }
}

/// Three memories, as long for every agent.
fn notes(n: u8) -> [Memory; 3] {
    ["tea", "coffee", "water"].map(|drink| memory(&agent(n), &format!("{drink} of agent {n:03}")))
}

fn shelf(agents: u8) -> Arc<Shelf> {
    Shelf::new((0..agents).flat_map(notes).collect(), 100_000)
}

fn bounded(store: &Arc<Shelf>, bytes: usize) -> (Index, IndexFigures) {
    let settings = IndexSettings {
        bytes,
        ..settings()
    };
    let figures = settings.figures.clone();
    (index_with(store, settings), figures)
}

/// What `agent(n)` finds.
async fn ask(index: &Index, n: u8, question: &str) -> BTreeSet<String> {
    let key = agent(n);
    let scope = Scope::for_test(key.org, key.agent, None);
    let hits = index.search(&scope, &words(question), 50, far()).await;
    let hits = hits.unwrap();
    contents(&hits).into_iter().map(str::to_owned).collect()
}

/// What one of these partitions takes.
async fn one() -> usize {
    let (index, _) = bounded(&shelf(1), usize::MAX);
    ask(&index, 0, "tea").await;
    settled(&index).await;
    index.bytes()
}

/// Waits for the loads and evictions that were begun.
async fn settled(index: &Index) {
    while index.slots.is_busy() {
        tokio::task::yield_now().await;
    }
}

fn held(index: &Index, agents: u8) -> Vec<u8> {
    let held = |n: &u8| index.holds(&agent(*n));
    (0..agents).filter(held).collect()
}

#[tokio::test]
async fn the_least_recently_used_leaves_first() {
    let room_for_three = one().await * 7 / 2;
    let (index, figures) = bounded(&shelf(6), room_for_three);
    for n in [0, 1, 2, 0, 3] {
        ask(&index, n, "tea").await;
        settled(&index).await;
    }
    assert_eq!(
        (held(&index, 6), figures.evictions.get()),
        (vec![0, 2, 3], 1)
    );
    for n in [4, 5] {
        ask(&index, n, "tea").await;
        settled(&index).await;
    }
    assert_eq!(
        (held(&index, 6), figures.evictions.get()),
        (vec![3, 4, 5], 3)
    );
    assert_eq!(figures.partitions.get(), 3);
    assert_eq!(figures.bytes.get(), i64::try_from(index.bytes()).unwrap());
    assert!(index.bytes() <= room_for_three);
}

#[tokio::test]
async fn what_changed_while_a_partition_was_out_is_seen_when_it_is_back() {
    let store = shelf(4);
    let (index, _) = bounded(&store, one().await * 5 / 2);
    let [_, forgotten, edited] = {
        let all = store.memories.lock();
        [0, 1, 2].map(|at: usize| all[at].clone())
    };
    assert_eq!(ask(&index, 0, "tea coffee water").await.len(), 3);
    for n in 1..4 {
        ask(&index, n, "tea").await;
        settled(&index).await;
    }
    assert!(!index.holds(&agent(0)));
    // The store first, the index after: as every write does.
    let newer = Memory {
        content: "wine of agent 000".into(),
        revision: 2,
        ..edited
    };
    let added = memory(&agent(0), "milk of agent 000");
    {
        let mut rows = store.memories.lock();
        rows.retain(|row| row.id != forgotten.id && row.id != newer.id);
        rows.extend([newer.clone(), added.clone()]);
    }
    index.remove(&agent(0), forgotten.id);
    index.upsert(newer);
    index.upsert(added);
    assert!(!index.holds(&agent(0)), "a write is no use");
    let found = ask(&index, 0, "tea coffee water wine milk").await;
    let expected = ["milk", "tea", "wine"].map(|drink| format!("{drink} of agent 000"));
    assert_eq!(found, BTreeSet::from(expected));
}

#[tokio::test]
async fn the_two_used_last_stay_however_large_they_are() {
    let (index, figures) = bounded(&shelf(4), 1);
    for n in [0, 1, 0, 1] {
        assert_eq!(ask(&index, n, "tea").await.len(), 1);
        settled(&index).await;
    }
    assert_eq!((held(&index, 4), figures.evictions.get()), (vec![0, 1], 0));
    ask(&index, 2, "tea").await;
    settled(&index).await;
    assert_eq!(held(&index, 4), [1, 2]);
}

#[tokio::test]
async fn a_partition_that_grows_makes_others_leave() {
    let (index, _) = bounded(&shelf(4), one().await * 9 / 2);
    for n in 0..4 {
        ask(&index, n, "tea").await;
    }
    settled(&index).await;
    assert_eq!(held(&index, 4), [0, 1, 2, 3]);
    for i in 0..20 {
        index.upsert(memory(&agent(2), &format!("juice number {i}")));
    }
    settled(&index).await;
    assert!(!index.holds(&agent(0)));
    assert!(index.holds(&agent(3)));
}

#[tokio::test]
async fn a_write_warms_a_partition_only_where_nobody_has_to_leave() {
    let (index, figures) = bounded(&shelf(6), one().await * 13 / 4);
    index.warm(&agent(0));
    settled(&index).await;
    assert!(index.holds(&agent(0)));
    for n in [1, 2] {
        ask(&index, n, "tea").await;
        settled(&index).await;
    }
    index.warm(&agent(3));
    assert!(!index.holds(&agent(3)), "there is no room");
    ask(&index, 4, "tea").await;
    settled(&index).await;
    // What nobody has asked for leaves first.
    assert_eq!(
        (held(&index, 6), figures.evictions.get()),
        (vec![1, 2, 4], 1)
    );
}

#[derive(Debug, Clone)]
enum Step {
    Write(u8, u8),
    Forget(u8, u8),
    Ask(u8),
}

fn step() -> impl prop::strategy::Strategy<Value = Step> {
    use prop::strategy::Strategy as _;
    (0u8..8, 0u8..8, 0u8..4).prop_map(|(n, i, kind)| match kind {
        0 => Step::Write(n, i),
        1 => Step::Forget(n, i),
        _ => Step::Ask(n),
    })
}

proptest::proptest! {
    #[test]
    fn no_order_of_writes_reads_and_evictions_shows(steps in prop::collection::vec(step(), 1..120), room in 1usize..8) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = shelf(0);
            let budget = one().await * room;
            let (index, figures) = bounded(&store, budget);
            let mut model: BTreeMap<u8, BTreeMap<u8, Memory>> = BTreeMap::new();
            for (revision, step) in (1..).zip(steps) {
                match step {
                    Step::Write(n, i) => {
                        let rows = model.entry(n).or_default();
                        let id = rows.get(&i).map_or_else(MemoryId::new, |row| row.id);
                        let row = Memory { id, revision, ..memory(&agent(n), &format!("note {i} of {revision}")) };
                        rows.insert(i, row.clone());
                        store.memories.lock().retain(|old| old.id != id);
                        store.memories.lock().push(row.clone());
                        index.warm(&agent(n));
                        index.upsert(row);
                    }
                    Step::Forget(n, i) => {
                        if let Some(row) = model.entry(n).or_default().remove(&i) {
                            store.memories.lock().retain(|old| old.id != row.id);
                            index.remove(&agent(n), row.id);
                        }
                    }
                    Step::Ask(n) => {
                        let expected = model.get(&n).into_iter().flat_map(BTreeMap::values);
                        let expected: BTreeSet<String> = expected.map(|row| row.content.to_string()).collect();
                        assert_eq!(ask(&index, n, "note").await, expected);
                    }
                }
            }
            settled(&index).await;
            index.slots.look_at_size();
            settled(&index).await;
            let all: usize = (0..8).filter_map(|n| index.slots.get(&agent(n))).map(|slot| slot.partition.bytes()).sum();
            assert_eq!(index.bytes(), all);
            assert!(all <= budget || held(&index, 8).len() <= 2, "{all} of {budget}");
            assert_eq!(figures.partitions.get(), i64::try_from(held(&index, 8).len()).unwrap());
        });
    }
}
