//! The whole store out and in: see [`crate::store::transfer`]. One organisation at a time, because row-level security shows no more.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::error::constraint;
use super::links::Link;
use super::memories::{members_of, words_of};
use super::rows::{Columns, Statement, composed, org_uuid, stored_text};
use super::{PostgresStore, tx};
use crate::ids::{AgentId, OrgId};
use crate::memory::PartitionKey;
use crate::store::transfer::{
    BATCH, Batch, Cell, Column, ExportId, Kind, Parent, Row, Standing, TABLES, Table, TransferStore,
};
use crate::store::{ChangeKind, StoreError};

/// One organisation is read in one transaction, and the largest takes a while.
const PATIENCE: Duration = Duration::from_secs(6 * 3_600);

#[async_trait]
impl TransferStore for PostgresStore {
    async fn dump(&self, orgs: Vec<OrgId>, to: mpsc::Sender<Batch>) -> Result<i64, StoreError> {
        let orgs = if orgs.is_empty() {
            self.every_org().await?
        } else {
            orgs
        };
        let mut revision = crate::store::ChangeFeed::revision(self).await?;
        for org in orgs {
            let mut link = tx::long_snapshot(&self.links, org, PATIENCE).await?;
            revision = revision.max(revision_of(&mut link).await?);
            for table in TABLES {
                if !dump_table(&mut link, org, table, &to).await? {
                    return Ok(revision);
                }
            }
        }
        Ok(revision)
    }

    async fn load_standing(&self, export: ExportId) -> Result<Option<Standing>, StoreError> {
        let sql = "SELECT batches, finished FROM imports WHERE export = $1";
        let ask = || sqlx::query(sql).bind(Uuid::from_bytes(export));
        let rows = self.links.ask(ask).await?;
        rows.first().map(standing).transpose()
    }

    async fn load(&self, export: ExportId, number: u64, batch: Batch) -> Result<(), StoreError> {
        let mut tx = self.tx(batch.org).await?;
        let sql = "SELECT batches, finished FROM imports WHERE export = $1 FOR UPDATE";
        let known = tx
            .row(sqlx::query(sql).bind(Uuid::from_bytes(export)))
            .await?;
        let known = known.as_ref().map(standing).transpose()?;
        if known.is_some_and(|known| number < known.batches) {
            return Ok(());
        }
        for row in &batch.rows {
            for statement in inserts(batch.table, row)? {
                let inserted = tx.link.execute(statement).await;
                inserted.map_err(|fault| constraint(fault, batch.table.name, "parent"))?;
            }
        }
        let sql = "INSERT INTO imports (export, batches, finished) VALUES ($1, $2, FALSE)
                   ON CONFLICT (export) DO UPDATE SET batches = excluded.batches";
        let next = i64::try_from(number).unwrap_or(i64::MAX).saturating_add(1);
        tx.execute(sqlx::query(sql).bind(Uuid::from_bytes(export)).bind(next))
            .await?;
        tx.commit().await?;
        Ok(())
    }

    async fn end_load(&self, export: ExportId, revision: i64) -> Result<(), StoreError> {
        let Some(org) = self.every_org().await?.first().copied() else {
            return self.note_end(export).await;
        };
        let mut tx = self.tx(org).await?;
        // A revision is never below those that the rows carry; the gap tells every follower to read anew.
        let raise = "UPDATE feed SET revision = greatest(revision, $1)";
        tx.execute(sqlx::query(raise).bind(revision)).await?;
        tx.execute(sqlx::query("DELETE FROM changes")).await?;
        let places = "SELECT setval(pg_get_serial_sequence('directive_activations', 'position'),
                      greatest((SELECT coalesce(max(position), 0) FROM directive_activations), $1) + 1)";
        // Activations of every organisation count: their numbers are larger than none that was exported.
        tx.row(sqlx::query(places).bind(revision)).await?;
        tx.changed(ChangeKind::Org(org));
        tx.commit().await?;
        self.note_end(export).await
    }
}

impl PostgresStore {
    async fn every_org(&self) -> Result<Vec<OrgId>, StoreError> {
        let rows = self
            .links
            .ask(|| sqlx::query("SELECT id FROM orgs ORDER BY id"))
            .await?;
        rows.iter()
            .map(|row| Ok(OrgId::from_bytes(Columns::of(row, "organisation").id()?)))
            .collect()
    }

