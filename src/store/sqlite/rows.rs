//! Values to columns and back.

use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Params, Row, Transaction, TransactionBehavior};

use crate::ids::{MemoryId, UserId};
use crate::store::StoreError;

/// Microseconds since 1970: what every time column holds. Finer digits are cut off.
pub(super) fn micros(time: Timestamp) -> i64 {
    time.as_microsecond()
}

/// The `user` column of a partition: the user, or nothing for agent-wide.
pub(super) fn user_column(user: Option<&UserId>) -> &str {
    user.map_or("", UserId::as_str)
}

/// A `LIMIT`.
pub(super) fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

/// A list of identifiers, one after the other: what [`Columns::ids`] reads.
pub(super) fn id_bytes(ids: &[MemoryId]) -> Vec<u8> {
    ids.iter().flat_map(MemoryId::as_bytes).copied().collect()
}

type Read<T> = fn(&Row<'_>) -> Result<T, StoreError>;

/// The one row that `sql` selects, if there is one.
pub(super) fn one<T>(
    conn: &Connection,
    sql: &str,
    values: impl Params,
    read: Read<T>,
) -> Result<Option<T>, StoreError> {
    conn.prepare_cached(sql)?
        .query_row(values, |row| Ok(read(row)))
        .optional()?
        .transpose()
}

/// Every row that `sql` selects.
pub(super) fn all<T>(
    conn: &Connection,
    sql: &str,
    values: impl Params,
    read: Read<T>,
) -> Result<Vec<T>, StoreError> {
    let mut select = conn.prepare_cached(sql)?;
    let rows = select.query_map(values, |row| Ok(read(row)))?;
    rows.map(|row| row?).collect()
}

/// One read transaction, for statements that must see the same state.
pub(super) fn snapshot(conn: &Connection) -> rusqlite::Result<Transaction<'_>> {
    Transaction::new_unchecked(conn, TransactionBehavior::Deferred)
}

/// Reads a row's columns one after the other, in the order of the `SELECT`.
pub(super) struct Columns<'r> {
    row: &'r Row<'r>,
    next: usize,
    what: &'static str,
}

impl<'r> Columns<'r> {
    /// `what` names the row in the error when a column does not hold what it should.
    pub(super) fn of(row: &'r Row<'r>, what: &'static str) -> Self {
        Self { row, next: 0, what }
    }

    pub(super) fn damaged(&self) -> StoreError {
        StoreError::Damaged(self.what)
    }

    pub(super) fn take<T: FromSql>(&mut self) -> Result<T, StoreError> {
        let value = self.row.get(self.next).map_err(|_| self.damaged())?;
        self.next += 1;
        Ok(value)
    }

    /// A text column through `parse`.
    pub(super) fn parsed<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, StoreError> {
        let text: Arc<str> = self.take()?;
        parse(&text).ok_or_else(|| self.damaged())
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, StoreError> {
        let micros = self.take()?;
        Timestamp::from_microsecond(micros).map_err(|_| self.damaged())
    }

    pub(super) fn optional_time(&mut self) -> Result<Option<Timestamp>, StoreError> {
        let micros: Option<i64> = self.take()?;
        micros
            .map(|m| Timestamp::from_microsecond(m).map_err(|_| self.damaged()))
            .transpose()
    }

    /// A list of identifiers.
    pub(super) fn ids(&mut self) -> Result<Vec<MemoryId>, StoreError> {
        let bytes: Vec<u8> = self.take()?;
        let (ids, rest) = bytes.as_chunks::<16>();
        if !rest.is_empty() {
            return Err(self.damaged());
        }
        Ok(ids.iter().map(|id| MemoryId::from_bytes(*id)).collect())
    }

    /// A user column; NULL and '' are both "no user".
    pub(super) fn user(&mut self) -> Result<Option<UserId>, StoreError> {
        let text: Option<Arc<str>> = self.take()?;
        match text.as_deref() {
            None | Some("") => Ok(None),
            Some(user) => user.parse().map(Some).map_err(|_| self.damaged()),
        }
    }
}
