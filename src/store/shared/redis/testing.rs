//! Redis for tests: the shared server, servers of one test's own, and servers that say what a test wants.

use std::net::TcpListener as StdListener;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{Redis, RedisFigures};
use crate::config::RedisConfig;
use crate::tasks::Tasks;
use crate::telemetry::RedisCall;

/// The server that all tests share. Its keys begin with a prefix of each test's own.
pub(crate) fn url() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(|| {
        #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
        let given = std::env::var("IBEX_TEST_REDIS_URL");
        if let Some(url) = given.ok().filter(|url| !url.is_empty()) {
            return url;
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/services.sh");
        let told = Command::new(script).arg("ensure").output().expect(script);
        let told = String::from_utf8(told.stdout).expect("text");
        let mut lines = told.lines();
        let url = lines.find_map(|line| line.strip_prefix("IBEX_TEST_REDIS_URL="));
        url.expect("a server for tests").to_owned()
    })
}

/// A configuration with a prefix of its own, and time enough for a busy machine.
pub(crate) fn config(urls: &[&str]) -> RedisConfig {
    RedisConfig {
        urls: urls.iter().map(ToString::to_string).collect(),
        prefix: format!("test-{}", uuid::Uuid::new_v4().simple()),
        timeout_ms: 20_000,
        connect_timeout_ms: 20_000,
        ..RedisConfig::default()
    }
}

pub(crate) fn open(config: &RedisConfig) -> Redis {
    Redis::new(config, RedisFigures::default(), Tasks::new()).expect("a configuration")
}

/// A handle on the shared server.
pub(crate) fn shared() -> Redis {
    open(&config(&[url()]))
}

/// Asks something else than the product would.
pub(crate) async fn ask<T: redis::FromRedisValue>(redis: &Redis, words: &[&str]) -> T {
    let mut cmd = redis::cmd(words[0]);
    cmd.arg(&words[1..]);
    let answer = redis.run(RedisCall::Ping, &cmd).await;
    answer.unwrap_or_else(|outage| panic!("{words:?}: {outage}"))
}

/// Waits until `check` says yes.
pub(crate) async fn comes(mut check: impl AsyncFnMut() -> bool) {
    let checks = async {
        while !check().await {
            tokio::task::yield_now().await;
        }
    };
    let long = Duration::from_secs(60);
    tokio::time::timeout(long, checks).await.expect("it comes");
}

/// Every key of a handle's prefix, with its time to live in milliseconds.
pub(crate) async fn keys(redis: &Redis, prefix: &str) -> Vec<(String, i64)> {
    let names: Vec<String> = ask(redis, &["KEYS", &format!("{prefix}:*")]).await;
    let mut keys = Vec::new();
    for name in names {
        let ttl = ask(redis, &["PTTL", &name]).await;
        keys.push((name, ttl));
    }
    keys
}

