//! Redis: what replicas share and may lose. Nothing here is a source of truth: whatever Redis forgets is counted, rendered or read again.
//!
//! Every call is bounded by `redis.timeout_ms` in all, whatever the server does, and a server that keeps failing is left alone for a while
//! ([`crate::breaker`]), so that an outage costs requests next to nothing. A server that is not there at the start is an outage like any other.
//!
//! A call may reach the server twice: when the connection breaks while it is under way, it is made once more on a new one. Scripts and
//! commands are chosen so that doing one twice does no harm.
//!
//! In a cluster the keys of one script or transaction lie in one slot: their names share a hash tag ([`keys`]).

mod connection;
pub mod keys;
mod wire;
pub mod session;
mod newest;
mod replies;
pub mod directives;
pub mod hot;
pub mod announce;
pub mod announced;

#[cfg(test)]
pub(crate) mod testing;

pub use replies::RedisReplies;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{ErrorKind, FromRedisValue, Pipeline, RedisError, ServerErrorKind, ToRedisArgs, Value};
use tokio::time::Instant;

use crate::breaker::{Breaker, Rests, Turned};
use crate::config::RedisConfig;
use crate::tasks::Tasks;
use crate::telemetry::{RedisCall, RedisFigures};

use connection::{Connection, Live, Source};
use keys::{Key, Keys};

/// Why the configuration names no Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RedisSetupError {
    /// There is no URL.
    #[error("redis.urls is empty")]
    NoUrl,
    /// A URL says something that no server understands. It may hold a password, so its place is all that is told.
    #[error("redis.urls[{0}] cannot be used: check its port, its database and its parameters")]
    Url(usize),
    /// The URLs do not go together.
    #[error(
        "redis.urls cannot be used in this redis.mode: check that they name the same user and password"
    )]
    Mode,
}

/// Why Redis has no answer. The server's own words are not kept: they may quote what it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Outage {
    /// It has not answered in time.
    #[error("Redis has not answered in time")]
    TimedOut,
    /// It cannot be reached, refuses the connection, or is not ready yet.
    #[error("Redis cannot be reached")]
    Refused,
    /// It refuses the login, or the user may not do this.
    #[error(
        "Redis refuses the login: check user and password in redis.urls, and what the user may do"
    )]
    Login,
    /// The server is a replica.
    #[error("Redis takes no writes")]
    ReadOnly,
    /// The connection broke.
    #[error("the connection to Redis broke")]
    Broken,
    /// It has failed so often of late that it is not asked.
    #[error("Redis has failed and rests")]
    Resting,
    /// It answered, but has not done what it was asked: it is out of memory, a permission is missing, or something else writes its keys.
    #[error("Redis has not done what it was asked")]
    Rejected,
}

/// Between two warnings that calls are rejected.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// How long what the readiness probe wrote is kept, in milliseconds.
const PROBE_MS: u32 = 60_000;

/// Answers of a server that will take calls, but not now or not from us.
const NOT_READY: [ErrorKind; 5] = [
    ErrorKind::Server(ServerErrorKind::BusyLoading),
    ErrorKind::Server(ServerErrorKind::MasterDown),
    ErrorKind::Server(ServerErrorKind::ClusterDown),
    ErrorKind::Server(ServerErrorKind::TryAgain),
    ErrorKind::ClusterConnectionNotFound,
];

impl Outage {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::TimedOut,
        Self::Refused,
        Self::Login,
        Self::ReadOnly,
        Self::Broken,
        Self::Resting,
        Self::Rejected,
    ];

    /// The metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::Refused => "refused",
            Self::Login => "login",
            Self::ReadOnly => "read_only",
            Self::Broken => "broken",
            Self::Resting => "resting",
            Self::Rejected => "rejected",
        }
    }

    fn of(error: &RedisError) -> Self {
        let kind = error.kind();
        // Before version 7 a script that may not write says so behind another code.
        let read_only = || error.detail().is_some_and(|text| text.contains("READONLY"));
        let login = |code: &str| matches!(code, "NOAUTH" | "NOPERM" | "WRONGPASS");
        if kind == ErrorKind::AuthenticationFailed || error.code().is_some_and(login) {
            Self::Login
        } else if NOT_READY.contains(&kind) {
            Self::Refused
        } else if kind == ErrorKind::Server(ServerErrorKind::ReadOnly) || read_only() {
            Self::ReadOnly
        } else if error.is_timeout() {
            Self::TimedOut
        } else if error.is_unrecoverable_error() || error.is_io_error() {
            Self::Broken
        } else {
            Self::Rejected
        }
    }

    /// Whether another connection may lead to an answer.
    const fn is_of_the_connection(self) -> bool {
        matches!(self, Self::Broken | Self::ReadOnly)
    }
}

