//! A client on a bare socket: it sends half requests, reads half answers, leaves when a test says so, and keeps its connection.

use std::net::SocketAddr;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{TestApp, soon};

/// One connection.
pub(super) struct Raw {
    stream: TcpStream,
    buffer: BytesMut,
}

/// A whole answer as it was framed.
#[derive(Debug)]
pub(super) struct RawAnswer {
    pub(super) status: u16,
    /// Status line and headers, in lower case.
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl RawAnswer {
    pub(super) fn code(&self) -> String {
        let json: serde_json::Value = serde_json::from_slice(&self.body).expect("a JSON answer");
        json["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

impl Raw {
    pub(super) async fn connect(app: &TestApp) -> Self {
        Self::to(app.address).await
    }

    pub(super) async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address)
            .await
            .expect("the service listens");
        stream.set_nodelay(true).expect("a TCP socket");
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    /// A connection whose kernel holds little that has not been read.
    pub(super) async fn narrow(app: &TestApp) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(64 << 10).expect("a socket");
        let stream = socket
            .connect(app.address)
            .await
            .expect("the service listens");
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        soon("the service to read", self.stream.write_all(bytes.as_ref()))
            .await
            .expect("the connection stands");
    }

    /// Sends as much as the other side takes; whether it was all.
    pub(super) async fn try_send(&mut self, bytes: &[u8]) -> bool {
        soon("the service to read", self.stream.write_all(bytes))
            .await
            .is_ok()
    }

    /// Reads up to and including `mark`, which must come.
    pub(super) async fn read_to(&mut self, mark: &[u8]) -> Vec<u8> {
        loop {
            let found = self
                .buffer
                .windows(mark.len())
                .position(|window| window == mark);
            if let Some(at) = found {
                return self.buffer.split_to(at + mark.len()).to_vec();
            }
            assert!(
                self.more().await,
                "the connection ended before {:?}; last came {:?}",
                String::from_utf8_lossy(mark),
                String::from_utf8_lossy(&self.buffer)
            );
        }
    }

    /// Reads one answer with a declared length or in chunks.
    pub(super) async fn answer(&mut self) -> RawAnswer {
        let head = String::from_utf8(self.read_to(b"\r\n\r\n").await)
            .expect("an ASCII head")
            .to_ascii_lowercase();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .expect("a status");
        let length = head
            .lines()
            .find_map(|l| l.strip_prefix("content-length: "))
            .map(|v| v.parse::<usize>().expect("a length"));
        let mut body = Vec::new();
        match length {
            Some(length) => {
                while self.buffer.len() < length {
                    assert!(self.more().await, "the body broke off");
                }
                body = self.buffer.split_to(length).to_vec();
            }
            None => loop {
                let line = self.read_to(b"\r\n").await;
                let size = std::str::from_utf8(&line).expect("a chunk size").trim();
                let size = usize::from_str_radix(size, 16).expect("a chunk size");
                while self.buffer.len() < size + 2 {
                    assert!(self.more().await, "the body broke off");
                }
                body.extend_from_slice(&self.buffer.split_to(size));
                self.buffer.advance(2);
                if size == 0 {
                    break;
                }
            },
        }
        RawAnswer { status, head, body }
    }

    /// Reads until the other side ends, and counts.
    pub(super) async fn count_to_end(&mut self) -> usize {
        let mut count = self.buffer.len();
        self.buffer.clear();
        while self.more().await {
            count += self.buffer.len();
            self.buffer.clear();
        }
        count
    }

    /// Reads what is there, at least one byte, and counts it.
    pub(super) async fn some(&mut self) -> usize {
        if self.buffer.is_empty() {
            assert!(self.more().await, "the connection ended");
        }
        let count = self.buffer.len();
        self.buffer.clear();
        count
    }

    /// Whether the other side has closed; reads what is left.
    pub(super) async fn closed(&mut self) -> bool {
        while self.more().await {}
        true
    }

    async fn more(&mut self) -> bool {
        let read = soon(
            "bytes from the service",
            self.stream.read_buf(&mut self.buffer),
        )
        .await;
        matches!(read, Ok(n) if n > 0)
    }
}

/// The head of a POST; `headers` are whole lines that end in CRLF.
pub(super) fn head(app: &TestApp, path: &str, headers: &str) -> String {
    let agent = app.agent.to_string();
    head_for(app.address, &app.token, &agent, path, headers)
}

/// The same for a service that is known by its address and login.
pub(super) fn head_for(
    address: SocketAddr,
    token: &str,
    agent: &str,
    path: &str,
    headers: &str,
) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nx-ibex-agent-id: {agent}\r\ncontent-type: application/json\r\n{headers}\r\n"
    )
}

/// A whole POST with a declared length.
pub(super) fn post(app: &TestApp, path: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = head(app, path, &format!("content-length: {}\r\n", body.len()));
    [head.as_bytes(), body].concat()
}
