//! Candidates for the cold branch of a partition that is not loaded into the process.

use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

use super::PostgresStore;
use super::memories::{COLUMNS, FROM, read};
use super::rows::{Columns, composed, limit, micros, scope, stored_text};
use crate::memory::search::{self, CandidateStore, Wanted, lexemes};
use crate::memory::{Memory, PartitionKey};
use crate::store::StoreError;

/// How many times as large as was counted a partition is taken to be that is not counted to its end.
const BEYOND: u64 = 8;

/// What is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Candidates<'a> {
    /// The question's vector, with the name of its model: only vectors of that model are compared.
    pub vector: Option<(&'a str, &'a [f32])>,
    /// Words, any of which may occur. Scripts that write words without spaces are not taken apart.
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
    /// Up to `postgres.exact_rows` memories every vector is compared; beyond it the index over the vectors of this dimension is asked,
    /// and what it does not find is looked for one by one.
    ///
    /// # Errors
    /// When the database does not answer in time, or refuses the vector.
    pub async fn search_candidates(
        &self,
        partition: &PartitionKey,
        wanted: Candidates<'_>,
    ) -> Result<Vec<Memory>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM (SELECT DISTINCT c AS id FROM candidates($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS c) AS found
             JOIN {FROM} ON m.id = found.id WHERE m.org = $1 AND m.agent = $2 AND m.user_id = $3 AND m.status = 'active'"
        );
        let (org, agent, user) = scope(partition);
        let (model, vector) = wanted.vector.unwrap_or_default();
        let statement = composed(sql)
            .bind(org)
            .bind(agent)
            .bind(user)
            .bind(stored_text(model))
            .bind(vector)
            .bind(stored_text(&wanted.words.join(" ")))
            .bind(micros(wanted.now))
            .bind(limit(wanted.limit))
            .bind(limit(self.exact_rows))
            .bind(i64::from(self.ef_search));
        let mut snapshot = self.snapshot(partition.org).await?;
        read(&snapshot.rows(statement).await?)
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
        let cap = self.exact_rows.saturating_add(1);
        let (memories, size) = tokio::join!(
            self.search_candidates(partition, asked),
            self.partition_size(partition, cap)
        );
        let (memories, size) = (memories?, size?);
        let with_words = memories.iter().filter(|memory| {
            let terms = lexemes(&memory.content);
            wanted.words.iter().any(|word| terms.contains(word))
        });
        let all_words = with_words.count() < wanted.limit;
        Ok(search::Candidates {
            documents: if size >= cap as u64 {
                size.saturating_mul(BEYOND)
            } else {
                size
            },
            mean_cosine: None,
            all_words,
            memories,
        })
    }

    async fn size(&self, partition: &PartitionKey, most: usize) -> Result<usize, StoreError> {
        let size = self.partition_size(partition, most).await?;
        Ok(usize::try_from(size).unwrap_or(usize::MAX))
    }
}