    async fn note_end(&self, export: ExportId) -> Result<(), StoreError> {
        let sql = "INSERT INTO imports (export, batches, finished) VALUES ($1, 0, TRUE)
                   ON CONFLICT (export) DO UPDATE SET finished = TRUE";
        let mut link = self.links.link().await?;
        link.execute(sqlx::query(sql).bind(Uuid::from_bytes(export)))
            .await?;
        Ok(())
    }
}

fn standing(row: &PgRow) -> Result<Standing, StoreError> {
    let mut columns = Columns::of(row, "import");
    Ok(Standing {
        batches: columns.number()?,
        finished: columns.take()?,
    })
}

async fn revision_of(link: &mut Link) -> Result<i64, StoreError> {
    let row = link
        .row(sqlx::query("SELECT revision FROM feed"))
        .await?
        .ok_or(StoreError::Damaged("feed"))?;
    Columns::of(&row, "feed").take()
}

/// Sends the rows of one organisation. Answers whether anybody still receives.
async fn dump_table(
    link: &mut Link,
    org: OrgId,
    table: &'static Table,
    to: &mpsc::Sender<Batch>,
) -> Result<bool, StoreError> {
    let name = table.name;
    let declare = format!(
        "DECLARE dump_{name} NO SCROLL CURSOR FOR {}",
        select_sql(table)
    );
    link.execute(composed(declare).bind(org_uuid(org))).await?;
    let fetch = format!("FETCH {BATCH} FROM dump_{name}");
    loop {
        let rows = link.rows(composed(fetch.clone())).await?;
        let last = rows.len() < BATCH;
        let rows = rows
            .iter()
            .map(|row| cells(row, table))
            .collect::<Result<Vec<Row>, StoreError>>()?;
        if !rows.is_empty() && to.send(Batch { org, table, rows }).await.is_err() {
            return Ok(false);
        }
        if last {
            link.execute(composed(format!("CLOSE dump_{name}"))).await?;
            return Ok(true);
        }
    }
}

/// What this engine calls a column of an export.
fn own_name(table: &Table, column: &Column) -> &'static str {
    match (table.parent, column.name) {
        (_, "user") => "user_id",
        (_, other) => other,
    }
}

/// How a column is read.
fn selected(table: &Table, column: &Column) -> String {
    let name = own_name(table, column);
    match (table.name, column.name, column.kind) {
        // Nobody is NULL in an export, as in the embedded engine.
        ("tokens", "user", _) => format!("nullif(t.{name}, '')"),
        ("memories", _, Kind::Vector) => "vector_send(v.embedding)".to_owned(),
        _ if is_list(table, column) => format!("t.{name}"),
        _ => format!("t.{name}"),
    }
}

/// Whether this engine keeps a list of identifiers where an export has them one after the other.
fn is_list(table: &Table, column: &Column) -> bool {
    matches!(
        (table.name, column.name),
        ("memories", "supersedes") | ("session_lanes", "snapshot") | ("session_turns", "memories")
    )
}

fn select_sql(table: &Table) -> String {
    let columns = |skip: usize| -> Vec<String> {
        let own = table.columns.iter().skip(skip);
        own.map(|column| selected(table, column)).collect()
    };
    match (table.parent, table.name) {
        (Parent::Session, name) => format!(
            "SELECT s.org, s.agent, s.user_id, s.id, {} FROM {name} t JOIN sessions s ON s.org = t.org AND s.seq = t.session WHERE t.org = $1",
            columns(4).join(", ")
        ),
        (Parent::None, "memories") => format!(
            "SELECT {} FROM memories t LEFT JOIN memory_vectors v ON v.org = t.org AND v.memory = t.id WHERE t.org = $1",
            columns(0).join(", ")
        ),
        (Parent::None, "orgs") => format!(
            "SELECT {} FROM orgs t WHERE t.id = $1",
            columns(0).join(", ")
        ),
        (Parent::None, name) => format!(
            "SELECT {} FROM {name} t WHERE t.org = $1",
            columns(0).join(", ")
        ),
    }
}

