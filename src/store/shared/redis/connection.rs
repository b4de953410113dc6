//! One connection that many calls share. It is opened in the background when a call needs it, and thrown away when a call finds it
//! stalled, broken or at a server that is no primary any more; opening it again asks the sentinels or the cluster anew.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, Pipeline, RedisConnectionInfo, RedisError, RedisFuture, RedisResult,
    TlsMode, Value,
};
use tokio::sync::{Mutex, watch};

use crate::config::{RedisConfig, RedisMode};
use crate::tasks::Tasks;

use super::{Outage, RedisSetupError};

/// Calls that wait to be written; what is beyond waits a little longer.
const QUEUED_CALLS: usize = 1_024;
/// How often the library asks a cluster again by itself, within the time of a call.
const CLUSTER_RETRIES: u32 = 3;
/// How long it waits before it does.
const CLUSTER_RETRY_WAIT_MS: u64 = 10;

/// Where connections come from.
pub(super) enum Source {
    /// One server.
    Single(Client),
    /// Sentinels. With a password there are two ways to ask them, with it and without: some have one and some do not.
    Sentinel(Mutex<Vec<SentinelClient>>),
    /// A cluster, and the nodes of it that are configured.
    Cluster(Box<ClusterClient>, Vec<ConnectionInfo>),
}

impl Source {
    /// Reads the URLs; nothing is connected.
    pub(super) fn new(config: &RedisConfig) -> Result<Self, RedisSetupError> {
        let nodes = config
            .urls
            .iter()
            .enumerate()
            .map(|(n, url)| node(url).map_err(|_| RedisSetupError::Url(n)))
            .collect::<Result<Vec<_>, _>>()?;
        let first = nodes.first().ok_or(RedisSetupError::NoUrl)?.clone();
        let source = match config.mode {
            RedisMode::Single => Client::open(first).map(Self::Single),
            RedisMode::Sentinel => sentinels(&nodes, &first, &config.master)
                .map(|clients| Self::Sentinel(Mutex::new(clients))),
            RedisMode::Cluster => {
                cluster(nodes.clone(), config).map(|client| Self::Cluster(client.into(), nodes))
            }
        };
        source.map_err(|_| RedisSetupError::Mode)
    }

    async fn open(&self) -> RedisResult<Live> {
        // Times are kept by whoever calls; the library's own would only be other ones.
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUED_CALLS);
        let client = match self {
            Self::Single(client) => client.clone(),
            Self::Sentinel(clients) => primary(&mut clients.lock().await).await?,
            Self::Cluster(client, _) => {
                return client.get_async_connection().await.map(Live::Many);
            }
        };
        let connection = client.get_multiplexed_async_connection_with_config(&settings);
        connection.await.map(Live::One)
    }

    /// A server to listen at: announcements reach every node of a cluster, so another one is tried each time.
    pub(super) async fn for_listening(&self, attempt: usize) -> RedisResult<Client> {
        match self {
            Self::Single(client) => Ok(client.clone()),
            Self::Sentinel(clients) => primary(&mut clients.lock().await).await,
            Self::Cluster(_, nodes) => {
                let node = attempt.checked_rem(nodes.len()).and_then(|n| nodes.get(n));
                let none = (ErrorKind::InvalidClientConfig, "no node");
                Client::open(node.ok_or(none)?.clone())
            }
        }
    }

    pub(super) const fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(..))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single(_) => "Single",
            Self::Sentinel(_) => "Sentinel",
            Self::Cluster(..) => "Cluster",
        })
    }
}

fn node(url: &str) -> RedisResult<ConnectionInfo> {
    Ok(url.into_connection_info()?.set_tcp_settings(at_once()))
}

/// Many small calls share a connection: none of them may wait for another to fill a packet.
fn at_once() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// What the first URL says of user, password, database and TLS holds for the primary as well.
fn sentinels(
    nodes: &[ConnectionInfo],
    first: &ConnectionInfo,
    master: &str,
) -> RedisResult<Vec<SentinelClient>> {
    let mut of_primary = SentinelNodeConnectionInfo::default()
        .set_redis_connection_info(first.redis_settings().clone())
        .set_tcp_settings(at_once());
    if matches!(first.addr(), ConnectionAddr::TcpTls { .. }) {
        of_primary = of_primary.set_tls_mode(TlsMode::Secure);
    }
    let asked_with = |login: &dyn Fn(&ConnectionInfo) -> RedisConnectionInfo| {
        let nodes = nodes.iter().map(|node| {
            let login = login(node).set_db(0);
            node.clone().set_redis_settings(login)
        });
        SentinelClient::build(
            nodes.collect(),
            master,
            Some(of_primary.clone()),
            SentinelServerType::Master,
        )
    };
    let mut clients = vec![asked_with(&|node| node.redis_settings().clone())?];
    if nodes
        .iter()
        .any(|node| node.redis_settings().password().is_some())
    {
        clients.push(asked_with(&|_| RedisConnectionInfo::default())?);
    }
    Ok(clients)
}

