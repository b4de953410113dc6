//! Announcements on a real server: every committed change is heard, a lost connection is noticed, and nobody waits.

use std::sync::Arc;
use std::sync::Mutex as StdMutex;

use futures_util::future::join_all;
use jiff::Timestamp;

use super::super::announced::Announced;
use super::super::testing::{Own, Reply, Scripted, closed_port, comes, config, open, url};
use super::{LONGEST_WAIT, Redis, listen, revision};
use crate::auth::Permissions;
use crate::config::{RedisConfig, StoreConfig};
use crate::ids::{AgentId, MemoryId, OrgId, TokenId};
use crate::memory::PartitionKey;
use crate::store::sqlite::SqliteStore;
use crate::store::transfer::TransferStore;
use crate::store::{
    Agent, AgentStatus, CaptureScope, DirectiveMode, DirectiveStore, EmbeddingStore, IdentityStore,
    MemoryStore, NewDirective, Org, OrgStatus, RefineryStore, SessionStore, Store, StoreError,
    StoredToken,
};
use crate::tasks::Tasks;

const AT: Timestamp = Timestamp::UNIX_EPOCH;

/// A replica over a store file of its own.
struct Replica {
    store: Announced,
    beneath: Arc<dyn Store>,
    tasks: Tasks,
    _folder: tempfile::TempDir,
}

impl Replica {
    fn new(redis: &Redis) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ibex.db");
        let opened = SqliteStore::open(&path, &StoreConfig::default());
        let beneath: Arc<dyn Store> = Arc::new(opened.expect("a store"));
        let tasks = Tasks::new();
        Self {
            store: Announced::new(Arc::clone(&beneath), redis.clone(), tasks.clone()),
            beneath,
            tasks,
            _folder: folder,
        }
    }

    async fn write(&self) -> i64 {
        self.store
            .create_org(org(OrgId::new()))
            .await
            .expect("written");
        self.beneath.revision().await.expect("a revision")
    }
}

fn org(id: OrgId) -> Org {
    Org {
        id,
        name: "Org".to_owned(),
        status: OrgStatus::Active,
        created_at: AT,
    }
}

/// What a replica that listens has heard.
#[derive(Clone)]
struct Ear {
    heard: Arc<StdMutex<Vec<Option<i64>>>>,
    tasks: Tasks,
}

impl Ear {
    fn new(redis: &Redis) -> Self {
        let this = Self {
            heard: Arc::default(),
            tasks: Tasks::new(),
        };
        let heard = Arc::clone(&this.heard);
        let hear = move |revision| heard.lock().expect("a lock").push(revision);
        this.tasks
            .spawn(listen(redis.clone(), this.tasks.clone(), hear));
        this
    }

    fn heard(&self) -> Vec<Option<i64>> {
        self.heard.lock().expect("a lock").clone()
    }

    /// Waits for more than `n` announcements.
    async fn more_than(&self, n: usize) -> Vec<Option<i64>> {
        comes(async || self.heard().len() > n).await;
        self.heard()
    }
}

/// A replica that writes, one that listens, and what it has heard so far.
struct Pair {
    replica: Replica,
    ear: Ear,
    heard: Vec<Option<i64>>,
}

impl Pair {
    async fn new() -> Self {
        let redis = open(&config(&[url()]));
        let ear = Ear::new(&redis);
        let heard = ear.more_than(0).await;
        assert_eq!(heard, [None], "what came before may have been missed");
        let replica = Replica::new(&redis);
        Self {
            replica,
            ear,
            heard,
        }
    }

    /// What is heard next is this write's, and nothing else.
    async fn hears<T>(&mut self, what: &str, written: Result<T, StoreError>) {
        assert!(written.is_ok(), "{what}");
        let all = self.ear.more_than(self.heard.len()).await;
        let revision = self.replica.beneath.revision().await.expect("a revision");
        assert_eq!(all[self.heard.len()..], [Some(revision)], "{what}");
        self.heard = all;
    }
}

/// One write through the store of a pair, and what is heard of it.
macro_rules! heard_of {
    ($pair:ident, $method:ident($($arg:expr),*)) => {
        let written = $pair.replica.store.$method($($arg),*).await;
        $pair.hears(stringify!($method), written).await;
    };
}

fn new_agent(org: OrgId, id: AgentId) -> Agent {
    Agent {
        id,
        org,
        name: "Agent".to_owned(),
        status: AgentStatus::Active,
        capture: CaptureScope::Off,
        created_at: AT,
    }
}

#[tokio::test]
async fn changes_of_identities_are_heard_with_their_revision() {
    let mut pair = Pair::new().await;
    let (id, agent, token) = (OrgId::new(), AgentId::new(), TokenId::new());
    heard_of!(pair, create_org(org(id)));
    heard_of!(pair, set_org_status(id, OrgStatus::Suspended));
    heard_of!(pair, create_agent(new_agent(id, agent)));
    heard_of!(pair, set_agent_status(id, agent, AgentStatus::Paused));
    heard_of!(pair, set_agent_capture(id, agent, CaptureScope::Off));
    let new = StoredToken {
        id: token,
        org: id,
        agent: None,
        user: None,
        name: "Token".to_owned(),
        permissions: Permissions::CHAT,
        digest: [0; 32],
        created_at: AT,
        expires_at: None,
        revoked_at: None,
    };
    heard_of!(pair, create_token(new));
    heard_of!(pair, revoke_token(token, AT));
}

