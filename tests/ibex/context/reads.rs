//! What retrieval reads from the store: the partitions of the verified scope, by name, and never anything wider.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ibex::config::{Config, MemoryConfig};
use ibex::ids::{MemoryId, UserId};
use ibex::memory::search::{ColdBranch, HotSet, Index, IndexSettings};
use ibex::memory::{Memory, PartitionKey};
use ibex::seams::SystemClock;
use ibex::store::{ListFilter, ListPage, MemoryStore, StoreError};
use ibex::tasks::Tasks;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;

use super::fakes::memory;
use crate::support::{Overrides, TestApp, Upstream, patient};

/// A store of memories in which every partition holds one; it notes which were read, and knows no other way to read.
#[derive(Default)]
struct Recording {
    read: Mutex<Vec<PartitionKey>>,
    /// It does not answer any more.
    silent: AtomicBool,
}

impl Recording {
    /// What was read since the last call.
    fn reads(&self) -> Vec<PartitionKey> {
        let mut reads = std::mem::take(&mut *self.read.lock());
        reads.sort();
        reads
    }
}

#[async_trait]
impl MemoryStore for Recording {
    async fn partition_memories(
        &self,
        key: &PartitionKey,
        _: Option<MemoryId>,
        _: usize,
    ) -> Result<Vec<Memory>, StoreError> {
        self.read.lock().push(key.clone());
        if self.silent.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let whose = key.user.as_ref().map_or("everybody", UserId::as_str);
        Ok(vec![memory(
            key.clone(),
            &format!("The spare key of {whose} hangs in the shed."),
        )])
    }

    async fn duplicate_of(&self, _: &Memory) -> Result<Option<MemoryId>, StoreError> {
        unreachable!("a chat looks nothing up by its hash")
    }

    async fn memory(&self, _: &[PartitionKey], _: MemoryId) -> Result<Option<Memory>, StoreError> {
        unreachable!("a chat looks nothing up by its id")
    }

    async fn list_memories(
        &self,
        _: &[PartitionKey],
        _: ListFilter,
    ) -> Result<ListPage, StoreError> {
        unreachable!("a chat lists nothing")
    }

    async fn forget_memory(
        &self,
        _: &[PartitionKey],
        _: MemoryId,
        _: Timestamp,
    ) -> Result<Option<PartitionKey>, StoreError> {
        unreachable!("a chat forgets nothing")
    }

    async fn bump_retrieved(
        &self,
        _: &[PartitionKey],
        _: Vec<MemoryId>,
        _: Timestamp,
    ) -> Result<(), StoreError> {
        unreachable!("uses go to the service's own store")
    }

    async fn memories_by_id(
        &self,
        _: &[PartitionKey],
        _: &[MemoryId],
    ) -> Result<Vec<Memory>, StoreError> {
        unreachable!("frozen memories are read from the service's own store")
    }

    async fn forget_fence(&self, _: &[PartitionKey]) -> Result<i64, StoreError> {
        unreachable!("the service's own store is asked")
    }

    async fn count_memories(&self, _: &PartitionKey) -> Result<u64, StoreError> {
        unreachable!("a chat counts nothing")
    }
}

/// A service whose branches read from a recording store.
async fn recorded(edit: fn(&mut Config)) -> (Arc<Recording>, Upstream, TestApp) {
    let store = Arc::new(Recording::default());
    let settings = IndexSettings::new("none", &MemoryConfig::default());
    let index = Arc::new(Index::new(
        store.clone(),
        Arc::new(SystemClock),
        Tasks::new(),
        settings,
    ));
    let overrides = Overrides {
        hot: Some(Arc::new(HotSet::new(index.clone()))),
        cold: Some(index as Arc<dyn ColdBranch>),
        ..Overrides::default()
    };
    let upstream = Upstream::echo_ok().await;
    let app = TestApp::with(&upstream.url(), edit, overrides).await;
    (store, upstream, app)
}

#[tokio::test]
async fn a_chat_reads_the_partitions_of_its_scope_once_and_no_other() {
    let (store, upstream, app) = recorded(patient).await;
    let key = |user: Option<&str>| PartitionKey {
        org: app.org,
        agent: app.agent,
        user: user.map(|u| u.parse().unwrap()),
    };
    let body = json!({"model": "gpt-4o", "user": "bob", "messages": [{"role": "user", "content": "Where does the spare key hang?"}]});
    let rows = [
        (None, vec![key(None)], &["everybody"][..]),
        (Some("ann"), vec![key(Some("ann"))], &["everybody", "ann"]),
        (Some("ann"), vec![], &["everybody", "ann"]),
        (Some("bob"), vec![key(Some("bob"))], &["everybody", "bob"]),
        (None, vec![], &["everybody"]),
    ];
    for (user, reads, known) in rows {
        let client = user
            .into_iter()
            .fold(app.client(), |c, user| c.header("x-ibex-user-id", user));
        let answer = client.post("/v1/chat/completions", &body).await;
        assert_eq!(
            (
                answer.status.as_u16(),
                answer.header("x-ibex-context-status")
            ),
            (200, "full")
        );
        assert_eq!(store.reads(), reads, "{user:?}");
        let sent = upstream.last().request.json()["messages"].to_string();
        for name in ["everybody", "ann", "bob"] {
            assert_eq!(
                sent.contains(&format!("key of {name}")),
                known.contains(&name),
                "{user:?}: {sent}"
            );
        }
    }
}

#[tokio::test]
async fn refused_and_skipped_requests_read_nothing() {
    let (store, upstream, app) = recorded(patient).await;
    let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "Where does the spare key hang?"}]});
    let foreign = app.client_with(&app.token, Some(ibex::ids::AgentId::new()));
    for client in [
        foreign,
        app.client_with("ibex_pat_invented", Some(app.agent)),
    ] {
        assert!(
            client
                .post("/v1/chat/completions", &body)
                .await
                .status
                .is_client_error()
        );
    }
    assert_eq!(upstream.hits(), 0);
    let skipped = app
        .client()
        .header("x-ibex-skip-memory", "1")
        .post("/v1/chat/completions", &body)
        .await;
    assert_eq!((skipped.status.as_u16(), upstream.hits()), (200, 1));
    assert_eq!(store.reads(), []);
}

#[tokio::test]
async fn a_store_that_does_not_answer_costs_no_more_than_the_branch_limit() {
    let (store, upstream, app) = recorded(|config| config.context.deadline_ms = 20).await;
    store.silent.store(true, Ordering::Relaxed);
    let body = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "Where does the spare key hang?"}]});
    // The turn has had its answer then: only what the session opens with is asked for once more.
    for (status, fallback) in [("history-only", "true"), ("partial", "false")] {
        let answer = app.client().post("/v1/chat/completions", &body).await;
        assert_eq!(
            (
                answer.status.as_u16(),
                answer.header("x-ibex-context-status"),
                answer.header("x-ibex-context-fallback")
            ),
            (200, status, fallback)
        );
    }
    assert_eq!(upstream.hits(), 2);
    // The second request waits for the same read.
    assert_eq!(store.reads().len(), 1);
}
