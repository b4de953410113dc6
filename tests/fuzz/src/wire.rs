//! A provider and a client on loopback: real sockets, as few of them as possible.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use ibex::openai::Passthrough;
use tokio::net::{TcpListener, TcpStream};

/// What the provider answers.
const ANSWER: &str = r#"{"id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}"#;
/// The same as a stream.
const EVENTS: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Yes.\"}}]}\n\ndata: [DONE]\n\n";

/// A request as the provider got it.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) path: String,
    pub(super) body: Bytes,
}

/// A provider that answers everything and remembers what it was asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Provider(Arc<Mutex<Vec<Received>>>);

impl Provider {
    /// Starts it; where it listens.
    pub(super) async fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::task::spawn(async move { axum::serve(listener, router).await });
        address
    }

    /// What came since the last call.
    pub(super) fn taken(&self) -> Vec<Received> {
        std::mem::take(&mut self.0.lock().expect("no panic before"))
    }
}

async fn answer(State(provider): State<Provider>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    let stream = Passthrough::parse(body.clone()).is_ok_and(|seen| seen.stream());
    let path = head.uri.path().to_owned();
    let received = Received { path, body };
    provider.0.lock().expect("no panic before").push(received);
    let (kind, text) = if stream {
        ("text/event-stream", EVENTS)
    } else {
        ("application/json", ANSWER)
    };
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

type Pieces = std::collections::VecDeque<Bytes>;

/// A client that keeps its connection.
pub(super) struct Client {
    address: SocketAddr,
    sender: Option<SendRequest<Sent>>,
}

type Sent = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            sender: None,
        }
    }

    /// Sends a request whose body comes in these pieces, and reads the answer to its end.
    pub(super) async fn send(&mut self, head: http::request::Builder, body: Pieces) -> Answer {
        let request = head.header(header::HOST, "ibex").body(sent(body));
        let request = request.expect("a request");
        let mut sender = match self.sender.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => self.connect().await,
        };
        sender.ready().await.expect("a connection");
        let answer = sender.send_request(request).await.expect("an answer");
        let (head, body) = answer.into_parts();
        let body = body.collect().await.expect("a whole answer").to_bytes();
        self.sender = Some(sender);
        Answer {
            status: head.status,
            headers: head.headers,
            body,
        }
    }

    async fn connect(&self) -> SendRequest<Sent> {
        let stream = TcpStream::connect(self.address)
            .await
            .expect("a connection");
        stream.set_nodelay(true).expect("a socket option");
        let (sender, connection) = handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::task::spawn(connection);
        sender
    }
}

/// One piece is sent with its length, several are sent in chunks.
fn sent(mut pieces: Pieces) -> Sent {
    if pieces.len() < 2 {
        let only = pieces.pop_front().unwrap_or_default();
        return http_body_util::Full::new(only).boxed_unsync();
    }
    let frames = pieces.into_iter().map(|piece| Ok(Frame::data(piece)));
    StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
}
