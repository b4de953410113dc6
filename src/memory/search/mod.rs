//! The read side: which memories answer a query, found within a deadline and inside a scope.
//!
//! A scope reads at most two partitions: the agent's own and its user's. Each is a [`Partition`] of its own, so no filter stands
//! between two users. A search scans every vector, walks the postings of the query's terms, and adds the two normalised scores up.
//!
//! ```text
//! terms, stems,       text and vectors in comparable form
//! vectors
//! space              which model's vectors a partition is compared by
//! blocks, sharded    columns and tables that grow without moving what is there
//! lexicon, kept      which rows contain a term; a memory in the space it needs
//! prepared, columns  the memories of a partition, and how they change
//! share, partition   its size, and the lock around it: a pass holds it for one chunk at a time
//! scan, pass         one query over one partition: cosines and term scores of every row
//! scale, fusion      scores of all partitions on one scale, and their sum
//! evidence, standing what a match is worth, and what a memory is worth whatever is asked
//! slots              the partitions in memory: which are loaded, and how; which leave when the index is too large
//! index, hot         the two branches that a request asks
//! database           the cold branch over a store that searches by itself
//! ```

mod terms;
mod stop_words;
mod stems;
mod vectors;
mod space;
mod blocks;
mod sharded;
mod lexicon;
mod kept;
mod prepared;
mod columns;
mod compaction;
mod share;
mod partition;
mod scan;
mod pass;
mod scale;
mod evidence;
mod fusion;
mod slots;
mod hot;
mod index;
mod database;
mod near;
pub mod standing;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use tokio::time::Instant;

use crate::auth::Scope;
use crate::memory::Memory;
use crate::memory::embedder::{Calibration, StaticMiniLm, static_minilm};
use crate::store::StoreError;

pub use database::{CandidateStore, Candidates, Staged, StandingIds, Wanted, lexemes};
pub use fusion::{Weights, search_partitions, search_weighted};
pub use hot::HotSet;
pub use index::{Index, IndexSettings};
pub use near::{Alike, NearBranch, Nearness};
pub use partition::Partition;
pub use space::Spaces;

use partition::Interrupted;
use terms::{Side, Term, fold, walk};
use vectors::QueryVector;

/// Words of a query that are searched for: a pasted document is no better a question than its ends.
pub const QUERY_HEAD_WORDS: usize = 48;
/// See [`QUERY_HEAD_WORDS`].
pub const QUERY_TAIL_WORDS: usize = 16;

/// Numbers and identifiers are meant exactly: one that matches says more than a word as rare.
const IDENTIFIER_WEIGHT: f32 = 2.0;

/// Bytes of a message that recall looks at: this many from its start and [`QUERY_TAIL_BYTES`] from its end. Words alone are no bound:
/// scripts without spaces and pasted data have none.
pub const QUERY_HEAD_BYTES: usize = 768;
/// See [`QUERY_HEAD_BYTES`].
pub const QUERY_TAIL_BYTES: usize = 256;

/// The part of a user's message that recall asks about: all of a short one, the first and the last words of a long one. What is embedded
/// and what is searched for is this same text, so its size bounds the work of both.
#[must_use]
pub fn query_text(message: &str) -> Cow<'_, str> {
    let long = message.len() > QUERY_HEAD_BYTES + QUERY_TAIL_BYTES;
    let most = QUERY_HEAD_WORDS + QUERY_TAIL_WORDS;
    if !long && message.split_whitespace().nth(most).is_none() {
        return message.into();
    }
    let (head, tail) = if long {
        let end = message.floor_char_boundary(QUERY_HEAD_BYTES);
        let start = message.ceil_char_boundary(message.len() - QUERY_TAIL_BYTES);
        (message.get(..end), message.get(start..))
    } else {
        (Some(message), Some(message))
    };
    let head = head.unwrap_or_default().split_whitespace();
    let head: Vec<&str> = head.take(QUERY_HEAD_WORDS).collect();
    let tail = tail.unwrap_or_default().split_whitespace();
    let mut tail: Vec<&str> = tail.rev().take(QUERY_TAIL_WORDS).collect();
    tail.reverse();
    format!("{} {}", head.join(" "), tail.join(" ")).into()
}

/// A question, prepared once for every branch; cheap to clone.
#[derive(Debug, Clone)]
pub struct Query(Arc<Prepared>);

#[derive(Debug)]
struct Prepared {
    /// Distinct, in order of appearance, with a factor of their weight.
    terms: Vec<(Term, f32)>,
    text: Box<str>,
    /// See [`Query::names`].
    words: OnceLock<Vec<Term>>,
    vector: Option<QueryVector>,
    /// The same as it was given.
    given: Option<Arc<[f32]>>,
    model: Arc<str>,
    /// What the cosines of `vector` mean.
    calibration: Calibration,
    /// The built-in embedder's vector, made when a partition asks that lies in its space although another one is configured.
    built_in: OnceLock<Option<QueryVector>>,
}

/// A query vector, and what its cosines mean.
#[derive(Debug, Clone, Copy)]
struct Compared<'a> {
    vector: &'a QueryVector,
    calibration: Calibration,
}

impl Query {
    /// Prepares `text` (see [`query_text`]). Without a vector the search is lexical only. `model` made the vector.
    #[must_use]
    pub fn new(text: &str, vector: Option<&[f32]>, model: Arc<str>) -> Self {
        Self::calibrated(text, vector, model, Calibration::BUILT_IN)
    }

