//! From the command line to the command: configuration, log, store, then the one that was asked for.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::app::{App, Seams};
use crate::auth::pat::{self, NewToken, TokenKey};
use crate::config::{self, Config, ContextConfig, Variables, process_env};
use crate::seams::{SystemClock, SystemEntropy};
use crate::store::Store;
use crate::store::keys::ServerKeys;
use crate::store::postgres::{self, MigrationReport, PostgresStore};
use crate::store::shared::redis::Redis;
use crate::store::shared::redis::announced::Announced;
use crate::store::sqlite::SqliteStore;
use crate::tasks::Tasks;
use crate::telemetry::{self, Metrics};

use super::memory::MemoryCommand;
use super::serve::Source;
use super::{Cli, CliError, Command, Desk, Minted, Out, TokenRequest};
use super::{
    agent, check_config, demo, directive, error, health, import, init, memory, org, preview,
    remember, serve, token, transfer,
};

/// Runs the process's command line.
#[must_use]
pub fn run() -> ExitCode {
    let cli = match error::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| CliError::Failed(format!("the runtime cannot be started: {e}")))
        .and_then(|runtime| runtime.block_on(dispatch(cli, &process_env())));
    error::finish(result, &mut io::stderr())
}

async fn dispatch(cli: Cli, env: &Variables) -> Result<(), CliError> {
    let Cli {
        config: file,
        json,
        command,
    } = cli;
    let mut stdout = io::stdout();
    let mut out = Out::new(json, &mut stdout);
    match command {
        Command::CheckConfig => check_config::run(file.as_deref(), env, &mut out),
        Command::Health(args) => health::run(args, file.as_deref(), env, &mut out).await,
        Command::Demo(_) if file.is_some() => Err(CliError::Usage(
            "demo takes no configuration; `ibex serve` does".to_owned(),
        )),
        Command::Demo(args) => demo::run(args, env, &mut out).await,
        Command::Migrate => {
            let loaded = config::load(file.as_deref(), env)?;
            migrate(&loaded.config, &mut out).await
        }
        Command::Serve => {
            let loaded = config::load(file.as_deref(), env)?;
            let logging = telemetry::init(&loaded.config.log);
            let logging = logging.map_err(|e| CliError::Failed(e.to_string()))?;
            let _written_in_the_end = logging.lines;
            serve::warn_of(&loaded.warnings);
            let signals = serve::Signals::take()?;
            // The file that was found must still be there when it is read again: without it every rule would be gone.
            let source = Source {
                file: loaded.file,
                env: env.clone(),
                level: logging.level,
            };
            serve::run(open(loaded.config).await?, source, signals).await
        }
        command @ (Command::Init(_)
        | Command::Org(_)
        | Command::Agent(_)
        | Command::Token(_)
        | Command::Directive(_)
        | Command::Memory(_)
        | Command::Export(_)
        | Command::Import(_)
        | Command::Preview(_)) => {
            let loaded = config::load(file.as_deref(), env)?;
            with_store(command, loaded.config, &mut out).await
        }
    }
}

/// Brings the configured store's schema up to date.
async fn migrate(config: &Config, out: &mut Out<'_>) -> Result<(), CliError> {
    if config.postgres.url.is_none() {
        open(config.clone()).await?.close().await?;
        let told = json!({"schema": "current"});
        return Ok(out.one(&told, "the embedded store is up to date")?);
    }
    let report = postgres::migrate(&config.postgres).await;
    let report = report.map_err(|e| CliError::Failed(format!("postgres: {e}")))?;
    if let Some(dimensions) = config.embedder.dimensions {
        let made = postgres::ensure_vector_index(&config.postgres, dimensions as usize).await;
        made.map_err(|e| CliError::Failed(format!("postgres: the vector index: {e}")))?;
    }
    let MigrationReport {
        found,
        now,
        created_role,
    } = report;
    let told = json!({"found": found, "now": now, "created_role": created_role});
    let text = if found == now {
        format!("the database has schema version {now} already")
    } else {
        format!("the database had schema version {found} and has {now} now")
    };
    Ok(out.one(&told, text)?)
}