fn cells(row: &PgRow, table: &Table) -> Result<Row, StoreError> {
    let mut columns = Columns::of(row, table.name);
    let mut cells: Row = Vec::with_capacity(table.columns.len());
    for column in table.columns {
        cells.push(cell(&mut columns, table, column)?);
    }
    // A vector without numbers is only named here.
    if table.name == "memories" {
        let model = table
            .columns
            .iter()
            .position(|c| c.name == "embedding_model");
        let vector = table.columns.iter().position(|c| c.kind == Kind::Vector);
        if let (Some(model), Some(vector)) = (model, vector)
            && matches!(cells.get(model), Some(Cell::Text(_)))
            && let Some(cell @ Cell::Null) = cells.get_mut(vector)
        {
            *cell = Cell::Bytes(Vec::new());
        }
    }
    Ok(cells)
}

fn cell(columns: &mut Columns<'_>, table: &Table, column: &Column) -> Result<Cell, StoreError> {
    if is_list(table, column) {
        let ids: Vec<Uuid> = columns.take()?;
        return Ok(Cell::Bytes(
            ids.iter().flat_map(|id| *id.as_bytes()).collect(),
        ));
    }
    let bytes = |bytes: Option<&[u8]>| bytes.map_or(Cell::Null, |b| Cell::Bytes(b.to_vec()));
    Ok(match column.kind {
        Kind::Id => columns
            .optional_id()?
            .map_or(Cell::Null, |id| Cell::Bytes(id.to_vec())),
        Kind::Bytes => bytes(columns.take()?),
        Kind::Text => columns.optional_text()?.map_or(Cell::Null, Cell::Text),
        Kind::Int => columns.take::<Option<i64>>()?.map_or(Cell::Null, Cell::Int),
        Kind::Bool => columns
            .take::<Option<bool>>()?
            .map_or(Cell::Null, |b| Cell::Int(b.into())),
        Kind::Real => columns
            .take::<Option<f32>>()?
            .map_or(Cell::Null, |x| Cell::Real(x.into())),
        Kind::Vector => match columns.take::<Option<&[u8]>>()? {
            None => Cell::Null,
            Some(sent) => little_endian(sent).ok_or_else(|| columns.damaged())?,
        },
    })
}

/// From the extension's binary form to little-endian numbers.
fn little_endian(sent: &[u8]) -> Option<Cell> {
    let (numbers, rest) = sent.get(4..)?.as_chunks::<4>();
    let swapped = numbers.iter().flat_map(|[a, b, c, d]| [*d, *c, *b, *a]);
    rest.is_empty().then(|| Cell::Bytes(swapped.collect()))
}

/// The statements that store a row.
fn inserts(table: &Table, row: &Row) -> Result<Vec<Statement>, StoreError> {
    if table.name == "memories" {
        return memory(table, row);
    }
    let skip = if table.parent == Parent::Session {
        4
    } else {
        0
    };
    let own: Vec<&Column> = table.columns.iter().skip(skip).collect();
    let names: Vec<&str> = own.iter().map(|column| own_name(table, column)).collect();
    let values: Vec<String> = (1 + skip..=skip + own.len())
        .map(|n| format!("${n}"))
        .collect();
    let (names, values) = (names.join(", "), values.join(", "));
    let name = table.name;
    let sql = if skip > 0 {
        format!(
            "INSERT INTO {name} (org, session, {names}) VALUES ($1,
             (SELECT s.seq FROM sessions s WHERE s.org = $1 AND s.agent = $2 AND s.user_id = $3 AND s.id = $4), {values})"
        )
    } else {
        // Numbers that an engine draws by itself are taken over as well.
        format!("INSERT INTO {name} ({names}) OVERRIDING SYSTEM VALUE VALUES ({values})")
    };
    let mut statement = composed(sql);
    for (cell, column) in row.iter().zip(table.columns) {
        statement = bound(statement, table, column, cell)?;
    }
    Ok(vec![statement])
}

