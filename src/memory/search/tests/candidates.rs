//! The cold branch over a store that searches by itself: candidates are judged as rows of the index are.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::super::{
    CandidateStore, Candidates, HotBranch, NearBranch, Nearness, Staged, StandingIds, Wanted,
    lexemes,
};
use super::{Shelf, contents, embedded, far, index, key, memory, scope, words};
use crate::config::{PostgresConfig, SearchIn};
use crate::ids::MemoryId;
use crate::memory::embedder::{StaticMiniLm, static_minilm};
use crate::memory::search::{ColdBranch, IndexSettings, Query};
use crate::memory::{Memory, PartitionKey};
use crate::store::StoreError;

#[async_trait]
impl CandidateStore for Shelf {
    /// The exact answer.
    async fn candidates(
        &self,
        partition: &PartitionKey,
        wanted: &Wanted,
    ) -> Result<Candidates, StoreError> {
        let all: Vec<Memory> = self.memories.lock().clone();
        let own: Vec<Memory> = all
            .into_iter()
            .filter(|m| m.partition == *partition && m.is_current(wanted.now))
            .collect();
        let cosine = |memory: &Memory| {
            let (_, asked) = wanted.vector.as_ref()?;
            let vector = &memory.embedding.as_ref()?.vector;
            Some(vector.iter().zip(&**asked).map(|(a, b)| a * b).sum::<f32>())
        };
        let matches = |memory: &Memory| {
            let terms = lexemes(&memory.content);
            wanted.words.iter().filter(|w| terms.contains(w)).count()
        };
        let mut near = own.clone();
        near.sort_by(|a, b| cosine(b).partial_cmp(&cosine(a)).unwrap());
        near.truncate(if wanted.vector.is_some() {
            wanted.limit
        } else {
            0
        });
        let mut by_words: Vec<Memory> = own.iter().filter(|m| matches(m) > 0).cloned().collect();
        let all_words = by_words.len() <= wanted.limit;
        by_words.sort_by_key(|m| std::cmp::Reverse(matches(m)));
        by_words.truncate(wanted.limit);
        let cosines: Vec<f32> = own.iter().filter_map(cosine).collect();
        let known: HashSet<_> = near.iter().map(|m| m.id).collect();
        near.extend(by_words.into_iter().filter(|m| !known.contains(&m.id)));
        Ok(Candidates {
            memories: near,
            documents: own.len() as u64,
            mean_cosine: (!cosines.is_empty())
                .then(|| cosines.iter().sum::<f32>() / cosines.len() as f32),
            all_words,
            held: Vec::new(),
        })
    }

    async fn standing(
        &self,
        partition: &PartitionKey,
        ids: Option<&[MemoryId]>,
        most: usize,
        now: Timestamp,
    ) -> Result<Vec<Memory>, StoreError> {
        let all: Vec<Memory> = self.memories.lock().clone();
        let own = all.into_iter().rev();
        let own = own.filter(|m| m.partition == *partition && m.is_current(now));
        Ok(match ids {
            Some(ids) => own.filter(|m| ids.contains(&m.id)).collect(),
            None => own.take(most).collect(),
        })
    }

    async fn size(&self, partition: &PartitionKey, most: usize) -> Result<usize, StoreError> {
        let memories = self.memories.lock();
        let own = memories.iter().filter(|m| m.partition == *partition);
        Ok(own.count().min(most))
    }
}

fn staged(
    store: &Arc<Shelf>,
    search: SearchIn,
    process_rows: usize,
) -> (Arc<super::Index>, Staged) {
    let settings = IndexSettings {
        inline_search_rows: 100_000,
        ..IndexSettings::new(
            static_minilm::MODEL,
            &crate::config::MemoryConfig::default(),
        )
    };
    let index = Arc::new(super::index_with(store, settings));
    let postgres = PostgresConfig {
        search,
        process_rows,
        ..PostgresConfig::default()
    };
    let staged = Staged::new(Arc::clone(&index), Arc::clone(store) as _, &postgres);
    (index, staged)
}

const THINGS: [&str; 12] = [
    "violin",
    "ladder",
    "passport",
    "kettle",
    "canoe",
    "lantern",
    "telescope",
    "anvil",
    "umbrella",
    "compass",
    "typewriter",
    "sewing machine",
];
const PLACES: [&str; 10] = [
    "attic",
    "cellar",
    "garden shed",
    "boathouse",
    "kitchen",
    "hallway",
    "library",
    "garage",
    "greenhouse",
    "stable",
];

/// Many memories that are much alike, and a few of each thing.
fn household(key: &PartitionKey) -> Vec<Memory> {
    let embedder = StaticMiniLm::shared();
    (0..1_200usize)
        .map(|i| {
            let (thing, place) = (THINGS[i % THINGS.len()], PLACES[i / 7 % PLACES.len()]);
            let text = format!(
                "The {thing} number {i} stands in the {place}, said person {}.",
                i % 37
            );
            let vector = embedder.embed_one(&text);
            embedded(key, &text, &vector, static_minilm::MODEL)
        })
        .collect()
}

