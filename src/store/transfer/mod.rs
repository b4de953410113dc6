//! Moving a whole store to another engine: every tenant row, table by table, as the same values in either.
//!
//! ```text
//! tables    which tables and columns there are, and what their values are
//! cell      a value, its JSON form, and its canonical bytes
//! digest    a table's sum over its rows, whatever their order
//! ```
//!
//! The change feed and the notes on runs are an engine's own and stay behind.

mod cell;
mod digest;
mod tables;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::StoreError;
use crate::ids::OrgId;

pub use cell::{Cell, Row, cell_from_json, cell_to_json};
pub use digest::{Sum, Sums};
pub use tables::{Column, Kind, Parent, TABLES, Table, table};

/// Rows in one batch.
pub const BATCH: usize = 200;

/// Names an export: a load of the same export goes on where an earlier one stopped.
pub type ExportId = [u8; 16];

/// Rows of one table and one organisation.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Whose they are.
    pub org: OrgId,
    /// Of which table.
    pub table: &'static Table,
    /// The rows, with one cell a column.
    pub rows: Vec<Row>,
}

/// How far a load has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Batches that are stored.
    pub batches: u64,
    /// Whether it is over.
    pub finished: bool,
}

/// A store that can be moved.
#[async_trait]
pub trait TransferStore: Send + Sync {
    /// Sends every row of `orgs` (all there are, when none is named), organisation by organisation in the order of [`TABLES`], each
    /// as it was at one moment. Answers a revision that no row's is above. Ends early, without an error, when nobody receives any more.
    async fn dump(&self, orgs: Vec<OrgId>, to: mpsc::Sender<Batch>) -> Result<i64, StoreError>;

    /// How far a load of `export` has come; nothing when none was begun.
    async fn load_standing(&self, export: ExportId) -> Result<Option<Standing>, StoreError>;

    /// Stores a batch, the `number`th of its export, and that it is stored, in one transaction. One that is stored already changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when a row is there already.
    async fn load(&self, export: ExportId, number: u64, batch: Batch) -> Result<(), StoreError>;

    /// Notes the end of a load: from now on the store's revision is above `revision`, and whoever follows its changes reads everything anew.
    async fn end_load(&self, export: ExportId, revision: i64) -> Result<(), StoreError>;
}
