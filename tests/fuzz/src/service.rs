//! The whole service in this process: the real server over a real store in a temporary folder, a provider behind it, a client before it,
//! all on one thread.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, header};
use ibex::app::{App, Seams};
use ibex::auth::Permissions;
use ibex::auth::pat::{self, NewToken};
use ibex::config::{AuthStyle, Config, ProviderConfig};
use ibex::error::Code;
use ibex::ids::{AgentId, OrgId};
use ibex::seams::{Clock, SystemClock, SystemEntropy};
use ibex::server::{Stop, listen};
use ibex::store::keys::ServerKeys;
use ibex::store::sqlite::SqliteStore;
use ibex::store::{Agent, AgentStatus, CaptureScope, IdentityStore, Org, OrgStatus};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::wire::{Answer, Client, Provider, Received};

/// More than a service needs to stop.
const STOPPING: Duration = Duration::from_secs(5);

thread_local! {
    /// Gone when the thread ends, and with a process that ends in the ordinary way.
    static FOLDERS: RefCell<Vec<TempDir>> = const { RefCell::new(Vec::new()) };
}

/// A temporary folder.
pub(super) fn folder() -> PathBuf {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().to_owned();
    FOLDERS.with_borrow_mut(|folders| folders.push(folder));
    path
}

/// An application over a store of its own that nothing was started of.
pub(super) struct Idle {
    pub(super) app: App,
    pub(super) store: Arc<SqliteStore>,
}

impl Idle {
    pub(super) fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(mut config: Config) -> Self {
        config.store.path = folder().join("ibex.db");
        let store = SqliteStore::open(&config.store.path, &config.store).expect("a store");
        let store = Arc::new(store);
        let keys = ServerKeys::load_or_create(&config.store.path, &config.keys, &SystemEntropy)
            .expect("keys");
        let app = App::build(config, Seams::over(store.clone(), keys));
        Self {
            app: app.expect("an application"),
            store,
        }
    }
}

/// An organisation with an agent, and a token for all that may be done there.
#[derive(Debug, Clone)]
pub(super) struct Tenant {
    pub(super) org: OrgId,
    pub(super) agent: AgentId,
    token: String,
}

/// What a harness keeps from one input to the next, and starts anew after some thousands of them, so that its store stays small. It is never
/// dropped at the end of a thread, where a runtime may not be.
pub(super) struct Kept<B>(RefCell<Option<(ManuallyDrop<B>, u32)>>);

impl<B: Into<Service>> Kept<B> {
    pub(super) const fn new() -> Self {
        Self(RefCell::new(None))
    }

    /// Does one input; `one` is told how many are left.
    pub(super) fn run(
        &self,
        inputs: u32,
        start: impl FnOnce() -> B,
        one: impl FnOnce(&mut B, u32),
    ) {
        let mut kept = self.0.borrow_mut();
        if let Some((bench, _)) = kept.take_if(|(_, left)| *left == 0) {
            ManuallyDrop::into_inner(bench).into().stop();
        }
        let (bench, left) = kept.get_or_insert_with(|| (ManuallyDrop::new(start()), inputs));
        *left -= 1;
        one(bench, *left);
    }
}

/// A running service.
pub(super) struct Service {
    pub(super) idle: Idle,
    pub(super) provider: Provider,
    client: Client,
    stop: Stop,
    runtime: Runtime,
}

/// A request for the service.
#[derive(Clone)]
pub(super) struct Asked<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) who: &'a Tenant,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<&'a [u8]>,
}

impl<'a> Asked<'a> {
    /// A POST with a body in one piece.
    pub(super) fn post(path: &'a str, who: &'a Tenant, body: &'a [u8]) -> Self {
        Self {
            method: Method::POST,
            path,
            who,
            headers: Vec::new(),
            body: vec![body],
        }
    }
}

