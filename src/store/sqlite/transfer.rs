//! The whole store out and in: see [`crate::store::transfer`].

use async_trait::async_trait;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params, params_from_iter};
use tokio::sync::mpsc;

use super::error::constraint;
use super::rows::{all, limit, snapshot};
use super::{SqliteStore, feed};
use crate::ids::OrgId;
use crate::store::transfer::{
    BATCH, Batch, Cell, ExportId, Parent, Standing, TABLES, Table, TransferStore,
};
use crate::store::{ChangeKind, StoreError};

#[async_trait]
impl TransferStore for SqliteStore {
    async fn dump(&self, orgs: Vec<OrgId>, to: mpsc::Sender<Batch>) -> Result<i64, StoreError> {
        self.read(move |conn| dump(conn, orgs, &to)).await
    }

    async fn load_standing(&self, export: ExportId) -> Result<Option<Standing>, StoreError> {
        self.read(move |conn| standing(conn, export)).await
    }

    async fn load(&self, export: ExportId, number: u64, batch: Batch) -> Result<(), StoreError> {
        self.write(move |conn| load(conn, export, number, &batch))
            .await
    }

    async fn end_load(&self, export: ExportId, revision: i64) -> Result<(), StoreError> {
        self.write(move |conn| end_load(conn, export, revision))
            .await
    }
}

fn dump(conn: &Connection, orgs: Vec<OrgId>, to: &mpsc::Sender<Batch>) -> Result<i64, StoreError> {
    let snapshot = snapshot(conn)?;
    let revision = feed::newest(&snapshot)?;
    let orgs = if orgs.is_empty() {
        all(&snapshot, "SELECT id FROM orgs ORDER BY id", [], |row| {
            Ok(OrgId::from_bytes(row.get(0)?))
        })?
    } else {
        orgs
    };
    for org in orgs {
        for table in TABLES {
            if !dump_table(&snapshot, org, table, to)? {
                return Ok(revision);
            }
        }
    }
    Ok(revision)
}

/// Sends the rows of one organisation. Answers whether anybody still receives.
fn dump_table(
    conn: &Connection,
    org: OrgId,
    table: &'static Table,
    to: &mpsc::Sender<Batch>,
) -> Result<bool, StoreError> {
    let mut select = conn.prepare(&select_sql(table))?;
    let mut rows = select.query([org.as_bytes()])?;
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let row = rows.next()?;
        let ends = row.is_none();
        if let Some(row) = row {
            batch.push(cells(row, table)?);
        }
        if batch.len() >= BATCH || (ends && !batch.is_empty()) {
            let rows = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
            if to.blocking_send(Batch { org, table, rows }).is_err() {
                return Ok(false);
            }
        }
        if ends {
            return Ok(true);
        }
    }
}

fn select_sql(table: &Table) -> String {
    let name = table.name;
    match table.parent {
        Parent::None => {
            let key = if name == "orgs" { "id" } else { "org" };
            let columns: Vec<&str> = table.columns.iter().map(|c| c.name).collect();
            format!("SELECT {} FROM {name} WHERE {key} = ?1", columns.join(", "))
        }
        Parent::Session => {
            let own = table.columns.iter().skip(4);
            let own: Vec<String> = own.map(|c| format!("t.{}", c.name)).collect();
            format!(
                "SELECT s.org, s.agent, s.user, s.id, {} FROM sessions AS s JOIN {name} AS t ON t.session = s.seq WHERE s.org = ?1",
                own.join(", ")
            )
        }
    }
}

fn cells(row: &Row<'_>, table: &Table) -> Result<Vec<Cell>, StoreError> {
    let damaged = |_| StoreError::Damaged(table.name);
    let columns = table.columns.iter().enumerate();
    columns
        .map(|(at, column)| {
            let cell = match row.get_ref(at).map_err(damaged)? {
                ValueRef::Null => Cell::Null,
                ValueRef::Integer(number) => Cell::Int(number),
                ValueRef::Real(number) => Cell::Real(number),
                ValueRef::Text(text) => Cell::Text(
                    str::from_utf8(text)
                        .map_err(|_| StoreError::Damaged(table.name))?
                        .to_owned(),
                ),
                ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
            };
            if cell.is(column.kind) {
                Ok(cell)
            } else {
                Err(StoreError::Damaged(table.name))
            }
        })
        .collect()
}

