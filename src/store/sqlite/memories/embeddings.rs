//! Vectors apart from their memories: what lacks one of a model, and replacing it.

use async_trait::async_trait;
use rusqlite::{Connection, params};

use super::row::vector_bytes;
use crate::ids::MemoryId;
use crate::memory::PartitionKey;
use crate::store::sqlite::rows::{Columns, limit, user_column};
use crate::store::sqlite::{SqliteStore, feed};
use crate::store::{ChangeKind, EmbeddingStore, NewEmbedding, StoreError, Unembedded};

#[async_trait]
impl EmbeddingStore for SqliteStore {
    async fn unembedded_partitions(
        &self,
        model: &str,
    ) -> Result<Vec<(PartitionKey, u64)>, StoreError> {
        let model = model.to_owned();
        self.read(move |conn| partitions(conn, &model)).await
    }

    async fn unembedded(
        &self,
        partition: &PartitionKey,
        model: &str,
        after: Option<MemoryId>,
        limit: usize,
    ) -> Result<Vec<Unembedded>, StoreError> {
        let (partition, model) = (partition.clone(), model.to_owned());
        self.read(move |conn| unembedded(conn, &partition, &model, after, limit))
            .await
    }

    async fn set_embeddings(
        &self,
        partition: &PartitionKey,
        vectors: Vec<NewEmbedding>,
    ) -> Result<u64, StoreError> {
        let partition = partition.clone();
        self.write(move |conn| {
            let mut replaced = 0;
            for vector in &vectors {
                replaced += u64::from(set(conn, &partition, vector)?);
            }
            Ok(replaced)
        })
        .await
    }
}

fn partitions(conn: &Connection, model: &str) -> Result<Vec<(PartitionKey, u64)>, StoreError> {
    let sql = "SELECT org, agent, user, count(*) FROM memories WHERE status = 'active' AND embedding_model IS NOT ?1
               GROUP BY org, agent, user";
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query([model])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let mut columns = Columns::of(row, "memory");
        let partition = PartitionKey {
            org: crate::ids::OrgId::from_bytes(columns.take()?),
            agent: crate::ids::AgentId::from_bytes(columns.take()?),
            user: columns.user()?,
        };
        let count: i64 = columns.take()?;
        found.push((partition, count.cast_unsigned()));
    }
    Ok(found)
}

fn unembedded(
    conn: &Connection,
    partition: &PartitionKey,
    model: &str,
    after: Option<MemoryId>,
    most: usize,
) -> Result<Vec<Unembedded>, StoreError> {
    let sql = "SELECT id, content, content_hash FROM memories WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id > ?4
                 AND status = 'active' AND embedding_model IS NOT ?5 ORDER BY id LIMIT ?6";
    let (org, agent, user) = (
        partition.org,
        partition.agent,
        user_column(partition.user.as_ref()),
    );
    let after = after.map_or([0; 16], |id| *id.as_bytes());
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query(params![
        org.as_bytes(),
        agent.as_bytes(),
        user,
        after,
        model,
        limit(most)
    ])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let mut columns = Columns::of(row, "memory");
        found.push(Unembedded {
            id: MemoryId::from_bytes(columns.take()?),
            content: columns.take()?,
            content_hash: columns.take()?,
        });
    }
    Ok(found)
}

fn set(
    conn: &Connection,
    partition: &PartitionKey,
    new: &NewEmbedding,
) -> Result<bool, StoreError> {
    let sql = "UPDATE memories SET embedding_model = ?6, embedding = ?7
               WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4 AND content_hash = ?5 AND status = 'active'";
    let (org, agent, user) = (
        partition.org,
        partition.agent,
        user_column(partition.user.as_ref()),
    );
    let changed = conn.prepare_cached(sql)?.execute(params![
        org.as_bytes(),
        agent.as_bytes(),
        user,
        new.id.as_bytes(),
        new.content_hash,
        new.embedding.model,
        vector_bytes(&new.embedding.vector)
    ])?;
    if changed == 0 {
        return Ok(false);
    }
    let revision = feed::append(conn, &ChangeKind::Memory(partition.clone(), new.id))?;
    let sql =
        "UPDATE memories SET revision = ?5 WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4";
    conn.prepare_cached(sql)?.execute(params![
        org.as_bytes(),
        agent.as_bytes(),
        user,
        new.id.as_bytes(),
        revision
    ])?;
    Ok(true)
}
