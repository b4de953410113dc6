//! Stand-ins for the branches of an assembly: they hang, fail, panic or answer late, and note the scope they were asked for.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use async_trait::async_trait;
use ibex::auth::Scope;
use ibex::ids::MemoryId;
use ibex::memory::embedder::{EmbedError, Embedder};
use ibex::memory::search::{BranchError, ColdBranch, Hit, HotBranch, Query};
use ibex::memory::write::content_hash;
use ibex::memory::{Category, Label, Memory, PartitionKey, Source, Status};
use ibex::request::resolution::directive::{Active, DirectiveBranch};
use ibex::seams::{Clock, SystemClock};
use ibex::store::{DirectiveMode, DirectiveVersion, StoreError};
use ibex::tokens::{Counter, TokenCounts};
use parking_lot::Mutex;
use tokio::time::Instant;

/// What a stand-in does when it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Answers at once.
    Answer,
    /// Never answers.
    Hang,
    /// Fails at once.
    Fail,
    /// Panics.
    Panic,
    /// Says that its time is over.
    GiveUp,
    /// Keeps its thread for this long, whatever limit it was given, and answers then (paused time only).
    Block(Duration),
}

impl Act {
    async fn perform(self) -> Result<(), BranchError> {
        match self {
            Self::Answer => Ok(()),
            Self::Hang => std::future::pending().await,
            Self::Fail => Err(BranchError::Store(StoreError::Unavailable(
                "out of order".to_owned(),
            ))),
            Self::Panic => panic!("a branch panics"),
            Self::GiveUp => Err(BranchError::Deadline),
            Self::Block(time) => {
                block(time);
                Ok(())
            }
        }
    }
}

/// Lets paused time pass without giving the thread away.
pub(crate) fn block(time: Duration) {
    let mut advance = pin!(tokio::time::advance(time));
    // One poll moves the clock; what would follow is a mere yield.
    let _pending = advance
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
}

/// A memory branch, hot or cold.
pub(crate) struct FakeBranch {
    act: Act,
    hits: Vec<Hit>,
    scopes: Mutex<Vec<Scope>>,
}

impl FakeBranch {
    pub(crate) fn new(act: Act, hits: Vec<Hit>) -> Arc<Self> {
        Arc::new(Self {
            act,
            hits,
            scopes: Mutex::default(),
        })
    }

    /// The scopes it was asked for.
    pub(crate) fn scopes(&self) -> Vec<Scope> {
        self.scopes.lock().clone()
    }

    async fn ask(&self, scope: &Scope) -> Result<Vec<Hit>, BranchError> {
        self.scopes.lock().push(scope.clone());
        self.act.perform().await?;
        Ok(self.hits.clone())
    }
}

#[async_trait]
impl HotBranch for FakeBranch {
    async fn hot(
        &self,
        scope: &Scope,
        _: &Query,
        _: usize,
        _: Instant,
    ) -> Result<Vec<Hit>, BranchError> {
        self.ask(scope).await
    }

    async fn standing(
        &self,
        scope: &Scope,
        limit: usize,
        _: Instant,
    ) -> Result<Vec<Arc<Memory>>, BranchError> {
        let hits = self.ask(scope).await?;
        Ok(hits.into_iter().take(limit).map(|h| h.memory).collect())
    }
}

#[async_trait]
impl ColdBranch for FakeBranch {
    async fn cold(
        &self,
        scope: &Scope,
        _: &Query,
        _: usize,
        _: Instant,
    ) -> Result<Vec<Hit>, BranchError> {
        self.ask(scope).await
    }
}

/// A directive branch. What is at hand needs no asking.
pub(crate) struct FakeDirective {
    act: Act,
    directive: Active,
    at_hand: bool,
}

impl FakeDirective {
    pub(crate) fn new(act: Act, directive: Active) -> Arc<Self> {
        Arc::new(Self {
            act,
            directive,
            at_hand: false,
        })
    }

    /// One that is at hand.
    pub(crate) fn at_hand(directive: Active) -> Arc<Self> {
        Arc::new(Self {
            act: Act::Panic,
            directive,
            at_hand: true,
        })
    }
}

impl fmt::Debug for FakeDirective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.act.fmt(f)
    }
}

#[async_trait]
impl DirectiveBranch for FakeDirective {
    fn at_hand(&self, _: &Scope) -> Option<Active> {
        self.at_hand.then(|| self.directive.clone())
    }

    fn revoked(&self, _: &Scope) -> Arc<[u32]> {
        Arc::default()
    }

    async fn load(&self, _: &Scope) -> Result<Active, BranchError> {
        self.act.perform().await?;
        Ok(self.directive.clone())
    }
}

/// An embedder whose vectors have two numbers.
#[derive(Debug)]
pub(crate) struct FakeEmbedder(pub(crate) Act);

#[async_trait]
impl Embedder for FakeEmbedder {
    fn model(&self) -> &str {
        "fake-2"
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.0
            .perform()
            .await
            .map_err(|_| EmbedError("out of order"))?;
        Ok(vec![vec![1.0, 0.0]; texts.len()])
    }
}

/// A directive version, as a store would have it.
pub(crate) fn directive(content: &str) -> Active {
    use sha2::Digest as _;
    Some(Arc::new(DirectiveVersion {
        org: ibex::ids::OrgId::new(),
        agent: ibex::ids::AgentId::new(),
        version: 1,
        content: content.into(),
        mode: DirectiveMode::SystemFirst,
        content_hash: sha2::Sha256::digest(content).into(),
        active: true,
        created_at: SystemClock.now(),
        revoked_at: None,
    }))
}

/// A current memory of `partition` that nothing but its text tells apart.
pub(crate) fn memory(partition: PartitionKey, content: &str) -> Memory {
    let now = SystemClock.now();
    Memory {
        id: MemoryId::new(),
        partition,
        content: content.into(),
        labels: vec![Label {
            label: Category::Factual,
            confidence: 1.0,
        }],
        confidence: 0.8,
        valid_from: now,
        valid_until: None,
        observed_at: None,
        source: Source::default(),
        metadata: None,
        pinned: false,
        status: Status::Active,
        revision: 1,
        text_revision: 0,
        supersedes: Box::default(),
        content_hash: content_hash(content),
        retrieval_count: 0,
        votes_useful: 0,
        votes_not_useful: 0,
        created_at: now,
        updated_at: now,
        embedding: None,
        tokens: TokenCounts::default(),
    }
}

/// The memory as a branch finds it, wholly relevant.
pub(crate) fn hit(memory: Memory) -> Hit {
    let tokens = Counter::new([7; 32], 16).counts(&memory.content);
    Hit {
        memory: Arc::new(Memory { tokens, ..memory }),
        similarity: 0.9,
        lexical: 0.9,
        coverage: 1.0,
        relevance: 0.9,
    }
}
