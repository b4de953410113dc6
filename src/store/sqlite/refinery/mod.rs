//! Writes of the refinery: everything that one write decides, in one transaction.

mod drafts;
mod edits;
mod escalations;
mod ledger;
mod letters;
pub(super) mod relations;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::Connection;

use super::SqliteStore;
use super::memories;
use crate::ids::{AgentId, EscalationId, MemoryId, OrgId};
use crate::memory::{Memory, PartitionKey};
use crate::store::{
    Committed, DeadLetter, Decider, Edit, Edited, Escalation, LedgerKey, LedgerOutcome, LedgerRow,
    Refined, RefineryStore, Relation, Settlement, StoreError, StoredRelation,
};

#[async_trait]
impl RefineryStore for SqliteStore {
    async fn commit(&self, write: Refined) -> Result<Vec<Committed>, StoreError> {
        self.write(move |conn| commit(conn, &write)).await
    }

    async fn edit(&self, edit: Edit) -> Result<Edited, StoreError> {
        let scrub = self.writer.scrub();
        let work = move |conn: &Connection| {
            let edited = edits::edit(conn, &edit)?;
            if edit.forgets && matches!(edited, Edited::Done(Committed::Inserted { .. })) {
                scrub.request();
            }
            Ok(edited)
        };
        self.write(work).await
    }

    async fn vote(
        &self,
        partitions: &[PartitionKey],
        id: MemoryId,
        useful: bool,
        at: Timestamp,
    ) -> Result<Option<Memory>, StoreError> {
        let partitions = partitions.to_vec();
        self.write(move |conn| edits::vote(conn, &partitions, id, (useful, at)))
            .await
    }

    async fn slot_mates(
        &self,
        partition: &PartitionKey,
        slot: [u8; 16],
        most: usize,
    ) -> Result<Vec<Memory>, StoreError> {
        let partition = partition.clone();
        self.read(move |conn| memories::slot_mates(conn, &partition, &slot, most))
            .await
    }

    async fn is_tombstoned(
        &self,
        partition: &PartitionKey,
        content_hash: [u8; 32],
    ) -> Result<bool, StoreError> {
        let partition = partition.clone();
        self.read(move |conn| memories::is_tombstoned(conn, &partition, &content_hash))
            .await
    }

    async fn relations(
        &self,
        partition: &PartitionKey,
        id: MemoryId,
    ) -> Result<Vec<StoredRelation>, StoreError> {
        let partition = partition.clone();
        self.read(move |conn| relations::of(conn, &partition, id))
            .await
    }

    async fn review(
        &self,
        partition: &PartitionKey,
        id: MemoryId,
    ) -> Result<Option<String>, StoreError> {
        let partition = partition.clone();
        self.read(move |conn| edits::review(conn, &partition, id))
            .await
    }

    async fn escalations(
        &self,
        partitions: &[PartitionKey],
        after: Option<EscalationId>,
        most: usize,
    ) -> Result<Vec<Escalation>, StoreError> {
        let partitions = partitions.to_vec();
        self.read(move |conn| escalations::pending(conn, &partitions, after, most))
            .await
    }

    async fn escalation(
        &self,
        partitions: &[PartitionKey],
        id: EscalationId,
    ) -> Result<Option<Escalation>, StoreError> {
        let partitions = partitions.to_vec();
        self.read(move |conn| escalations::held(conn, &partitions, id))
            .await
    }

    async fn settle_escalation(
        &self,
        escalation: &Escalation,
        decision: Option<(Relation, Decider)>,
        at: Timestamp,
    ) -> Result<Settlement, StoreError> {
        let escalation = escalation.clone();
        self.write(move |conn| escalations::settle(conn, &escalation, decision, at))
            .await
    }

    async fn add_dead_letter(&self, letter: DeadLetter) -> Result<(), StoreError> {
        self.write(move |conn| letters::insert(conn, &letter)).await
    }

    async fn dead_letters(
        &self,
        partitions: &[PartitionKey],
        most: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let partitions = partitions.to_vec();
        self.read(move |conn| letters::newest(conn, &partitions, most))
            .await
    }

    async fn waiting_partitions(
        &self,
        org: OrgId,
        agent: AgentId,
        most: usize,
    ) -> Result<Vec<PartitionKey>, StoreError> {
        self.read(move |conn| letters::waiting(conn, (org, agent), most))
            .await
    }

    async fn prune_dead_letters(&self, before: Timestamp, most: usize) -> Result<u64, StoreError> {
        self.write(move |conn| letters::prune(conn, before, most))
            .await
    }

    async fn ledger_row(
        &self,
        key: &LedgerKey,
        since: Timestamp,
    ) -> Result<Option<LedgerRow>, StoreError> {
        let key = key.clone();
        self.read(move |conn| ledger::row(conn, &key, since)).await
    }

    async fn prune_ledger(&self, before: Timestamp, most: usize) -> Result<u64, StoreError> {
        self.write(move |conn| ledger::prune(conn, before, most))
            .await
    }
}

fn commit(conn: &Connection, write: &Refined) -> Result<Vec<Committed>, StoreError> {
    if let Some(entry) = &write.ledger {
        ledger::ask(conn, entry)?;
    }
    let outcomes = write
        .rows
        .iter()
        .map(|draft| drafts::insert(conn, draft))
        .collect::<Result<Vec<Committed>, StoreError>>()?;
    if let Some(entry) = &write.ledger {
        let rows = write.rows.iter().zip(&outcomes);
        let settled: Vec<LedgerOutcome> = rows
            .map(|(draft, outcome)| match outcome {
                Committed::Inserted { .. } => LedgerOutcome::Stored(draft.memory.id),
                Committed::Duplicate { existing } => LedgerOutcome::Duplicate(*existing),
            })
            .collect();
        ledger::settle(conn, entry, &settled)?;
    }
    Ok(outcomes)
}

/// What of a memory names its row.
fn row_of(memory: &Memory) -> ([u8; 16], [u8; 16], &str, [u8; 16]) {
    let PartitionKey { org, agent, user } = &memory.partition;
    let user = super::rows::user_column(user.as_ref());
    (
        *org.as_bytes(),
        *agent.as_bytes(),
        user,
        *memory.id.as_bytes(),
    )
}
