//! Memories: what is written and what is asked. Every statement names organisation, agent and user.

mod list;
mod embeddings;
mod row;
mod refined;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, params};

use super::refinery::relations;
use super::rows::{Columns, all, limit, micros, snapshot, user_column};
use super::{SqliteStore, fences};
use crate::ids::MemoryId;
use crate::memory::{Memory, PartitionKey};
use crate::store::{ListFilter, ListPage, MemoryStore, StoreError};

pub(super) use refined::{
    bury, held_back, insert_row, is_tombstoned, slot_mates, update_row, written_again,
};
use row::{COLUMNS, Reader};

#[async_trait]
impl MemoryStore for SqliteStore {
    async fn duplicate_of(&self, memory: &Memory) -> Result<Option<MemoryId>, StoreError> {
        let memory = memory.clone();
        self.read(move |conn| {
            let same = same_text(conn, &memory)?;
            Ok(same
                .filter(|same| same.is_repeated_by(&memory))
                .map(|same| same.id))
        })
        .await
    }

    async fn memory(
        &self,
        partitions: &[PartitionKey],
        id: MemoryId,
    ) -> Result<Option<Memory>, StoreError> {
        let partitions = partitions.to_vec();
        self.read(move |conn| held(conn, &partitions, id)).await
    }

    async fn list_memories(
        &self,
        partitions: &[PartitionKey],
        filter: ListFilter,
    ) -> Result<ListPage, StoreError> {
        let partitions = partitions.to_vec();
        self.read(move |conn| list(conn, &partitions, &filter))
            .await
    }

    async fn partition_memories(
        &self,
        partition: &PartitionKey,
        after: Option<MemoryId>,
        limit: usize,
    ) -> Result<Vec<Memory>, StoreError> {
        let partition = partition.clone();
        self.read(move |conn| active(conn, &partition, after, limit))
            .await
    }

    async fn forget_memory(
        &self,
        partitions: &[PartitionKey],
        id: MemoryId,
        at: Timestamp,
    ) -> Result<Option<PartitionKey>, StoreError> {
        let (partitions, scrub) = (partitions.to_vec(), self.writer.scrub());
        let work = move |conn: &Connection| {
            let forgotten = forget_in(conn, partitions, id, at)?;
            if forgotten.is_some() {
                scrub.request();
            }
            Ok(forgotten)
        };
        self.write(work).await
    }

    async fn bump_retrieved(
        &self,
        partitions: &[PartitionKey],
        ids: Vec<MemoryId>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.writer.count_retrieved(partitions.to_vec(), ids, at)
    }

    async fn memories_by_id(
        &self,
        partitions: &[PartitionKey],
        ids: &[MemoryId],
    ) -> Result<Vec<Memory>, StoreError> {
        let (partitions, ids) = (partitions.to_vec(), ids.to_vec());
        self.read(move |conn| {
            let snapshot = snapshot(conn)?;
            ids.into_iter()
                .filter_map(|id| held(&snapshot, &partitions, id).transpose())
                .collect()
        })
        .await
    }

    async fn forget_fence(&self, partitions: &[PartitionKey]) -> Result<i64, StoreError> {
        self.fences.newest(partitions)
    }

    async fn count_memories(&self, partition: &PartitionKey) -> Result<u64, StoreError> {
        let partition = partition.clone();
        self.read(move |conn| count(conn, &partition)).await
    }
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
pub(super) fn same_text(
    conn: &Connection,
    memory: &Memory,
) -> Result<Option<SameText>, StoreError> {
    let sql = "SELECT id, valid_from, valid_until, created_at FROM memories
               WHERE org = ?1 AND agent = ?2 AND user = ?3 AND content_hash = ?4 AND status = 'active'";
    let PartitionKey { org, agent, user } = &memory.partition;
    let values = params![
        org.as_bytes(),
        agent.as_bytes(),
        user_column(user.as_ref()),
        memory.content_hash
    ];
    let found = all(conn, sql, values, |row| {
        let mut columns = Columns::of(row, "memory");
        Ok(SameText {
            id: MemoryId::from_bytes(columns.take()?),
            from: columns.time()?,
            until: columns.optional_time()?,
            created_at: columns.time()?,
        })
    })?;
    Ok(found.into_iter().find(|same| same.id != memory.id))
}

pub(super) fn held(
    conn: &Connection,
    partitions: &[PartitionKey],
    id: MemoryId,
) -> Result<Option<Memory>, StoreError> {
    partitions
        .iter()
        .find_map(|partition| by_id(conn, partition, id).transpose())
        .transpose()
}

fn by_id(
    conn: &Connection,
    partition: &PartitionKey,
    id: MemoryId,
) -> Result<Option<Memory>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM memories WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4 AND status <> 'forgotten'"
    );
    let (org, agent, user) = (
        partition.org,
        partition.agent,
        user_column(partition.user.as_ref()),
    );
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query(params![
        org.as_bytes(),
        agent.as_bytes(),
        user,
        id.as_bytes()
    ])?;
    rows.next()?
        .map(|row| Reader::default().memory(row))
        .transpose()
}

