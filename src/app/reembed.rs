//! After a change of the embedder: gives every memory a vector of the configured model, partition by partition, while the built-in embedder
//! serves those that are not done. It can be stopped at any point; what lacks a vector is found again by asking the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::memory::embedder::EmbedError;
use crate::memory::{Embedding, PartitionKey};
use crate::store::{NewEmbedding, StoreError, Unembedded};

use super::App;

/// How often the store is asked again: another process with another configuration may have written.
const PAUSE: Duration = Duration::from_secs(3_600);
/// The first pause after a failure, doubled each time, and the longest.
const RETRY: Duration = Duration::from_secs(5);
const LONGEST_RETRY: Duration = Duration::from_secs(300);
/// How often progress is logged.
const REPORT: Duration = Duration::from_secs(10);
/// A text that every embedder takes: if it is refused, the embedder is at fault and not the memories.
const PROBE: &str = "Memories are embedded again.";

/// Why a round broke off.
#[derive(Debug, thiserror::Error)]
enum RoundError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Embed(#[from] EmbedError),
}

pub(super) async fn follow(app: App) {
    let mut retry = RETRY;
    loop {
        let ended = tokio::select! {
            ended = Round::begin(&app) => ended,
            () = app.tasks.stopping() => return,
        };
        let pause = match ended {
            Ok(()) => {
                retry = RETRY;
                PAUSE
            }
            Err(error) => {
                let seconds = retry.as_secs();
                tracing::warn!("embedding memories again: {error}; tried again in {seconds} s");
                let next = (retry * 2).min(LONGEST_RETRY);
                std::mem::replace(&mut retry, next)
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = app.tasks.stopping() => return,
        }
    }
}

impl App {
    /// Learns from the store which partitions lack vectors of the configured embedder, so that the others are searched by it. Until then
    /// the built-in embedder serves all. Returns how many memories of which partitions lack one.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn know_spaces(&self) -> Result<Vec<(PartitionKey, u64)>, StoreError> {
        let spaces = self.index.spaces();
        let behind = self.store.unembedded_partitions(spaces.wanted()).await?;
        spaces.set_behind(behind.iter().map(|(key, _)| key.clone()).collect());
        self.index.respace();
        Ok(behind)
    }
}

/// One walk over everything that lacks a vector.
struct Round<'a> {
    app: &'a App,
    model: Arc<str>,
    total: u64,
    left: u64,
    reported: Instant,
}

impl<'a> Round<'a> {
    async fn begin(app: &'a App) -> Result<(), RoundError> {
        let model = Arc::clone(app.index.spaces().wanted());
        let behind = app.know_spaces().await?;
        let total = behind.iter().map(|(_, count)| count).sum();
        let mut round = Self {
            app,
            model,
            total,
            left: total,
            reported: Instant::now(),
        };
        round.tell();
        if total > 0 {
            let (partitions, model) = (behind.len(), &round.model);
            tracing::info!(
                "{total} memories of {partitions} partitions are to be embedded with {model}"
            );
        }
        for (partition, _) in behind {
            round.partition(&partition).await?;
            app.index.spaces().completed(&partition);
            app.index.respace_one(&partition);
        }
        if total > 0 {
            tracing::info!("every memory is embedded with {}", round.model);
        }
        round.left = 0;
        round.tell();
        Ok(())
    }

    async fn partition(&mut self, partition: &PartitionKey) -> Result<(), RoundError> {
        let (store, batch) = (&self.app.store, self.app.embedder.batch().max(1));
        let mut after = None;
        loop {
            let page = store
                .unembedded(partition, &self.model, after, batch)
                .await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some(last.id);
            let vectors = self.embed(&page).await?;
            let new = page
                .iter()
                .zip(vectors)
                .map(|(memory, vector)| NewEmbedding {
                    id: memory.id,
                    content_hash: memory.content_hash,
                    embedding: Embedding {
                        model: Arc::clone(&self.model),
                        vector: vector.into(),
                    },
                });
            store.set_embeddings(partition, new.collect()).await?;
            self.left = self.left.saturating_sub(page.len() as u64);
            self.tell();
        }
    }

    /// The vectors of a page. A text that the embedder does not take gets the empty vector, which is compared with nothing: it is found by
    /// its words, and does not keep its partition from being done.
    async fn embed(&self, page: &[Unembedded]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let embedder = &self.app.embedder;
        let texts: Vec<&str> = page.iter().map(|memory| &*memory.content).collect();
        let together = embedder.embed(&texts).await;
        if together != Err(EmbedError::REFUSED) {
            return together.and_then(|vectors| counted(vectors, texts.len()));
        }
        embedder.embed(&[PROBE]).await?;
        let mut vectors = Vec::with_capacity(texts.len());
        for text in texts {
            match embedder.embed(&[text]).await {
                Ok(alone) => vectors.extend(counted(alone, 1)?),
                Err(EmbedError::REFUSED) => vectors.push(Vec::new()),
                Err(error) => return Err(error),
            }
        }
        Ok(vectors)
    }

    fn tell(&mut self) {
        let (left, total) = (self.left, self.total);
        let gauge = &self.app.metrics.memories_to_embed;
        gauge.set(i64::try_from(left).unwrap_or(i64::MAX));
        if left > 0 && self.reported.elapsed() >= REPORT {
            self.reported = Instant::now();
            tracing::info!("{} of {total} memories are embedded", total - left);
        }
    }
}

fn counted(vectors: Vec<Vec<f32>>, texts: usize) -> Result<Vec<Vec<f32>>, EmbedError> {
    let count = EmbedError("the embedder answered with another number of vectors");
    (vectors.len() == texts).then_some(vectors).ok_or(count)
}
