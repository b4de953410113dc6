//! Behaviour of the search as a whole: what is found, by whom, and how it stays current.

mod accounts;
mod budget;
mod candidates;
mod loads;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use parking_lot::Mutex;
use proptest::prelude::prop;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::hot::{Inline, hot_members};
use super::partition::Interrupted;
use super::pass::{K1, Pass, TermWeights};
use super::scale::Scale;
use super::{
    ColdBranch, Hit, HotBranch, HotSet, Index, IndexSettings, Partition, Query, SearchError,
    Weights, query_text, search_partitions,
};
use crate::auth::Scope;
use crate::config::MemoryConfig;
use crate::ids::{AgentId, MemoryId, OrgId};
use crate::memory::embedder::{Embedder, StaticMiniLm};
use crate::memory::{Category, Embedding, Label, Memory, PartitionKey, Source, Status};
use crate::seams::Clock;
use crate::store::{ListFilter, ListPage, MemoryStore, StoreError};
use crate::tasks::Tasks;

const MODEL: &str = "test/3";

#[derive(Debug)]
struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        now()
    }
}

fn now() -> Timestamp {
    "2026-01-15T12:00:00Z".parse().unwrap()
}

/// Members are chosen at once, whatever the partition's size.
fn inline(deadline: Instant) -> Inline {
    Inline {
        rows: usize::MAX,
        deadline,
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3_600)
}

fn key(user: Option<&str>) -> PartitionKey {
    PartitionKey {
        org: OrgId::from_bytes([1; 16]),
        agent: AgentId::from_bytes([2; 16]),
        user: user.map(|user| user.parse().unwrap()),
    }
}

fn scope(user: Option<&str>) -> Scope {
    let key = key(user);
    Scope::for_test(key.org, key.agent, key.user)
}

fn memory(key: &PartitionKey, content: &str) -> Memory {
    Memory {
        id: MemoryId::new(),
        partition: key.clone(),
        content: content.into(),
        labels: vec![Label {
            label: Category::Factual,
            confidence: 1.0,
        }],
        confidence: 0.8,
        valid_from: now(),
        valid_until: None,
        observed_at: None,
        source: Source::default(),
        metadata: None,
        pinned: false,
        status: Status::Active,
        revision: 1,
        text_revision: 0,
        supersedes: Box::default(),
        content_hash: [0; 32],
        retrieval_count: 0,
        votes_useful: 0,
        votes_not_useful: 0,
        created_at: now(),
        updated_at: now(),
        embedding: None,
        tokens: crate::tokens::TokenCounts::default(),
    }
}

pub(in crate::memory::search) fn embedded(
    key: &PartitionKey,
    content: &str,
    vector: &[f32],
    model: &str,
) -> Memory {
    Memory {
        embedding: Some(Embedding {
            model: model.into(),
            vector: vector.into(),
        }),
        ..memory(key, content)
    }
}

fn turn(key: &PartitionKey, turn: u32, content: &str) -> Memory {
    Memory {
        source: Source {
            kind: "dialogue".to_owned(),
            session: Some("s".to_owned()),
            turn: Some(turn),
        },
        ..memory(key, content)
    }
}

fn partition(key: &PartitionKey, memories: impl IntoIterator<Item = Memory>) -> Arc<Partition> {
    let partition = Arc::new(Partition::new(key.clone(), MODEL.into(), 4));
    memories
        .into_iter()
        .for_each(|memory| partition.upsert(Arc::new(memory)));
    partition
}

fn words(text: &str) -> Query {
    Query::new(text, None, MODEL.into())
}

fn find(partitions: &[Arc<Partition>], query: &Query) -> Vec<Hit> {
    search_partitions(partitions, query, now(), 50, far()).unwrap()
}

fn contents(hits: &[Hit]) -> Vec<&str> {
    hits.iter().map(|hit| &*hit.memory.content).collect()
}

