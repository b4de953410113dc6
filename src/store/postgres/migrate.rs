//! The schema, as numbered steps compiled into the program, and the rights of the program's role. `ibex migrate` brings a database up to
//! date; a store that is opened only looks.
//!
//! Everything is in the schema `ibex`, so that the database may hold other things. The steps run in one transaction under an advisory
//! lock: of two that migrate at once, one does it and the other finds it done.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::time::timeout;

use super::connect::Settings;
use super::error::{Fault, OpenError};
use super::rows::Columns;
use crate::config::PostgresConfig;

/// Step `n` is at index `n - 1`. A released step is never edited; a change is a new one.
const STEPS: &[&str] = &[
    include_str!("migrations/0001_tenants.sql"),
    include_str!("migrations/0002_memories.sql"),
    include_str!("migrations/0003_sessions.sql"),
    include_str!("migrations/0004_row_security.sql"),
    include_str!("migrations/0005_search.sql"),
    include_str!("migrations/0006_imports.sql"),
];

/// Who migrates holds this lock.
const LOCK: i64 = 0x6962_6578_0000_0001;

/// A migration may take long, and wait for another one.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// What a migration did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationReport {
    /// The version that was found; 0 for none.
    pub found: i64,
    /// The version that the database has now.
    pub now: i64,
    /// Whether the program's role had to be created.
    pub created_role: bool,
}

/// The version that this program needs.
pub(super) const fn known() -> i64 {
    STEPS.len() as i64
}

/// Brings the database of `config` up to date, creates the role and gives it its rights. The user of the URL must own the schema, or be
/// allowed to create it, and to create the role and the extension where they are missing.
///
/// # Errors
/// When the database cannot be reached, was written by a newer version, or the user lacks a right.
pub async fn migrate(config: &PostgresConfig) -> Result<MigrationReport, OpenError> {
    let settings = Settings::of(config)?;
    let mut conn = settings.plain().await?;
    let migrated = timeout(PATIENCE, migrate_on(&mut conn, &settings.role)).await;
    let closed = timeout(settings.connect, conn.close()).await;
    drop(closed);
    migrated.map_err(|_| Fault::Late)?
}

async fn migrate_on(conn: &mut PgConnection, role: &str) -> Result<MigrationReport, OpenError> {
    let begin = format!("SET statement_timeout = 0; BEGIN; SELECT pg_advisory_xact_lock({LOCK})");
    run(conn, &begin, None).await?;
    run(conn, "SAVEPOINT before_version", None).await?;
    let found = version(conn).await?;
    // Where it may not even be read, the statement has failed.
    run(conn, "ROLLBACK TO before_version", None).await?;
    if found > known() {
        return Err(OpenError::NewerSchema {
            found,
            known: known(),
        });
    }
    prepare(conn).await?;
    for (number, step) in (1..)
        .zip(STEPS)
        .skip(usize::try_from(found).unwrap_or_default())
    {
        run(conn, step, Some("create the schema")).await?;
        run(
            conn,
            &format!("INSERT INTO schema_steps (version) VALUES ({number})"),
            None,
        )
        .await?;
    }
    let created_role = create_role(conn, role).await?;
    grant(conn, role).await?;
    run(conn, "COMMIT", None).await?;
    require_grant(conn, role).await?;
    Ok(MigrationReport {
        found,
        now: known(),
        created_role,
    })
}

/// The schema's name, the extension, and the table of steps.
async fn prepare(conn: &mut PgConnection) -> Result<(), OpenError> {
    run(
        conn,
        "SET LOCAL client_min_messages = error; CREATE SCHEMA IF NOT EXISTS ibex",
        Some("create the schema"),
    )
    .await?;
    let extension = "CREATE EXTENSION IF NOT EXISTS vector";
    let created = conn.execute(extension).await.map_err(Fault::from);
    created.map_err(|fault| match fault.code().as_deref() {
        Some("58P01" | "0A000" | "42704") => OpenError::NoVectors,
        Some("42501") => OpenError::Forbidden("create the extension pgvector"),
        _ => fault.into(),
    })?;
    require_iterative_scans(conn).await?;
    let sql = "SELECT set_config('search_path', 'ibex, ' || quote_ident(n.nspname), TRUE)
               FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector';
               CREATE TABLE IF NOT EXISTS schema_steps (version bigint PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())";
    run(conn, sql, Some("create the schema")).await
}

