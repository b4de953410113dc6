//! Memories: what is written and what is asked. Every statement names organisation, agent and user.

mod list;
mod embeddings;
mod row;
mod words;
mod refined;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::error::Fault;
use super::links::Link;
use super::refinery::relations;
use super::rows::{
    Columns, OfOrg, Statement, by_org, composed, limit, memory_uuid, memory_uuids, micros,
    org_uuid, scope,
};
use super::tx::{Means, Tx};
use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey};
use crate::store::{ChangeKind, ListFilter, ListPage, MemoryStore, StoreError};

pub(super) use refined::{
    bury, held_back, insert_row, is_tombstoned, slot_mates, update_row, written_again,
};
pub(super) use row::{COLUMNS, FROM, Reader, members_of};
pub(super) use words::{numbers, words_of};

#[async_trait]
impl MemoryStore for PostgresStore {
    async fn duplicate_of(&self, memory: &Memory) -> Result<Option<MemoryId>, StoreError> {
        let mut snapshot = self.snapshot(memory.partition.org).await?;
        let same = same_text(&mut snapshot, memory).await?;
        Ok(same
            .filter(|same| same.is_repeated_by(memory))
            .map(|same| same.id))
    }

    async fn memory(
        &self,
        partitions: &[PartitionKey],
        id: MemoryId,
    ) -> Result<Option<Memory>, StoreError> {
        Ok(self.memories_by_id(partitions, &[id]).await?.pop())
    }

    async fn list_memories(
        &self,
        partitions: &[PartitionKey],
        filter: ListFilter,
    ) -> Result<ListPage, StoreError> {
        let mut memories = Vec::new();
        for group in by_org(partitions) {
            let mut snapshot = self.snapshot(group.org).await?;
            list::page_of(&mut snapshot, &group, &filter, &mut memories).await?;
        }
        // Identifiers are time-ordered, so they sort like the creation times.
        memories.sort_unstable_by_key(|memory| std::cmp::Reverse(memory.id));
        let has_more = memories.len() > filter.limit;
        memories.truncate(filter.limit);
        Ok(ListPage { memories, has_more })
    }

    async fn partition_memories(
        &self,
        partition: &PartitionKey,
        after: Option<MemoryId>,
        most: usize,
    ) -> Result<Vec<Memory>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM {FROM} WHERE m.org = $1 AND m.agent = $2 AND m.user_id = $3 AND m.id > $4 AND m.status = 'active'
             ORDER BY m.id LIMIT $5"
        );
        // Below every identifier, so that the first page needs no statement of its own.
        let after = after.map_or_else(uuid::Uuid::nil, memory_uuid);
        let page = in_partition(composed(sql), partition)
            .bind(after)
            .bind(limit(most));
        let mut snapshot = self.snapshot(partition.org).await?;
        read(&snapshot.rows(page).await?)
    }

    async fn forget_memory(
        &self,
        partitions: &[PartitionKey],
        id: MemoryId,
        at: Timestamp,
    ) -> Result<Option<PartitionKey>, StoreError> {
        for group in by_org(partitions) {
            let mut tx = self.tx(group.org).await?;
            let forgotten = forget(&mut tx, &group, id, at).await?;
            if forgotten.is_some() {
                tx.commit().await?;
                self.outlast_answers().await;
                return Ok(forgotten);
            }
        }
        Ok(None)
    }

    async fn bump_retrieved(
        &self,
        partitions: &[PartitionKey],
        ids: Vec<MemoryId>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.uses.note(partitions, &ids, at)
    }

    async fn memories_by_id(
        &self,
        partitions: &[PartitionKey],
        ids: &[MemoryId],
    ) -> Result<Vec<Memory>, StoreError> {
        let mut found = Vec::new();
        if ids.is_empty() {
            return Ok(found);
        }
        for group in by_org(partitions) {
            let mut snapshot = self.snapshot(group.org).await?;
            found.extend(held(&mut snapshot, &group, ids).await?);
        }
        Ok(found)
    }

    async fn forget_fence(&self, partitions: &[PartitionKey]) -> Result<i64, StoreError> {
        self.newest_fence(partitions).await
    }

    async fn count_memories(&self, partition: &PartitionKey) -> Result<u64, StoreError> {
        self.partition_size(partition, usize::MAX).await
    }
}

/// A statement whose first three parameters are a partition.
pub(super) fn in_partition(statement: Statement, partition: &PartitionKey) -> Statement {
    let (org, agent, user) = scope(partition);
    statement.bind(org).bind(agent).bind(user)
}

/// Memories of one result.
pub(super) fn read(rows: &[PgRow]) -> Result<Vec<Memory>, StoreError> {
    let mut reader = Reader::default();
    rows.iter().map(|row| reader.memory(row)).collect()
}

/// The active memory with the text of another one. There is one at most.
pub(super) struct SameText {
    pub(super) id: MemoryId,
    from: Timestamp,
    until: Option<Timestamp>,
    created_at: Timestamp,
}