/// An open store with its keys, as commands and the server need it.
pub(super) struct Opened {
    pub(super) config: Config,
    pub(super) store: Arc<dyn Store>,
    pub(super) keys: ServerKeys,
    engine: Engine,
}

/// The engine behind the store.
enum Engine {
    Embedded(Arc<SqliteStore>),
    Shared(Arc<PostgresStore>),
}

/// Opens the configured store.
pub(super) async fn open(config: Config) -> Result<Opened, CliError> {
    if config.postgres.url.is_some() {
        open_shared(config).await
    } else {
        open_embedded(config).await
    }
}

async fn open_embedded(config: Config) -> Result<Opened, CliError> {
    let path = &config.store.path;
    let failed =
        |e: &dyn std::fmt::Display| CliError::Failed(format!("store.path {}: {e}", path.display()));
    let store = SqliteStore::open(path, &config.store).map_err(|e| failed(&e))?;
    if config.keys.token_digest.is_none() && !ServerKeys::exist(path) && has_tokens(&store).await? {
        return Err(failed(
            &"its key file is missing, and a new key would void every token; restore it, or set keys.token_digest",
        ));
    }
    let keys =
        ServerKeys::load_or_create(path, &config.keys, &SystemEntropy).map_err(|e| failed(&e))?;
    let store = Arc::new(store);
    Ok(Opened {
        store: store.clone(),
        engine: Engine::Embedded(store),
        keys,
        config,
    })
}

async fn open_shared(config: Config) -> Result<Opened, CliError> {
    let failed = |e: &dyn std::fmt::Display| CliError::Failed(format!("postgres: {e}"));
    // Replicas have no file in common, so their keys are configured; validation has seen to it.
    let keys = ServerKeys::load_or_create(&config.store.path, &config.keys, &SystemEntropy)
        .map_err(|e| failed(&e))?;
    let store = PostgresStore::connect(&config.postgres).await;
    let store = Arc::new(store.map_err(|e| failed(&e))?);
    Ok(Opened {
        store: store.clone(),
        engine: Engine::Shared(store),
        keys,
        config,
    })
}

