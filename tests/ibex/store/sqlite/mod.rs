//! The contract over the embedded engine.

mod files;

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use ibex::ids::MemoryId;
use ibex::memory::Memory;

use super::contract::{Backend, Uncommitted, store_contract};
use super::fixtures::Engine;
pub(crate) use files::Files;

store_contract!(super::Files);

#[async_trait]
impl Backend for Files {
    async fn open(&self) -> Arc<dyn Engine> {
        Self::open(self)
    }

    async fn skip_to_revision(&self, revision: i64) {
        let skip = "UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'changes'";
        self.raw().execute(skip, [revision]).unwrap();
    }

    async fn rows(&self, table: &str) -> i64 {
        let count = format!("SELECT count(*) FROM {table}");
        let row = |row: &rusqlite::Row<'_>| row.get(0);
        self.raw().query_row(&count, [], row).unwrap()
    }

    async fn is_tombstone(&self, written: &Memory, at: Timestamp, revision: i64) -> bool {
        self.raw()
            .query_row(
                "SELECT status = 'forgotten' AND updated_at = ?2 AND content_hash = ?3 AND content = '' AND labels = '[]'
                        AND metadata IS NULL AND embedding IS NULL AND slot IS NULL AND review IS NULL AND source_kind = ''
                        AND source_session IS NULL AND source_turn IS NULL AND revision = ?4 FROM memories WHERE id = ?1",
                rusqlite::params![
                    written.id.as_bytes(),
                    at.as_microsecond(),
                    written.content_hash,
                    revision
                ],
                |row| row.get(0),
            )
            .unwrap()
    }

    async fn retrieved_at(&self, id: MemoryId) -> Option<Timestamp> {
        let used = "SELECT retrieved_at FROM memories WHERE id = ?1";
        let micros: Option<i64> = self
            .raw()
            .query_row(used, [id.as_bytes()], |row| row.get(0))
            .unwrap();
        micros.map(|micros| Timestamp::from_microsecond(micros).unwrap())
    }

    async fn raise_fences(&self, revision: i64) -> Box<dyn Uncommitted> {
        let writer = self.raw();
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        let raise = "UPDATE forget_fences SET revision = ?1";
        writer.execute(raise, [revision]).unwrap();
        Box::new(Writer(writer))
    }
}

/// A transaction that holds the write lock.
struct Writer(rusqlite::Connection);

#[async_trait]
impl Uncommitted for Writer {
    async fn commit(self: Box<Self>) {
        self.0.execute_batch("COMMIT").unwrap();
    }
}
