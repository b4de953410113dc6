//! Memory stays bounded whatever a provider sends and however slowly a client reads.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::raw::{self, Raw};
use super::{CHAT, chat, released, streamed};
use crate::support::{Client, Script, TestApp, Upstream, chunk, soon};

/// 64 MiB, many times what the sockets on the way can hold.
const LARGE: usize = 64 << 20;

#[tokio::test]
async fn a_client_that_does_not_read_holds_the_provider_back() {
    let piece = vec![b'x'; 64 << 10];
    let script = Script::new()
        .send(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {LARGE}\r\n\r\n"
        ))
        .repeat(piece.clone(), LARGE / piece.len());
    let upstream = Upstream::playing(script).await;
    let app = TestApp::start(&upstream.url()).await;
    let mut client = Raw::narrow(&app).await;
    client.send(raw::post(&app, CHAT, chat().to_string())).await;
    let exchange = upstream.exchange(0).await;
    // On the test's one thread everybody who can go on does so between two yields; when nobody has for long, nobody can.
    let (mut still, mut written) = (0, 0);
    while still < 1_000 {
        tokio::task::yield_now().await;
        still = if exchange.written() == written {
            still + 1
        } else {
            0
        };
        written = exchange.written();
    }
    assert!(
        written > 0 && written < LARGE / 2,
        "{written} bytes were taken"
    );
    assert!(!exchange.done.is_set());
    let head = client.read_to(b"\r\n\r\n").await;
    assert!(head.starts_with(b"HTTP/1.1 200"));
    let mut count = 0;
    while count < LARGE {
        count += client.some().await;
    }
    assert_eq!(count, LARGE);
    exchange.done.wait().await;
    released(&app).await;
}

/// The built service as a process of its own, so that its memory is nobody else's.
struct Service {
    child: Child,
    address: std::net::SocketAddr,
    login: Value,
    _folder: TempDir,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
    }
}

impl Service {
    fn start(upstream: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let command = |args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ibex"));
            command
                .args(args)
                .env_clear()
                .env("IBEX_STORE__PATH", folder.path().join("ibex.db"))
                .current_dir(folder.path());
            command
        };
        let login = command(&["init", "--json"]).output().expect("init runs");
        let login = serde_json::from_slice(&login.stdout).expect("init answers JSON");
        let mut child = command(&["serve"])
            .env("IBEX_SERVER__LISTEN", "127.0.0.1:0")
            .env("IBEX_LOG__FORMAT", "json")
            // With nothing to say, this layout sends the client's bytes alone.
            .env("IBEX_CONTEXT__LAYOUT", "assembled")
            .env("OPENAI_BASE_URL", upstream)
            .env("OPENAI_API_KEY", "sk-upstream-invented")
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("serve runs");
        let mut log = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut address = None;
        let mut seen = String::new();
        while address.is_none() {
            let mut line = String::new();
            let read = log.read_line(&mut line).expect("a log line");
            assert!(read > 0, "serve ended: {seen}");
            address = line
                .split_once("127.0.0.1:")
                .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next())
                .and_then(|port| format!("127.0.0.1:{port}").parse().ok());
            seen.push_str(&line);
        }
        // The log goes on being read, so that no line is lost.
        std::thread::spawn(move || log.lines().count());
        Self {
            child,
            address: address.expect("just found"),
            login,
            _folder: folder,
        }
    }

    /// A field of what `init` answered.
    fn text(&self, name: &str) -> &str {
        self.login[name].as_str().expect("init's answer")
    }

    fn client(&self) -> Client {
        Client::new(self.address)
            .header("authorization", &format!("Bearer {}", self.text("token")))
            .header("x-ibex-agent-id", self.text("agent_id"))
    }

    /// Resident bytes now, and the most there ever were.
    fn resident(&self) -> (usize, usize) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .expect("our own child");
        let kilobytes = |name: &str| {
            status
                .lines()
                .find_map(|l| l.strip_prefix(name)?.trim().strip_suffix(" kB"))
                .map_or(0, |n| n.parse::<usize>().expect("a number") << 10)
        };
        (kilobytes("VmRSS:"), kilobytes("VmHWM:"))
    }
}

/// SSE-13, the line that never ends.
#[tokio::test]
async fn an_endless_event_costs_bounded_memory() {
    const PIECES: usize = 4_800;
    let piece = vec![b'a'; 64 << 10];
    let endless = crate::support::chunk(&piece);
    let upstream = Upstream::start(move |request| {
        if request.json()["stream"] == true {
            Script::new()
                .events_head()
                .chunk("data: ")
                .repeat(endless.clone(), PIECES)
                .last_chunk()
        } else {
            crate::support::ordinary(request)
        }
    })
    .await;
    let service = Service::start(&upstream.url());
    let client = service.client();
    // What the first requests load (vocabularies, embedder) is not the stream's. A chat does not wait for the vocabularies; a write does.
    let memory = serde_json::json!({"content": "The ferry to Brindle Island leaves at noon."});
    assert_eq!(client.post("/v1/memories", &memory).await.status, 201);
    assert_eq!(client.post(CHAT, &chat()).await.status, 200);
    let (_, before) = service.resident();
    let read = soon("300 MB", client.drain(CHAT, &streamed())).await;
    assert_eq!(read, 6 + PIECES * (64 << 10));
    let (_, peak) = service.resident();
    let grown = peak.saturating_sub(before) >> 20;
    assert!(grown < 64, "grew by {grown} MiB");
}

/// A frame costs the same whatever its size, so a body in single bytes must not be kept as it came.
#[tokio::test]
async fn a_body_in_single_bytes_costs_about_its_length() {
    const LENGTH: usize = 2 << 20;
    let upstream = Upstream::echo_ok().await;
    let service = Service::start(&upstream.url());
    let client = service.client();
    let memory = serde_json::json!({"content": "The ferry to Brindle Island leaves at noon."});
    assert_eq!(client.post("/v1/memories", &memory).await.status, 201);
    let body = super::chat_of(LENGTH);
    assert_eq!(client.post_raw(CHAT, body.clone()).await.status, 200);
    let (_, before) = service.resident();
    let mut framed = raw::head_for(
        service.address,
        service.text("token"),
        service.text("agent_id"),
        CHAT,
        "transfer-encoding: chunked\r\n",
    )
    .into_bytes();
    framed.extend(body.iter().flat_map(|byte| chunk([*byte])));
    framed.extend_from_slice(b"0\r\n\r\n");
    let mut raw = Raw::to(service.address).await;
    raw.send(framed).await;
    assert_eq!(raw.answer().await.status, 200);
    assert!(upstream.last().request.body == body, "the same bytes");
    let (_, peak) = service.resident();
    let grown = peak.saturating_sub(before) >> 20;
    assert!(grown < 32, "grew by {grown} MiB");
}