#[test]
fn the_memory_that_shares_rare_words_is_first() {
    let key = key(None);
    let notes = (0..300).map(|i| {
        memory(
            &key,
            &format!("Note {i:05}: the crate is kept at shelf {}", i % 97),
        )
    });
    let hits = find(
        &[partition(&key, notes)],
        &words("Where is note 00017 kept?"),
    );
    assert!(
        hits[0].memory.content.starts_with("Note 00017"),
        "{:?}",
        contents(&hits[..3])
    );
    assert!(hits[0].coverage > 0.8 && hits[0].relevance > 0.7);
    assert!(hits[0].relevance > hits[1].relevance * 1.2);
}

#[test]
fn scripts_without_spaces_are_searched() {
    let key = key(None);
    let found = [
        ("東京の天気は？", "彼女は東京都に住んでいる"),
        ("ชอบกาแฟไหม", "เขาชอบดื่มกาแฟ"),
        ("猫", "黒猫を飼っている"),
        ("서울에서", "서울에 산다"),
    ];
    let partition = partition(
        &key,
        found
            .iter()
            .map(|(_, text)| memory(&key, text))
            .chain([memory(&key, "tea with milk")]),
    );
    for (question, answer) in found {
        assert_eq!(
            contents(&find(&[Arc::clone(&partition)], &words(question)))[0],
            answer
        );
    }
}

#[test]
fn vectors_find_what_shares_no_word_and_never_meet_another_models() {
    let key = key(None);
    let near = embedded(&key, "alpha", &[1.0, 0.0, 0.0], MODEL);
    let far_off = embedded(&key, "beta", &[0.0, 1.0, 0.0], MODEL);
    let foreign = embedded(&key, "gamma", &[1.0, 0.0, 0.0], "other/3");
    let partitions = [partition(&key, [foreign, near, far_off])];
    let hits = find(
        &partitions,
        &Query::new("unmatched", Some(&[0.8, 0.6, 0.0]), MODEL.into()),
    );
    assert_eq!(hits[0].memory.content.as_ref(), "alpha");
    assert!((hits[0].similarity - 0.8).abs() < 0.01);
    assert!(
        hits.iter()
            .filter(|hit| hit.memory.content.as_ref() == "gamma")
            .all(|hit| hit.similarity == 0.0)
    );
    let hits = find(
        &partitions,
        &Query::new("gamma", Some(&[1.0, 0.0, 0.0]), "other/3".into()),
    );
    assert_eq!(
        (contents(&hits), hits[0].similarity),
        (vec!["gamma"], 0.0),
        "the query's model is not the index's"
    );
}

#[test]
fn two_partitions_never_mix_and_share_their_statistics() {
    let (shared, ann, bob) = (key(None), key(Some("ann")), key(Some("bob")));
    let partitions = [
        partition(&shared, [memory(&shared, "office hours are nine to five")]),
        partition(&ann, [memory(&ann, "my office is blue")]),
    ];
    let other = partition(&bob, [memory(&bob, "my office is red")]);
    other.upsert(Arc::new(memory(&ann, "smuggled office")));
    assert_eq!(
        contents(&find(&[Arc::clone(&other)], &words("office"))),
        ["my office is red"]
    );
    let hits = find(&partitions, &words("blue office"));
    assert_eq!(
        contents(&hits),
        ["my office is blue", "office hours are nine to five"]
    );
    assert!(hits.iter().all(|hit| hit.memory.partition != bob));
}

#[test]
fn removal_is_at_once_and_for_good() {
    let key = key(None);
    let (kept, gone) = (memory(&key, "green tea"), memory(&key, "black tea"));
    let partition = partition(&key, [kept, gone.clone()]);
    partition.remove(gone.id);
    assert_eq!(
        contents(&find(&[Arc::clone(&partition)], &words("tea"))),
        ["green tea"]
    );
    partition.upsert(Arc::new(Memory {
        revision: 9,
        ..gone
    }));
    assert_eq!(partition.len(), 1);
    assert!(contents(&find(&[partition], &words("black"))).is_empty());
}