    /// [`Self::new`] for a model of which it is known what its cosines mean.
    #[must_use]
    pub fn calibrated(
        text: &str,
        vector: Option<&[f32]>,
        model: Arc<str>,
        calibration: Calibration,
    ) -> Self {
        let mut distinct: Vec<(Term, f32)> = Vec::new();
        walk(text, Side::Query, &mut |text| {
            let term = Term::of(text);
            if distinct.iter().all(|(known, _)| *known != term) {
                distinct.push((
                    term,
                    if text.bytes().any(|b| b.is_ascii_digit()) {
                        IDENTIFIER_WEIGHT
                    } else {
                        1.0
                    },
                ));
            }
        });
        Self(Arc::new(Prepared {
            terms: distinct,
            text: text.into(),
            words: OnceLock::new(),
            vector: vector.and_then(QueryVector::new),
            given: vector.map(Arc::from),
            model,
            calibration,
            built_in: OnceLock::new(),
        }))
    }

    /// Whether there is nothing to search for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.terms.is_empty() && self.0.vector.is_none()
    }

    /// The text.
    fn text(&self) -> &str {
        &self.0.text
    }

    /// The vector with its model.
    fn asked_vector(&self) -> Option<(Arc<str>, Arc<[f32]>)> {
        let given = self.0.given.as_ref()?;
        Some((Arc::clone(&self.0.model), Arc::clone(given)))
    }

    fn terms(&self) -> &[(Term, f32)] {
        &self.0.terms
    }

    /// Whether the query contains a name, as a word that is folded but neither stopped nor stemmed. Only dialogues ask.
    fn names(&self, speaker: Term) -> bool {
        let words = self.0.words.get_or_init(|| words(&self.0.text));
        words.binary_search(&speaker).is_ok()
    }

    /// The vector, where it can be compared with vectors of `model`.
    fn vector_for(&self, model: &str) -> Option<Compared<'_>> {
        let asked = &*self.0;
        let (vector, calibration) = if &*asked.model == model {
            (asked.vector.as_ref(), asked.calibration)
        } else if model == static_minilm::MODEL {
            let vector = asked.built_in.get_or_init(|| {
                let built_in = StaticMiniLm::shared();
                QueryVector::new(&built_in.embed_one(&asked.text))
            });
            (vector.as_ref(), Calibration::BUILT_IN)
        } else {
            (None, Calibration::BUILT_IN)
        };
        vector.map(|vector| Compared {
            vector,
            calibration,
        })
    }
}

/// Every word of `text`, in the order of its terms.
fn words(text: &str) -> Vec<Term> {
    let mut folded = String::with_capacity(32);
    let mut words: Vec<Term> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.len() > 1)
        .map(|word| {
            fold(word, &mut folded);
            Term::of(&folded)
        })
        .collect();
    words.sort_unstable();
    words
}

/// A memory that a branch found, with the raw features of the match. All numbers lie between 0 and 1.
#[derive(Debug, Clone)]
pub struct Hit {
    /// The memory.
    pub memory: Arc<Memory>,
    /// Cosine of query and memory, not below 0; 0 when either has no vector.
    pub similarity: f32,
    /// BM25 as a share of the greatest score the query's terms could reach.
    pub lexical: f32,
    /// Share of the query's terms that the memory contains, weighted by their rarity in the scope.
    pub coverage: f32,
    /// What the match is worth, on a scale that means the same for every query.
    pub relevance: f32,
}

/// Why a search has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SearchError {
    /// The deadline passed first.
    #[error("the deadline passed")]
    Deadline,
    /// The partition could not be loaded.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A worker thread was lost.
    #[error("the search was interrupted")]
    Interrupted,
}

impl From<Interrupted> for SearchError {
    fn from(interrupted: Interrupted) -> Self {
        match interrupted {
            Interrupted::Deadline => Self::Deadline,
            Interrupted::Moved => Self::Interrupted,
        }
    }
}

/// Why a retrieval branch has no answer.
pub type BranchError = SearchError;

/// The memories that stand highest, scored against the query.
#[async_trait]
pub trait HotBranch: Send + Sync {
    /// At most `limit` members that the query touches, best first.
    ///
    /// # Errors
    /// When the deadline passes first or the store fails.
    async fn hot(
        &self,
        scope: &Scope,
        query: &Query,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Hit>, BranchError>;

    /// The `limit` members that stand highest whatever is asked, best first.
    ///
    /// # Errors
    /// When the deadline passes first or the store fails.
    async fn standing(
        &self,
        scope: &Scope,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Arc<Memory>>, BranchError>;

    /// The same for somebody who has time: they are chosen anew where they are old.
    ///
    /// # Errors
    /// When the deadline passes first or the store fails.
    async fn members(
        &self,
        scope: &Scope,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Arc<Memory>>, BranchError> {
        self.standing(scope, limit, deadline).await
    }
}

/// The search over everything the scope may read.
#[async_trait]
pub trait ColdBranch: Send + Sync {
    /// At most `limit` memories, best first.
    ///
    /// # Errors
    /// When the deadline passes first or the store fails.
    async fn cold(
        &self,
        scope: &Scope,
        query: &Query,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Hit>, BranchError>;
}

#[cfg(test)]
mod tests;