/// A port that nobody listens at.
pub(crate) fn closed_port() -> u16 {
    let listener = StdListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// A server of one test's own; it ends with this value.
pub(crate) struct Own {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
    args: Vec<String>,
}

impl Own {
    /// A server with further arguments.
    pub(crate) async fn start(args: &[&str]) -> Self {
        Self::start_from(None, args, closed_port()).await
    }

    /// A server at a port that is known before.
    pub(crate) async fn start_at(port: u16) -> Self {
        Self::start_from(None, &[], port).await
    }

    /// A cluster of one node: it serves every slot, and refuses what touches two.
    pub(crate) async fn cluster() -> Self {
        let this = Self::start(&["--cluster-enabled", "yes"]).await;
        let direct = open(&config(&[&this.url()]));
        let _: Value = ask(&direct, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
        comes(async || {
            let info: String = ask(&direct, &["CLUSTER", "INFO"]).await;
            info.contains("cluster_state:ok")
        })
        .await;
        this
    }

    async fn start_from(file: Option<&str>, args: &[&str], port: u16) -> Self {
        // Installs the program where it is not.
        url();
        let folder = tempfile::tempdir().expect("a folder");
        let args = file.iter().chain(args);
        let args: Vec<String> = args.map(ToString::to_string).collect();
        let child = run(folder.path(), port, &args);
        let this = Self {
            child,
            folder,
            port,
            args,
        };
        this.answers().await;
        this
    }

    /// A sentinel that watches nobody yet. It keeps what it is told in the file.
    pub(crate) async fn sentinel(file: &std::path::Path) -> Self {
        let file = file.to_str().expect("a name");
        Self::start_from(Some(file), &["--sentinel"], closed_port()).await
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The same, with the password of a server that wants one.
    pub(crate) fn url_with(&self, password: &str) -> String {
        format!("redis://:{password}@127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends it without any farewell, and starts it again with the files it left.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        self.child = run(self.folder.path(), self.port, &self.args);
        self.answers().await;
    }

    async fn answers(&self) {
        comes(async || {
            let client = redis::Client::open(self.url()).expect("a URL");
            let connection = client.get_multiplexed_async_connection().await;
            let Ok(mut connection) = connection else {
                return false;
            };
            let pong: redis::RedisResult<Value> =
                redis::cmd("PING").query_async(&mut connection).await;
            // One that wants a password answers as well.
            pong.map_or_else(|error| error.code() == Some("NOAUTH"), |_| true)
        })
        .await;
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn run(folder: &std::path::Path, port: u16, args: &[String]) -> Child {
    Command::new("redis-server")
        .args(args)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--dir"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server")
}

/// What a scripted server does with a command.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// These bytes.
    Says(&'static str),
    /// Nothing, ever.
    Silent,
    /// It hangs up.
    HangsUp,
}

/// A server that says what a test wants.
#[derive(Clone)]
pub(crate) struct Scripted {
    pub(crate) port: u16,
    reply: Arc<Mutex<Reply>>,
    connections: Arc<AtomicUsize>,
}

impl Scripted {
    /// Answers the handshake of a client, and everything else with `reply`.
    pub(crate) async fn start(port: u16, reply: Reply) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .expect("a port");
        let this = Self {
            port: listener.local_addr().expect("an address").port(),
            reply: Arc::new(Mutex::new(reply)),
            connections: Arc::default(),
        };
        let serving = this.clone();
        Tasks::new().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serving.connections.fetch_add(1, Ordering::SeqCst);
                Tasks::new().spawn(serving.clone().serve(stream));
            }
        });
        this
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn set_answer(&self, reply: Reply) {
        *self.reply.lock().expect("a lock") = reply;
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut read = Vec::new();
        loop {
            while let Some(command) = take_command(&mut read) {
                let handshake = command.first().is_some_and(|c| c == "CLIENT");
                let reply = self.reply.lock().expect("a lock").clone();
                match reply {
                    Reply::Says(_) | Reply::HangsUp if handshake => {
                        _ = stream.write_all(b"+OK\r\n").await;
                    }
                    Reply::Says(text) => _ = stream.write_all(text.as_bytes()).await,
                    Reply::Silent => {}
                    Reply::HangsUp => return,
                }
            }
            match stream.read_buf(&mut read).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

/// The next whole command, an array of bulk strings.
fn take_command(read: &mut Vec<u8>) -> Option<Vec<String>> {
    let text = String::from_utf8(read.clone()).expect("text");
    let mut rest = text.split_inclusive("\r\n");
    let mut used = 0;
    let mut line = |rest: &mut std::str::SplitInclusive<'_, &str>| {
        let line = rest.next()?;
        used += line.len();
        line.strip_suffix("\r\n").map(str::to_owned)
    };
    let words: usize = line(&mut rest)?.strip_prefix('*')?.parse().ok()?;
    let mut command = Vec::new();
    for _ in 0..words {
        line(&mut rest)?;
        command.push(line(&mut rest)?);
    }
    read.drain(..used);
    Some(command)
}