#[test]
fn an_older_revision_never_replaces_a_newer_one() {
    let key = key(None);
    let first = memory(&key, "lives in Lyon");
    let second = Memory {
        revision: 2,
        content: "lives in Nice".into(),
        ..first.clone()
    };
    let partition = partition(&key, [second.clone(), first, second.clone()]);
    let places = |partition: &Arc<Partition>| find(&[Arc::clone(partition)], &words("lives")).len();
    assert_eq!((partition.len(), places(&partition)), (1, 1));
    assert_eq!(
        contents(&find(&[Arc::clone(&partition)], &words("Nice Lyon"))),
        ["lives in Nice"]
    );
    partition.upsert(Arc::new(Memory {
        revision: 3,
        status: Status::Superseded,
        ..second
    }));
    assert_eq!((partition.len(), places(&partition)), (0, 0));
}

#[test]
fn only_what_is_valid_now_is_found() {
    let key = key(None);
    let (hour, later) = (Duration::from_secs(3_600), now() + Duration::from_secs(60));
    let ended = Memory {
        valid_from: now() - hour,
        valid_until: Some(now()),
        ..memory(&key, "tea ended")
    };
    let future = Memory {
        valid_from: later,
        ..memory(&key, "tea to come")
    };
    let current = Memory {
        valid_until: Some(later),
        ..memory(&key, "tea today")
    };
    assert_eq!(
        contents(&find(
            &[partition(&key, [ended, future, current])],
            &words("tea")
        )),
        ["tea today"]
    );
}

#[test]
fn a_dialogue_turn_is_found_by_the_turn_before_it() {
    let key = key(None);
    let filler = (10..60).map(|i| {
        turn(
            &key,
            i * 2,
            &format!("Ann: remark number {i} about weather"),
        )
    });
    let talk = [
        turn(&key, 0, "Ann: Did you visit the aquarium?"),
        turn(&key, 1, "Bob: Yes, last summer!"),
    ];
    let hits = find(
        &[partition(&key, talk.into_iter().chain(filler))],
        &words("When did Bob visit the aquarium?"),
    );
    assert!(
        contents(&hits)[..2].contains(&"Bob: Yes, last summer!"),
        "{:?}",
        &contents(&hits)[..3]
    );
}

#[test]
fn a_pair_is_scored_as_one_text_whatever_the_order_of_arrival() {
    let key = key(None);
    let (first, second) = (
        turn(&key, 0, "Ann: tea tea"),
        turn(&key, 1, "Bob: tea milk"),
    );
    for memories in [[first.clone(), second.clone()], [second.clone(), first]] {
        let at = memories
            .iter()
            .position(|memory| memory.id == second.id)
            .unwrap();
        let partitions = [partition(&key, memories)];
        let weights = TermWeights::new(&words("tea"), &partitions, far()).unwrap();
        let pass = Pass::run(&words("tea"), &weights, &partitions[0], far()).unwrap();
        // Three teas in a text of average length: BM25's length factor is 1.
        let expected = weights.total * 3.0 * (K1 + 1.0) / (3.0 + K1);
        assert!(
            (pass.pair_lexical[at].score - expected).abs() < 1e-4,
            "{:?}",
            pass.pair_lexical
        );
        let (pair, alone) = (pass.pair_lexical[1 - at], pass.lexical[1 - at]);
        assert_eq!(
            (pair.score, pair.mass),
            (alone.score, alone.mass),
            "nothing stands before it"
        );
    }
}

#[test]
fn a_deadline_in_the_past_stops_the_search() {
    let key = key(None);
    let partitions = [partition(&key, [memory(&key, "tea")])];
    let result = search_partitions(&partitions, &words("tea"), now(), 5, Instant::now());
    assert!(matches!(result, Err(SearchError::Deadline)));
    assert!(matches!(
        hot_members(
            &partitions,
            &words("tea"),
            now(),
            50,
            inline(Instant::now())
        ),
        Err(SearchError::Deadline)
    ));
}

#[test]
fn a_deadline_that_passes_after_the_pass_stops_the_search() {
    let key = key(None);
    let partitions = [partition(&key, [memory(&key, "tea")])];
    let (query, weights) = (words("tea"), &Weights::CHOSEN);
    let terms = TermWeights::new(&query, &partitions, far()).unwrap();
    let passes = [Pass::run(&query, &terms, &partitions[0], far()).unwrap()];
    let late = Scale::over(&passes, Instant::now());
    assert_eq!(late.err(), Some(Interrupted::Deadline));
    let scale = Scale::over(&passes, far()).unwrap();
    let late = scale.sums(weights, &passes[0], Instant::now());
    assert_eq!(late.err(), Some(Interrupted::Deadline));
    let sums = scale.sums(weights, &passes[0], far()).unwrap();
    assert_eq!(sums, [weights.lexical + weights.pair_lexical]);
}

