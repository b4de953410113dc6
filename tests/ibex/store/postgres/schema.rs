//! Migrations, and what is refused before the store is used.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use ibex::config::PostgresConfig;
use ibex::store::postgres::{OpenError, PostgresStore, ensure_vector_index, migrate};

use super::databases::{Postgres, config};
use crate::store::fixtures::new_org;
use crate::support::services::fresh_database;

async fn refusal(config: &PostgresConfig) -> OpenError {
    PostgresStore::connect(config).await.expect_err("a refusal")
}

#[tokio::test]
async fn a_database_without_the_schema_is_refused_until_it_is_migrated() {
    let database = fresh_database();
    let config = config(database.url());
    let error = refusal(&config).await;
    assert!(
        matches!(error, OpenError::OlderSchema { found: 0, .. }),
        "{error}"
    );
    assert!(error.to_string().ends_with("run `ibex migrate`"), "{error}");
    let first = migrate(&config).await.unwrap();
    assert_eq!(first.found, 0);
    assert!(first.now > 0);
    let again = migrate(&config).await.unwrap();
    assert_eq!(
        (again.found, again.now, again.created_role),
        (first.now, first.now, false)
    );
    let store = PostgresStore::connect(&config).await.unwrap();
    new_org(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_that_migrate_at_once_make_one_schema() {
    let database = fresh_database();
    let config = config(database.url());
    let all = futures_util::future::join_all((0..4).map(|_| migrate(&config))).await;
    let found: Vec<i64> = all
        .into_iter()
        .map(|report| report.unwrap().found)
        .collect();
    assert_eq!(
        found.iter().filter(|found| **found == 0).count(),
        1,
        "{found:?}"
    );
}

#[tokio::test]
async fn an_older_and_a_newer_schema_are_refused_and_left_alone() {
    let database = Postgres::new();
    let mut raw = database.raw().await;
    let known: i64 = version(&mut raw).await;
    let add = "INSERT INTO ibex.schema_steps (version) VALUES (999)";
    raw.execute(add).await.unwrap();
    for error in [
        refusal(&database.config()).await,
        migrate(&database.config()).await.unwrap_err(),
    ] {
        assert!(
            matches!(error, OpenError::NewerSchema { found: 999, known: k } if k == known),
            "{error}"
        );
        assert!(
            error.to_string().ends_with("use a newer program"),
            "{error}"
        );
    }
    assert_eq!(version(&mut raw).await, 999);
    let remove = format!("DELETE FROM ibex.schema_steps WHERE version >= {known}");
    raw.execute(AssertSqlSafe(remove)).await.unwrap();
    let error = refusal(&database.config()).await;
    assert!(
        matches!(error, OpenError::OlderSchema { found, known: k } if found == known - 1 && k == known),
        "{error}"
    );
}

async fn version(raw: &mut PgConnection) -> i64 {
    let newest = "SELECT max(version) FROM ibex.schema_steps";
    sqlx::query(newest).fetch_one(raw).await.unwrap().get(0)
}

#[tokio::test]
async fn a_role_that_owns_the_tables_is_refused() {
    let database = Postgres::new();
    let mut raw = database.raw().await;
    let row = sqlx::query("SELECT current_user::text")
        .fetch_one(&mut raw)
        .await;
    let owner = PostgresConfig {
        role: row.unwrap().get(0),
        ..database.config()
    };
    let error = refusal(&owner).await;
    assert!(error.to_string().contains("owns the tables"), "{error}");
}

#[tokio::test]
async fn a_role_that_was_not_granted_is_refused() {
    let database = Postgres::new();
    let mut raw = database.raw().await;
    let role = format!("stranger_{}", uuid::Uuid::new_v4().simple());
    raw.execute(AssertSqlSafe(format!("CREATE ROLE {role} NOLOGIN")))
        .await
        .unwrap();
    let stranger = PostgresConfig {
        role: role.clone(),
        ..database.config()
    };
    let error = refusal(&stranger).await;
    raw.execute(AssertSqlSafe(format!("DROP ROLE {role}")))
        .await
        .unwrap();
    assert!(
        matches!(&error, OpenError::NotGranted(name) if *name == role),
        "{error}"
    );
}

#[tokio::test]
async fn a_table_that_is_open_to_all_tenants_is_refused() {
    let database = Postgres::new();
    let mut raw = database.raw().await;
    for open in ["NO FORCE", "DISABLE"] {
        let alter = format!("ALTER TABLE ibex.sessions {open} ROW LEVEL SECURITY");
        raw.execute(AssertSqlSafe(alter)).await.unwrap();
        let error = refusal(&database.config()).await;
        assert!(matches!(error, OpenError::UnprotectedTables), "{error}");
    }
}

#[tokio::test]
async fn an_index_over_vectors_of_another_dimension_is_made_once() {
    let database = Postgres::new();
    let config = database.config();
    for dimensions in [3, 3_000] {
        assert!(ensure_vector_index(&config, dimensions).await.unwrap());
        assert!(!ensure_vector_index(&config, dimensions).await.unwrap());
    }
    assert!(
        !ensure_vector_index(&config, 256).await.unwrap(),
        "it comes with the schema"
    );
    ensure_vector_index(&config, 4_001).await.unwrap_err();
    let left = "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = 'ibex.memory_vectors_hnsw_3'::regclass";
    // Only a superuser can make an index look unfinished.
    let mut raw = database.raw().await;
    if raw.execute(left).await.is_ok() {
        assert!(ensure_vector_index(&config, 3).await.unwrap());
    }
    raw.close().await.unwrap();
}

#[tokio::test]
async fn a_url_that_is_none_is_refused_without_being_told() {
    for url in [None, Some("postgres//secret"), Some("mysql://u:secret@h/d")] {
        let config = PostgresConfig {
            url: url.map(str::to_owned),
            ..PostgresConfig::default()
        };
        let error = refusal(&config).await;
        assert!(matches!(error, OpenError::Url), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("secret"));
    }
}
