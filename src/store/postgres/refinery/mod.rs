//! Writes of the refinery: everything that one write decides, in one transaction under the organisation's lock.

mod drafts;
mod edits;
mod escalations;
mod ledger;
mod letters;
pub(super) mod relations;

use std::collections::HashSet;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::PostgresStore;
use super::memories;
use super::rows::{Columns, agent_uuid, limit, micros, org_uuid, user_column};
use super::tx::Tx;
use crate::ids::{AgentId, EscalationId, MemoryId, OrgId};
use crate::memory::{Memory, PartitionKey, Status};
use crate::store::{
    Committed, DeadLetter, Decider, Draft, Edit, Edited, Escalation, LedgerKey, LedgerOutcome,
    LedgerRow, Refined, RefineryStore, Relation, Settlement, StoreError, StoredRelation,
};

/// Organisations that one statement walks.
const WALK: i64 = 1_000;

#[async_trait]
impl RefineryStore for PostgresStore {
    async fn commit(&self, write: Refined) -> Result<Vec<Committed>, StoreError> {
        let Some(org) = org_of(&write)? else {
            return Ok(Vec::new());
        };
        let mut tx = self.tx(org).await?;
        let outcomes = commit(&mut tx, &write).await?;
        let revisions = tx.commit().await?;
        Ok(outcomes
            .into_iter()
            .map(|outcome| outcome.committed(revisions))
            .collect())
    }

    async fn edit(&self, edit: Edit) -> Result<Edited, StoreError> {
        let mut tx = self.tx(edit.draft.memory.partition.org).await?;
        let Some(outcome) = edits::edit(&mut tx, &edit).await? else {
            return Ok(Edited::Stale);
        };
        let committed = outcome.committed(tx.commit().await?);
        let taken_away = edit.forgets || edit.draft.memory.status == Status::Quarantined;
        if taken_away && matches!(committed, Committed::Inserted { .. }) {
            self.outlast_answers().await;
        }
        Ok(Edited::Done(committed))
    }

    async fn vote(
        &self,
        partitions: &[PartitionKey],
        id: MemoryId,
        useful: bool,
        at: Timestamp,
    ) -> Result<Option<Memory>, StoreError> {
        for group in super::rows::by_org(partitions) {
            let mut tx = self.tx(group.org).await?;
            let own: Vec<PartitionKey> = partitions
                .iter()
                .filter(|p| p.org == group.org)
                .cloned()
                .collect();
            if let Some((memory, mark)) = edits::vote(&mut tx, &own, id, (useful, at)).await? {
                let revision = tx.commit().await?.of(mark);
                return Ok(Some(Memory { revision, ..memory }));
            }
        }
        Ok(None)
    }

    async fn slot_mates(
        &self,
        partition: &PartitionKey,
        slot: [u8; 16],
        most: usize,
    ) -> Result<Vec<Memory>, StoreError> {
        let mut snapshot = self.snapshot(partition.org).await?;
        memories::slot_mates(&mut snapshot, partition, &slot, most).await
    }

    async fn is_tombstoned(
        &self,
        partition: &PartitionKey,
        content_hash: [u8; 32],
    ) -> Result<bool, StoreError> {
        let mut snapshot = self.snapshot(partition.org).await?;
        memories::is_tombstoned(&mut snapshot, partition, &content_hash).await
    }

    async fn relations(
        &self,
        partition: &PartitionKey,
        id: MemoryId,
    ) -> Result<Vec<StoredRelation>, StoreError> {
        let mut snapshot = self.snapshot(partition.org).await?;
        relations::of(&mut snapshot, partition, id).await
    }

    async fn review(
        &self,
        partition: &PartitionKey,
        id: MemoryId,
    ) -> Result<Option<String>, StoreError> {
        let mut snapshot = self.snapshot(partition.org).await?;
        edits::review(&mut snapshot, partition, id).await
    }

    async fn escalations(
        &self,
        partitions: &[PartitionKey],
        after: Option<EscalationId>,
        most: usize,
    ) -> Result<Vec<Escalation>, StoreError> {
        let mut found = Vec::new();
        for group in super::rows::by_org(partitions) {
            let mut snapshot = self.snapshot(group.org).await?;
            found.extend(escalations::pending(&mut snapshot, &group, after, most).await?);
        }
        found.sort_unstable_by_key(|e| std::cmp::Reverse(e.id));
        found.truncate(most);
        Ok(found)
    }