#[tokio::test]
async fn changes_of_directives_and_memories_are_heard_and_nothing_else_is() {
    let mut pair = Pair::new().await;
    let (id, agent) = (OrgId::new(), AgentId::new());
    heard_of!(pair, create_org(org(id)));
    heard_of!(pair, create_agent(new_agent(id, agent)));
    for version in [1, 2] {
        let new = NewDirective {
            org: id,
            agent,
            content: "Be brief.".into(),
            mode: DirectiveMode::SystemFirst,
            created_at: AT,
        };
        heard_of!(pair, add_directive(new));
        heard_of!(pair, promote_directive(id, agent, version));
    }
    heard_of!(pair, rollback_directive(id, agent));
    heard_of!(pair, revoke_directive(id, agent, 1, AT));
    heard_of!(pair, commit(Vec::new().into()));
    let partition = PartitionKey {
        org: id,
        agent,
        user: None,
    };
    let partitions = std::slice::from_ref(&partition);
    heard_of!(pair, forget_memory(partitions, MemoryId::new(), AT));
    heard_of!(pair, vote(partitions, MemoryId::new(), true, AT));
    heard_of!(pair, set_embeddings(&partition, Vec::new()));
    // What is no change for others, and what fails, is not announced: the next that is heard is a write's.
    let store = &pair.replica.store;
    assert!(store.org(id).await.expect("read").is_some());
    store.begin_run().await.expect("noted");
    store.delete_sessions(AT, 1).await.expect("deleted");
    let uses = store.bump_retrieved(partitions, vec![MemoryId::new()], AT);
    uses.await.expect("counted");
    let nobody = store.set_org_status(OrgId::new(), OrgStatus::Active);
    assert!(nobody.await.is_err());
    heard_of!(pair, end_load([7; 16], 100));
}

#[tokio::test]
async fn writes_that_come_together_are_announced_together() {
    let redis = open(&config(&[url()]));
    let ear = Ear::new(&redis);
    ear.more_than(0).await;
    let replica = Replica::new(&redis);
    // At once, so that it is no matter how fast the machine writes.
    let written = join_all((0..200).map(|_| replica.write())).await;
    let last = written.into_iter().max().unwrap_or_default();
    comes(async || ear.heard().contains(&Some(last))).await;
    let heard = ear.heard();
    assert!(heard.len() < 150, "{}", heard.len());
    assert!(heard.is_sorted(), "{heard:?}");
}

#[tokio::test]
async fn a_replica_that_lost_the_channel_is_told_so_and_hears_again() {
    let mut server = Own::start(&[]).await;
    let redis = open(&config(&[&server.url()]));
    let ear = Ear::new(&redis);
    let replica = Replica::new(&redis);
    ear.more_than(0).await;
    let first = replica.write().await;
    assert_eq!(ear.more_than(1).await, [None, Some(first)]);
    server.kill().await;
    assert_eq!(
        ear.more_than(2).await[2],
        None,
        "something may have been missed"
    );
    let second = replica.write().await;
    assert_eq!(ear.more_than(3).await[3], Some(second));
}

#[tokio::test]
async fn whoever_listens_before_there_is_a_server_hears_it_later() {
    let port = closed_port();
    let redis = open(&config(&[&format!("redis://127.0.0.1:{port}")]));
    let ear = Ear::new(&redis);
    let _server = Own::start_at(port).await;
    assert_eq!(ear.more_than(0).await, [None]);
    assert_eq!(
        ear.tasks.drain(LONGEST_WAIT).await,
        0,
        "it stops when asked"
    );
}

#[tokio::test]
async fn no_write_waits_for_a_server_that_does_not_answer() {
    let silent = Scripted::start(0, Reply::Silent).await;
    for url in [silent.url(), format!("redis://127.0.0.1:{}", closed_port())] {
        let redis = open(&RedisConfig {
            timeout_ms: 1_000_000,
            connect_timeout_ms: 2_000_000,
            ..config(&[&url])
        });
        let replica = Replica::new(&redis);
        for n in 1..=20 {
            assert_eq!(
                replica.write().await,
                n,
                "it would wait for a quarter of an hour"
            );
        }
    }
}

#[tokio::test]
async fn without_pubsub_nothing_is_announced_and_nobody_listens() {
    let with = config(&[url()]);
    let without = open(&RedisConfig {
        pubsub: false,
        ..with.clone()
    });
    let ear = Ear::new(&open(&with));
    ear.more_than(0).await;
    let deaf = Ear::new(&without);
    assert_eq!(deaf.tasks.drain(LONGEST_WAIT).await, 0, "it ends by itself");
    assert!(deaf.heard().is_empty());
    let replica = Replica::new(&without);
    replica.write().await;
    assert_eq!(replica.tasks.drain(LONGEST_WAIT).await, 0);
    let announcing = Replica::new(&open(&with));
    let revision = announcing.write().await;
    assert_eq!(ear.more_than(1).await, [None, Some(revision)]);
}

#[tokio::test]
async fn a_cluster_passes_announcements_on() {
    let server = Own::cluster().await;
    let redis = open(&RedisConfig {
        mode: crate::config::RedisMode::Cluster,
        ..config(&[&server.url()])
    });
    let ear = Ear::new(&redis);
    ear.more_than(0).await;
    let revision = Replica::new(&redis).write().await;
    assert_eq!(ear.more_than(1).await, [None, Some(revision)]);
}

#[test]
fn an_announcement_in_another_form_is_heard_without_a_revision() {
    assert_eq!(revision(br#"{"v":1,"revision":7,"kind":"token"}"#), Some(7));
    assert_eq!(
        revision(br#"{"v":1,"revision":7,"kind":"token","more":1}"#),
        Some(7)
    );
    assert_eq!(revision(br#"{"v":2,"revision":7,"kind":"token"}"#), None);
    assert_eq!(revision(br#"{"v":1,"revision":7,"kind":"novelty"}"#), None);
    assert_eq!(revision(b"\xff"), None);
}
