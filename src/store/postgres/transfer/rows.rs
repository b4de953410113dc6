//! Rows of an export as this engine keeps them.

use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::ids::{AgentId, OrgId};
use crate::memory::PartitionKey;
use crate::store::StoreError;
use crate::store::postgres::memories::{members_of, words_of};
use crate::store::postgres::rows::{Columns, Statement, composed, stored_text};
use crate::store::transfer::{Cell, Column, Kind, Parent, Row, Table};

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

pub(super) fn select_sql(table: &Table) -> String {
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

pub(super) fn cells(row: &PgRow, table: &Table) -> Result<Row, StoreError> {
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
pub(super) fn inserts(table: &Table, row: &Row) -> Result<Vec<Statement>, StoreError> {
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
