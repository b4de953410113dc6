//! Stage 9, idempotency: takes a counted request with an `Idempotency-Key`, yields its claim, or the answer that it had before.
//!
//! A repeated request with the same key and body gets the first one's answer without a provider call, a checkpoint or a use of memory. What
//! keeps the answers may be away: the request then goes on without a claim, and the metrics say so.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::app::App;
use crate::auth::Principal;
use crate::error::{ApiError, Code};
use crate::ids::IdempotencyKey;
use crate::openai::ChatRequest;
use crate::store::shared::{Claimed, Fingerprint, Owner, Reply, ReplyKey};

/// Both names are in use among clients.
const NAMES: [&str; 2] = ["idempotency-key", "x-idempotency-key"];
/// Says that an answer is an earlier one.
pub const REPLAYED: http::HeaderName = http::HeaderName::from_static("x-idempotency-replayed");
/// Time for one look at what keeps the answers (contract, section 1, gate 12).
const PATIENCE: Duration = Duration::from_millis(50);
/// An answer beyond this size is passed on and not kept.
const MOST_BYTES: usize = 4 << 20;

/// The key of a request, if it has one.
///
/// # Errors
/// 400 when it is no key, or two that differ.
pub fn key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, ApiError> {
    let given = NAMES.iter().flat_map(|name| headers.get_all(*name));
    let mut found: Option<IdempotencyKey> = None;
    for value in given {
        let text = value.to_str().unwrap_or_default();
        // As a structured header the key stands in quotes.
        let inner = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
        let key: IdempotencyKey = inner
            .unwrap_or(text)
            .parse()
            .map_err(|_| wrong("Idempotency-Key must be 1 to 255 visible ASCII characters"))?;
        if found.as_ref().is_some_and(|other| *other != key) {
            return Err(wrong("Idempotency-Key and X-Idempotency-Key differ"));
        }
        found = Some(key);
    }
    Ok(found)
}

fn wrong(what: &'static str) -> ApiError {
    ApiError::new(Code::ValidationError, what).param("Idempotency-Key")
}

/// How a request stands that may be a repeated one.
#[derive(Debug)]
pub enum Standing {
    /// It is to be answered.
    First(Option<Claim>),
    /// It was answered before.
    Repeated(Box<Reply>),
}

/// Claims the request's key.
///
/// # Errors
/// 400 for a key that is none or a stream, which cannot be repeated; 409 while the first request is under way, and when the key was used for
/// another one.
pub async fn claim(
    app: &App,
    principal: &Principal,
    headers: &HeaderMap,
    chat: &ChatRequest,
) -> Result<Standing, ApiError> {
    let Some(key) = key(headers)? else {
        return Ok(Standing::First(None));
    };
    if chat.stream() {
        return Err(wrong(
            "a stream cannot be repeated: Idempotency-Key goes without stream",
        ));
    }
    let secret = &app.sessions.secret;
    let (hash, asked) = secret.keyed_request(principal.scope(), key.as_str(), chat.body());
    let key = ReplyKey {
        org: principal.org(),
        hash,
    };
    let mut owner: Owner = [0; 16];
    if app.entropy.fill(&mut owner).is_err() {
        return Ok(Standing::First(None));
    }
    let replies = &app.replies;
    let claimed = timeout(PATIENCE, replies.claim(&key, &asked, &owner)).await;
    let claim = || Claim {
        app: app.clone(),
        key,
        asked,
        owner,
        open: true,
    };
    let Ok(Ok(claimed)) = claimed else {
        app.metrics.chat_idempotency("unavailable");
        // It may have been taken all the same.
        drop(claim());
        return Ok(Standing::First(None));
    };
    let (label, standing) = match claimed {
        Claimed::Yours => ("claimed", Ok(Standing::First(Some(claim())))),
        Claimed::Done(reply) => ("replayed", Ok(Standing::Repeated(Box::new(reply)))),
        Claimed::InProgress => ("in_progress", Err(in_progress())),
        Claimed::Reused => ("reused", Err(reused())),
    };
    app.metrics.chat_idempotency(label);
    standing
}

