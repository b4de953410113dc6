//! The engine on real files.

mod directives;
mod duplicates;
mod engine;
mod feed;
mod fences;
mod forget;
mod identity;
mod memories;
mod migrations;
mod sessions;
mod working_states;

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::SqliteStore;
use crate::auth::{HistoryRight, Permissions};
use crate::config::StoreConfig;
use crate::ids::{AgentId, MemoryId, OrgId, TokenId};
use crate::memory::{Category, Embedding, Label, Memory, PartitionKey, Source, Status};
use crate::store::{
    Agent, AgentStatus, CaptureScope, Committed, IdentityStore, ListFilter, Matching, Org,
    OrgStatus, Reading, RefineryStore, StoreError, StoredToken,
};
use crate::tokens::TokenCounts;

/// A folder with a store file; every `open` is a handle of its own, as another process would have.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("data/ibex.db")
    }

    fn open(&self) -> Arc<SqliteStore> {
        Arc::new(SqliteStore::open(&self.path(), &StoreConfig::default()).unwrap())
    }

    /// All bytes of the database and its log.
    fn bytes(&self) -> Vec<u8> {
        let read = |suffix: &str| {
            std::fs::read(self.folder.path().join(format!("data/ibex.db{suffix}")))
                .unwrap_or_default()
        };
        [read(""), read("-wal")].concat()
    }

    /// A plain connection beside the store.
    fn raw(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }
}

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

async fn new_org(store: &SqliteStore) -> OrgId {
    let id = OrgId::new();
    store
        .create_org(Org {
            id,
            name: "Org".to_owned(),
            status: OrgStatus::Active,
            created_at: time(0),
        })
        .await
        .unwrap();
    id
}

async fn new_agent(store: &SqliteStore, org: OrgId) -> AgentId {
    let id = AgentId::new();
    store
        .create_agent(Agent {
            id,
            org,
            name: "Agent".to_owned(),
            status: AgentStatus::Active,
            capture: CaptureScope::Off,
            created_at: time(0),
        })
        .await
        .unwrap();
    id
}

/// An agent-wide partition of a new agent of a new organisation.
async fn new_partition(store: &SqliteStore) -> PartitionKey {
    let org = new_org(store).await;
    PartitionKey {
        org,
        agent: new_agent(store, org).await,
        user: None,
    }
}

fn of_user(partition: &PartitionKey, user: &str) -> PartitionKey {
    PartitionKey {
        user: Some(user.parse().unwrap()),
        ..partition.clone()
    }
}

/// A memory with the fields that most tests do not look at left plain.
fn memory(partition: &PartitionKey, content: &str) -> Memory {
    Memory {
        id: MemoryId::new(),
        partition: partition.clone(),
        content: content.into(),
        labels: vec![Label {
            label: Category::Factual,
            confidence: 0.8,
        }],
        confidence: 0.8,
        valid_from: time(0),
        valid_until: None,
        observed_at: None,
        source: Source::default(),
        metadata: None,
        pinned: false,
        status: Status::Active,
        revision: 0,
        text_revision: 0,
        supersedes: Box::default(),
        content_hash: Sha256::digest(content).into(),
        retrieval_count: 0,
        votes_useful: 0,
        votes_not_useful: 0,
        created_at: time(0),
        updated_at: time(0),
        embedding: Some(Embedding {
            model: "test-2".into(),
            vector: [0.6, 0.8].into(),
        }),
        tokens: TokenCounts::default(),
    }
}

/// An unrevoked token with every optional field but the agent set.
fn token(org: OrgId, agent: Option<AgentId>) -> StoredToken {
    StoredToken {
        id: TokenId::new(),
        org,
        agent,
        user: Some("ann".parse().unwrap()),
        name: "laptop".to_owned(),
        permissions: Permissions::all(),
        digest: [7; 32],
        created_at: time(3),
        expires_at: Some(time(9)),
        revoked_at: None,
    }
}

impl SqliteStore {
    /// Writes memories about which nothing was decided.
    async fn commit_all(&self, memories: Vec<Memory>) -> Result<Vec<Committed>, StoreError> {
        self.commit(memories.into()).await
    }
}

/// Everything that was not forgotten and waits for nothing.
fn history() -> ListFilter {
    ListFilter {
        reading: Reading::History(HistoryRight::for_test()),
        after: None,
        limit: 100,
        matching: Matching::default(),
    }
}

async fn insert(store: &SqliteStore, memory: Memory) -> Committed {
    let outcomes = store.commit_all(vec![memory]).await;
    outcomes.unwrap().remove(0)
}
