//! Vectors apart from their memories: what lacks one of a model, and replacing it.

use async_trait::async_trait;
use uuid::Uuid;

use super::{changed, in_partition};
use crate::ids::{MemoryId, OrgId};
use crate::memory::PartitionKey;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::rows::{Columns, limit, memory_uuid, org_uuid, stored_text};
use crate::store::postgres::tx::Tx;
use crate::store::{EmbeddingStore, NewEmbedding, StoreError, Unembedded};

/// Organisations that one statement walks.
const WALK: i64 = 256;

#[async_trait]
impl EmbeddingStore for PostgresStore {
    async fn unembedded_partitions(
        &self,
        model: &str,
    ) -> Result<Vec<(PartitionKey, u64)>, StoreError> {
        let mut found = Vec::new();
        let mut behind = Uuid::nil();
        while let Some(last) = self.walked(behind).await? {
            let sql =
                "SELECT of_org, of_agent, of_user, lacking FROM unembedded_partitions($1, $2, $3)";
            let partitions = || {
                sqlx::query(sql)
                    .bind(stored_text(model))
                    .bind(behind)
                    .bind(WALK)
            };
            for row in &self.links.ask(partitions).await? {
                let mut columns = Columns::of(row, "memory");
                found.push((columns.partition()?, columns.number()?));
            }
            behind = last;
        }
        Ok(found)
    }

    async fn unembedded(
        &self,
        partition: &PartitionKey,
        model: &str,
        after: Option<MemoryId>,
        most: usize,
    ) -> Result<Vec<Unembedded>, StoreError> {
        let sql = "SELECT id, content, content_hash FROM memories WHERE org = $1 AND agent = $2 AND user_id = $3 AND id > $4
                     AND status = 'active' AND embedding_model IS DISTINCT FROM $5 ORDER BY id LIMIT $6";
        let page = in_partition(sqlx::query(sql), partition)
            .bind(after.map_or_else(Uuid::nil, memory_uuid))
            .bind(stored_text(model))
            .bind(limit(most));
        let mut snapshot = self.snapshot(partition.org).await?;
        let rows = snapshot.rows(page).await?;
        let lacking = |row| {
            let mut columns = Columns::of(row, "memory");
            Ok(Unembedded {
                id: MemoryId::from_bytes(columns.id()?),
                content: columns.shared_text()?,
                content_hash: columns.bytes()?,
            })
        };
        rows.iter().map(lacking).collect()
    }

    async fn set_embeddings(
        &self,
        partition: &PartitionKey,
        vectors: Vec<NewEmbedding>,
    ) -> Result<u64, StoreError> {
        let mut tx = self.tx(partition.org).await?;
        let mut replaced = 0;
        for vector in &vectors {
            replaced += u64::from(set(&mut tx, partition, vector).await?);
        }
        tx.commit().await?;
        Ok(replaced)
    }
}

impl PostgresStore {
    /// The last of the next organisations behind one; nothing when there is none.
    async fn walked(&self, behind: Uuid) -> Result<Option<Uuid>, StoreError> {
        let sql = "SELECT id FROM (SELECT id FROM orgs WHERE id > $1 ORDER BY id LIMIT $2) AS next ORDER BY id DESC LIMIT 1";
        let rows = self
            .links
            .ask(|| sqlx::query(sql).bind(behind).bind(WALK))
            .await?;
        let last = rows
            .first()
            .map(|row| Columns::of(row, "organisation").id())
            .transpose()?;
        Ok(last.map(|id| org_uuid(OrgId::from_bytes(id))))
    }
}

async fn set(
    tx: &mut Tx,
    partition: &PartitionKey,
    new: &NewEmbedding,
) -> Result<bool, StoreError> {
    let sql = "WITH row AS (UPDATE memories SET embedding_model = $6
                            WHERE org = $1 AND agent = $2 AND user_id = $3 AND id = $4 AND content_hash = $5 AND status = 'active' RETURNING id),
                    gone AS (DELETE FROM memory_vectors v USING row WHERE v.org = $1 AND v.memory = row.id AND $7::real[] IS NULL),
                    put AS (
               INSERT INTO memory_vectors (org, agent, user_id, memory, model, embedding, live)
               SELECT $1, $2, $3, row.id, $6, $7::real[]::vector, TRUE FROM row WHERE $7::real[] IS NOT NULL
               ON CONFLICT (memory) DO UPDATE SET model = excluded.model, embedding = excluded.embedding, live = TRUE)
               SELECT id FROM row";
    let update = in_partition(sqlx::query(sql), partition)
        .bind(memory_uuid(new.id))
        .bind(new.content_hash)
        .bind(stored_text(&new.embedding.model))
        .bind(Some(&*new.embedding.vector).filter(|vector| !vector.is_empty()));
    if tx.row(update).await?.is_none() {
        return Ok(false);
    }
    changed(tx, partition, new.id);
    Ok(true)
}