#[test]
fn a_long_message_is_searched_for_its_ends() {
    let message = format!("first {} last", "filler ".repeat(200));
    let text = query_text(&message);
    assert!(
        text.starts_with("first")
            && text.ends_with("last")
            && text.split_whitespace().count() == 64
    );
    assert_eq!(query_text("a  short one"), "a  short one");
}

#[test]
fn pinned_and_high_standing_memories_are_hot_but_not_relevant_by_themselves() {
    let key = key(None);
    let old = now() - Duration::from_secs(400 * 86_400);
    let stale = (0..20).map(|i| Memory {
        valid_from: old,
        ..memory(&key, &format!("old tea fact {i}"))
    });
    let pinned = Memory {
        pinned: true,
        valid_from: old,
        ..memory(&key, "pinned: allergic to penicillin")
    };
    let fresh = memory(&key, "fresh tea delivery");
    let partition = partition(&key, stale.chain([pinned.clone(), fresh]));
    let hot = |query: &str| {
        hot_members(
            &[Arc::clone(&partition)],
            &words(query),
            now(),
            50,
            inline(far()),
        )
        .unwrap()
    };
    assert_eq!(
        contents(&hot("penicillin allergies"))[0],
        pinned.content.as_ref()
    );
    assert!(hot("tea delivery")[0].memory.content.starts_with("fresh"));
    assert!(
        hot("zebra").is_empty(),
        "a pinned memory must not answer everything"
    );
    partition.remove(pinned.id);
    assert!(hot("penicillin").is_empty());
    partition.upsert(Arc::new(memory(&key, "new: penicillin is fine after all")));
    assert_eq!(hot("penicillin").len(), 1, "a newcomer joins at once");
}

#[test]
fn a_use_or_a_vote_moves_a_memory_in_and_out_of_the_hot_set() {
    let key = key(None);
    let voted = |memory: &Memory, useful: u32, not_useful: u32| Memory {
        revision: memory.revision + 1,
        votes_useful: useful,
        votes_not_useful: not_useful,
        ..memory.clone()
    };
    let members: Vec<Memory> = (0..4).map(|i| memory(&key, &format!("tea {i}"))).collect();
    let liked: Vec<Memory> = members.iter().map(|memory| voted(memory, 5, 0)).collect();
    let milk = memory(&key, "milk");
    let partition = partition(&key, liked.iter().cloned().chain([milk.clone()]));
    let hot = |query: &str, limit: usize| {
        let hits = hot_members(
            &[Arc::clone(&partition)],
            &words(query),
            now(),
            limit,
            inline(far()),
        );
        hits.unwrap()
    };
    assert!(hot("milk", 50).is_empty());
    let milk = voted(&milk, 50, 0);
    partition.upsert(Arc::new(milk.clone()));
    assert_eq!(contents(&hot("milk", 50)), ["milk"]);
    let teas = hot("tea", 50);
    assert_eq!(teas.len(), 3, "one left for it");
    let best = hot("tea", 2);
    assert_eq!(contents(&best), contents(&teas)[..2]);
    partition.upsert(Arc::new(voted(&milk, 0, 50)));
    partition.upsert(Arc::new(voted(&members[0], 0, 0)));
    assert_eq!(
        find(&[partition], &words("milk")).len(),
        1,
        "it is still found by a search"
    );
}

