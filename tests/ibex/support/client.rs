//! A plain HTTP/1.1 client: what it sends is exactly what a test says.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// A client with the headers of every request it makes.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    headers: HeaderMap,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// The body broke off before its end.
    pub(crate) cut: bool,
}

impl Answer {
    /// A header's text; empty when it is absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("not JSON ({e}): {:?}", self.body))
    }

    /// The error's code.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            headers: HeaderMap::new(),
        }
    }

    /// The same client with a header set (a former value is replaced).
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().expect("a header name");
        self.headers
            .insert(name, HeaderValue::try_from(value).expect("a header value"));
        self
    }

    /// The same client with one more value of a header.
    pub(crate) fn another(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().expect("a header name");
        self.headers
            .append(name, HeaderValue::try_from(value).expect("a header value"));
        self
    }

    /// The same client without a header.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, Bytes::new()).await
    }

    /// Posts JSON.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_raw(path, body.to_string()).await
    }

    /// Posts exact bytes as `application/json`.
    pub(crate) async fn post_raw(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.clone()
            .json_type()
            .send(Method::POST, path, body.into())
            .await
    }

    /// Patches with JSON.
    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Answer {
        let client = self.clone().json_type();
        client
            .send(Method::PATCH, path, body.to_string().into())
            .await
    }

    fn json_type(self) -> Self {
        if self.headers.contains_key("content-type") {
            self
        } else {
            self.header("content-type", "application/json")
        }
    }

    /// Posts JSON and counts the answer's bytes without keeping them.
    pub(crate) async fn drain(&self, path: &str, body: &Value) -> usize {
        let client = self.clone().json_type();
        let mut count = 0;
        let body = body.to_string().into();
        client
            .exchange(Method::POST, path, body, |data| count += data.len())
            .await;
        count
    }

    /// Sends one request on a connection of its own and reads the whole answer.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Bytes) -> Answer {
        let mut bytes = Vec::new();
        let (head, cut) = self
            .exchange(method, path, body, |data| bytes.extend_from_slice(data))
            .await;
        Answer {
            status: head.status,
            headers: head.headers,
            body: bytes.into(),
            cut,
        }
    }

    /// One request; whether its answer broke off comes with the head.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        take: impl FnMut(&[u8]),
    ) -> (http::response::Parts, bool) {
        let exchanged = self.attempt(method, path, body, take).await;
        exchanged.expect("the service answers")
    }

    /// [`Self::send`] to a service that may be gone: `None` unless there was a whole answer.
    pub(crate) async fn try_send(&self, method: Method, path: &str, body: Bytes) -> Option<Answer> {
        let mut bytes = Vec::new();
        let take = |data: &[u8]| bytes.extend_from_slice(data);
        let (head, cut) = self.attempt(method, path, body, take).await.ok()?;
        (!cut).then(|| Answer {
            status: head.status,
            headers: head.headers,
            body: bytes.into(),
            cut,
        })
    }

    async fn attempt(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(http::response::Parts, bool), Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.to_string());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body))?;
        let response = sender.send_request(request).await?;
        let (head, mut incoming) = response.into_parts();
        let mut cut = false;
        while let Some(frame) = incoming.frame().await {
            match frame {
                Ok(frame) => take(frame.data_ref().map(|d| &d[..]).unwrap_or_default()),
                Err(_) => {
                    cut = true;
                    break;
                }
            }
        }
        driver.abort();
        Ok((head, cut))
    }
}
