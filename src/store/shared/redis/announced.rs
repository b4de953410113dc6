//! A store that announces what it commits, so that no caller has to think of it.
//!
//! Each method of a store is one line below; what follows `=>` is announced after it has succeeded. What is not in the change feed (uses,
//! sessions, ledgers) is not announced either.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::ids::{AgentId, EscalationId, MemoryId, OrgId, TokenId};
use crate::memory::{Memory, PartitionKey};
use crate::session::record::{LaneRecord, SessionRecord, SessionView};
use crate::session::{LaneKey, SessionKey};
use crate::store::transfer::{Batch, ExportId, Standing, TransferStore};
use crate::store::{
    Agent, AgentStatus, CaptureScope, Change, ChangeFeed, Committed, DeadLetter, Decider,
    DirectiveStore, DirectiveVersion, Edit, Edited, EmbeddingStore, Escalation, IdentityStore,
    LedgerKey, LedgerRow, ListFilter, ListPage, MemoryStore, NewDirective, NewEmbedding, Org,
    OrgStatus, Refined, RefineryStore, Relation, SessionStore, Settlement, Store, StoreError,
    StoredRelation, StoredState, StoredToken, Unembedded,
};
use crate::tasks::Tasks;

use super::Redis;
use super::announce::{Announcer, Kind};

/// A store whose changes are announced.
pub struct Announced {
    store: Arc<dyn Store>,
    announcer: Announcer,
}

impl Announced {
    /// Announces what is written to `store` through this value.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, redis: Redis, tasks: Tasks) -> Self {
        let announcer = Announcer::new(redis, Arc::clone(&store), tasks);
        Self { store, announcer }
    }
}

macro_rules! passes_on {
    ($(impl $trait:ident {
        $($method:ident($($arg:ident: $type:ty),*) -> $answer:ty $(=> $kind:ident)?;)*
    })*) => {
        $(
            #[async_trait]
            impl $trait for Announced {
                $(
                    async fn $method(&self, $($arg: $type),*) -> Result<$answer, StoreError> {
                        let answer = self.store.$method($($arg),*).await?;
                        $(self.announcer.announce(Kind::$kind);)?
                        Ok(answer)
                    }
                )*
            }
        )*
    };
}

