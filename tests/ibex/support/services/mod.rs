//! Real engines for tests: the PostgreSQL and the Redis that all tests share, and engines of one test's own.
//!
//! `tests/tools/services.sh` installs and starts them; `make unit` does that before the tests, and a plain `cargo test` here, on first
//! use. Nothing in this folder needs the runtime of the test, so a paused clock does not disturb it. The library's own tests compile
//! this folder too.

mod database;
mod engine;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

pub(crate) use database::{Database, fresh_database, migrated_database};
pub(crate) use engine::{OwnPostgres, OwnRedis};

/// Where the two shared engines are.
struct Urls {
    postgres: String,
    redis: String,
}

const POSTGRES: &str = "IBEX_TEST_POSTGRES_URL";
const REDIS: &str = "IBEX_TEST_REDIS_URL";

/// A database on the shared PostgreSQL whose user may create databases and roles, and is no superuser: row-level security binds it.
pub(crate) fn postgres_url() -> &'static str {
    &urls().postgres
}

/// The shared Redis. Keys begin with a [`fresh_prefix`].
pub(crate) fn redis_url() -> &'static str {
    &urls().redis
}

/// What nobody else's keys begin with.
pub(crate) fn fresh_prefix() -> String {
    format!("test-{}", uuid::Uuid::new_v4().simple())
}

fn urls() -> &'static Urls {
    static URLS: OnceLock<Urls> = OnceLock::new();
    URLS.get_or_init(|| {
        let given = |name| std::env::var(name).ok().filter(|url| !url.is_empty());
        if let (Some(postgres), Some(redis)) = (given(POSTGRES), given(REDIS)) {
            return Urls { postgres, redis };
        }
        let told = services(&["ensure"]);
        let found = |name: &str| {
            let line = told.lines().find_map(|line| line.strip_prefix(name));
            let url = line.and_then(|rest| rest.strip_prefix('='));
            url.unwrap_or_else(|| panic!("services.sh ensure told no {name}: {told}"))
                .to_owned()
        };
        Urls {
            postgres: found(POSTGRES),
            redis: found(REDIS),
        }
    })
}

fn script() -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    Command::new(root.join("tests/tools/services.sh"))
}

/// What the script prints. Its progress goes to the test's own standard error.
fn services(arguments: &[&str]) -> String {
    let output = script()
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("tests/tools/services.sh can be run");
    assert!(
        output.status.success(),
        "the tests need PostgreSQL and Redis, but `tests/tools/services.sh {}` failed: it says why above",
        arguments.join(" ")
    );
    String::from_utf8(output.stdout).expect("text")
}

/// Waits for work on a thread and a runtime of its own.
fn aside<T: Send, F: Future<Output = T>>(work: impl FnOnce() -> F + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(work())
        });
        match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
