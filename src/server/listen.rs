//! The listener: accepts connections, limits how long a request head and a waiting write may take, and drains on shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::app::App;

use super::probes;
use super::service::Service;
use super::write_timeout::WriteTimeout;

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("server.listen: cannot listen on {address}: {reason}")]
pub struct ListenError {
    address: SocketAddr,
    reason: std::io::Error,
}

impl ListenError {
    /// What the system says.
    #[must_use]
    pub fn reason(&self) -> &std::io::Error {
        &self.reason
    }
}

/// How a server is told to stop: each is one step further than the one before.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Says so to balancers.
    pub gently: CancellationToken,
    /// Accepts nothing more, also before balancers have had their time; open requests may finish.
    pub without_delay: CancellationToken,
    /// Cuts what is open.
    pub at_once: CancellationToken,
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every request had its end.
    Whole,
    /// The drain time passed with requests still open.
    OutOfTime,
    /// It was told not to wait for them.
    ToldTo,
}

/// A server that accepts connections until it is told to stop.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    app: App,
    address: SocketAddr,
}

/// Binds the configured address.
///
/// # Errors
/// When the address is taken or not ours.
pub async fn listen(app: App) -> Result<Listening, ListenError> {
    let wanted = app.config.server.listen;
    let fail = |reason| ListenError {
        address: wanted,
        reason,
    };
    let listener = TcpListener::bind(wanted).await.map_err(fail)?;
    let address = listener.local_addr().map_err(fail)?;
    if app.redis.is_some() {
        // Opens the connection that the first request would have to wait for within its deadline. Whether it can be opened is a matter of
        // `/ready`.
        let _standing = probes::standing(&app).await;
    }
    Ok(Listening {
        listener,
        app,
        address,
    })
}

impl Listening {
    /// The bound address (the port, when 0 was asked for).
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is told to stop. From then on `/ready` answers 503 and every answer ends its connection; for `drain_delay_ms` new
    /// connections are still served, so that a balancer can learn of it. Then open requests may finish for at most the drain time, and what
    /// is left is cut. Returns whether anything was, and why.
    pub async fn serve(self, stop: Stop) -> Drained {
        let config = &self.app.config.server;
        let service = Service::new(self.app.clone());
        let mut server = Builder::new();
        // It also ends a connection that never says anything, and one that stays idle between requests.
        server
            .timer(TokioTimer::new())
            .header_read_timeout(Duration::from_millis(config.header_read_timeout_ms));
        let write_time = Duration::from_millis(config.write_timeout_ms);
        let (open, cut) = (GracefulShutdown::new(), CancellationToken::new());
        let room = Arc::new(Semaphore::new(config.max_connections));
        let mut leaving = std::pin::pin!(leave(&self.app, &stop));
        loop {
            let stream = tokio::select! {
                accepted = accept(&self.listener, &room) => accepted,
                () = &mut leaving => break,
            };
            let Some((stream, place)) = stream else {
                continue;
            };
            let stream = TokioIo::new(WriteTimeout::new(prepared(stream), write_time));
            let connection = open.watch(server.serve_connection(stream, service.clone()));
            let cut = cut.clone();
            self.app.tasks.spawn(async move {
                tokio::select! {
                    // A client that breaks off mid-request is its own business; requests log their outcome themselves.
                    ended = connection => ended.unwrap_or_else(|error| tracing::debug!("connection: {error}")),
                    () = cut.cancelled() => {}
                }
                drop(place);
            });
        }
        drop(self.listener);
        let limit = Duration::from_millis(config.drain_timeout_ms);
        let drained = tokio::select! {
            drained = tokio::time::timeout(limit, open.shutdown()) => match drained {
                Ok(()) => Drained::Whole,
                Err(_) => Drained::OutOfTime,
            },
            () = stop.at_once.cancelled() => Drained::ToldTo,
        };
        self.app.set_cut();
        cut.cancel();
        drained
    }
}

/// Returns when no more connections are to be accepted.
async fn leave(app: &App, stop: &Stop) {
    stop.gently.cancelled().await;
    app.set_draining();
    let delay = Duration::from_millis(app.config.server.drain_delay_ms);
    tokio::select! {
        () = tokio::time::sleep(delay) => {}
        () = stop.without_delay.cancelled() => {}
        () = stop.at_once.cancelled() => {}
    }
}

/// The next connection, once there is room for one.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            // Out of descriptors, mostly: accepting again at once would spin.
            tracing::warn!("accept: {error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

fn prepared(stream: TcpStream) -> TcpStream {
    // Small events must not wait for more: without this a token can sit for 40 ms.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("set_nodelay: {error}");
    }
    stream
}