impl SameText {
    pub(super) fn is_repeated_by(&self, memory: &Memory) -> bool {
        memory.repeats((self.from, self.until), self.created_at)
    }
}

/// The active memory with the same text as `memory`, but for itself.
pub(super) async fn same_text(
    link: &mut Link,
    memory: &Memory,
) -> Result<Option<SameText>, StoreError> {
    let sql = "SELECT id, valid_from, valid_until, created_at FROM memories
               WHERE org = $1 AND agent = $2 AND user_id = $3 AND content_hash = $4 AND status = 'active' AND id <> $5";
    let same = in_partition(sqlx::query(sql), &memory.partition)
        .bind(memory.content_hash)
        .bind(memory_uuid(memory.id));
    let Some(row) = link.row(same).await? else {
        return Ok(None);
    };
    let mut columns = Columns::of(&row, "memory");
    Ok(Some(SameText {
        id: MemoryId::from_bytes(columns.id()?),
        from: columns.time()?,
        until: columns.optional_time()?,
        created_at: columns.time()?,
    }))
}

/// The memories of `ids` that one of the partitions holds, whatever their status but `forgotten`.
async fn held(
    link: &mut Link,
    group: &OfOrg<'_>,
    ids: &[MemoryId],
) -> Result<Vec<Memory>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM {FROM} WHERE m.org = $1 AND m.id = ANY ($4) AND m.status <> 'forgotten'
         AND (m.agent, m.user_id) IN (SELECT p.agent, p.user_id FROM unnest($2, $3) AS p (agent, user_id))"
    );
    let statement = composed(sql)
        .bind(org_uuid(group.org))
        .bind(group.agents.as_slice())
        .bind(group.users.as_slice())
        .bind(memory_uuids(ids));
    read(&link.rows(statement).await?)
}

/// One memory of one partition, inside a transaction.
pub(super) async fn held_in(
    tx: &mut Tx,
    partition: &PartitionKey,
    id: MemoryId,
) -> Result<Option<Memory>, StoreError> {
    held_in_any(tx, std::slice::from_ref(partition), id).await
}

/// One memory of one of several partitions, as far as they are of the transaction's organisation.
pub(super) async fn held_in_any(
    tx: &mut Tx,
    partitions: &[PartitionKey],
    id: MemoryId,
) -> Result<Option<Memory>, StoreError> {
    for group in by_org(partitions) {
        if let Some(memory) = held(&mut tx.link, &group, &[id]).await?.pop() {
            return Ok(Some(memory));
        }
    }
    Ok(None)
}

/// Empties every column that could hold a text of the writer's. Partition, hash and revision stay: the tombstone.
async fn forget(
    tx: &mut Tx,
    group: &OfOrg<'_>,
    id: MemoryId,
    at: Timestamp,
) -> Result<Option<PartitionKey>, StoreError> {
    let sql = "WITH gone AS (
                 UPDATE memories SET content = '', labels = '[]', valid_until = NULL, observed_at = NULL, source_kind = '', slot = NULL,
                        review = NULL, supersedes = '{}', source_session = NULL, source_turn = NULL, metadata = NULL, members = '{}', words = '{}',
                        pinned = FALSE, status = 'forgotten', updated_at = $5, embedding_model = NULL, tokens_o200k = 0,
                        tokens_cl100k = 0, tokens_claude = 0, tokens_unknown = 0
                 WHERE org = $1 AND id = $4 AND status <> 'forgotten'
                   AND (agent, user_id) IN (SELECT p.agent, p.user_id FROM unnest($2, $3) AS p (agent, user_id))
                 RETURNING org, agent, user_id, id),
               vectors AS (DELETE FROM memory_vectors v USING gone WHERE v.org = gone.org AND v.memory = gone.id)
               SELECT org, agent, user_id FROM gone";
    let statement = sqlx::query(sql)
        .bind(org_uuid(group.org))
        .bind(group.agents.as_slice())
        .bind(group.users.as_slice())
        .bind(memory_uuid(id))
        .bind(micros(at));
    let Some(row) = tx.row(statement).await? else {
        return Ok(None);
    };
    let partition = Columns::of(&row, "memory").partition()?;
    relations::forget(tx, &partition, id).await?;
    let means = Means {
        forgets: true,
        ..Means::default()
    };
    tx.changed_so(ChangeKind::Memory(partition.clone(), id), means);
    Ok(Some(partition))
}

/// Puts a changed memory into the feed.
pub(super) fn changed(tx: &mut Tx, partition: &PartitionKey, id: MemoryId) -> super::tx::Mark {
    tx.changed(ChangeKind::Memory(partition.clone(), id))
}

/// Gives the constraints of a memory's row their meaning.
pub(super) fn row_constraint(fault: Fault) -> StoreError {
    super::error::constraint(fault, "memory", "agent")
}