async fn has_tokens(store: &dyn Store) -> Result<bool, CliError> {
    for org in store.orgs().await? {
        if !store.tokens(org.id).await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Opened {
    /// Finishes what is queued and closes the store.
    pub(super) async fn close(&self) -> Result<(), CliError> {
        match &self.engine {
            Engine::Embedded(store) => Ok(store.close().await?),
            Engine::Shared(store) => Ok(store.close().await?),
        }
    }

    /// The store for a command: running replicas hear of what it changes.
    fn announced(&self, tasks: &Tasks) -> Result<Arc<dyn Store>, CliError> {
        let redis = &self.config.redis;
        if redis.urls.is_empty() || !redis.pubsub {
            return Ok(self.store.clone());
        }
        let redis = Redis::new(redis, Metrics::new().redis, tasks.clone())
            .map_err(|e| CliError::Failed(e.to_string()))?;
        Ok(Arc::new(Announced::new(
            self.store.clone(),
            redis,
            tasks.clone(),
        )))
    }

    fn seams(&self) -> Seams {
        let mut seams = Seams::over(self.store.clone(), self.keys.clone());
        if let Engine::Shared(store) = &self.engine {
            seams.candidates = Some(store.clone());
            seams.breaker = Some(store.breaker().clone());
        }
        seams
    }

    /// The application over this store.
    pub(super) fn app(&self) -> Result<App, CliError> {
        App::build(self.config.clone(), self.seams()).map_err(|e| CliError::Failed(e.to_string()))
    }

    /// The application for one command, which starts cold and waits for its answer.
    fn patient_app(&self) -> Result<App, CliError> {
        let mut config = self.config.clone();
        patient(&mut config.context);
        config.embedder.timeout_ms = config.embedder.document_timeout_ms;
        App::build(config, self.seams()).map_err(|e| CliError::Failed(e.to_string()))
    }

    /// [`Self::patient_app`] for a command that searches.
    async fn searching_app(&self) -> Result<App, CliError> {
        let app = self.patient_app()?;
        app.know_spaces().await?;
        Ok(app)
    }
}

/// Takes the time limits away that keep live requests quick.
pub(super) fn patient(context: &mut ContextConfig) {
    const MILLISECONDS: u64 = 10_000;
    context.deadline_ms = MILLISECONDS;
    context.timeout_ms = MILLISECONDS;
    context.directive_timeout_ms = MILLISECONDS;
    context.hot_timeout_ms = MILLISECONDS;
    context.cold_timeout_ms = MILLISECONDS;
}

/// How long a command waits until what it changed is announced.
const ANNOUNCING: Duration = Duration::from_secs(1);

async fn with_store(command: Command, config: Config, out: &mut Out<'_>) -> Result<(), CliError> {
    let opened = open(config).await?;
    let tasks = Tasks::new();
    let store = opened.announced(&tasks)?;
    let result = at_desk(command, (&opened, &*store), out).await;
    // Who does not hear of it finds it at their next poll.
    tasks.drain(ANNOUNCING).await;
    opened.close().await?;
    result
}

async fn at_desk(
    command: Command,
    (opened, store): (&Opened, &dyn Store),
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let key = TokenKey::new(opened.keys.token_digest.as_bytes())
        .map_err(|e| CliError::Failed(e.to_string()))?;
    let mint = |request: TokenRequest| minted(&key, request);
    let counter = crate::tokens::Counter::new([0; 32], 0);
    let cap = opened.config.context.directive_tokens;
    let fits = |text: &str| directive::fits(&counter, cap, text);
    let desk = Desk {
        store,
        clock: &SystemClock,
        mint: &mint,
        directive_fits: &fits,
    };
    match command {
        Command::Init(args) => init::run(args, &desk, out).await,
        Command::Org(command) => org::run(command, &desk, out).await,
        Command::Agent(command) => agent::run(command, &desk, out).await,
        Command::Token(command) => token::run(command, &desk, out).await,
        Command::Directive(command) => directive::run(command, &desk, out).await,
        Command::Memory(MemoryCommand::List(args)) => memory::list(args, &desk, out).await,
        Command::Memory(MemoryCommand::Forget(args)) => memory::forget(args, &desk, out).await,
        Command::Memory(MemoryCommand::Add(args)) => {
            remember::add(args, &desk, &opened.patient_app()?, out).await
        }
        Command::Memory(MemoryCommand::Search(args)) => {
            remember::search(args, &desk, &opened.searching_app().await?, out).await
        }
        Command::Memory(MemoryCommand::Import(args)) => {
            import::run(args, &desk, &opened.patient_app()?, out).await
        }
        Command::Export(args) => transfer::export(args, desk.store, &opened.keys, out).await,
        Command::Import(args) => transfer::import(args, desk.store, &opened.keys, out).await,
        Command::Preview(args) => {
            preview::run(args, &desk, &opened.searching_app().await?, out).await
        }
        // Handled before a store is opened.
        Command::Serve
        | Command::Demo(_)
        | Command::CheckConfig
        | Command::Health(_)
        | Command::Migrate => Ok(()),
    }
}

/// Makes a token under `key`.
pub(super) fn minted(key: &TokenKey, request: TokenRequest) -> Result<Minted, CliError> {
    let TokenRequest {
        org,
        agent,
        user,
        name,
        permissions,
        created_at,
        expires_at,
    } = request;
    let issued = pat::issue(
        key,
        &SystemEntropy,
        NewToken {
            org,
            agent,
            user,
            name,
            permissions,
            created_at,
            expires_at,
        },
    )
    .map_err(|e| CliError::Failed(e.to_string()))?;
    Ok(Minted {
        secret: issued.secret.expose().to_owned(),
        row: issued.row,
    })
}