fn asked(text: &str) -> Query {
    let vector = StaticMiniLm::shared().embed_one(text);
    Query::new(text, Some(&vector), static_minilm::MODEL.into())
}

#[tokio::test]
async fn candidates_answer_as_the_whole_index_does() {
    let key = key(None);
    let store = Shelf::new(household(&key), usize::MAX >> 4);
    let (index, staged) = staged(&store, SearchIn::Database, 0);
    let (mut same, mut all) = (0, 0);
    for question in [
        "Where is the violin number 24?",
        "What did person 12 say about the telescope?",
        "Is there a canoe in the boathouse?",
        "number 777",
        "Which instruments stand in the library?",
        "Where can I write a letter by hand?",
    ] {
        let query = asked(question);
        let exact = index.search(&scope(None), &query, 10, far()).await.unwrap();
        let found = staged.cold(&scope(None), &query, 10, far()).await.unwrap();
        assert_eq!(found[0].memory.id, exact[0].memory.id, "{question}");
        assert!(
            (found[0].relevance - exact[0].relevance).abs() < 0.1,
            "{question}: {} and {}",
            found[0].relevance,
            exact[0].relevance
        );
        let ids: HashSet<_> = exact.iter().map(|hit| hit.memory.id).collect();
        same += found
            .iter()
            .filter(|hit| ids.contains(&hit.memory.id))
            .count();
        all += exact.len();
    }
    assert!(same * 10 >= all * 9, "{same} of {all}");
}

#[tokio::test]
async fn a_partition_that_is_not_loaded_is_searched_in_the_store_and_then_here() {
    let key = key(None);
    let store = Shelf::new(vec![memory(&key, "tea for all")], 0);
    let (index, staged) = staged(&store, SearchIn::Auto, 10);
    let (scope, query) = (scope(None), words("tea"));
    // The load has no permit: the store answers all the same.
    let first = staged.cold(&scope, &query, 5, far()).await.unwrap();
    assert_eq!(contents(&first), ["tea for all"]);
    assert!(!index.is_loaded(&key));
    store.permits.add_permits(10);
    index.search(&scope, &query, 5, far()).await.unwrap();
    store.memories.lock().clear();
    let second = staged.cold(&scope, &query, 5, far()).await.unwrap();
    assert_eq!(contents(&second), ["tea for all"], "from the index");
}

