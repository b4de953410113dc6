//! What is counted is what is held.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::prop;

use crate::ids::MemoryId;
use crate::memory::search::Partition;
use crate::memory::search::blocks::Blocks;
use crate::memory::search::hot::{Inline, hot_members};
use crate::memory::search::kept::Kept;
use crate::memory::search::partition::CHUNK_ROWS;
use crate::memory::search::sharded::Sharded;
use crate::memory::{Category, Label, Memory, Source};

use super::{Shelf, embedded, far, find, index, key, memory, now, partition, scope, turn, words};

/// Counts what the rows own once more.
fn recounted(partition: &Partition) -> (usize, usize) {
    let count = partition.read(far(), |columns| {
        let kept = columns.kept.iter().flatten().map(Kept::heap_bytes).sum();
        (columns.heap, kept)
    });
    count.unwrap()
}

proptest::proptest! {
    #[test]
    fn the_running_account_is_that_of_the_rows(actions in prop::collection::vec((0usize..300, 0usize..900, proptest::bool::weighted(0.3)), 1..600)) {
        let key = key(None);
        let rows: Vec<Memory> = (0..300).map(|_| memory(&key, "")).collect();
        let live = partition(&key, []);
        for (revision, (row, words, remove)) in (1i64..).zip(actions) {
            if remove {
                live.remove(rows[row].id);
            } else {
                let content = format!("note {words} {} of {}", words * 7, "x".repeat(words % 40));
                live.upsert(Arc::new(Memory { content: content.into(), revision, ..rows[row].clone() }));
            }
        }
        let (counted, held) = recounted(&live);
        proptest::prop_assert_eq!(counted, held);
        proptest::prop_assert!(live.write(|columns| columns.lexicon.is_counted()));
    }

    #[test]
    fn a_split_table_is_a_table(keys in prop::collection::vec(0u32..200, 0..300)) {
        let (mut ours, mut plain) = (Sharded::default(), HashMap::new());
        // More than are kept in one part.
        for key in 1_000..70_000u32 {
            ours.insert(key, key);
        }
        for key in keys {
            if key % 3 == 0 {
                proptest::prop_assert_eq!(ours.remove(&key), plain.remove(&key));
            } else {
                proptest::prop_assert_eq!(ours.insert(key, key), plain.insert(key, key));
            }
        }
        for key in 0..200 {
            proptest::prop_assert_eq!(ours.get(&key), plain.get(&key));
        }
        proptest::prop_assert!((1_000..70_000).all(|key| ours.get(&key) == Some(&key)));
    }
}

#[test]
fn compaction_gives_back_what_the_dead_took() {
    let key = key(None);
    let rows: Vec<Memory> = (0..600)
        .map(|i| {
            embedded(
                &key,
                &format!("shelf {i} holds item {}", i * 7),
                &[0.6, 0.8],
                super::MODEL,
            )
        })
        .collect();
    let partition = partition(&key, rows.iter().cloned());
    partition.shrink();
    let full = partition.bytes();
    rows.iter()
        .skip(100)
        .for_each(|row| partition.remove(row.id));
    let rest = partition.bytes();
    assert!(rest < full / 2, "{rest} of {full}");
    let (counted, held) = recounted(&partition);
    assert_eq!(counted, held);
    assert_eq!(find(&[partition], &words("item 693")).len(), 50);
}

#[test]
fn a_small_partition_takes_little() {
    let key = key(None);
    let vector: Vec<f32> = (0..256u16).map(f32::from).collect();
    let rows = (0..10).map(|i| {
        let text =
            format!("Note {i:05}: the invoice of carrier {i} is kept at shelf {i} near the river.");
        embedded(&key, &text, &vector, super::MODEL)
    });
    let partition = partition(&key, rows);
    partition.shrink();
    assert!(partition.bytes() < 8 << 10, "{}", partition.bytes());
}