passes_on! {
    impl IdentityStore {
        create_org(org: Org) -> () => Org;
        org(id: OrgId) -> Option<Org>;
        orgs() -> Vec<Org>;
        set_org_status(id: OrgId, status: OrgStatus) -> () => Org;
        create_agent(agent: Agent) -> () => Agent;
        agent(org: OrgId, id: AgentId) -> Option<Agent>;
        agents(org: OrgId) -> Vec<Agent>;
        set_agent_status(org: OrgId, id: AgentId, status: AgentStatus) -> () => Agent;
        set_agent_capture(org: OrgId, id: AgentId, capture: CaptureScope) -> () => Agent;
        create_token(token: StoredToken) -> () => Token;
        token(id: TokenId) -> Option<StoredToken>;
        tokens(org: OrgId) -> Vec<StoredToken>;
        revoke_token(id: TokenId, at: Timestamp) -> () => Token;
    }
    impl DirectiveStore {
        active_directive(org: OrgId, agent: AgentId) -> Option<DirectiveVersion>;
        directive_versions(org: OrgId, agent: AgentId) -> Vec<DirectiveVersion>;
        add_directive(directive: NewDirective) -> DirectiveVersion => Directive;
        promote_directive(org: OrgId, agent: AgentId, version: u32) -> DirectiveVersion => Directive;
        directive_version(org: OrgId, agent: AgentId, version: u32) -> Option<DirectiveVersion>;
        revoke_directive(org: OrgId, agent: AgentId, version: u32, at: Timestamp) -> DirectiveVersion => Directive;
        revoked_directives(org: OrgId, agent: AgentId) -> Vec<u32>;
        rollback_directive(org: OrgId, agent: AgentId) -> DirectiveVersion => Directive;
    }
    impl MemoryStore {
        duplicate_of(memory: &Memory) -> Option<MemoryId>;
        memory(partitions: &[PartitionKey], id: MemoryId) -> Option<Memory>;
        list_memories(partitions: &[PartitionKey], filter: ListFilter) -> ListPage;
        partition_memories(partition: &PartitionKey, after: Option<MemoryId>, limit: usize) -> Vec<Memory>;
        forget_memory(partitions: &[PartitionKey], id: MemoryId, at: Timestamp) -> Option<PartitionKey> => Memory;
        bump_retrieved(partitions: &[PartitionKey], ids: Vec<MemoryId>, at: Timestamp) -> ();
        memories_by_id(partitions: &[PartitionKey], ids: &[MemoryId]) -> Vec<Memory>;
        forget_fence(partitions: &[PartitionKey]) -> i64;
        count_memories(partition: &PartitionKey) -> u64;
    }
    impl EmbeddingStore {
        unembedded_partitions(model: &str) -> Vec<(PartitionKey, u64)>;
        unembedded(partition: &PartitionKey, model: &str, after: Option<MemoryId>, limit: usize) -> Vec<Unembedded>;
        set_embeddings(partition: &PartitionKey, vectors: Vec<NewEmbedding>) -> u64 => Memory;
    }
    impl RefineryStore {
        commit(write: Refined) -> Vec<Committed> => Memory;
        edit(edit: Edit) -> Edited => Memory;
        vote(partitions: &[PartitionKey], id: MemoryId, useful: bool, at: Timestamp) -> Option<Memory> => Memory;
        slot_mates(partition: &PartitionKey, slot: [u8; 16], most: usize) -> Vec<Memory>;
        is_tombstoned(partition: &PartitionKey, content_hash: [u8; 32]) -> bool;
        relations(partition: &PartitionKey, id: MemoryId) -> Vec<StoredRelation>;
        review(partition: &PartitionKey, id: MemoryId) -> Option<String>;
        escalations(partitions: &[PartitionKey], after: Option<EscalationId>, most: usize) -> Vec<Escalation>;
        escalation(partitions: &[PartitionKey], id: EscalationId) -> Option<Escalation>;
        settle_escalation(escalation: &Escalation, decision: Option<(Relation, Decider)>, at: Timestamp) -> Settlement => Memory;
        add_dead_letter(letter: DeadLetter) -> ();
        dead_letters(partitions: &[PartitionKey], most: usize) -> Vec<DeadLetter>;
        waiting_partitions(org: OrgId, agent: AgentId, most: usize) -> Vec<PartitionKey>;
        prune_dead_letters(before: Timestamp, most: usize) -> u64;
        ledger_row(key: &LedgerKey, since: Timestamp) -> Option<LedgerRow>;
        prune_ledger(before: Timestamp, most: usize) -> u64;
    }
    impl SessionStore {
        record_sessions(records: Vec<SessionRecord>) -> ();
        begin_run() -> bool;
        end_run() -> ();
        knows_session(key: &SessionKey) -> bool;
        session_lane(key: &LaneKey) -> Option<LaneRecord>;
        session(key: &SessionKey, turns: usize) -> Option<SessionView>;
        terminate_session(key: &SessionKey, at: Timestamp) -> Option<bool>;
        put_working_state(key: &SessionKey, json: String, at: Timestamp) -> StoredState;
        working_state(key: &SessionKey, version: Option<u32>) -> Option<StoredState>;
        delete_sessions(before: Timestamp, limit: usize) -> u64;
    }
    impl ChangeFeed {
        revision() -> i64;
        changes_after(revision: i64, limit: usize) -> Vec<Change>;
        poll() -> bool;
        ping() -> ();
    }
    impl TransferStore {
        dump(orgs: Vec<OrgId>, to: mpsc::Sender<Batch>) -> i64;
        load_standing(export: ExportId) -> Option<Standing>;
        load(export: ExportId, number: u64, batch: Batch) -> ();
        end_load(export: ExportId, revision: i64) -> () => Everything;
    }
}