/// Since version 0.8 a vector index goes on until it has found enough rows that may be seen.
async fn require_iterative_scans(conn: &mut PgConnection) -> Result<(), OpenError> {
    let sql = "SELECT string_to_array(extversion, '.')::integer[] >= ARRAY[0, 8] FROM pg_extension WHERE extname = 'vector'";
    let row = sqlx::query(sql)
        .fetch_one(conn)
        .await
        .map_err(Fault::from)?;
    if Columns::of(&row, "extension").take()? {
        return Ok(());
    }
    Err(OpenError::OldVectors)
}

/// Roles belong to the server, not to the database: somebody else may create it at the same time.
async fn create_role(conn: &mut PgConnection, role: &str) -> Result<bool, OpenError> {
    let exists = sqlx::query("SELECT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = $1)")
        .bind(role.to_owned());
    let row = exists.fetch_one(&mut *conn).await.map_err(Fault::from)?;
    if Columns::of(&row, "role").take()? {
        return Ok(false);
    }
    let sql = format!(
        "DO $$ BEGIN CREATE ROLE \"{role}\" NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
         EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    );
    run(conn, &sql, Some("create the role of postgres.role")).await?;
    Ok(true)
}

/// Rights on what is there, and no others: the role reads the steps but cannot change them. Functions run with the rights of their caller.
async fn grant(conn: &mut PgConnection, role: &str) -> Result<(), OpenError> {
    let sql = format!(
        "GRANT USAGE ON SCHEMA ibex TO \"{role}\";
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ibex TO \"{role}\";
         REVOKE INSERT, UPDATE, DELETE ON schema_steps FROM \"{role}\";
         GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA ibex TO \"{role}\";
         REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA ibex FROM PUBLIC;
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ibex TO \"{role}\""
    );
    run(conn, &sql, Some("give the role its rights")).await
}

/// The user of the URL has to be able to act as the role.
async fn require_grant(conn: &mut PgConnection, role: &str) -> Result<(), OpenError> {
    let act = format!("SET ROLE \"{role}\"; RESET ROLE");
    if run(conn, &act, None).await.is_ok() {
        return Ok(());
    }
    let granted = run(conn, &format!("GRANT \"{role}\" TO CURRENT_USER"), None).await;
    granted.map_err(|_| OpenError::NotGranted(role.to_owned()))?;
    let acted = run(conn, &act, None).await;
    acted.map_err(|_| OpenError::NotGranted(role.to_owned()))
}

/// Refuses a database whose schema is not this program's.
pub(super) async fn require_current(conn: &mut PgConnection) -> Result<(), OpenError> {
    let (found, known) = (version(conn).await?, known());
    match found.cmp(&known) {
        std::cmp::Ordering::Less => Err(OpenError::OlderSchema { found, known }),
        std::cmp::Ordering::Greater => Err(OpenError::NewerSchema { found, known }),
        std::cmp::Ordering::Equal => Ok(()),
    }
}

/// The newest step that was applied; 0 without a schema.
async fn version(conn: &mut PgConnection) -> Result<i64, OpenError> {
    let sql =
        "SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                              WHERE n.nspname = 'ibex' AND c.relname = 'schema_steps')";
    let row = sqlx::query(sql)
        .fetch_one(&mut *conn)
        .await
        .map_err(Fault::from)?;
    if !Columns::of(&row, "schema").take()? {
        return Ok(0);
    }
    let newest = sqlx::query("SELECT coalesce(max(version), 0) FROM ibex.schema_steps")
        .fetch_one(conn)
        .await;
    match newest.map_err(Fault::from) {
        Ok(row) => Ok(Columns::of(&row, "schema").take()?),
        // The role has no rights here yet.
        Err(fault) if fault.code().as_deref() == Some("42501") => Ok(0),
        Err(fault) => Err(fault.into()),
    }
}

/// Statements without values. `may` says what a missing right would have been for.
async fn run(
    conn: &mut PgConnection,
    sql: &str,
    may: Option<&'static str>,
) -> Result<(), OpenError> {
    let done = conn
        .execute(sqlx::raw_sql(AssertSqlSafe(sql)))
        .await
        .map_err(Fault::from);
    match (done, may) {
        (Ok(_), _) => Ok(()),
        (Err(fault), Some(what)) if fault.code().as_deref() == Some("42501") => {
            Err(OpenError::Forbidden(what))
        }
        (Err(fault), _) => Err(fault.into()),
    }
}
