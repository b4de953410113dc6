//! A running service: the real router on a real port over a fresh embedded store, with one organisation, agent and token.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ibex::app::{App, Seams};
use ibex::auth::Permissions;
use ibex::auth::pat::{self, NewToken};
use ibex::config::{AuthStyle, Config, ProviderConfig};
use ibex::ids::{AgentId, OrgId, UserId};
use ibex::memory::embedder::Embedder;
use ibex::memory::search::{ColdBranch, HotBranch};
use ibex::request::resolution::directive::DirectiveBranch;
use ibex::seams::{Clock, SystemClock, SystemEntropy};
use ibex::server::{Stop, listen};
use ibex::store::keys::ServerKeys;
use ibex::store::shared::SessionCache;
use ibex::store::sqlite::SqliteStore;
use ibex::store::{Agent, AgentStatus, CaptureScope, IdentityStore, Org, OrgStatus};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::Client;

/// Parts that a test replaces.
#[derive(Default)]
pub(crate) struct Overrides {
    pub(crate) directives: Option<Arc<dyn DirectiveBranch>>,
    pub(crate) hot: Option<Arc<dyn HotBranch>>,
    pub(crate) cold: Option<Arc<dyn ColdBranch>>,
    pub(crate) embedder: Option<Arc<dyn Embedder>>,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) sessions: Option<Arc<dyn SessionCache>>,
}

/// More than a service needs to stop.
const STOPPING: Duration = Duration::from_secs(20);

/// A running service. Dropping it stops the listener.
pub(crate) struct TestApp {
    pub(crate) app: App,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) org: OrgId,
    pub(crate) agent: AgentId,
    /// An all-permissions token that is bound to no agent: requests send the agent header.
    pub(crate) token: String,
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    folder: Arc<TempDir>,
}

impl Drop for TestApp {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl TestApp {
    /// The secret part of the token. It may hold the character that stands before it.
    pub(crate) fn secret(&self) -> &str {
        let secret = self.token.splitn(4, '_').nth(3);
        secret.expect("a token has four parts")
    }

    /// Starts a service in front of `upstream` (a base URL).
    pub(crate) async fn start(upstream: &str) -> Self {
        Self::with(upstream, |_| {}, Overrides::default()).await
    }

    /// Starts one with an edited configuration and replaced parts.
    pub(crate) async fn with(
        upstream: &str,
        edit: impl FnOnce(&mut Config),
        overrides: Overrides,
    ) -> Self {
        let folder = Arc::new(TempDir::new().expect("a temporary folder"));
        let mut this = Self::over(folder, upstream, edit, overrides).await;
        this.create_org(this.org).await;
        this.create_agent(this.org, this.agent).await;
        this.token = this.mint(this.org, None, None, Permissions::all()).await;
        this
    }

    /// Stops the service in the ordinary way and starts another one over the same store and keys: what is in memory is gone, and who
    /// asks is the same.
    pub(crate) async fn restarted(
        self,
        upstream: &str,
        edit: impl FnOnce(&mut Config),
        overrides: Overrides,
    ) -> Self {
        self.app.sessions.records.flushed().await;
        self.stop.cancel();
        let left = self.app.tasks.drain(STOPPING).await;
        assert_eq!(left, 0, "everything that ran has ended");
        self.store.close().await.expect("the store closes");
        let folder = Arc::clone(&self.folder);
        let mut next = Self::over(folder, upstream, edit, overrides).await;
        next.org = self.org;
        next.agent = self.agent;
        next.token.clone_from(&self.token);
        next
    }

    /// Stops the service in the ordinary way, background work included.
    pub(crate) async fn stopped(&self) {
        self.stop.cancel();
        let left = self.app.tasks.drain(STOPPING).await;
        assert_eq!(left, 0, "everything that ran has ended");
    }

    /// A service over whatever is in the folder; nobody has a right to it yet.
    async fn over(
        folder: Arc<TempDir>,
        upstream: &str,
        edit: impl FnOnce(&mut Config),
        overrides: Overrides,
    ) -> Self {
        let mut config = Config::default();
        config.server.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.store.path = folder.path().join("ibex.db");
        let provider = ProviderConfig {
            base_url: upstream.to_owned(),
            api_key: Some("sk-upstream-invented".to_owned()),
            auth: AuthStyle::Bearer,
            default: true,
        };
        config.providers.insert("openai".to_owned(), provider);
        edit(&mut config);
        let store =
            Arc::new(SqliteStore::open(&config.store.path, &config.store).expect("a store"));
        let keys = ServerKeys::load_or_create(&config.store.path, &config.keys, &SystemEntropy)
            .expect("keys");
        let mut seams = Seams::over(store.clone(), keys);
        seams.directives = overrides.directives;
        seams.hot = overrides.hot;
        seams.cold = overrides.cold;
        seams.embedder = overrides.embedder;
        seams.sessions = overrides.sessions;
        if let Some(clock) = overrides.clock {
            seams.clock = clock;
        }
        let app = App::build(config, seams).expect("a valid configuration");
        let listening = listen(app.clone()).await.expect("a free port");
        let address = listening.address();
        app.start();
        let told = Stop::default();
        let stop = told.gently.clone();
        app.tasks.spawn(async move {
            listening.serve(told).await;
        });
        Self {
            app,
            store,
            org: OrgId::new(),
            agent: AgentId::new(),
            token: String::new(),
            address,
            stop,
            folder,
        }
    }

    pub(crate) async fn create_org(&self, id: OrgId) {
        let org = Org {
            id,
            name: id.to_string(),
            status: OrgStatus::Active,
            created_at: SystemClock.now(),
        };
        self.store
            .create_org(org)
            .await
            .expect("a new organisation");
    }

    pub(crate) async fn create_agent(&self, org: OrgId, id: AgentId) {
        let agent = Agent {
            id,
            org,
            name: id.to_string(),
            status: AgentStatus::Active,
            capture: CaptureScope::Off,
            created_at: SystemClock.now(),
        };
        self.store.create_agent(agent).await.expect("a new agent");
    }

    /// Mints a token.
    pub(crate) async fn mint(
        &self,
        org: OrgId,
        agent: Option<AgentId>,
        user: Option<UserId>,
        permissions: Permissions,
    ) -> String {
        let new = NewToken {
            org,
            agent,
            user,
            name: "test".to_owned(),
            permissions,
            created_at: SystemClock.now(),
            expires_at: None,
        };
        let issued = pat::issue(&self.app.token_key, &SystemEntropy, new).expect("randomness");
        let secret = issued.secret.expose().to_owned();
        self.store
            .create_token(issued.row)
            .await
            .expect("a new token");
        secret
    }

    /// A client that acts for the service's agent with the all-permissions token.
    pub(crate) fn client(&self) -> Client {
        self.client_with(&self.token, Some(self.agent))
    }

    /// A client with another token or agent header.
    pub(crate) fn client_with(&self, token: &str, agent: Option<AgentId>) -> Client {
        let mut client =
            Client::new(self.address).header("authorization", &format!("Bearer {token}"));
        if let Some(agent) = agent {
            client = client.header("x-ibex-agent-id", &agent.to_string());
        }
        client
    }
}