/// A memory, its members and its vector.
fn memory(table: &Table, row: &Row) -> Result<Vec<Statement>, StoreError> {
    let columns: Vec<&Column> = table
        .columns
        .iter()
        .filter(|column| column.kind != Kind::Vector)
        .collect();
    let names: Vec<&str> = columns.iter().map(|c| own_name(table, c)).collect();
    let values: Vec<String> = (1..=columns.len()).map(|n| format!("${n}")).collect();
    let members = columns.len() + 1;
    let mut statement = composed(format!(
        "INSERT INTO memories ({}, members, words) VALUES ({}, ${members}, ${})",
        names.join(", "),
        values.join(", "),
        members + 1
    ));
    let of = |name| of(table, row, name);
    for (cell, column) in row.iter().zip(table.columns) {
        if column.kind != Kind::Vector {
            statement = bound(statement, table, column, cell)?;
        }
    }
    let metadata = match of("metadata") {
        Cell::Text(text) => members_of(text),
        Cell::Null | Cell::Int(_) | Cell::Real(_) | Cell::Bytes(_) => Vec::new(),
    };
    let words = match of("content") {
        Cell::Text(text) => words_of(&partition(table, row)?, text),
        Cell::Null | Cell::Int(_) | Cell::Real(_) | Cell::Bytes(_) => Vec::new(),
    };
    let mut statements = vec![statement.bind(metadata).bind(words)];
    if let Cell::Bytes(bytes) = of("embedding")
        && !bytes.is_empty()
    {
        let (numbers, _) = bytes.as_chunks::<4>();
        let vector: Vec<f32> = numbers.iter().map(|x| f32::from_le_bytes(*x)).collect();
        let sql = "INSERT INTO memory_vectors (org, agent, user_id, memory, model, embedding, live)
                   SELECT m.org, m.agent, m.user_id, m.id, m.embedding_model, $3::real[]::vector, m.status = 'active'
                   FROM memories m WHERE m.org = $1 AND m.id = $2";
        let (org, id) = (uuid(of("org"))?, uuid(of("id"))?);
        statements.push(sqlx::query(sql).bind(org).bind(id).bind(vector));
    }
    Ok(statements)
}

/// Whose a memory is.
fn partition(table: &Table, row: &Row) -> Result<PartitionKey, StoreError> {
    let user = match of(table, row, "user") {
        Cell::Text(user) if !user.is_empty() => {
            Some(user.parse().map_err(|_| StoreError::Damaged("row"))?)
        }
        Cell::Text(_) | Cell::Null | Cell::Int(_) | Cell::Real(_) | Cell::Bytes(_) => None,
    };
    Ok(PartitionKey {
        org: OrgId::from_bytes(uuid(of(table, row, "org"))?.into_bytes()),
        agent: AgentId::from_bytes(uuid(of(table, row, "agent"))?.into_bytes()),
        user,
    })
}

/// A row's value in a column.
fn of<'a>(table: &Table, row: &'a Row, name: &str) -> &'a Cell {
    let at = table.columns.iter().position(|column| column.name == name);
    at.and_then(|at| row.get(at)).unwrap_or(&Cell::Null)
}

fn uuid(cell: &Cell) -> Result<Uuid, StoreError> {
    match cell {
        Cell::Bytes(bytes) => Uuid::from_slice(bytes).map_err(|_| StoreError::Damaged("row")),
        Cell::Null | Cell::Int(_) | Cell::Real(_) | Cell::Text(_) => {
            Err(StoreError::Damaged("row"))
        }
    }
}

fn bound(
    statement: Statement,
    table: &Table,
    column: &Column,
    cell: &Cell,
) -> Result<Statement, StoreError> {
    let damaged = StoreError::Damaged(table.name);
    if is_list(table, column) {
        let Cell::Bytes(bytes) = cell else {
            return Err(damaged);
        };
        let ids: Vec<Uuid> = bytes
            .as_chunks::<16>()
            .0
            .iter()
            .map(|id| Uuid::from_bytes(*id))
            .collect();
        return Ok(statement.bind(ids));
    }
    Ok(match (cell, column.kind) {
        (Cell::Null, Kind::Text) if column.name == "user" => statement.bind(""),
        (Cell::Null, Kind::Id) => statement.bind(None::<Uuid>),
        (Cell::Null, Kind::Bytes | Kind::Vector) => statement.bind(None::<Vec<u8>>),
        (Cell::Null, Kind::Text) => statement.bind(None::<String>),
        (Cell::Null, Kind::Int) => statement.bind(None::<i64>),
        (Cell::Null, Kind::Bool) => statement.bind(None::<bool>),
        (Cell::Null, Kind::Real) => statement.bind(None::<f32>),
        (cell @ Cell::Bytes(_), Kind::Id) => statement.bind(uuid(cell)?),
        (Cell::Bytes(bytes), _) => statement.bind(bytes.clone()),
        (Cell::Text(text), _) => statement.bind(stored_text(text).into_owned()),
        (Cell::Int(number), Kind::Bool) => statement.bind(*number != 0),
        (Cell::Int(number), _) => statement.bind(*number),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it was an f32 before it was stored"
        )]
        (Cell::Real(number), _) => statement.bind(*number as f32),
    })
}
