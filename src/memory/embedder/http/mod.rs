//! An embedder behind an OpenAI-compatible `/embeddings`.
//!
//! Questions of the request path are asked once, within their time, and remembered; documents go in batches and are asked a second time
//! when the server was busy or out of reach. Neither follows a redirect, and no error repeats a text, a URL or a word of the server's.

mod wire;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header, response};
use http_body_util::{BodyExt, Limited};
use moka::future::Cache;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::breaker::{Breaker, Rests};
use crate::config::{AuthStyle, EmbedderConfig};
use crate::openai::RewrittenBody;
use crate::providers::{Client, Endpoint};
use crate::telemetry::BreakerFigures;

use super::{Calibration, EmbedError, Embedder};

/// Bytes of an answer for each text asked about: 16,384 numbers of 16 digits.
const ANSWER_BYTES: usize = 256 << 10;
/// The pause before a second try when the server names none.
const PAUSE: Duration = Duration::from_millis(500);
/// The longest pause a server may ask for; beyond it the second try belongs to the next batch.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long nobody asks an embedder that keeps failing: a question that tries in vain costs its chat the time for a vector.
const RESTS: Rests = Rests {
    first: Duration::from_secs(10),
    longest: Duration::from_secs(10),
};

/// What a question's vector is kept under: the model's name does not change while the process lives, so the text is enough.
type Key = [u8; 32];

/// The embedder.
pub struct HttpEmbedder {
    client: Client,
    uri: Uri,
    key: Option<(HeaderName, HeaderValue)>,
    /// As the server knows it.
    asked_model: String,
    /// As vectors are stored under.
    name: String,
    /// Asked for.
    asked_dimensions: Option<u32>,
    /// What vectors have: as configured, else as the first answer had it. 0 = not known yet.
    dimensions: AtomicUsize,
    batch: usize,
    max_chars: usize,
    query_time: Duration,
    document_time: Duration,
    calibration: Calibration,
    questions: Cache<Key, Vec<f32>>,
    breaker: Breaker,
}

impl fmt::Debug for HttpEmbedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpEmbedder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Why one request came to nothing.
struct Failure {
    error: EmbedError,
    /// When another try is worth it, if it is.
    again_after: Option<Duration>,
}

impl From<EmbedError> for Failure {
    fn from(error: EmbedError) -> Self {
        Self {
            error,
            again_after: None,
        }
    }
}

impl HttpEmbedder {
    /// The embedder of `config`, asked through `client`.
    ///
    /// # Errors
    /// When a needed key is missing or unusable; the text names it.
    pub fn new(config: &EmbedderConfig, client: Client) -> Result<Self, String> {
        let base = config.base_url.as_deref().unwrap_or_default();
        let uri = Endpoint::parse(base).and_then(|base| base.uri("/embeddings"));
        let model = config.model.clone().ok_or("embedder.model is missing")?;
        let name = match config.dimensions {
            Some(dimensions) => format!("http:{model}/{dimensions}"),
            None => format!("http:{model}"),
        };
        Ok(Self {
            client,
            uri: uri.map_err(|e| format!("embedder.base_url: {e}"))?,
            key: key(config)?,
            asked_model: model,
            name,
            asked_dimensions: config.dimensions,
            dimensions: AtomicUsize::new(config.dimensions.map_or(0, |n| n as usize)),
            batch: config.batch,
            max_chars: config.max_chars,
            query_time: Duration::from_millis(config.timeout_ms),
            document_time: Duration::from_millis(config.document_timeout_ms),
            calibration: Calibration::of(config),
            questions: Cache::new(config.cache_entries),
            breaker: Breaker::new(RESTS, BreakerFigures::default()),
        })
    }

    /// One request, whole or not at all.
    async fn ask(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, Failure> {
        let answer = self
            .client
            .request(self.request(texts)?)
            .await
            .map_err(|_| Failure {
                error: EmbedError("the embedder is out of reach"),
                again_after: Some(PAUSE),
            })?;
        let (head, body) = answer.into_parts();
        if head.status != StatusCode::OK {
            return Err(refusal(&head));
        }
        let body = Limited::new(body, ANSWER_BYTES.saturating_mul(texts.len()))
            .collect()
            .await
            .map_err(|_| Failure {
                error: EmbedError("the embedder's answer broke off or is too long"),
                again_after: Some(PAUSE),
            })?
            .to_bytes();
        let known = self.dimensions.load(Ordering::Relaxed);
        let vectors = wire::vectors(&body, texts.len(), (known > 0).then_some(known))?;
        let found = vectors.first().map_or(0, Vec::len);
        // Of two first answers that disagree one wins, and the other is not used.
        match self
            .dimensions
            .compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed)
        {
            Err(other) if other != found => {
                Err(EmbedError("the embedder answered with vectors of another dimension").into())
            }
            Ok(_) | Err(_) => Ok(vectors),
        }
    }