#[test]
fn a_memory_comes_back_as_it_was() {
    let key = key(Some("ann"));
    let later = now() + Duration::from_micros(1);
    let plain = memory(&key, "plain");
    let full = Memory {
        labels: [Category::Episodic, Category::Factual]
            .map(|label| Label {
                label,
                confidence: 0.25,
            })
            .to_vec(),
        valid_until: Some(later),
        observed_at: Some(now()),
        metadata: Some(
            serde_json::value::RawValue::from_string(r#"{"a": 1e2}"#.to_owned())
                .unwrap()
                .into(),
        ),
        pinned: true,
        revision: 7,
        text_revision: 6,
        supersedes: vec![plain.id].into(),
        content_hash: [9; 32],
        retrieval_count: 3,
        votes_useful: 4,
        votes_not_useful: 5,
        updated_at: later,
        ..turn(&key, 12, "Ann: full")
    };
    let unlabelled = Memory {
        labels: Vec::new(),
        source: Source {
            kind: "import".to_owned(),
            ..Source::default()
        },
        ..memory(&key, "unlabelled")
    };
    for memory in [plain, full, unlabelled] {
        let partition = partition(&key, [memory.clone()]);
        let back = find(&[partition], &words(&memory.content)).remove(0).memory;
        assert_eq!(format!("{:?}", &*back), format!("{memory:?}"));
    }
}

#[test]
fn uses_count_at_once_and_bring_a_memory_into_the_hot_set() {
    let key = key(None);
    let rows: Vec<Memory> = (0..6).map(|i| memory(&key, &format!("tea n{i}"))).collect();
    let ids: Vec<MemoryId> = rows.iter().map(|row| row.id).collect();
    let partition = partition(&key, rows);
    let hot = |limit| {
        let partitions = std::slice::from_ref(&partition);
        let inline = Inline {
            rows: usize::MAX,
            deadline: far(),
        };
        let hits = hot_members(partitions, &words("tea"), now(), limit, inline).unwrap();
        hits.into_iter().map(|hit| hit.memory).collect::<Vec<_>>()
    };
    let members: Vec<MemoryId> = hot(9).iter().map(|memory| memory.id).collect();
    assert_eq!(members.len(), 4);
    let outside = |id: &&MemoryId| !members.contains(*id);
    let used = *ids.iter().find(outside).unwrap();
    partition.count_uses(&[used, used, MemoryId::new()]);
    let counted = |memory: &Memory| (memory.id == used).then_some(memory.retrieval_count);
    assert_eq!(hot(9).iter().find_map(|memory| counted(memory)), Some(2));
    let found = find(std::slice::from_ref(&partition), &words("tea"));
    let counts: u32 = found.iter().map(|hit| hit.memory.retrieval_count).sum();
    assert_eq!(counts, 2, "an unknown one counts nowhere");
}

#[test]
fn members_that_wait_for_the_next_choice_are_as_they_are_now() {
    let key = key(None);
    let rows: Vec<Memory> = (0..6).map(|i| memory(&key, &format!("tea n{i}"))).collect();
    let partition = partition(&key, rows);
    let hot = |rows| {
        let partitions = std::slice::from_ref(&partition);
        let deadline = far();
        let inline = Inline { rows, deadline };
        hot_members(partitions, &words("tea"), now(), 9, inline).unwrap()
    };
    let mut members = hot(usize::MAX).into_iter().map(|hit| hit.memory.id);
    let stays = members.next().unwrap();
    // So many are gone that the members have to be chosen again, which nobody does here.
    members.for_each(|gone| partition.write(|columns| columns.remove(gone)));
    partition.count_uses(&[stays]);
    let left = hot(0);
    let counts: Vec<u32> = left.iter().map(|hit| hit.memory.retrieval_count).collect();
    assert_eq!((left[0].memory.id, counts), (stays, vec![1]));
}

#[test]
fn a_column_has_its_rows_in_order_across_blocks() {
    let mut column = Blocks::new(3);
    let row = |i: usize| [i, i + 1, i * 2];
    for i in 0..=CHUNK_ROWS {
        column.push_row(row(i));
    }
    column.row_mut(1)[2] = 9;
    assert_eq!(column.len(), CHUNK_ROWS + 1);
    assert_eq!(column.row(1), [1, 2, 9]);
    assert_eq!(column.row(CHUNK_ROWS), row(CHUNK_ROWS));
    assert_eq!(column.block_from(CHUNK_ROWS - 1), row(CHUNK_ROWS - 1));
    assert!(column.row(CHUNK_ROWS + 1).is_empty());
}

#[tokio::test]
async fn a_large_partition_is_cleared_up_once_and_not_by_who_removes() {
    const LARGE: usize = 17_000;
    let key = key(None);
    let rows: Vec<Memory> = (0..LARGE).map(|i| memory(&key, &format!("n{i}"))).collect();
    let store = Shelf::new(rows.clone(), 1_000);
    let index = index(&store, LARGE);
    let (scope, question) = (scope(None), words("n16999"));
    let found = index.search(&scope, &question, 5, far()).await;
    assert_eq!(found.unwrap().len(), 1);
    let state = || {
        let slot = index.slots.get(&key).unwrap();
        let state = slot
            .partition
            .read(far(), |c| (c.rows.len(), c.live, c.generation));
        state.unwrap()
    };
    let (all, _, generation) = state();
    assert_eq!(all, LARGE);
    let gone = rows.iter().take(LARGE / 2 + 500);
    gone.for_each(|row| index.remove(&key, row.id));
    let live = LARGE / 2 - 500;
    assert_eq!(state(), (LARGE, live, generation));
    while state().0 > live {
        tokio::task::yield_now().await;
    }
    // Each of the last five hundred found it untidy.
    assert_eq!(index.tasks().drain(Duration::from_secs(60)).await, 0);
    assert_eq!(state(), (live, live, generation + 1));
    let found = index.search(&scope, &question, 5, far()).await;
    assert_eq!(found.unwrap().len(), 1);
}
