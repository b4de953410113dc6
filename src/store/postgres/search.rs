//! Candidates for the cold branch of a partition that is not loaded into the process.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::PostgresStore;
use super::memories::{COLUMNS, FROM, numbers, read};
use super::rows::{Columns, composed, limit, memory_uuids, micros, scope, stored_text};
use crate::ids::MemoryId;
use crate::memory::search::{self, CandidateStore, Wanted};
use crate::memory::{Memory, PartitionKey};
use crate::store::StoreError;

/// How many times as large as was counted a partition is taken to be that is not counted to its end.
const BEYOND: u64 = 8;

/// How long it is taken for granted which partitions are large.
const COUNTED_FOR: Duration = Duration::from_secs(60);
/// Partitions of which that is kept.
const COUNTED: u64 = 10_000;

/// Which partitions the index is asked for.
pub(super) type Large = moka::sync::Cache<PartitionKey, bool>;

/// An empty one.
pub(super) fn large() -> Large {
    Large::builder()
        .max_capacity(COUNTED)
        .time_to_live(COUNTED_FOR)
        .build()
}

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Candidates<'a> {
    /// The question's vector, with the name of its model: only vectors of that model are compared.
    pub vector: Option<(&'a str, &'a [f32])>,
    /// Terms as [`lexemes`] gives them, any of which may occur.
    pub words: &'a [String],
    /// Most memories by vector, and most by words.
    pub limit: usize,
    /// The time at which the memories have to be valid.
    pub now: Timestamp,
}

impl PostgresStore {
    /// Active memories of a partition that are valid now: the nearest by cosine and those with the rarest of the words, each once and in
    /// no order. At most twice the limit.
    ///
    /// Up to `postgres.exact_rows` memories, and as long as that is faster, every vector is compared. Beyond it the index over the vectors of
    /// this dimension is asked, and what it does not find is looked for one by one.
    ///
    /// # Errors
    /// When the database does not answer in time, or refuses the vector.
    pub async fn search_candidates(
        &self,
        partition: &PartitionKey,
        wanted: Candidates<'_>,
    ) -> Result<Vec<Memory>, StoreError> {
        // Each is work for one core of the database: at the same time, on two connections.
        let (by_words, by_vector) = tokio::join!(
            self.chosen(
                partition,
                Candidates {
                    vector: None,
                    ..wanted
                }
            ),
            self.chosen(
                partition,
                Candidates {
                    words: &[],
                    ..wanted
                }
            )
        );
        let mut found = by_words?;
        let known: HashSet<MemoryId> = found.iter().map(|memory| memory.id).collect();
        found.extend(by_vector?.into_iter().filter(|m| !known.contains(&m.id)));
        Ok(found)
    }

    /// The candidates by what is wanted of vector and words.
    async fn chosen(
        &self,
        partition: &PartitionKey,
        wanted: Candidates<'_>,
    ) -> Result<Vec<Memory>, StoreError> {
        if wanted.vector.is_none() && wanted.words.is_empty() {
            return Ok(Vec::new());
        }
        let sql = format!(
            "SELECT {COLUMNS} FROM (SELECT DISTINCT c AS id FROM candidates($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS c) AS found
             JOIN {FROM} ON m.id = found.id WHERE m.org = $1 AND m.agent = $2 AND m.user_id = $3 AND m.status = 'active'"
        );
        let (org, agent, user) = scope(partition);
        let (model, vector) = wanted.vector.unwrap_or_default();
        let by_index = !vector.is_empty()
            && self
                .is_indexed_faster(partition, vector.len(), wanted.limit)
                .await?;
        let statement = composed(sql)
            .bind(org)
            .bind(agent)
            .bind(user)
            .bind(stored_text(model))
            .bind(vector)
            .bind(numbers(partition, wanted.words))
            .bind(micros(wanted.now))
            .bind(limit(wanted.limit))
            .bind(by_index)
            .bind(i64::from(self.ef_search));
        let mut snapshot = self.snapshot(partition.org).await?;
        read(&snapshot.rows(statement).await?)
    }

    /// Whether to ask the index for a partition. It is counted once in a while: a partition does not grow much in between.
    async fn is_indexed_faster(
        &self,
        partition: &PartitionKey,
        dimensions: usize,
        most: usize,
    ) -> Result<bool, StoreError> {
        if let Some(known) = self.large.get(partition) {
            return Ok(known);
        }
        let (org, agent, user) = scope(partition);
        let faster = || {
            sqlx::query("SELECT is_indexed_faster($1, $2, $3, $4, $5, $6)")
                .bind(org)
                .bind(agent)
                .bind(user)
                .bind(limit(most))
                .bind(limit(self.exact_rows))
                .bind(limit(dimensions))
        };
        let rows = self.links.ask(faster).await?;
        let row = rows.first().ok_or(StoreError::Damaged("partition"))?;
        let faster = Columns::of(row, "partition").take()?;
        self.large.insert(partition.clone(), faster);
        Ok(faster)
    }

