//! The branches over a store that searches by itself: it hands out candidates, and these are scored here like rows of the index.
//!
//! A partition that is loaded is searched in this process, which knows every row. One that is not, or that is too large to be, is searched
//! in the database: first answers do not wait for a load, and a partition of millions costs a replica nothing.

mod hot;
mod near;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use moka::sync::Cache;
use tokio::time::{Instant, timeout_at};

use crate::auth::Scope;
use crate::config::{PostgresConfig, SearchIn};
use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey};
use crate::store::StoreError;

use super::columns::Background;
use super::fusion::search_partitions;
use super::terms::{Side, Term, walk};
use super::{BranchError, ColdBranch, Hit, HotSet, Index, Partition, Query, SearchError};

pub use hot::StandingIds;

/// Candidates of each kind for a partition: more than a request can use, so that the two kinds meet.
const CANDIDATES: usize = 128;
/// Words of a query that are searched for.
const WORDS: usize = 64;
/// Partitions whose size is remembered, and for how long.
const SIZES: u64 = 65_536;
/// See [`SIZES`].
const SIZE_AGE: Duration = Duration::from_secs(60);

/// What is looked for in a partition.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The query's vector and its model; nothing for a search by words alone.
    pub vector: Option<(Arc<str>, Arc<[f32]>)>,
    /// Its terms, as [`lexemes`] gives them for memories.
    pub words: Vec<String>,
    /// Most candidates of each kind.
    pub limit: usize,
    /// Only what is valid at this time.
    pub now: Timestamp,
}

/// What a store found in a partition.
#[derive(Debug, Clone, Default)]
pub struct Candidates {
    /// The nearest, and those with the most telling words, in any order, each once.
    pub memories: Vec<Memory>,
    /// Memories in the partition; of a large one an estimate.
    pub documents: u64,
    /// The mean cosine of the partition's vectors with the query's, or of some of them, where that is known.
    pub mean_cosine: Option<f32>,
    /// Whether every memory with one of the words is among them.
    pub all_words: bool,
    /// How many memories of the partition have each of the words, in their order; empty where that is not known.
    pub held: Vec<u32>,
}

/// A store that can search.
#[async_trait]
pub trait CandidateStore: Send + Sync {
    /// Candidates of one partition.
    async fn candidates(
        &self,
        partition: &PartitionKey,
        wanted: &Wanted,
    ) -> Result<Candidates, StoreError>;
    /// Memories of a partition that are active and valid then: those of `ids`, or the pinned and the newest ones; at most `most` of a kind.
    async fn standing(
        &self,
        partition: &PartitionKey,
        ids: Option<&[MemoryId]>,
        most: usize,
        now: Timestamp,
    ) -> Result<Vec<Memory>, StoreError>;
    /// The number of a partition's active memories, or `most` when there are as many or more.
    async fn size(&self, partition: &PartitionKey, most: usize) -> Result<usize, StoreError>;
}

/// The terms of a memory's text as texts, each once: what a store indexes.
#[must_use]
pub fn lexemes(text: &str) -> Vec<String> {
    distinct(text, Side::Document, usize::MAX)
}

fn distinct(text: &str, side: Side, most: usize) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut known = std::collections::HashSet::new();
    walk(text, side, &mut |term| {
        if found.len() < most && known.insert(term.to_owned()) {
            found.push(term.to_owned());
        }
    });
    found
}

/// The branches over an index and the store behind it.
pub struct Staged {
    index: Arc<Index>,
    hot: HotSet,
    shared: Option<hot::Shared>,
    store: Arc<dyn CandidateStore>,
    search: SearchIn,
    process_rows: usize,
    /// Whether a partition has at most `process_rows` memories.
    small: Cache<PartitionKey, bool>,
}

impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staged")
            .field("search", &self.search)
            .finish_non_exhaustive()
    }
}

impl Staged {
    /// Branches with the settings of `[postgres]`.
    #[must_use]
    pub fn new(
        index: Arc<Index>,
        store: Arc<dyn CandidateStore>,
        settings: &PostgresConfig,
    ) -> Self {
        Self {
            hot: HotSet::new(Arc::clone(&index)),
            shared: None,
            index,
            store,
            search: settings.search,
            process_rows: settings.process_rows,
            small: Cache::builder()
                .max_capacity(SIZES)
                .time_to_live(SIZE_AGE)
                .build(),
        }
    }