/// A Lua script. The server is sent its hash, and its text when it does not know the hash.
#[derive(Debug)]
pub struct Script {
    text: String,
    sha1: String,
}

impl Script {
    /// Hashes the text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            sha1: redis::Script::new(text).get_hash().to_owned(),
        }
    }

    fn cmd(&self, how: How, keys: &[Key], args: &[Vec<u8>]) -> redis::Cmd {
        let mut cmd = match how {
            How::ByHash => redis::cmd("EVALSHA").arg(&self.sha1).take(),
            How::ByText => redis::cmd("EVAL").arg(&self.text).take(),
        };
        cmd.arg(keys.len()).arg(keys).arg(args);
        cmd
    }
}

#[derive(Debug, Clone, Copy)]
enum How {
    ByHash,
    ByText,
}

/// What a call sends.
#[derive(Clone, Copy)]
enum Ask<'a> {
    Cmd(&'a redis::Cmd),
    Pipeline(&'a Pipeline),
    Script(&'a Script, &'a [Key], &'a [Vec<u8>]),
}

impl Ask<'_> {
    async fn of(self, mut live: Live) -> Result<Value, RedisError> {
        match self {
            Self::Cmd(cmd) => cmd.query_async(&mut live).await,
            Self::Pipeline(pipeline) => pipeline.query_async(&mut live).await,
            Self::Script(script, keys, args) => {
                let by_hash = script.cmd(How::ByHash, keys, args);
                match by_hash.query_async(&mut live).await {
                    Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                        let by_text = script.cmd(How::ByText, keys, args);
                        by_text.query_async(&mut live).await
                    }
                    outcome => outcome,
                }
            }
        }
    }
}

#[derive(Debug)]
struct Shared {
    keys: Keys,
    connection: Arc<Connection>,
    breaker: Breaker,
    limit: Duration,
    /// When it was last told that it rejects calls.
    told: Mutex<Option<Instant>>,
    figures: RedisFigures,
    /// Whether changes are announced and listened for.
    announces: bool,
}

/// A handle; cheap to clone.
#[derive(Debug, Clone)]
pub struct Redis(Arc<Shared>);

impl Redis {
    /// A handle on the configured Redis. It does not wait for the server, which need not be there.
    ///
    /// # Errors
    /// When the configuration names none.
    pub fn new(
        config: &RedisConfig,
        figures: RedisFigures,
        tasks: Tasks,
    ) -> Result<Self, RedisSetupError> {
        let source = Source::new(config)?;
        let to_open = Duration::from_millis(config.connect_timeout_ms);
        Ok(Self(Arc::new(Shared {
            keys: Keys::new(&config.prefix),
            connection: Arc::new(Connection::new(source, to_open, tasks)),
            breaker: Breaker::new(Rests::STORE, figures.breaker.clone()),
            limit: Duration::from_millis(config.timeout_ms),
            told: Mutex::default(),
            figures,
            announces: config.pubsub,
        })))
    }

