//! A database for one test, on the shared PostgreSQL.

use std::hash::{DefaultHasher, Hash, Hasher};

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use super::{aside, postgres_url};

/// What stands between a look for the template and its making, whichever process does it.
const TEMPLATE_LOCK: i64 = 0x1BE0_7E57;

/// A database that nobody else uses. Dropping it disconnects everybody and deletes it.
#[derive(Debug)]
pub(crate) struct Database {
    name: String,
    url: String,
}

impl Database {
    /// Its URL, with user and password.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        aside(|| async {
            // It goes away with the engine at the latest.
            if let Ok(mut server) = PgConnection::connect(postgres_url()).await {
                server.execute(AssertSqlSafe(drop)).await.ok();
            }
        });
    }
}

/// An empty database.
pub(crate) fn fresh_database() -> Database {
    aside(|| async { created(&mut server().await, "").await })
}

/// A database with the schema that `migrate` makes in the database at a URL. It is made once for each name of a `schema`, and copied from
/// then on.
pub(crate) fn migrated_database<F, M>(schema: &str, migrate: M) -> Database
where
    M: FnOnce(String) -> F + Send,
    F: Future<Output = ()>,
{
    let template = template_name(schema);
    aside(|| async {
        let mut server = server().await;
        if !is_template(&mut server, &template).await {
            make_template(&mut server, &template, migrate).await;
        }
        created(&mut server, &format!("TEMPLATE {template}")).await
    })
}

async fn server() -> PgConnection {
    PgConnection::connect(postgres_url())
        .await
        .expect("the shared PostgreSQL takes connections")
}

async fn run(server: &mut PgConnection, statement: String) {
    let shown = statement.clone();
    if let Err(error) = server.execute(AssertSqlSafe(statement)).await {
        panic!("{shown}: {error}");
    }
}

async fn created(server: &mut PgConnection, how: &str) -> Database {
    let name = format!("test_{}", uuid::Uuid::new_v4().simple());
    run(server, format!("CREATE DATABASE {name} {how}")).await;
    Database {
        url: url_of(&name),
        name,
    }
}

fn url_of(database: &str) -> String {
    let mut url = url::Url::parse(postgres_url()).expect("a URL");
    url.set_path(database);
    url.into()
}

/// Its own for each build of the tests, so that a changed schema is never mistaken for the former one.
fn template_name(schema: &str) -> String {
    let tests = std::env::current_exe().expect("a path");
    let built = tests.metadata().and_then(|m| m.modified());
    let mut hash = DefaultHasher::new();
    (schema, tests, built.expect("a time")).hash(&mut hash);
    format!("template_{:016x}", hash.finish())
}

async fn is_template(server: &mut PgConnection, name: &str) -> bool {
    sqlx::query_scalar(
        "SELECT exists(SELECT FROM pg_database WHERE datname = $1 AND datistemplate)",
    )
    .bind(name)
    .fetch_one(server)
    .await
    .expect("an answer")
}

async fn make_template<F, M>(server: &mut PgConnection, name: &str, migrate: M)
where
    M: FnOnce(String) -> F,
    F: Future<Output = ()>,
{
    run(server, format!("SELECT pg_advisory_lock({TEMPLATE_LOCK})")).await;
    if !is_template(server, name).await {
        // Whoever began it before us did not come to the end.
        run(
            server,
            format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
        )
        .await;
        run(server, format!("CREATE DATABASE {name}")).await;
        migrate(url_of(name)).await;
        run(server, format!("ALTER DATABASE {name} IS_TEMPLATE true")).await;
    }
    run(
        server,
        format!("SELECT pg_advisory_unlock({TEMPLATE_LOCK})"),
    )
    .await;
}
