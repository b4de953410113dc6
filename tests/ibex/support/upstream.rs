//! A scripted provider on a raw loopback socket: it sees requests exactly as they were framed, and answers with exactly the bytes, pauses
//! and breaks that a test writes down.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Nothing a test waits for may take longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for something that must happen.
pub(crate) async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, event).await {
        Ok(value) => value,
        Err(_) => panic!("still waiting: {what}"),
    }
}

/// Something that happens once; everybody who waits for it, now or later, goes on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Event(CancellationToken);

impl Event {
    pub(crate) fn set(&self) {
        self.0.cancel();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.is_cancelled()
    }

    pub(crate) async fn wait(&self) {
        soon("an event", self.0.cancelled()).await;
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send(Bytes),
    Bytewise(Bytes),
    Repeat(Bytes, usize),
    Wait(Event),
    Set(Event),
    Hang,
    Close,
    Reset,
}

/// An answer as a list of steps. A script that neither closes nor resets keeps the connection for the next request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script(Vec<Step>);

impl Script {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn then(mut self, step: Step) -> Self {
        self.0.push(step);
        self
    }

    /// Writes the bytes in one piece.
    pub(crate) fn send(self, bytes: impl Into<Bytes>) -> Self {
        self.then(Step::Send(bytes.into()))
    }

    /// Writes the bytes one at a time, each in a packet of its own.
    pub(crate) fn bytewise(self, bytes: impl Into<Bytes>) -> Self {
        self.then(Step::Bytewise(bytes.into()))
    }

    /// Writes the same bytes many times.
    pub(crate) fn repeat(self, bytes: impl Into<Bytes>, times: usize) -> Self {
        self.then(Step::Repeat(bytes.into(), times))
    }

    /// Goes on when the event is set.
    pub(crate) fn wait(self, event: &Event) -> Self {
        self.then(Step::Wait(event.clone()))
    }

    /// Sets the event: everything before has been written.
    pub(crate) fn set(self, event: &Event) -> Self {
        self.then(Step::Set(event.clone()))
    }

    /// Goes on with the steps of another script.
    pub(crate) fn send_all(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Says nothing more until the peer goes away.
    pub(crate) fn hang(self) -> Self {
        self.then(Step::Hang)
    }

    /// Closes the connection in the ordinary way.
    pub(crate) fn close(self) -> Self {
        self.then(Step::Close)
    }

    /// Resets the connection.
    pub(crate) fn reset(self) -> Self {
        self.then(Step::Reset)
    }

    /// Writes an answer with a `Content-Length`; `headers` are whole lines that end in CRLF.
    pub(crate) fn whole(self, status: &str, headers: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let head = format!(
            "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        self.send([head.as_bytes(), body].concat())
    }

    /// Writes a JSON answer.
    pub(crate) fn json(self, status: &str, body: &Value) -> Self {
        self.whole(
            status,
            "content-type: application/json\r\n",
            body.to_string(),
        )
    }

    /// Begins a chunked answer.
    pub(crate) fn chunked_head(self, headers: &str) -> Self {
        self.send(format!(
            "HTTP/1.1 200 OK\r\n{headers}transfer-encoding: chunked\r\n\r\n"
        ))
    }

    /// Begins a chunked event stream.
    pub(crate) fn events_head(self) -> Self {
        self.chunked_head("content-type: text/event-stream\r\n")
    }

    /// Writes one chunk of a chunked answer.
    pub(crate) fn chunk(self, bytes: impl AsRef<[u8]>) -> Self {
        self.send(chunk(bytes))
    }

    /// Ends a chunked answer.
    pub(crate) fn last_chunk(self) -> Self {
        self.send("0\r\n\r\n")
    }
}

/// Bytes framed as one chunk.
pub(crate) fn chunk(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) path: String,
    /// Header lines without their line ends.
    pub(crate) lines: Vec<Vec<u8>>,
    /// The body; of a chunked one the decoded bytes.
    pub(crate) body: Vec<u8>,
    /// When the whole of it was there.
    pub(crate) at: Instant,
}

impl Received {
    /// Every value of a header.
    pub(crate) fn values(&self, name: &str) -> Vec<String> {
        self.lines
            .iter()
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .filter_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.trim()
                    .eq_ignore_ascii_case(name)
                    .then(|| value.trim().to_owned())
            })
            .collect()
    }