proptest::proptest! {
    #[test]
    fn any_history_equals_a_fresh_build(actions in prop::collection::vec((0usize..12, 0usize..6, proptest::bool::ANY), 1..400)) {
        let key = key(None);
        let texts = ["red apple", "green apple", "blue sky", "red sky", "tea", "apple tea"];
        let mut rows: Vec<Memory> = (0..12).map(|_| memory(&key, "")).collect();
        let live = partition(&key, []);
        let mut removed = HashSet::new();
        for (revision, (row, text, remove)) in (1i64..).zip(actions) {
            rows[row] = Memory { content: texts[text].into(), revision, ..rows[row].clone() };
            if remove && text == 0 {
                live.remove(rows[row].id);
                removed.insert(rows[row].id);
            } else {
                live.upsert(Arc::new(rows[row].clone()));
            }
        }
        let expected = partition(&key, rows.iter().filter(|row| !row.content.is_empty() && !removed.contains(&row.id)).cloned());
        proptest::prop_assert_eq!(live.len(), expected.len());
        for question in ["apple", "red sky", "tea"] {
            let of = |partition: &Arc<Partition>| find(&[Arc::clone(partition)], &words(question)).iter().map(|hit| (hit.memory.id, hit.lexical)).collect::<Vec<_>>();
            proptest::prop_assert_eq!(of(&live), of(&expected));
        }
    }

    #[test]
    fn the_vector_search_equals_brute_force(rows in prop::collection::vec(prop::array::uniform8(-1f32..1.0), 1..60), query in prop::array::uniform8(-1f32..1.0)) {
        let unit = |v: &[f32; 8]| { let n = v.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-3); v.map(|x| x / n) };
        let (key, query) = (key(None), unit(&query));
        let memories: Vec<Memory> = rows.iter().map(|row| embedded(&key, "", &unit(row), MODEL)).collect();
        let cosine = |memory: &Memory| memory.embedding.as_ref().unwrap().vector.iter().zip(query).map(|(a, b)| a * b).sum::<f32>();
        let hits = find(&[partition(&key, memories.clone())], &Query::new("", Some(&query), MODEL.into()));
        let exact = |hit: &Hit| memories.iter().find(|memory| memory.id == hit.memory.id).map_or(f32::NAN, cosine);
        for hit in &hits {
            proptest::prop_assert!((hit.similarity - exact(hit).clamp(0.0, 1.0)).abs() < 0.02);
        }
        let best = memories.iter().map(cosine).fold(f32::MIN, f32::max);
        if let Some(first) = hits.first() {
            proptest::prop_assert!(exact(first) > best - 0.03);
        }
    }
}

#[test]
fn many_removals_compact_without_changing_answers() {
    let key = key(None);
    let all: Vec<Memory> = (0..400u32)
        .map(|i| Memory {
            ..turn(&key, i, &format!("Ann: item {i} group {}", i % 7))
        })
        .collect();
    let live = partition(&key, all.iter().cloned());
    let (kept, gone): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|memory| memory.source.turn.is_some_and(|turn| turn % 4 < 1));
    gone.iter().for_each(|memory| live.remove(memory.id));
    let fresh = partition(&key, kept);
    for question in ["group 3", "item 8", "Ann item 96 group 5"] {
        let of = |partition: &Arc<Partition>| {
            find(&[Arc::clone(partition)], &words(question))
                .iter()
                .map(|hit| hit.memory.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&live), of(&fresh), "{question}");
    }
}

/// A store that holds one list of memories and answers only when it has a permit.
#[derive(Debug)]
struct Shelf {
    memories: Mutex<Vec<Memory>>,
    permits: Semaphore,
    loads: AtomicUsize,
    /// Whose pages were read, in order.
    reads: Mutex<Vec<PartitionKey>>,
    /// Reads going on now, and the most there were.
    reading: AtomicUsize,
    most: AtomicUsize,
    broken: bool,
}

impl Shelf {
    fn new(memories: Vec<Memory>, permits: usize) -> Arc<Self> {
        Arc::new(Self {
            memories: Mutex::new(memories),
            permits: Semaphore::new(permits),
            loads: AtomicUsize::new(0),
            reads: Mutex::default(),
            reading: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            broken: false,
        })
    }
}

fn unused<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable("not part of this test".to_owned()))
}

