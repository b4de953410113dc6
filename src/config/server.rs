//! `[server]` and `[log]`.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The client side.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// Greatest request body in bytes.
    pub max_body_bytes: usize,
    /// Greatest number of messages in a chat request.
    pub max_messages: usize,
    /// Greatest total of request bodies held in memory at once, in bytes; beyond it requests get 503 with `Retry-After`.
    pub max_bytes_in_flight: usize,
    /// The share of `max_bytes_in_flight` that one organisation may use, above 0 and at most 1.
    pub org_share: f64,
    /// Most connections at once; further ones wait to be accepted.
    pub max_connections: usize,
    /// Time for a client to send its request head, in milliseconds; also how long a connection may stay silent between requests.
    pub header_read_timeout_ms: u64,
    /// Time for a client to send its body, in milliseconds.
    pub body_read_timeout_ms: u64,
    /// Time for a client to take more of its answer once its connection is full, in milliseconds; then the connection is ended.
    pub write_timeout_ms: u64,
    /// After SIGTERM, time in which `/ready` answers 503 and connections are still accepted, in milliseconds.
    pub drain_delay_ms: u64,
    /// Time for open requests to finish after that, in milliseconds.
    pub drain_timeout_ms: u64,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            max_body_bytes: 32 << 20,
            max_messages: 4_000,
            max_bytes_in_flight: 512 << 20,
            org_share: 0.5,
            max_connections: 16_384,
            header_read_timeout_ms: 30_000,
            body_read_timeout_ms: 60_000,
            write_timeout_ms: 120_000,
            drain_delay_ms: 0,
            drain_timeout_ms: 30_000,
        }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Pretty on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Pretty,
}

/// Log output.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// `error`, `warn`, `info`, `debug` or `trace`, or a `tracing` filter such as `ibex=debug`.
    pub level: String,
    /// `auto`, `json` or `pretty`.
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Auto,
        }
    }
}