    /// The head as text.
    pub(crate) fn head(&self) -> String {
        let lines: Vec<_> = self
            .lines
            .iter()
            .map(|line| String::from_utf8_lossy(line))
            .collect();
        format!("{} {}\n{}", self.method, self.path, lines.join("\n"))
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the provider was sent JSON")
    }
}

/// One request and what became of its answer.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Received,
    /// The peer closed its connection before the answer was over.
    pub(crate) gone: Event,
    /// The script has been played to its end.
    pub(crate) done: Event,
    written: AtomicUsize,
}

impl Exchange {
    /// Bytes of the answer that the socket has taken.
    pub(crate) fn written(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }
}

type Director = dyn Fn(&Received) -> Script + Send + Sync;

struct Shared {
    director: Box<Director>,
    exchanges: Mutex<Vec<Arc<Exchange>>>,
    hits: watch::Sender<usize>,
    connections: AtomicUsize,
}

/// A scripted provider. Dropping it stops it.
pub(crate) struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

impl Upstream {
    /// Starts a provider that answers each request with the script chosen for it.
    pub(crate) async fn start(
        director: impl Fn(&Received) -> Script + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared {
            director: Box::new(director),
            exchanges: Mutex::default(),
            hits: watch::Sender::new(0),
            connections: AtomicUsize::new(0),
        });
        let stop = CancellationToken::new();
        tokio::spawn(accept(listener, shared.clone(), stop.clone()));
        Self {
            address,
            shared,
            _stop: stop.drop_guard(),
        }
    }

    /// A provider that plays one script for every request.
    pub(crate) async fn playing(script: Script) -> Self {
        Self::start(move |_| script.clone()).await
    }

    /// A provider that answers every operation in the ordinary way.
    pub(crate) async fn echo_ok() -> Self {
        Self::start(ordinary).await
    }

    /// The base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Whole requests so far.
    pub(crate) fn hits(&self) -> usize {
        *self.shared.hits.borrow()
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// The `n`-th exchange (from 0), as soon as its request is whole.
    pub(crate) async fn exchange(&self, n: usize) -> Arc<Exchange> {
        let mut hits = self.shared.hits.subscribe();
        soon("a provider request", hits.wait_for(|count| *count > n))
            .await
            .expect("the provider runs");
        Arc::clone(&self.shared.exchanges.lock()[n])
    }

    /// The latest exchange; there must have been one.
    pub(crate) fn last(&self) -> Arc<Exchange> {
        let exchanges = self.shared.exchanges.lock();
        Arc::clone(exchanges.last().expect("the provider was called"))
    }

    /// Every exchange so far.
    pub(crate) fn exchanges(&self) -> Vec<Arc<Exchange>> {
        self.shared.exchanges.lock().clone()
    }
}

/// A chat completion with usage (7 and 3 tokens), events when they are asked for, `/models` and `/embeddings`.
pub(crate) fn ordinary(request: &Received) -> Script {
    let script = Script::new();
    if request.path.contains("/models") {
        return script.json(
            "200 OK",
            &json!({"object": "list", "data": [{"id": "gpt-4o", "object": "model"}]}),
        );
    }
    if request.path.contains("/embeddings") {
        return script.json(
            "200 OK",
            &json!({
                "object": "list",
                "model": "text-embedding-3-small",
                "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.5]}],
                "usage": {"prompt_tokens": 7, "total_tokens": 7},
            }),
        );
    }
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    if body["stream"] == true {
        return script
            .events_head()
            .chunk(event(
                &json!({"id": "c1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "fine"}}]}),
            ))
            .chunk(event(
                &json!({"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": usage()}),
            ))
            .chunk("data: [DONE]\n\n")
            .last_chunk();
    }
    script.json("200 OK", &completion())
}

/// The usage that [`ordinary`] reports.
fn usage() -> Value {
    json!({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
}

/// A whole chat completion.
pub(crate) fn completion() -> Value {
    json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}],
        "usage": usage(),
    })
}

