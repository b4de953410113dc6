//! What a change of the embedder asks of a store: which memories lack a vector of the configured model, and a way to give them one that
//! changes nothing else about them.

use std::sync::Arc;

use async_trait::async_trait;

use super::StoreError;
use crate::ids::MemoryId;
use crate::memory::{Embedding, PartitionKey};

/// A memory that lacks a vector of some model.
#[derive(Debug, Clone)]
pub struct Unembedded {
    /// Which.
    pub id: MemoryId,
    /// Its text.
    pub content: Arc<str>,
    /// What tells whether the text is still the same when the vector is there.
    pub content_hash: [u8; 32],
}

/// A new vector of a memory.
#[derive(Debug, Clone)]
pub struct NewEmbedding {
    /// Which.
    pub id: MemoryId,
    /// The text that was embedded.
    pub content_hash: [u8; 32],
    /// The vector.
    pub embedding: Embedding,
}

/// Vectors apart from their memories.
#[async_trait]
pub trait EmbeddingStore: Send + Sync {
    /// The partitions with active memories that lack a vector of `model`, and how many. It reads every row: once in a while, not more.
    async fn unembedded_partitions(
        &self,
        model: &str,
    ) -> Result<Vec<(PartitionKey, u64)>, StoreError>;
    /// The first `limit` active memories of a partition after `after` that lack a vector of `model`, in the order of their identifiers.
    async fn unembedded(
        &self,
        partition: &PartitionKey,
        model: &str,
        after: Option<MemoryId>,
        limit: usize,
    ) -> Result<Vec<Unembedded>, StoreError>;
    /// Replaces vectors, in one transaction. A memory that is no longer active or says something else by now keeps what it has. Each
    /// replacement is in the change feed; `updated_at` stays. Returns how many were replaced.
    async fn set_embeddings(
        &self,
        partition: &PartitionKey,
        vectors: Vec<NewEmbedding>,
    ) -> Result<u64, StoreError>;
}