fn standing(conn: &Connection, export: ExportId) -> Result<Option<Standing>, StoreError> {
    let sql = "SELECT batches, finished FROM imports WHERE export = ?1";
    let read = |row: &Row<'_>| {
        Ok(Standing {
            batches: row.get::<_, i64>(0)?.cast_unsigned(),
            finished: row.get(1)?,
        })
    };
    Ok(conn.query_row(sql, [export], read).optional()?)
}

fn load(conn: &Connection, export: ExportId, number: u64, batch: &Batch) -> Result<(), StoreError> {
    let known = standing(conn, export)?.map_or(0, |standing| standing.batches);
    if number < known {
        return Ok(());
    }
    let sql = insert_sql(batch.table);
    let mut insert = conn.prepare_cached(&sql)?;
    for row in &batch.rows {
        let values = row.iter().map(|cell| Bound(cell.clone()));
        insert
            .execute(params_from_iter(values))
            .map_err(|e| constraint(e, batch.table.name, "parent"))?;
    }
    let sql = "INSERT INTO imports (export, batches, finished) VALUES (?1, ?2, FALSE)
               ON CONFLICT (export) DO UPDATE SET batches = excluded.batches";
    let next = i64::try_from(number).unwrap_or(i64::MAX).saturating_add(1);
    conn.prepare_cached(sql)?.execute(params![export, next])?;
    Ok(())
}

fn insert_sql(table: &Table) -> String {
    let name = table.name;
    match table.parent {
        Parent::None => {
            let columns: Vec<&str> = table.columns.iter().map(|c| c.name).collect();
            let values: Vec<String> = (1..=columns.len()).map(|n| format!("?{n}")).collect();
            format!(
                "INSERT INTO {name} ({}) VALUES ({})",
                columns.join(", "),
                values.join(", ")
            )
        }
        Parent::Session => {
            let own = table.columns.iter().skip(4);
            let own: Vec<&str> = own.map(|c| c.name).collect();
            let values: Vec<String> = (5..5 + own.len()).map(|n| format!("?{n}")).collect();
            format!(
                "INSERT INTO {name} (session, {}) VALUES (
                 (SELECT seq FROM sessions WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4), {})",
                own.join(", "),
                values.join(", ")
            )
        }
    }
}

/// A cell as a parameter.
struct Bound(Cell);

impl ToSql for Bound {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = match &self.0 {
            Cell::Null => ValueRef::Null,
            Cell::Int(number) => ValueRef::Integer(*number),
            Cell::Real(number) => ValueRef::Real(*number),
            Cell::Text(text) => ValueRef::Text(text.as_bytes()),
            Cell::Bytes(bytes) => ValueRef::Blob(bytes),
        };
        Ok(ToSqlOutput::Borrowed(value))
    }
}

fn end_load(conn: &Connection, export: ExportId, revision: i64) -> Result<(), StoreError> {
    // A revision is never below those that the rows carry; the gap tells every follower to read anew.
    let sql = "UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'changes'";
    if conn.prepare_cached(sql)?.execute([revision])? == 0 {
        let sql = "INSERT INTO sqlite_sequence (name, seq) VALUES ('changes', ?1)";
        conn.prepare_cached(sql)?.execute([revision])?;
    }
    conn.prepare_cached("DELETE FROM changes")?.execute([])?;
    let orgs = all(conn, "SELECT id FROM orgs LIMIT ?1", [limit(1)], |row| {
        Ok(OrgId::from_bytes(row.get(0)?))
    })?;
    if let Some(org) = orgs.first() {
        feed::append(conn, &ChangeKind::Org(*org))?;
    }
    let sql = "INSERT INTO imports (export, batches, finished) VALUES (?1, 0, TRUE)
               ON CONFLICT (export) DO UPDATE SET finished = TRUE";
    conn.prepare_cached(sql)?.execute([export])?;
    Ok(())
}
