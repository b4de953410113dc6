//! Indexes over vectors. There is one a dimension, over all tenants: it is asked for the nearest of a large partition, and passes over
//! what is not of that partition.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::time::timeout;

use super::connect::Settings;
use super::error::{Fault, OpenError};
use super::rows::Columns;
use crate::config::PostgresConfig;
use crate::store::StoreError;

/// A large table takes long.
const PATIENCE: Duration = Duration::from_secs(24 * 3_600);
/// Between two looks whether somebody else is done.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The greatest dimension of an index over numbers of four bytes. Beyond it they are indexed in two.
const MOST_WHOLE: usize = 2_000;
/// The greatest dimension of an index at all.
const MOST_HALF: usize = 4_000;

/// Creates the index over vectors of `dimensions` numbers where it is missing, without keeping writes waiting. The user of the URL must
/// own the tables. Answers whether it had to; what a former attempt left unfinished is made anew.
///
/// # Errors
/// When the database refuses, or no index can hold vectors of that dimension (more than 4,000): their search compares one by one.
pub async fn ensure_vector_index(
    config: &PostgresConfig,
    dimensions: usize,
) -> Result<bool, OpenError> {
    if !(1..=MOST_HALF).contains(&dimensions) {
        return Err(
            StoreError::Refused("no index holds vectors of that dimension".to_owned()).into(),
        );
    }
    let settings = Settings::of(config)?;
    let mut conn = settings.plain().await?;
    let ensured = timeout(PATIENCE, ensure(&mut conn, dimensions)).await;
    let closed = timeout(settings.connect, conn.close()).await;
    drop(closed);
    ensured.map_err(|_| Fault::Late)?
}

async fn ensure(conn: &mut PgConnection, dimensions: usize) -> Result<bool, OpenError> {
    let name = format!("memory_vectors_hnsw_{dimensions}");
    let path = "SET statement_timeout = 0; SELECT set_config('search_path', 'ibex, ' || quote_ident(n.nspname), FALSE)
                FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'";
    run(conn, path.to_owned()).await?;
    // Of two that create it at once, the second waits. Not inside a statement: the first one waits for every statement that has begun.
    while !is_alone(conn).await? {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let valid = sqlx::query(
        "SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = 'ibex' AND c.relname = $1",
    );
    let row = valid
        .bind(name.clone())
        .fetch_optional(&mut *conn)
        .await
        .map_err(Fault::from)?;
    match row
        .map(|row| Columns::of(&row, "index").take::<bool>())
        .transpose()?
    {
        Some(true) => return Ok(false),
        Some(false) => run(conn, format!("DROP INDEX CONCURRENTLY {name}")).await?,
        None => {}
    }
    let kind = if dimensions > MOST_WHOLE {
        "halfvec"
    } else {
        "vector"
    };
    let sql = format!(
        "CREATE INDEX CONCURRENTLY {name} ON memory_vectors USING hnsw ((embedding::{kind}({dimensions})) {kind}_cosine_ops)
         WHERE live AND vector_dims(embedding) = {dimensions}"
    );
    run(conn, sql).await?;
    Ok(true)
}

/// Whether nobody else creates an index now.
async fn is_alone(conn: &mut PgConnection) -> Result<bool, OpenError> {
    let sql = "SELECT pg_try_advisory_lock(hashtext('ibex vector index'))";
    let row = sqlx::query(sql).fetch_one(conn).await;
    Ok(Columns::of(&row.map_err(Fault::from)?, "lock").take()?)
}

async fn run(conn: &mut PgConnection, sql: String) -> Result<(), OpenError> {
    let done = conn
        .execute(sqlx::raw_sql(AssertSqlSafe(sql)))
        .await
        .map_err(Fault::from);
    match done {
        Ok(_) => Ok(()),
        Err(fault) if fault.code().as_deref() == Some("42501") => {
            Err(OpenError::Forbidden("create an index"))
        }
        Err(fault) => Err(fault.into()),
    }
}