impl Service {
    /// Starts it with an edited configuration.
    pub(super) fn start(edit: impl FnOnce(&mut Config)) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let provider = Provider::default();
        let (idle, address, stop) = runtime.block_on(async {
            let upstream = provider.start().await;
            let mut config = calm(upstream);
            edit(&mut config);
            let idle = Idle::with(config);
            let listening = listen(idle.app.clone()).await.expect("a free port");
            let address = listening.address();
            idle.app.start();
            let stop = Stop::default();
            let told = stop.clone();
            idle.app.tasks.spawn(async move {
                listening.serve(told).await;
            });
            (idle, address, stop)
        });
        Self {
            idle,
            provider,
            client: Client::new(address),
            stop,
            runtime,
        }
    }

    /// A tenant of its own.
    pub(super) fn tenant(&self) -> Tenant {
        let (org, agent) = (OrgId::new(), AgentId::new());
        let now = SystemClock.now();
        let new = NewToken {
            org,
            agent: None,
            user: None,
            name: "fuzz".to_owned(),
            permissions: Permissions::all(),
            created_at: now,
            expires_at: None,
        };
        let issued = pat::issue(&self.idle.app.token_key, &SystemEntropy, new).expect("randomness");
        let token = issued.secret.expose().to_owned();
        let row = Org {
            id: org,
            name: "tenant".to_owned(),
            status: OrgStatus::Active,
            created_at: now,
        };
        let store = self.idle.store.clone();
        self.run(async {
            store.create_org(row).await.expect("an organisation");
            store
                .create_agent(named(org, agent))
                .await
                .expect("an agent");
            store.create_token(issued.row).await.expect("a token");
        });
        Tenant { org, agent, token }
    }

    /// Another agent of a tenant.
    pub(super) fn colleague(&self, tenant: &Tenant) -> Tenant {
        let agent = AgentId::new();
        let store = self.idle.store.clone();
        self.run(async { store.create_agent(named(tenant.org, agent)).await })
            .expect("an agent");
        Tenant {
            agent,
            ..tenant.clone()
        }
    }

    /// Lets the service work until `work` is done.
    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Sends a request; the answer, and what the provider got meanwhile.
    pub(super) fn ask(&mut self, asked: Asked<'_>) -> (Answer, Vec<Received>) {
        let mut head = http::Request::builder()
            .method(asked.method)
            .uri(asked.path)
            .header(header::AUTHORIZATION, format!("Bearer {}", asked.who.token))
            .header(header::CONTENT_TYPE, "application/json")
            .header("x-ibex-agent-id", asked.who.agent.to_string());
        for (name, value) in &asked.headers {
            head = head.header(*name, value);
        }
        let body: VecDeque<Bytes> = asked.body.into_iter().map(Bytes::copy_from_slice).collect();
        let answer = self.runtime.block_on(self.client.send(head, body));
        (answer, self.provider.taken())
    }

    /// Stops it in the ordinary way.
    fn stop(self) {
        self.stop.gently.cancel();
        self.stop.at_once.cancel();
        self.runtime.block_on(self.idle.app.tasks.drain(STOPPING));
        self.runtime.shutdown_background();
        FOLDERS.with_borrow_mut(|folders| {
            folders.retain(|folder| !self.idle.app.config.store.path.starts_with(folder.path()));
        });
    }
}

fn named(org: OrgId, agent: AgentId) -> Agent {
    Agent {
        id: agent,
        org,
        name: agent.to_string(),
        status: AgentStatus::Active,
        capture: CaptureScope::Off,
        created_at: SystemClock.now(),
    }
}

/// A configuration without limits that a fuzzer would meet before anything else, and without deadlines that a slow build would miss.
fn calm(provider: SocketAddr) -> Config {
    let mut config = Config::default();
    config.server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.rate_limit.default_rpm = u32::MAX;
    config.rate_limit.default_streams = None;
    config.context.deadline_ms = 5_000;
    config.context.timeout_ms = 6_000;
    config.context.directive_timeout_ms = 5_000;
    config.context.hot_timeout_ms = 5_000;
    config.context.cold_timeout_ms = 5_000;
    config.session.max_lanes = 64;
    config.session.max_bytes = 8 << 20;
    config.memory.index_bytes = 16 << 20;
    let provider = ProviderConfig {
        base_url: format!("http://{provider}"),
        api_key: None,
        auth: AuthStyle::None,
        default: true,
    };
    config.providers.insert("fuzz".to_owned(), provider);
    config
}

/// Holds an object to the documented form of an error, and to the status that its code has.
pub(super) fn error_object(error: &Value, status: u16) {
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    let code = text("code");
    let known = Code::ALL.iter().find(|known| known.as_str() == code);
    let known = known.unwrap_or_else(|| panic!("an unknown code: {error}"));
    assert_eq!(known.status().as_u16(), status, "{error}");
    assert_eq!(known.kind(), text("type"), "{error}");
    assert!((400..500).contains(&status), "a fault of ours: {error}");
    assert!(!text("message").is_empty(), "{error}");
    assert!(
        error["param"].is_string() || error["param"].is_null(),
        "{error}"
    );
}

/// The same for a whole answer.
pub(super) fn refused(answer: &Answer) {
    let body: Value = serde_json::from_slice(&answer.body)
        .unwrap_or_else(|fault| panic!("{fault} in the answer {}", answer.status));
    let kind = answer.headers.get(header::CONTENT_TYPE);
    assert!(
        kind.is_some_and(|kind| kind == "application/json"),
        "{kind:?}"
    );
    assert!(body["error"]["request_id"].is_string(), "{body}");
    error_object(&body["error"], answer.status.as_u16());
}