/// One page of the index `memories_by_partition`: the cost of a page does not depend on how many came before it.
fn active(
    conn: &Connection,
    partition: &PartitionKey,
    after: Option<MemoryId>,
    most: usize,
) -> Result<Vec<Memory>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM memories WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id > ?4 AND status = 'active' ORDER BY id LIMIT ?5"
    );
    let (org, agent, user) = (
        partition.org,
        partition.agent,
        user_column(partition.user.as_ref()),
    );
    // Below every identifier, so that the first page needs no statement of its own.
    let after = after.map_or([0; 16], |id| *id.as_bytes());
    let mut select = conn.prepare_cached(&sql)?;
    let mut rows = select.query(params![
        org.as_bytes(),
        agent.as_bytes(),
        user,
        after,
        limit(most)
    ])?;
    let mut reader = Reader::default();
    let mut memories = Vec::new();
    while let Some(row) = rows.next()? {
        memories.push(reader.memory(row)?);
    }
    Ok(memories)
}

fn count(conn: &Connection, partition: &PartitionKey) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM memories WHERE org = ?1 AND agent = ?2 AND user = ?3 AND status = 'active'";
    let (org, agent, user) = (
        partition.org,
        partition.agent,
        user_column(partition.user.as_ref()),
    );
    let count: i64 = conn
        .prepare_cached(sql)?
        .query_row(params![org.as_bytes(), agent.as_bytes(), user], |row| {
            row.get(0)
        })?;
    Ok(count.cast_unsigned())
}

/// The newest rows of each partition, merged: identifiers are time-ordered, so they sort like the creation times.
fn list(
    conn: &Connection,
    partitions: &[PartitionKey],
    filter: &ListFilter,
) -> Result<ListPage, StoreError> {
    let mut memories = Vec::new();
    for partition in partitions {
        list::page_of(conn, partition, filter, &mut memories)?;
    }
    memories.sort_unstable_by_key(|memory| std::cmp::Reverse(memory.id));
    memories.dedup_by_key(|memory| memory.id);
    let has_more = memories.len() > filter.limit;
    memories.truncate(filter.limit);
    Ok(ListPage { memories, has_more })
}

fn forget_in(
    conn: &Connection,
    partitions: Vec<PartitionKey>,
    id: MemoryId,
    at: Timestamp,
) -> Result<Option<PartitionKey>, StoreError> {
    for partition in partitions {
        if forget(conn, &partition, id, at)? {
            return Ok(Some(partition));
        }
    }
    Ok(None)
}

/// Empties every column that could hold a text of the writer's. Partition, hash and revision stay: the tombstone.
fn forget(
    conn: &Connection,
    partition: &PartitionKey,
    id: MemoryId,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let sql = "UPDATE memories SET content = '', labels = '[]', valid_until = NULL, observed_at = NULL, source_kind = '',
                      slot = NULL, review = NULL, supersedes = x'', source_session = NULL, source_turn = NULL, metadata = NULL, pinned = FALSE, status = 'forgotten', updated_at = ?5,
                      embedding_model = NULL, embedding = NULL, tokens_o200k = 0, tokens_cl100k = 0, tokens_claude = 0, tokens_unknown = 0
               WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4 AND status <> 'forgotten'";
    let (org, agent, user) = (
        partition.org,
        partition.agent,
        user_column(partition.user.as_ref()),
    );
    let erased = conn.prepare_cached(sql)?.execute(params![
        org.as_bytes(),
        agent.as_bytes(),
        user,
        id.as_bytes(),
        micros(at)
    ])?;
    if erased == 0 {
        return Ok(false);
    }
    relations::forget(conn, partition, id)?;
    let revision = relations::changed(conn, partition, id)?;
    fences::raise(conn, partition, revision)?;
    Ok(true)
}