/// One event with data.
fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        let Ok((stream, _)) = stream else { continue };
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let (shared, stop) = (shared.clone(), stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = serve(stream, &shared) => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) {
    stream.set_nodelay(true).expect("a TCP socket");
    let mut buffer = BytesMut::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        let script = (shared.director)(&request);
        let exchange = Arc::new(Exchange {
            request,
            gone: Event::default(),
            done: Event::default(),
            written: AtomicUsize::new(0),
        });
        shared.exchanges.lock().push(exchange.clone());
        shared.hits.send_modify(|count| *count += 1);
        let (mut reader, mut writer) = stream.split();
        let end = tokio::select! {
            end = play(&script, &mut writer, &exchange) => end,
            () = closed(&mut reader, &mut buffer) => End::Gone,
        };
        match end {
            End::KeepAlive => exchange.done.set(),
            End::Close => {
                exchange.done.set();
                return;
            }
            End::Reset => {
                stream.set_zero_linger().expect("a TCP socket");
                drop(stream);
                exchange.done.set();
                return;
            }
            End::Gone => {
                exchange.gone.set();
                return;
            }
        }
    }
}

/// How a script ended.
enum End {
    KeepAlive,
    Close,
    Reset,
    Gone,
}

async fn play(script: &Script, writer: &mut WriteHalf<'_>, exchange: &Exchange) -> End {
    for step in &script.0 {
        let written = match step {
            Step::Send(bytes) => write(writer, bytes, exchange).await,
            Step::Bytewise(bytes) => {
                let mut sent = true;
                for byte in bytes.chunks(1) {
                    sent = sent && write(writer, byte, exchange).await;
                    tokio::task::yield_now().await;
                }
                sent
            }
            Step::Repeat(bytes, times) => {
                let mut sent = true;
                for _ in 0..*times {
                    sent = sent && write(writer, bytes, exchange).await;
                }
                sent
            }
            Step::Wait(event) => {
                event.0.cancelled().await;
                true
            }
            Step::Set(event) => {
                event.set();
                true
            }
            Step::Hang => std::future::pending().await,
            Step::Close => return End::Close,
            Step::Reset => return End::Reset,
        };
        if !written {
            return End::Gone;
        }
    }
    End::KeepAlive
}

async fn write(writer: &mut WriteHalf<'_>, mut bytes: &[u8], exchange: &Exchange) -> bool {
    while !bytes.is_empty() {
        match writer.write(bytes).await {
            Ok(0) | Err(_) => return false,
            Ok(n) => {
                exchange.written.fetch_add(n, Ordering::Relaxed);
                bytes = &bytes[n..];
            }
        }
    }
    true
}

/// Resolves when the peer has closed; what it sends meanwhile is kept.
async fn closed(reader: &mut ReadHalf<'_>, buffer: &mut BytesMut) {
    while matches!(reader.read_buf(buffer).await, Ok(n) if n > 0) {}
}

/// Reads one request; `None` when the peer has closed before it was whole.
async fn read_request(stream: &mut TcpStream, buffer: &mut BytesMut) -> Option<Received> {
    let head = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break buffer.split_to(at + 4);
        }
        more(stream, buffer).await?;
    };
    let mut lines = head[..head.len() - 4]
        .split(|b| *b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec());
    let first = String::from_utf8(lines.next()?).expect("an ASCII request line");
    let mut words = first.split(' ').map(str::to_owned);
    let mut request = Received {
        method: words.next()?,
        path: words.next()?,
        lines: lines.collect(),
        body: Vec::new(),
        at: Instant::now(),
    };
    request.body = if request.values("transfer-encoding").is_empty() {
        let length = request
            .values("content-length")
            .first()
            .map_or(0, |v| v.parse().expect("a length"));
        take(stream, buffer, length).await?
    } else {
        read_chunks(stream, buffer).await?
    };
    request.at = Instant::now();
    Some(request)
}

async fn more(stream: &mut TcpStream, buffer: &mut BytesMut) -> Option<()> {
    matches!(stream.read_buf(buffer).await, Ok(n) if n > 0).then_some(())
}

async fn take(stream: &mut TcpStream, buffer: &mut BytesMut, length: usize) -> Option<Vec<u8>> {
    while buffer.len() < length {
        more(stream, buffer).await?;
    }
    Some(buffer.split_to(length).to_vec())
}

async fn read_chunks(stream: &mut TcpStream, buffer: &mut BytesMut) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = loop {
            if let Some(at) = buffer.windows(2).position(|w| w == b"\r\n") {
                break buffer.split_to(at + 2);
            }
            more(stream, buffer).await?;
        };
        let size = std::str::from_utf8(&line).expect("a chunk size").trim();
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        let data = take(stream, buffer, size + 2).await?;
        body.extend_from_slice(&data[..size]);
        if size == 0 {
            return Some(body);
        }
    }
}