    /// What is known of a partition besides its candidates: how large it is, how many of its memories have each of the words, and how near
    /// a memory of it usually is.
    async fn background(
        &self,
        partition: &PartitionKey,
        wanted: Candidates<'_>,
    ) -> Result<search::Candidates, StoreError> {
        let cap = self.exact_rows.saturating_add(1);
        let (org, agent, user) = scope(partition);
        let (model, vector) = wanted.vector.unwrap_or_default();
        let background = || {
            sqlx::query(
                "SELECT size, held, mean_cosine FROM background($1, $2, $3, $4, $5, $6, $7)",
            )
            .bind(org)
            .bind(agent)
            .bind(user)
            .bind(stored_text(model))
            .bind(vector)
            .bind(numbers(partition, wanted.words))
            .bind(limit(cap))
        };
        let rows = self.links.ask(background).await?;
        let row = rows.first().ok_or(StoreError::Damaged("partition"))?;
        let mut columns = Columns::of(row, "partition");
        let size: u64 = columns.number()?;
        let held: Vec<i64> = columns.take()?;
        Ok(search::Candidates {
            documents: if size >= cap as u64 {
                size.saturating_mul(BEYOND)
            } else {
                size
            },
            held: held
                .into_iter()
                .map(|held| u32::try_from(held).unwrap_or(u32::MAX))
                .collect(),
            mean_cosine: columns.take()?,
            ..search::Candidates::default()
        })
    }

    /// How many active memories a partition holds, counted no further than `cap`.
    ///
    /// # Errors
    /// When the database does not answer in time.
    pub async fn partition_size(
        &self,
        partition: &PartitionKey,
        cap: usize,
    ) -> Result<u64, StoreError> {
        let (org, agent, user): (Uuid, Uuid, &str) = scope(partition);
        let size = || {
            sqlx::query("SELECT partition_size($1, $2, $3, $4)")
                .bind(org)
                .bind(agent)
                .bind(user)
                .bind(limit(cap))
        };
        let rows = self.links.ask(size).await?;
        let row = rows.first().ok_or(StoreError::Damaged("partition"))?;
        Columns::of(row, "partition").number()
    }
}

#[async_trait]
impl CandidateStore for PostgresStore {
    async fn candidates(
        &self,
        partition: &PartitionKey,
        wanted: &Wanted,
    ) -> Result<search::Candidates, StoreError> {
        let asked = Candidates {
            vector: wanted.vector.as_ref().map(|(model, v)| (&**model, &**v)),
            words: &wanted.words,
            limit: wanted.limit,
            now: wanted.now,
        };
        let (memories, background) = tokio::join!(
            self.search_candidates(partition, asked),
            self.background(partition, asked)
        );
        let (memories, background) = (memories?, background?);
        Ok(search::Candidates {
            memories,
            ..background
        })
    }

    async fn standing(
        &self,
        partition: &PartitionKey,
        ids: Option<&[MemoryId]>,
        most: usize,
        now: Timestamp,
    ) -> Result<Vec<Memory>, StoreError> {
        let chosen = if ids.is_some() {
            "SELECT unnest($6::uuid[]) AS id"
        } else {
            // The newest have the largest identifiers.
            "(SELECT id FROM memories WHERE org = $1 AND agent = $2 AND user_id = $3 AND status = 'active' AND pinned
              ORDER BY id DESC LIMIT $5)
             UNION (SELECT id FROM memories WHERE org = $1 AND agent = $2 AND user_id = $3 AND status = 'active'
              ORDER BY id DESC LIMIT $5)"
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM ({chosen}) AS chosen JOIN {FROM} ON m.id = chosen.id
             WHERE m.org = $1 AND m.agent = $2 AND m.user_id = $3 AND m.status = 'active'
               AND m.valid_from <= $4 AND (m.valid_until IS NULL OR m.valid_until > $4) LIMIT 2 * $5"
        );
        let (org, agent, user) = scope(partition);
        let statement = composed(sql)
            .bind(org)
            .bind(agent)
            .bind(user)
            .bind(micros(now))
            .bind(limit(most));
        let statement = match ids {
            Some(ids) => statement.bind(memory_uuids(ids)),
            None => statement,
        };
        let mut snapshot = self.snapshot(partition.org).await?;
        read(&snapshot.rows(statement).await?)
    }

    async fn size(&self, partition: &PartitionKey, most: usize) -> Result<usize, StoreError> {
        let size = self.partition_size(partition, most).await?;
        Ok(usize::try_from(size).unwrap_or(usize::MAX))
    }
}