    fn request(&self, texts: &[&str]) -> Result<Request<RewrittenBody>, EmbedError> {
        let unsendable = EmbedError("the request could not be made");
        let cut: Vec<&str> = texts
            .iter()
            .map(|text| head(text, self.max_chars))
            .collect();
        let asked = wire::Asked {
            model: &self.asked_model,
            input: &cut,
            encoding_format: "float",
            dimensions: self.asked_dimensions,
        };
        let body = serde_json::to_vec(&asked).map_err(|_| unsendable)?;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(self.uri.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            // The client decodes nothing.
            .header(header::ACCEPT_ENCODING, "identity");
        if let Some((name, value)) = &self.key {
            request = request.header(name, value);
        }
        request
            .body(RewrittenBody::new(vec![Bytes::from(body)]))
            .map_err(|_| unsendable)
    }

    /// A batch, with a second try where that may help.
    async fn documents(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let pause = match self.ask(texts).await {
            Ok(vectors) => return Ok(vectors),
            Err(failure) => failure.again_after.ok_or(failure.error)?,
        };
        sleep(pause).await;
        self.ask(texts).await.map_err(|failure| failure.error)
    }
}

#[async_trait]
impl Embedder for HttpEmbedder {
    fn model(&self) -> &str {
        &self.name
    }

    fn calibration(&self) -> Calibration {
        self.calibration
    }

    fn batch(&self) -> usize {
        self.batch
    }

    fn breaker(&self) -> Option<&BreakerFigures> {
        Some(self.breaker.figures())
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut vectors = Vec::with_capacity(texts.len());
        for batch in texts.chunks(self.batch) {
            let answered = timeout(self.document_time, self.documents(batch)).await;
            vectors.extend(answered.map_err(|_| EmbedError::TIMEOUT)??);
        }
        if !texts.is_empty() {
            // Questions need not wait for their own proof that it is back.
            self.breaker.mended();
        }
        Ok(vectors)
    }

    async fn embed_query(&self, text: &str, until: Instant) -> Result<Vec<f32>, EmbedError> {
        let until = until.min(Instant::now() + self.query_time);
        let key: Key = Sha256::digest(text.as_bytes()).into();
        // Whoever asks the same meanwhile waits for this answer.
        let asked = self.questions.try_get_with(key, async {
            let attempt = self.breaker.enter().ok_or(EmbedError::RESTING)?;
            let answered = match timeout_at(until, self.ask(&[text])).await {
                Ok(answered) => answered.map_err(|failure| failure.error),
                Err(_) => Err(EmbedError::TIMEOUT),
            };
            // A text that is not taken says nothing about the server.
            attempt.ended(!matches!(&answered, Err(e) if *e != EmbedError::REFUSED));
            let none = EmbedError("the embedder answered with no vector");
            answered?.pop().ok_or(none)
        });
        match timeout_at(until, asked).await {
            Ok(answered) => answered.map_err(|error| *error),
            Err(_) => Err(EmbedError::TIMEOUT),
        }
    }
}

/// The header that carries the key.
fn key(config: &EmbedderConfig) -> Result<Option<(HeaderName, HeaderValue)>, String> {
    let Some(key) = &config.api_key else {
        return Ok(None);
    };
    let (name, value) = match config.auth {
        AuthStyle::None => return Ok(None),
        AuthStyle::Bearer => (header::AUTHORIZATION, format!("Bearer {key}")),
        AuthStyle::ApiKey => (HeaderName::from_static("api-key"), key.clone()),
    };
    let mut value = HeaderValue::try_from(value)
        .map_err(|_| "embedder.api_key has a character that no header can carry")?;
    value.set_sensitive(true);
    Ok(Some((name, value)))
}

/// At most so many characters of a text.
fn head(text: &str, most: usize) -> &str {
    match text.char_indices().nth(most) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}

/// What another status than 200 means.
fn refusal(head: &response::Parts) -> Failure {
    let asked_for = head
        .headers
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
        .map(Duration::from_secs);
    let again_after = Some(asked_for.unwrap_or(PAUSE)).filter(|pause| *pause <= LONGEST_PAUSE);
    match head.status.as_u16() {
        400 | 413 | 422 => EmbedError::REFUSED.into(),
        401 | 403 => EmbedError("the embedder does not take the key").into(),
        404 => EmbedError("the embedder knows no such model or path").into(),
        429 => Failure {
            error: EmbedError("the embedder asks for fewer requests"),
            again_after,
        },
        500..=599 => Failure {
            error: EmbedError("the embedder failed"),
            again_after,
        },
        _ => EmbedError("the embedder answered with an unexpected status").into(),
    }
}

#[cfg(test)]
mod tests;