/// The server that the sentinels call the primary, and that says so itself. The way that led to it is tried first the next time.
async fn primary(clients: &mut [SentinelClient]) -> RedisResult<Client> {
    let mut outcome = Err(RedisError::from((
        ErrorKind::EmptySentinelList,
        "no sentinel",
    )));
    for n in 0..clients.len() {
        let Some(client) = clients.get_mut(n) else {
            break;
        };
        outcome = client.async_get_client().await;
        if outcome.is_ok() {
            clients.swap(0, n);
            break;
        }
    }
    outcome
}

fn cluster(nodes: Vec<ConnectionInfo>, config: &RedisConfig) -> RedisResult<ClusterClient> {
    ClusterClientBuilder::new(nodes)
        .tcp_settings(at_once())
        .connection_timeout(Duration::from_millis(config.connect_timeout_ms))
        .response_timeout(Duration::from_millis(config.timeout_ms))
        .retries(CLUSTER_RETRIES)
        .min_retry_wait(1)
        .max_retry_wait(CLUSTER_RETRY_WAIT_MS)
        .build()
}

/// An open connection; clones share it.
#[derive(Clone)]
pub(super) enum Live {
    /// To one server.
    One(MultiplexedConnection),
    /// To the nodes of a cluster.
    Many(ClusterConnection),
}

impl ConnectionLike for Live {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(cmd),
            Self::Many(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Many(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(connection) => connection.get_db(),
            Self::Many(connection) => connection.get_db(),
        }
    }
}

/// What stands at the place of the connection.
enum Place {
    /// Nothing; the next call has one opened.
    Empty,
    /// One is being opened.
    Opening,
    /// A connection and its number.
    Open(Live, u64),
    /// Opening failed; the next call has it tried again.
    Failed(Outage),
}

/// The shared connection.
pub(super) struct Connection {
    pub(super) source: Source,
    place: watch::Sender<Place>,
    /// Time to open one.
    pub(super) limit: Duration,
    tasks: Tasks,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// None yet. `limit` is the time to open one.
    pub(super) fn new(source: Source, limit: Duration, tasks: Tasks) -> Self {
        Self {
            source,
            place: watch::Sender::new(Place::Empty),
            limit,
            tasks,
        }
    }

    /// The connection and its number. It waits while one is being opened, which goes on when whoever waits has gone: a call has less time
    /// than a handshake may need.
    pub(super) async fn get(self: &Arc<Self>) -> Result<(Live, u64), Outage> {
        let mut watched = self.place.subscribe();
        loop {
            self.open_if_there_is_none();
            let place = watched.wait_for(|place| !matches!(place, Place::Opening));
            match &*place.await.map_err(|_| Outage::Broken)? {
                Place::Open(live, number) => return Ok((live.clone(), *number)),
                Place::Failed(outage) => return Err(*outage),
                Place::Empty | Place::Opening => {}
            }
        }
    }

    fn open_if_there_is_none(self: &Arc<Self>) {
        if matches!(&*self.place.borrow(), Place::Open(..) | Place::Opening) {
            return;
        }
        let begun = self.place.send_if_modified(|place| {
            let none = matches!(place, Place::Empty | Place::Failed(_));
            if none {
                *place = Place::Opening;
            }
            none
        });
        if begun {
            let opening = Opening(Arc::clone(self));
            self.tasks.spawn(async move { opening.run().await });
        }
    }

    /// Throws connection `number` away. Calls that are still waiting for its answers keep it until they have them or give up.
    pub(super) fn discard(&self, number: u64) {
        self.place.send_if_modified(|place| {
            let same = matches!(place, Place::Open(_, n) if *n == number);
            if same {
                *place = Place::Empty;
            }
            same
        });
    }
}

/// A connection being opened. However it ends, nobody waits for it for ever.
struct Opening(Arc<Connection>);

impl Opening {
    async fn run(&self) {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let connection = &self.0;
        let opened = tokio::time::timeout(connection.limit, connection.source.open());
        let place = match opened.await {
            Ok(Ok(live)) => Place::Open(live, NUMBER.fetch_add(1, Ordering::Relaxed)),
            Ok(Err(error)) if Outage::of(&error) == Outage::Login => Place::Failed(Outage::Login),
            Ok(Err(_)) => Place::Failed(Outage::Refused),
            Err(_) => Place::Failed(Outage::TimedOut),
        };
        connection.place.send_replace(place);
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.place.send_if_modified(|place| {
            let open = matches!(place, Place::Opening);
            if open {
                *place = Place::Failed(Outage::Broken);
            }
            open
        });
    }
}