#[tokio::test]
async fn a_partition_that_is_too_large_is_never_loaded() {
    let key = key(None);
    let rows: Vec<Memory> = (0..12).map(|i| memory(&key, &format!("tea {i}"))).collect();
    let store = Shelf::new(rows, 100);
    let (index, staged) = staged(&store, SearchIn::Auto, 10);
    for _ in 0..3 {
        let found = staged.cold(&scope(None), &words("tea"), 20, far()).await;
        assert_eq!(found.unwrap().len(), 12);
    }
    assert!(!index.holds(&key));
    assert_eq!(store.loads.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn what_a_store_answers_of_another_scope_is_dropped() {
    #[derive(Debug)]
    struct Leaky;
    #[async_trait]
    impl CandidateStore for Leaky {
        async fn candidates(&self, _: &PartitionKey, _: &Wanted) -> Result<Candidates, StoreError> {
            Ok(Candidates {
                memories: vec![
                    memory(&key(Some("bob")), "tea for bob"),
                    memory(&key(None), "tea"),
                ],
                documents: 2,
                mean_cosine: None,
                all_words: true,
                held: Vec::new(),
            })
        }
        async fn standing(
            &self,
            _: &PartitionKey,
            _: Option<&[MemoryId]>,
            _: usize,
            _: Timestamp,
        ) -> Result<Vec<Memory>, StoreError> {
            Ok(vec![memory(&key(Some("bob")), "tea for bob")])
        }
        async fn size(&self, _: &PartitionKey, most: usize) -> Result<usize, StoreError> {
            Ok(most)
        }
    }
    let index = Arc::new(index(&Shelf::new(Vec::new(), 1), 100));
    let staged = Staged::new(index, Arc::new(Leaky), &PostgresConfig::default());
    let found = staged
        .cold(&scope(Some("ann")), &words("tea"), 9, far())
        .await;
    assert_eq!(contents(&found.unwrap()), ["tea"]);
    let hot = staged
        .hot(&scope(Some("ann")), &words("tea"), 9, far())
        .await;
    assert_eq!(contents(&hot.unwrap()), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_costs_no_more_than_the_deadline() {
    #[derive(Debug)]
    struct Silent;
    #[async_trait]
    impl CandidateStore for Silent {
        async fn candidates(&self, _: &PartitionKey, _: &Wanted) -> Result<Candidates, StoreError> {
            std::future::pending().await
        }
        async fn standing(
            &self,
            _: &PartitionKey,
            _: Option<&[MemoryId]>,
            _: usize,
            _: Timestamp,
        ) -> Result<Vec<Memory>, StoreError> {
            std::future::pending().await
        }
        async fn size(&self, _: &PartitionKey, _: usize) -> Result<usize, StoreError> {
            std::future::pending().await
        }
    }
    for search in [SearchIn::Auto, SearchIn::Database] {
        let index = Arc::new(index(&Shelf::new(Vec::new(), 1), 100));
        let settings = PostgresConfig {
            search,
            ..PostgresConfig::default()
        };
        let staged = Staged::new(index, Arc::new(Silent), &settings);
        let deadline = Instant::now() + std::time::Duration::from_millis(40);
        let found = staged.cold(&scope(None), &words("tea"), 9, deadline).await;
        assert!(matches!(found, Err(super::SearchError::Deadline)));
        let hot = staged.hot(&scope(None), &words("tea"), 9, deadline).await;
        assert!(hot.is_err());
        assert!(Instant::now() <= deadline + std::time::Duration::from_millis(1));
    }
}

#[test]
fn lexemes_are_the_terms_that_a_query_has() {
    assert_eq!(
        lexemes("Owls, the OWLS and inv-0042"),
        ["owl", "inv-0042", "inv", "0042"]
    );
}

/// What replicas tell each other.
#[derive(Debug, Default)]
struct Told(Mutex<std::collections::HashMap<PartitionKey, Vec<MemoryId>>>);

#[async_trait]
impl StandingIds for Told {
    async fn told(&self, partition: &PartitionKey) -> Option<Vec<MemoryId>> {
        self.0.lock().get(partition).cloned()
    }
    async fn tell(&self, partition: &PartitionKey, ids: Vec<MemoryId>, _: Timestamp) {
        self.0.lock().insert(partition.clone(), ids);
    }
}

#[tokio::test]
async fn what_stands_highest_is_told_by_who_holds_a_partition_to_who_does_not() {
    let own = key(None);
    // The newest of many stand no higher than the others; the useful one is the oldest.
    let mut rows: Vec<Memory> = (0..300)
        .map(|n| memory(&own, &format!("tea number {n}")))
        .collect();
    rows[0] = Memory {
        votes_useful: 50,
        ..memory(&own, "tea of the best kind")
    };
    let store = Shelf::new(rows, 1);
    let told = Arc::new(Told::default());
    let (index, holder) = staged(&store, SearchIn::Process, 1_000);
    let holder = holder.sharing(told.clone());
    let (_, other) = staged(&store, SearchIn::Database, 1_000);
    let other = other.sharing(told.clone());
    let best = async |staged: &Staged| {
        let found = staged.hot(&scope(None), &words("best"), 3, far()).await;
        let found = found.unwrap();
        contents(&found)
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(best(&other).await, [""; 0], "the newest stand in");
    let newest = other.standing(&scope(None), 1_000, far()).await.unwrap();
    assert_eq!(newest.len(), index.hot_set_size());
    assert_eq!(best(&holder).await, ["tea of the best kind"]);
    while told.0.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(best(&other).await, ["tea of the best kind"]);
    store.memories.lock().remove(0);
    assert_eq!(best(&other).await, [""; 0], "it is what the store has now");
}

#[tokio::test]
async fn what_is_alike_is_the_same_wherever_it_is_looked_for() {
    let own = key(None);
    let at = |degrees: f32| -> [f32; 2] { degrees.to_radians().sin_cos().into() };
    let rows: Vec<Memory> = (0..40_u8)
        .map(|n| {
            let vector = at(f32::from(n) * 4.0);
            embedded(&own, &format!("note {n}"), &vector, static_minilm::MODEL)
        })
        .collect();
    let store = Shelf::new(rows, 2);
    let (_, within) = staged(&store, SearchIn::Process, 1_000);
    let (_, outside) = staged(&store, SearchIn::Database, 1_000);
    // A writer waits for the load of a small partition, and has none of a large one.
    let (small, waiting) = staged(&store, SearchIn::Auto, 1_000);
    let (large, asking) = staged(&store, SearchIn::Auto, 10);
    let asked = Nearness {
        above: 0.99,
        most: 4,
        deadline: far(),
        within: std::time::Duration::from_secs(60),
    };
    let vectors: [Arc<[f32]>; 2] = [at(0.0).into(), at(-90.0).into()];
    let question = (static_minilm::MODEL, &vectors[..]);
    let mut answers = Vec::new();
    for staged in [within, outside, waiting, asking] {
        let (found, answered) = staged.alike(&own, question, asked).await.unwrap();
        assert_eq!(answered, 2);
        let texts = |alike: &Vec<(Arc<Memory>, f32)>| -> Vec<String> {
            alike
                .iter()
                .map(|(memory, _)| memory.content.to_string())
                .collect()
        };
        answers.push(found.iter().map(texts).collect::<Vec<_>>());
    }
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    assert!(small.is_loaded(&own) && !large.holds(&own));
    assert_eq!(answers[0][0], ["note 0", "note 1", "note 2"]);
    assert!(answers[0][1].is_empty());
}