    async fn escalation(
        &self,
        partitions: &[PartitionKey],
        id: EscalationId,
    ) -> Result<Option<Escalation>, StoreError> {
        for group in super::rows::by_org(partitions) {
            let mut snapshot = self.snapshot(group.org).await?;
            let found = escalations::held(&mut snapshot, group.org, id).await?;
            if let Some(found) = found.filter(|e| partitions.contains(&e.partition)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    async fn settle_escalation(
        &self,
        escalation: &Escalation,
        decision: Option<(Relation, Decider)>,
        at: Timestamp,
    ) -> Result<Settlement, StoreError> {
        let mut tx = self.tx(escalation.partition.org).await?;
        let settlement = escalations::settle(&mut tx, escalation, decision, at).await?;
        tx.commit().await?;
        Ok(settlement)
    }

    async fn add_dead_letter(&self, letter: DeadLetter) -> Result<(), StoreError> {
        let mut tx = self.tx(letter.partition.org).await?;
        letters::insert(&mut tx, &letter).await?;
        tx.commit().await.map(drop)
    }

    async fn dead_letters(
        &self,
        partitions: &[PartitionKey],
        most: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let mut found = Vec::new();
        for group in super::rows::by_org(partitions) {
            let mut snapshot = self.snapshot(group.org).await?;
            found.extend(letters::newest(&mut snapshot, &group, most).await?);
        }
        found.sort_by_key(|letter| std::cmp::Reverse(letter.at));
        found.truncate(most);
        Ok(found)
    }

    async fn waiting_partitions(
        &self,
        org: OrgId,
        agent: AgentId,
        most: usize,
    ) -> Result<Vec<PartitionKey>, StoreError> {
        let mut snapshot = self.snapshot(org).await?;
        letters::waiting(&mut snapshot, (org, agent), most).await
    }

    async fn prune_dead_letters(&self, before: Timestamp, most: usize) -> Result<u64, StoreError> {
        self.prune("dead_letters", before, most).await
    }

    async fn ledger_row(
        &self,
        key: &LedgerKey,
        since: Timestamp,
    ) -> Result<Option<LedgerRow>, StoreError> {
        let mut snapshot = self.snapshot(key.org).await?;
        ledger::row(&mut snapshot, key, since).await
    }

    async fn prune_ledger(&self, before: Timestamp, most: usize) -> Result<u64, StoreError> {
        self.prune("ledger", before, most).await
    }
}

impl PostgresStore {
    /// Deletes at most `most` rows from before a time, whoever they belong to: one organisation after the other, each under its own
    /// setting.
    pub(super) async fn prune(
        &self,
        what: &'static str,
        before: Timestamp,
        most: usize,
    ) -> Result<u64, StoreError> {
        let (mut deleted, mut behind) = (0_u64, Uuid::nil());
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        while deleted < most {
            let prune = sqlx::query("SELECT deleted, reached FROM prune($1, $2, $3, $4, $5)")
                .bind(what)
                .bind(micros(before))
                .bind(limit(usize::try_from(most - deleted).unwrap_or(usize::MAX)))
                .bind(behind)
                .bind(WALK);
            let row = self.links.link().await?.row(prune).await?;
            let row = row.ok_or(StoreError::Damaged("row"))?;
            let mut columns = Columns::of(&row, "row");
            deleted += columns.number::<u64>()?;
            let Some(reached) = columns.optional_id()? else {
                break;
            };
            behind = Uuid::from_bytes(reached);
        }
        Ok(deleted)
    }
}

/// The organisation of a write, which is one: its lock makes the write alone.
fn org_of(write: &Refined) -> Result<Option<OrgId>, StoreError> {
    let of_ledger = write.ledger.iter().map(|entry| entry.key.org);
    let mut orgs = of_ledger.chain(write.rows.iter().map(|draft| draft.memory.partition.org));
    let Some(first) = orgs.next() else {
        return Ok(None);
    };
    if orgs.any(|org| org != first) {
        return Err(StoreError::Refused(
            "a write of two organisations".to_owned(),
        ));
    }
    Ok(Some(first))
}

async fn commit(tx: &mut Tx, write: &Refined) -> Result<Vec<drafts::Outcome>, StoreError> {
    if let Some(entry) = &write.ledger {
        ledger::ask(tx, entry).await?;
    }
    let mut texts = Texts::of(tx, &write.rows).await?;
    let mut outcomes = Vec::with_capacity(write.rows.len());
    for draft in &write.rows {
        let is_new = texts.take(&draft.memory);
        outcomes.push(drafts::insert(tx, draft, is_new).await?);
    }
    if let Some(entry) = &write.ledger {
        let rows = write.rows.iter().zip(&outcomes);
        let settled: Vec<LedgerOutcome> = rows
            .map(|(draft, outcome)| match outcome {
                drafts::Outcome::Written { .. } => LedgerOutcome::Stored(draft.memory.id),
                drafts::Outcome::Duplicate { existing } => LedgerOutcome::Duplicate(*existing),
            })
            .collect();
        ledger::settle(tx, entry, &settled).await?;
    }
    Ok(outcomes)
}

/// The texts that a write need not look for again, row by row: nobody has them, and no former row of the write.
struct Texts {
    taken: HashSet<(PartitionKey, [u8; 32])>,
}

impl Texts {
    /// Asks once for all rows, under the organisation's lock.
    async fn of(tx: &mut Tx, rows: &[Draft]) -> Result<Self, StoreError> {
        let sql = "SELECT m.org, m.agent, m.user_id, m.content_hash FROM unnest($2, $3, $4) AS asked (agent, user_id, content_hash)
                   JOIN memories m ON m.org = $1 AND m.agent = asked.agent AND m.user_id = asked.user_id
                                  AND m.content_hash = asked.content_hash AND m.status IN ('active', 'quarantined')";
        let Some(org) = rows.first().map(|draft| draft.memory.partition.org) else {
            return Ok(Self {
                taken: HashSet::new(),
            });
        };
        let partitions = || rows.iter().map(|draft| &draft.memory.partition);
        let agents: Vec<_> = partitions().map(|p| agent_uuid(p.agent)).collect();
        let users: Vec<_> = partitions().map(|p| user_column(p.user.as_ref())).collect();
        let hashes: Vec<_> = rows.iter().map(|draft| draft.memory.content_hash).collect();
        let statement = sqlx::query(sql)
            .bind(org_uuid(org))
            .bind(agents)
            .bind(users)
            .bind(hashes);
        let taken = tx.rows(statement).await?;
        let taken = taken.iter().map(|row| {
            let mut columns = Columns::of(row, "memory");
            Ok((columns.partition()?, columns.bytes()?))
        });
        Ok(Self {
            taken: taken.collect::<Result<_, StoreError>>()?,
        })
    }

    /// Whether the text of a row is new; it is not any more.
    fn take(&mut self, memory: &Memory) -> bool {
        self.taken
            .insert((memory.partition.clone(), memory.content_hash))
    }
}