fn in_progress() -> ApiError {
    let text = "the first request with this Idempotency-Key is still under way";
    ApiError::new(Code::IdempotencyInProgress, text).retry_after(1)
}

fn reused() -> ApiError {
    let text = "this Idempotency-Key was used for another request";
    ApiError::new(Code::IdempotencyKeyReuse, text)
}

/// The answer that a repeated request gets.
#[must_use]
pub fn replay(reply: Reply) -> Response {
    let mut response = Response::new(reply.body.into());
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    if let Ok(kind) = HeaderValue::try_from(reply.content_type) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    let coding = reply.content_encoding.map(HeaderValue::try_from);
    if let Some(Ok(coding)) = coding {
        headers.insert(header::CONTENT_ENCODING, coding);
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// A claimed key. Dropped without an answer it is given back.
#[derive(Debug)]
pub struct Claim {
    app: App,
    key: ReplyKey,
    asked: Fingerprint,
    owner: Owner,
    open: bool,
}

impl Claim {
    /// Whether an answer with this status is the same whenever the request is repeated (contract, section 14).
    fn is_final(status: StatusCode) -> bool {
        status.is_success()
            || (status.is_client_error()
                && !matches!(
                    status,
                    StatusCode::REQUEST_TIMEOUT
                        | StatusCode::CONFLICT
                        | StatusCode::TOO_EARLY
                        | StatusCode::TOO_MANY_REQUESTS
                ))
    }

    /// Keeps the answer. One that another try would not have gives the claim back.
    pub fn complete(mut self, status: StatusCode, headers: &HeaderMap, body: Bytes) {
        if !Self::is_final(status) || body.len() > MOST_BYTES {
            return;
        }
        self.open = false;
        let text = |name| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.map(str::to_owned)
        };
        let reply = Reply {
            status: status.as_u16(),
            content_type: text(header::CONTENT_TYPE).unwrap_or_default(),
            content_encoding: text(header::CONTENT_ENCODING),
            body,
        };
        let (app, key, asked, owner) = (self.app.clone(), self.key, self.asked, self.owner);
        self.app.tasks.spawn(async move {
            let kept = app.replies.complete(&key, &asked, &owner, reply).await;
            if kept.is_err() {
                app.metrics.chat_idempotency("lost");
            }
        });
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let (app, key, owner) = (self.app.clone(), self.key, self.owner);
        self.app.tasks.spawn(async move {
            // Where it cannot be given back it ends by itself.
            drop(app.replies.release(&key, &owner).await);
        });
    }
}

/// A copy of an answer on its way, as far as it may be kept.
#[derive(Debug, Clone, Default)]
pub struct Copy(Arc<Mutex<Option<BytesMut>>>);

impl Copy {
    /// An empty copy.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(Some(BytesMut::new()))))
    }

    /// Adds what passed by. An answer that grows too large is not copied any further.
    pub fn add(&self, bytes: &[u8]) {
        let mut copy = self.0.lock();
        match copy.as_mut() {
            Some(kept) if kept.len() + bytes.len() <= MOST_BYTES => kept.extend_from_slice(bytes),
            Some(_) => *copy = None,
            None => {}
        }
    }

    /// The whole copy, if the answer was not too large.
    #[must_use]
    pub fn take(&self) -> Option<Bytes> {
        self.0.lock().take().map(BytesMut::freeze)
    }
}

/// An answer's body of which a copy may be kept.
#[derive(Debug)]
pub struct Copied<B> {
    body: B,
    copy: Option<Copy>,
}

impl<B> Copied<B> {
    /// `body`, with a copy of what passes by.
    pub fn new(body: B, copy: Option<Copy>) -> Self {
        Self { body, copy }
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Copied<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        if let (Some(copy), Poll::Ready(Some(Ok(frame)))) = (&this.copy, &polled)
            && let Some(data) = frame.data_ref()
        {
            copy.add(data);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