#[async_trait]
impl MemoryStore for Shelf {
    async fn duplicate_of(&self, _: &Memory) -> Result<Option<MemoryId>, StoreError> {
        unused()
    }
    async fn memory(&self, _: &[PartitionKey], _: MemoryId) -> Result<Option<Memory>, StoreError> {
        unused()
    }
    async fn list_memories(
        &self,
        _: &[PartitionKey],
        _: ListFilter,
    ) -> Result<ListPage, StoreError> {
        unused()
    }
    async fn partition_memories(
        &self,
        partition: &PartitionKey,
        after: Option<MemoryId>,
        limit: usize,
    ) -> Result<Vec<Memory>, StoreError> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.reads.lock().push(partition.clone());
        let reading = self.reading.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(reading, Ordering::Relaxed);
        let mut memories: Vec<Memory> = self
            .memories
            .lock()
            .iter()
            .filter(|memory| memory.partition == *partition && Some(memory.id) > after)
            .cloned()
            .collect();
        memories.sort_unstable_by_key(|memory| memory.id);
        memories.truncate(limit);
        self.permits.acquire().await.unwrap().forget();
        self.reading.fetch_sub(1, Ordering::Relaxed);
        if self.broken { unused() } else { Ok(memories) }
    }
    async fn forget_memory(
        &self,
        _: &[PartitionKey],
        _: MemoryId,
        _: Timestamp,
    ) -> Result<Option<PartitionKey>, StoreError> {
        unused()
    }
    async fn bump_retrieved(
        &self,
        _: &[PartitionKey],
        _: Vec<MemoryId>,
        _: Timestamp,
    ) -> Result<(), StoreError> {
        unused()
    }
    async fn memories_by_id(
        &self,
        _: &[PartitionKey],
        _: &[MemoryId],
    ) -> Result<Vec<Memory>, StoreError> {
        unused()
    }
    async fn forget_fence(&self, _: &[PartitionKey]) -> Result<i64, StoreError> {
        unused()
    }
    async fn count_memories(&self, _: &PartitionKey) -> Result<u64, StoreError> {
        unused()
    }
}

fn settings() -> IndexSettings {
    IndexSettings {
        hot_set_size: 4,
        ..IndexSettings::new(MODEL, &MemoryConfig::default())
    }
}

fn index(store: &Arc<Shelf>, inline_search_rows: usize) -> Index {
    let settings = IndexSettings {
        inline_search_rows,
        ..settings()
    };
    index_with(store, settings)
}

fn index_with(store: &Arc<Shelf>, settings: IndexSettings) -> Index {
    Index::new(
        Arc::<Shelf>::clone(store),
        Arc::new(Noon),
        Tasks::new(),
        settings,
    )
}

