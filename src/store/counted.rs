//! A store whose operations are counted and timed, so that no engine and no caller has to think of it.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::transfer::{Batch, ExportId, Standing, TransferStore};
use super::{
    Agent, AgentStatus, CaptureScope, Change, ChangeFeed, Committed, DeadLetter, Decider,
    DirectiveStore, DirectiveVersion, Edit, Edited, EmbeddingStore, Escalation, IdentityStore,
    LedgerKey, LedgerRow, ListFilter, ListPage, MemoryStore, NewDirective, NewEmbedding, Org,
    OrgStatus, Refined, RefineryStore, Relation, SessionStore, Settlement, Store, StoreError,
    StoredRelation, StoredState, StoredToken, Unembedded,
};
use crate::ids::{AgentId, EscalationId, MemoryId, OrgId, TokenId};
use crate::memory::{Memory, PartitionKey};
use crate::session::record::{LaneRecord, SessionRecord, SessionView};
use crate::session::{LaneKey, SessionKey};
use crate::telemetry::StoreFigures;

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A kind of operation: the label that its time and its errors are counted under.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Operation {
            $($(#[$doc])* $name,)*
        }

        impl Operation {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The label.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

operations! {
    /// Organisations, agents and tokens read.
    IdentityRead = "identity_read",
    /// Organisations, agents and tokens written.
    IdentityWrite = "identity_write",
    /// Directives read.
    DirectiveRead = "directive_read",
    /// Directives written.
    DirectiveWrite = "directive_write",
    /// Memories read, and what is known about them.
    MemoryRead = "memory_read",
    /// Memories written.
    MemoryWrite = "memory_write",
    /// What every request asks before its handoff: what was forgotten last.
    Fence = "fence",
    /// Uses of memories counted.
    Uses = "uses",
    /// Sessions read.
    SessionRead = "session_read",
    /// Sessions written.
    SessionWrite = "session_write",
    /// The change feed read.
    Feed = "feed",
    /// The readiness probe.
    Ping = "ping",
    /// A whole store moved out or in.
    Transfer = "transfer",
}

/// A store that counts.
pub struct Counted {
    store: Arc<dyn Store>,
    figures: StoreFigures,
}

impl Counted {
    /// Counts what is asked of `store` through this value.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, figures: StoreFigures) -> Self {
        Self { store, figures }
    }
}

macro_rules! passes_on {
    ($(impl $trait:ident {
        $($method:ident($($arg:ident: $type:ty),*) -> $answer:ty => $operation:ident;)*
    })*) => {
        $(
            #[async_trait]
            impl $trait for Counted {
                $(
                    async fn $method(&self, $($arg: $type),*) -> Result<$answer, StoreError> {
                        let began = Instant::now();
                        let answer = self.store.$method($($arg),*).await;
                        self.figures.ended(Operation::$operation, &answer, began.elapsed());
                        answer
                    }
                )*
            }
        )*
    };
}

passes_on! {
    impl IdentityStore {
        create_org(org: Org) -> () => IdentityWrite;
        org(id: OrgId) -> Option<Org> => IdentityRead;
        orgs() -> Vec<Org> => IdentityRead;
        set_org_status(id: OrgId, status: OrgStatus) -> () => IdentityWrite;
        create_agent(agent: Agent) -> () => IdentityWrite;
        agent(org: OrgId, id: AgentId) -> Option<Agent> => IdentityRead;
        agents(org: OrgId) -> Vec<Agent> => IdentityRead;
        set_agent_status(org: OrgId, id: AgentId, status: AgentStatus) -> () => IdentityWrite;
        set_agent_capture(org: OrgId, id: AgentId, capture: CaptureScope) -> () => IdentityWrite;
        create_token(token: StoredToken) -> () => IdentityWrite;
        token(id: TokenId) -> Option<StoredToken> => IdentityRead;
        tokens(org: OrgId) -> Vec<StoredToken> => IdentityRead;
        revoke_token(id: TokenId, at: Timestamp) -> () => IdentityWrite;
    }
    impl DirectiveStore {
        active_directive(org: OrgId, agent: AgentId) -> Option<DirectiveVersion> => DirectiveRead;
        directive_versions(org: OrgId, agent: AgentId) -> Vec<DirectiveVersion> => DirectiveRead;
        add_directive(directive: NewDirective) -> DirectiveVersion => DirectiveWrite;
        promote_directive(org: OrgId, agent: AgentId, version: u32) -> DirectiveVersion => DirectiveWrite;
        directive_version(org: OrgId, agent: AgentId, version: u32) -> Option<DirectiveVersion> => DirectiveRead;
        revoke_directive(org: OrgId, agent: AgentId, version: u32, at: Timestamp) -> DirectiveVersion => DirectiveWrite;
        revoked_directives(org: OrgId, agent: AgentId) -> Vec<u32> => DirectiveRead;
        rollback_directive(org: OrgId, agent: AgentId) -> DirectiveVersion => DirectiveWrite;
    }
    impl MemoryStore {
        duplicate_of(memory: &Memory) -> Option<MemoryId> => MemoryRead;
        memory(partitions: &[PartitionKey], id: MemoryId) -> Option<Memory> => MemoryRead;
        list_memories(partitions: &[PartitionKey], filter: ListFilter) -> ListPage => MemoryRead;
        partition_memories(partition: &PartitionKey, after: Option<MemoryId>, limit: usize) -> Vec<Memory> => MemoryRead;
        forget_memory(partitions: &[PartitionKey], id: MemoryId, at: Timestamp) -> Option<PartitionKey> => MemoryWrite;
        bump_retrieved(partitions: &[PartitionKey], ids: Vec<MemoryId>, at: Timestamp) -> () => Uses;
        memories_by_id(partitions: &[PartitionKey], ids: &[MemoryId]) -> Vec<Memory> => MemoryRead;
        forget_fence(partitions: &[PartitionKey]) -> i64 => Fence;
        count_memories(partition: &PartitionKey) -> u64 => MemoryRead;
    }
    impl EmbeddingStore {
        unembedded_partitions(model: &str) -> Vec<(PartitionKey, u64)> => MemoryRead;
        unembedded(partition: &PartitionKey, model: &str, after: Option<MemoryId>, limit: usize) -> Vec<Unembedded> => MemoryRead;
        set_embeddings(partition: &PartitionKey, vectors: Vec<NewEmbedding>) -> u64 => MemoryWrite;
    }
    impl RefineryStore {
        commit(write: Refined) -> Vec<Committed> => MemoryWrite;
        edit(edit: Edit) -> Edited => MemoryWrite;
        vote(partitions: &[PartitionKey], id: MemoryId, useful: bool, at: Timestamp) -> Option<Memory> => MemoryWrite;
        slot_mates(partition: &PartitionKey, slot: [u8; 16], most: usize) -> Vec<Memory> => MemoryRead;
        is_tombstoned(partition: &PartitionKey, content_hash: [u8; 32]) -> bool => MemoryRead;
        relations(partition: &PartitionKey, id: MemoryId) -> Vec<StoredRelation> => MemoryRead;
        review(partition: &PartitionKey, id: MemoryId) -> Option<String> => MemoryRead;
        escalations(partitions: &[PartitionKey], after: Option<EscalationId>, most: usize) -> Vec<Escalation> => MemoryRead;
        escalation(partitions: &[PartitionKey], id: EscalationId) -> Option<Escalation> => MemoryRead;
        settle_escalation(escalation: &Escalation, decision: Option<(Relation, Decider)>, at: Timestamp) -> Settlement => MemoryWrite;
        add_dead_letter(letter: DeadLetter) -> () => MemoryWrite;
        dead_letters(partitions: &[PartitionKey], most: usize) -> Vec<DeadLetter> => MemoryRead;
        waiting_partitions(org: OrgId, agent: AgentId, most: usize) -> Vec<PartitionKey> => MemoryRead;
        prune_dead_letters(before: Timestamp, most: usize) -> u64 => MemoryWrite;
        ledger_row(key: &LedgerKey, since: Timestamp) -> Option<LedgerRow> => MemoryRead;
        prune_ledger(before: Timestamp, most: usize) -> u64 => MemoryWrite;
    }
    impl SessionStore {
        record_sessions(records: Vec<SessionRecord>) -> () => SessionWrite;
        begin_run() -> bool => SessionWrite;
        end_run() -> () => SessionWrite;
        knows_session(key: &SessionKey) -> bool => SessionRead;
        session_lane(key: &LaneKey) -> Option<LaneRecord> => SessionRead;
        session(key: &SessionKey, turns: usize) -> Option<SessionView> => SessionRead;
        terminate_session(key: &SessionKey, at: Timestamp) -> Option<bool> => SessionWrite;
        put_working_state(key: &SessionKey, json: String, at: Timestamp) -> StoredState => SessionWrite;
        working_state(key: &SessionKey, version: Option<u32>) -> Option<StoredState> => SessionRead;
        delete_sessions(before: Timestamp, limit: usize) -> u64 => SessionWrite;
    }
    impl ChangeFeed {
        revision() -> i64 => Feed;
        changes_after(revision: i64, limit: usize) -> Vec<Change> => Feed;
        poll() -> bool => Feed;
        ping() -> () => Ping;
    }
    impl TransferStore {
        dump(orgs: Vec<OrgId>, to: mpsc::Sender<Batch>) -> i64 => Transfer;
        load_standing(export: ExportId) -> Option<Standing> => Transfer;
        load(export: ExportId, number: u64, batch: Batch) -> () => Transfer;
        end_load(export: ExportId, revision: i64) -> () => Transfer;
    }
}