    /// The same with replicas that tell each other which memories stand highest.
    #[must_use]
    pub fn sharing(self, with: Arc<dyn StandingIds>) -> Self {
        Self {
            shared: Some(hot::Shared::new(with)),
            ..self
        }
    }

    /// Whether what `scope` reads is searched in this process.
    async fn is_in_process(&self, scope: &Scope, deadline: Instant) -> Result<bool, SearchError> {
        let keys = PartitionKey::for_read(scope);
        let known = timeout_at(deadline, self.are_in_process(&keys));
        Ok(known.await.map_err(|_| SearchError::Deadline)??)
    }

    async fn are_in_process(&self, keys: &[PartitionKey]) -> Result<bool, StoreError> {
        match self.search {
            SearchIn::Process => Ok(true),
            SearchIn::Database => Ok(false),
            SearchIn::Auto => self.are_at_hand(keys).await,
        }
    }

    /// Whether all of the partitions are in this process. What is not, and may be, is loaded for those who come later.
    async fn are_at_hand(&self, keys: &[PartitionKey]) -> Result<bool, StoreError> {
        let mut at_hand = true;
        for key in keys {
            if self.index.is_loaded(key) {
                continue;
            }
            at_hand = false;
            if self.is_small(key).await? {
                self.index.begin_load(key);
            }
        }
        Ok(at_hand)
    }

    /// Whether a partition is in this process, or small enough to be: a writer has the time to wait for its load.
    async fn may_be_in_process(&self, key: &PartitionKey) -> Result<bool, StoreError> {
        match self.search {
            SearchIn::Process => Ok(true),
            SearchIn::Database => Ok(false),
            SearchIn::Auto => Ok(self.index.is_loaded(key) || self.is_small(key).await?),
        }
    }

    async fn is_small(&self, key: &PartitionKey) -> Result<bool, StoreError> {
        if let Some(known) = self.small.get(key) {
            return Ok(known);
        }
        let most = self.process_rows.saturating_add(1);
        let small = self.store.size(key, most).await? < most;
        self.small.insert(key.clone(), small);
        Ok(small)
    }

    async fn in_database(
        &self,
        scope: &Scope,
        query: &Query,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Hit>, SearchError> {
        let now = self.index.now();
        let wanted = Wanted {
            vector: query.asked_vector(),
            words: distinct(query.text(), Side::Query, WORDS),
            limit: CANDIDATES.max(limit),
            now,
        };
        let keys = PartitionKey::for_read(scope);
        let asked = keys.iter().map(|key| self.store.candidates(key, &wanted));
        let found = futures_util::future::try_join_all(asked);
        let found = timeout_at(deadline, found)
            .await
            .map_err(|_| SearchError::Deadline)??;
        let partitions: Vec<Arc<Partition>> = keys
            .iter()
            .zip(found)
            .map(|(key, found)| Arc::new(self.partition(key, &wanted.words, found)))
            .collect();
        let mut hits = search_partitions(&partitions, query, now, limit, deadline)?;
        hits.retain(|hit| hit.memory.partition.visible_to(scope));
        Ok(hits)
    }

    /// The candidates as a partition that stands for the whole one.
    fn partition(&self, key: &PartitionKey, words: &[String], found: Candidates) -> Partition {
        let terms = words.iter().map(|word| Term::of(word));
        let background = Background {
            documents: usize::try_from(found.documents).unwrap_or(usize::MAX),
            candidates: found.memories.len(),
            mean_cosine: found.mean_cosine,
            all_words: found.all_words,
            held: terms.zip(found.held).collect(),
        };
        let partition =
            Partition::standing_for(key.clone(), self.index.spaces().of(key), background);
        partition.fill(found.memories);
        partition
    }
}

#[async_trait]
impl ColdBranch for Staged {
    async fn cold(
        &self,
        scope: &Scope,
        query: &Query,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Hit>, BranchError> {
        if self.is_in_process(scope, deadline).await? {
            self.index.search(scope, query, limit, deadline).await
        } else {
            self.in_database(scope, query, limit, deadline).await
        }
    }
}
