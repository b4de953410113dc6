//! The listener: accepts connections, limits how long a request head and a waiting write may take, and drains on shutdown.

use std::net::SocketAddr;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::app::App;

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

    /// Serves until `stop`, then lets open requests finish for at most the drain time. Returns whether all of them did.
    pub async fn serve(self, stop: CancellationToken) -> bool {
        let service = Service::new(self.app.clone());
        let mut server = Builder::new(TokioExecutor::new());
        let head_time = Duration::from_millis(self.app.config.server.header_read_timeout_ms);
        server
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(head_time);
        server
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(Duration::from_secs(60));
        let write_time = Duration::from_millis(self.app.config.server.write_timeout_ms);
        let open = GracefulShutdown::new();
        loop {
            let stream = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            match stream {
                Ok((stream, _)) => {
                    let stream = TokioIo::new(WriteTimeout::new(prepared(stream), write_time));
                    let connection = server
                        .serve_connection_with_upgrades(stream, service.clone())
                        .into_owned();
                    let watched = open.watch(connection);
                    self.app.tasks.spawn(async move {
                        // A client that breaks off mid-request is its own business; requests log their outcome themselves.
                        if let Err(error) = watched.await {
                            tracing::debug!("connection: {error}");
                        }
                    });
                }
                Err(error) => {
                    // Out of descriptors, mostly: accepting again at once would spin.
                    tracing::warn!("accept: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(self.listener);
        self.app.set_draining();
        let limit = Duration::from_millis(self.app.config.server.drain_timeout_ms);
        tokio::time::timeout(limit, open.shutdown()).await.is_ok()
    }
}

fn prepared(stream: TcpStream) -> TcpStream {
    // Small events must not wait for more: without this a token can sit for 40 ms.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("set_nodelay: {error}");
    }
    stream
}