    /// The names of its keys.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.0.keys
    }

    /// What its calls are counted in.
    #[must_use]
    pub fn figures(&self) -> &RedisFigures {
        &self.0.figures
    }

    /// Whether keys with different hash tags may lie on different servers, so that no script may touch both.
    #[must_use]
    pub fn is_cluster(&self) -> bool {
        self.0.connection.source.is_cluster()
    }

    /// Whether it takes writes: one that only answers is of no use to requests that have to be counted.
    ///
    /// # Errors
    /// When it does not.
    pub async fn takes_writes(&self) -> Result<(), Outage> {
        let mut set = redis::cmd("SET");
        set.arg(self.keys().probe()).arg(1).arg("PX").arg(PROBE_MS);
        self.run::<Value>(RedisCall::Ping, &set).await.map(drop)
    }

    /// Whether it answers at all.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), Outage> {
        self.run::<Value>(RedisCall::Ping, &redis::cmd("PING"))
            .await
            .map(drop)
    }

    /// Runs one command.
    ///
    /// # Errors
    /// When there is no answer, or not one of this type.
    pub async fn run<T: FromRedisValue>(
        &self,
        call: RedisCall,
        cmd: &redis::Cmd,
    ) -> Result<T, Outage> {
        self.call(call, Ask::Cmd(cmd)).await
    }

    /// Runs several commands in one round trip; atomically if the pipeline says so.
    ///
    /// # Errors
    /// When there is no answer, or not one of this type.
    pub async fn pipeline<T: FromRedisValue>(
        &self,
        call: RedisCall,
        pipeline: &Pipeline,
    ) -> Result<T, Outage> {
        self.call(call, Ask::Pipeline(pipeline)).await
    }

    /// Runs a script. `args` may be a tuple.
    ///
    /// # Errors
    /// When there is no answer, or not one of this type.
    pub async fn script<T: FromRedisValue>(
        &self,
        call: RedisCall,
        script: &Script,
        keys: &[Key],
        args: impl ToRedisArgs,
    ) -> Result<T, Outage> {
        let args = args.to_redis_args();
        self.call(call, Ask::Script(script, keys, &args)).await
    }

    async fn call<T: FromRedisValue>(&self, call: RedisCall, ask: Ask<'_>) -> Result<T, Outage> {
        let began = Instant::now();
        let answer = self.bounded(ask).await;
        let answer =
            answer.and_then(|value| T::from_redis_value(value).map_err(|_| Outage::Rejected));
        let outcome = answer.as_ref().map_or_else(|o| o.as_str(), |_| "ok");
        self.0.figures.called(call, outcome, began.elapsed());
        answer
    }

    async fn bounded(&self, ask: Ask<'_>) -> Result<Value, Outage> {
        let Shared {
            breaker,
            connection,
            limit,
            ..
        } = &*self.0;
        let attempt = breaker.enter().ok_or(Outage::Resting)?;
        let mut number = None;
        let outcome = tokio::time::timeout(*limit, self.once_or_twice(ask, &mut number))
            .await
            .unwrap_or(Err(Outage::TimedOut));
        let answered = matches!(outcome, Ok(_) | Err(Outage::Rejected));
        let turned = attempt.ended(answered);
        if let (Err(Outage::TimedOut), Some(number)) = (&outcome, number) {
            // One slow node of a cluster is no reason to ask for all of them anew, unless nothing else is heard.
            let nothing_heard = matches!(turned, Turned::Open | Turned::StaysOpen);
            if !self.is_cluster() || nothing_heard {
                connection.discard(number);
            }
        }
        match (turned, &outcome) {
            (Turned::Open, Err(outage)) => {
                tracing::warn!("redis: {outage}; it is left alone for moments until it answers");
            }
            (Turned::Closed, _) => tracing::info!("redis: it answers again"),
            (Turned::Open | Turned::StaysOpen | Turned::Neither, _) => {}
        }
        if outcome == Err(Outage::Rejected) {
            self.tell_of_rejection();
        }
        outcome
    }

    /// It answers, so nothing else tells that it is of no use.
    fn tell_of_rejection(&self) {
        let mut told = self.0.told.lock();
        if told.is_none_or(|at| at.elapsed() > TOLD_AGAIN) {
            *told = Some(Instant::now());
            tracing::warn!(
                "redis: it rejects calls: it may be out of memory, or hold keys of somebody else under redis.prefix"
            );
        }
    }

    /// `number` is the connection being waited for, for whoever gives up.
    async fn once_or_twice(&self, ask: Ask<'_>, number: &mut Option<u64>) -> Result<Value, Outage> {
        let mut last = false;
        loop {
            *number = None;
            let (live, of) = self.0.connection.get().await?;
            *number = Some(of);
            let outage = match ask.of(live).await {
                Ok(value) => return Ok(value),
                Err(error) => Outage::of(&error),
            };
            if !outage.is_of_the_connection() {
                return Err(outage);
            }
            // A cluster finds its new primary by itself.
            if !(self.is_cluster() && outage == Outage::ReadOnly) {
                self.0.connection.discard(of);
            }
            if last {
                return Err(outage);
            }
            last = true;
        }
    }
}

#[cfg(test)]
mod tests;
