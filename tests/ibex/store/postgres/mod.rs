//! PostgreSQL: the contract, and what is this engine's own.

mod databases;
mod schema;
mod isolation;
mod moving;
mod order;
mod outages;
mod search;

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use uuid::Uuid;

use ibex::ids::MemoryId;
use ibex::memory::Memory;

use super::contract::{Backend, Uncommitted, store_contract};
use super::fixtures::Engine;
use databases::Postgres;

store_contract!(super::Postgres);

#[async_trait]
impl Backend for Postgres {
    async fn open(&self) -> Arc<dyn Engine> {
        self.connect().await
    }

    async fn skip_to_revision(&self, revision: i64) {
        let skip = sqlx::query("UPDATE ibex.feed SET revision = $1").bind(revision);
        skip.execute(&mut self.raw().await).await.unwrap();
    }

    async fn rows(&self, table: &str) -> i64 {
        let count = format!("SELECT count(*) FROM ibex.{table}");
        let mut rows = 0;
        for mut own in self.of_each().await {
            let row = sqlx::query(AssertSqlSafe(count.clone()))
                .fetch_one(&mut own)
                .await;
            rows += row.unwrap().get::<i64, _>(0);
        }
        rows
    }

    async fn is_tombstone(&self, written: &Memory, at: Timestamp, revision: i64) -> bool {
        let sql = "SELECT status = 'forgotten' AND updated_at = $2 AND content_hash = $3 AND content = '' AND labels = '[]'
                          AND metadata IS NULL AND members = '{}' AND words = '{}' AND embedding_model IS NULL AND slot IS NULL AND review IS NULL
                          AND source_kind = '' AND source_session IS NULL AND source_turn IS NULL AND supersedes = '{}' AND revision = $4
                          AND NOT EXISTS (SELECT 1 FROM ibex.memory_vectors v WHERE v.memory = m.id)
                          AND NOT EXISTS (SELECT 1 FROM ibex.memory_words w WHERE w.memory = m.id)
                   FROM ibex.memories m WHERE id = $1";
        let mut raw = self.of(written.partition.org).await;
        let row = sqlx::query(sql)
            .bind(uuid(written.id))
            .bind(at.as_microsecond())
            .bind(written.content_hash)
            .bind(revision)
            .fetch_one(&mut raw)
            .await;
        row.unwrap().get(0)
    }

    async fn retrieved_at(&self, id: MemoryId) -> Option<Timestamp> {
        for mut own in self.of_each().await {
            let used =
                sqlx::query("SELECT retrieved_at FROM ibex.memories WHERE id = $1").bind(uuid(id));
            if let Some(row) = used.fetch_optional(&mut own).await.unwrap() {
                let micros: Option<i64> = row.get(0);
                return micros.map(|micros| Timestamp::from_microsecond(micros).unwrap());
            }
        }
        panic!("no such memory")
    }

    async fn raise_fences(&self, revision: i64) -> Box<dyn Uncommitted> {
        let mut writers = self.of_each().await;
        for (place, writer) in writers.iter_mut().enumerate() {
            writer.execute("BEGIN").await.unwrap();
            if place == 0 {
                writer
                    .execute("UPDATE ibex.feed SET revision = revision")
                    .await
                    .unwrap();
            }
            let lock =
                "SELECT pg_advisory_xact_lock(ibex.lock_of(current_setting('ibex.org')::uuid))";
            writer.execute(lock).await.unwrap();
            let raise = sqlx::query("UPDATE ibex.forget_fences SET revision = $1").bind(revision);
            raise.execute(&mut *writer).await.unwrap();
        }
        Box::new(Writers(writers))
    }
}

fn uuid(id: MemoryId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

/// Transactions that hold the feed and every organisation's lock.
struct Writers(Vec<PgConnection>);

#[async_trait]
impl Uncommitted for Writers {
    async fn commit(self: Box<Self>) {
        for mut writer in self.0 {
            writer.execute("COMMIT").await.unwrap();
            writer.close().await.unwrap();
        }
    }
}