#[tokio::test]
async fn a_scope_reads_its_own_and_the_shared_memories_only() {
    let (shared, ann, bob) = (key(None), key(Some("ann")), key(Some("bob")));
    let rows = vec![
        memory(&shared, "tea for all"),
        memory(&ann, "tea for ann"),
        memory(&bob, "tea for bob"),
    ];
    for inline_rows in [0, 100] {
        let index = Arc::new(index(&Shelf::new(rows.clone(), 100), inline_rows));
        let hot = HotSet::new(Arc::clone(&index));
        let seen = async |user: Option<&str>| {
            let cold = index
                .cold(&scope(user), &words("tea"), 10, far())
                .await
                .unwrap();
            // A large partition's members are chosen in the background; this waits for them.
            hot.members(&scope(user), 10, far()).await.unwrap();
            let hot = hot
                .hot(&scope(user), &words("tea"), 10, far())
                .await
                .unwrap();
            let found: HashSet<String> = contents(&cold).into_iter().map(str::to_owned).collect();
            assert_eq!(
                found,
                contents(&hot).into_iter().map(str::to_owned).collect()
            );
            found
        };
        assert_eq!(
            seen(Some("ann")).await,
            HashSet::from(["tea for all".to_owned(), "tea for ann".to_owned()])
        );
        assert_eq!(seen(None).await, HashSet::from(["tea for all".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_load_is_shared_and_goes_on_past_a_request_that_gave_up() {
    let key = key(None);
    let store = Shelf::new(vec![memory(&key, "tea")], 0);
    let index = index(&store, 100);
    let soon = || Instant::now() + Duration::from_millis(40);
    let (scope, query) = (scope(None), words("tea"));
    let (a, b) = tokio::join!(
        index.search(&scope, &query, 5, soon()),
        index.search(&scope, &query, 5, soon())
    );
    assert!(matches!(
        (a, b),
        (Err(SearchError::Deadline), Err(SearchError::Deadline))
    ));
    store.permits.add_permits(1);
    assert_eq!(
        index.search(&scope, &query, 5, far()).await.unwrap().len(),
        1
    );
    assert_eq!(store.loads.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn changes_during_a_load_are_not_lost() {
    let key = key(None);
    let (gone, edited) = (memory(&key, "black tea"), memory(&key, "green tea"));
    let store = Shelf::new(vec![gone.clone(), edited.clone()], 0);
    let index = index(&store, 100);
    let (scope, query) = (scope(None), words("tea"));
    let (found, ()) = tokio::join!(index.search(&scope, &query, 5, far()), async {
        while store.loads.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        index.remove(&key, gone.id);
        index.upsert(Memory {
            content: "white tea".into(),
            revision: 2,
            ..edited
        });
        index.upsert(memory(&key, "mint tea"));
        store.permits.add_permits(1);
    });
    let found = found.unwrap();
    assert_eq!(
        contents(&found).into_iter().collect::<HashSet<_>>(),
        HashSet::from(["white tea", "mint tea"])
    );
}

#[tokio::test]
async fn a_dropped_partition_is_loaded_again_and_a_failed_load_is_retried() {
    let key = key(None);
    let store = Shelf::new(Vec::new(), 9);
    let (index, scope) = (index(&store, 100), scope(None));
    assert!(
        index
            .search(&scope, &words("tea"), 5, far())
            .await
            .unwrap()
            .is_empty()
    );
    store.memories.lock().push(memory(&key, "tea"));
    assert!(
        index
            .search(&scope, &words("tea"), 5, far())
            .await
            .unwrap()
            .is_empty()
    );
    index.invalidate(&key);
    assert_eq!(
        index
            .search(&scope, &words("tea"), 5, far())
            .await
            .unwrap()
            .len(),
        1
    );

    let mut broken = Shelf::new(Vec::new(), 9);
    Arc::get_mut(&mut broken).unwrap().broken = true;
    let index = self::index(&broken, 100);
    for load in 1..3 {
        assert!(matches!(
            index.search(&scope, &words("tea"), 5, far()).await,
            Err(SearchError::Store(_))
        ));
        assert_eq!(broken.loads.load(Ordering::Relaxed), load);
    }
}

#[tokio::test]
async fn the_built_in_embedder_finds_a_paraphrase() {
    let (key, embedder) = (key(None), StaticMiniLm::new());
    let partition = Arc::new(Partition::new(key.clone(), embedder.model().into(), 4));
    for text in [
        "The dog came from an animal shelter.",
        "The invoice is due in March.",
        "The kitchen was painted yellow.",
    ] {
        let vector = embedder.embed(&[text]).await.unwrap().remove(0);
        partition.upsert(Arc::new(embedded(&key, text, &vector, embedder.model())));
    }
    let question = "Which puppy was adopted?";
    let hits = find(
        &[partition],
        &Query::new(
            question,
            Some(&embedder.embed_one(question)),
            embedder.model().into(),
        ),
    );
    assert_eq!(
        hits[0].memory.content.as_ref(),
        "The dog came from an animal shelter."
    );
}

#[test]
fn a_query_is_bounded_whatever_the_script_and_keeps_both_ends() {
    let most = super::QUERY_HEAD_BYTES + super::QUERY_TAIL_BYTES + 1;
    let cjk: String = ('\u{4e00}'..'\u{9fff}').cycle().take(400_000).collect();
    let pasted = "x".repeat(3 << 20);
    for message in [cjk, pasted, "\u{1f989}".repeat(100_000)] {
        let text = super::query_text(&message);
        assert!(text.len() <= most, "{}", text.len());
    }
    let long = format!("first {} last", "word ".repeat(10_000));
    let text = super::query_text(&long);
    assert!(
        text.starts_with("first ") && text.ends_with(" last"),
        "{text}"
    );
    assert_eq!(text.split(' ').count(), 64);
    assert_eq!(super::query_text("Which tea?"), "Which tea?");
}
