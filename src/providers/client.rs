//! The one HTTP client: pooled connections to providers and to key sets. It never follows redirects and never decodes a body.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as PooledClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::config::UpstreamConfig;
use crate::openai::RewrittenBody;

/// The pooled client.
pub type Client = PooledClient<HttpsConnector<HttpConnector>, RewrittenBody>;

/// The client could not be made.
#[derive(Debug, thiserror::Error)]
#[error("the TLS client could not be set up: {0}")]
pub struct ClientError(String);

/// Makes the client. Trust roots are the system's; without any, the bundled ones.
///
/// # Errors
/// When TLS cannot be set up.
pub fn client(config: &UpstreamConfig) -> Result<Client, ClientError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(Duration::from_millis(config.connect_timeout_ms)));
    tcp.set_keepalive(Some(Duration::from_secs(60)));
    let crypto = rustls::crypto::ring::default_provider();
    let builder = match HttpsConnectorBuilder::new().with_provider_and_native_roots(crypto.clone())
    {
        Ok(native) => native,
        Err(_) => HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(crypto)
            .map_err(|e| ClientError(e.to_string()))?,
    };
    let connector = builder.https_or_http().enable_http1().wrap_connector(tcp);
    Ok(PooledClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(90))
        .pool_max_idle_per_host(config.pool_max_idle)
        .build(connector))
}

/// A small document could not be fetched. It never holds the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The URL is no URL.
    #[error("not a URL")]
    InvalidUrl,
    /// No connection, or a broken answer.
    #[error("not reachable")]
    Unreachable,
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// Another status than 200.
    #[error("status {0}")]
    Status(StatusCode),
    /// Larger than the limit.
    #[error("larger than the limit")]
    TooLarge,
}

/// A key set at an operator's URL.
#[derive(Debug, Clone)]
pub struct HttpKeySet {
    client: Client,
    url: Uri,
}

/// A key set is a few kilobytes; this leaves room for hundreds of keys.
const KEY_SET_BYTES: usize = 1 << 20;
/// Long enough for a distant issuer, short enough that a waiting request gets its answer.
const KEY_SET_TIMEOUT: Duration = Duration::from_secs(5);

impl HttpKeySet {
    /// A key set to be fetched from `url`.
    ///
    /// # Errors
    /// When `url` is no URL.
    pub fn new(client: Client, url: &str) -> Result<Self, FetchError> {
        Ok(Self {
            client,
            url: url.parse().map_err(|_| FetchError::InvalidUrl)?,
        })
    }

    /// Fetches the document.
    ///
    /// # Errors
    /// When it is not there, too slow or too large.
    pub async fn get(&self) -> Result<Bytes, FetchError> {
        let request = Request::builder()
            .method(Method::GET)
            .uri(self.url.clone())
            .header(header::ACCEPT, "application/json")
            .body(RewrittenBody::new(Vec::new()))
            .map_err(|_| FetchError::InvalidUrl)?;
        let whole = async {
            let answer = self
                .client
                .request(request)
                .await
                .map_err(|_| FetchError::Unreachable)?;
            if answer.status() != StatusCode::OK {
                return Err(FetchError::Status(answer.status()));
            }
            Limited::new(answer.into_body(), KEY_SET_BYTES)
                .collect()
                .await
                .map(|c| c.to_bytes())
                .map_err(|_| FetchError::TooLarge)
        };
        tokio::time::timeout(KEY_SET_TIMEOUT, whole)
            .await
            .map_err(|_| FetchError::Timeout)?
    }
}
