//! Stage 6, read and validate: takes a counted request and its declared body, yields a [`ValidChat`]: parsed, inside every limit, for a
//! model that policy allows and a provider serves.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use crate::app::{App, Rules};
use crate::auth::Principal;
use crate::error::{ApiError, Code};
use crate::limits::BytesHeld;
use crate::openai::{ChatRequest, Passthrough};
use crate::policy::Verdict;
use crate::providers::Route;

use super::admission::Admitted;
use super::body_limit::{BodyLimitError, DeclaredBody};
use super::validation::{Limits, ValidationError, validate, validate_other};

/// A body in memory, and its share of the aggregate cap.
#[derive(Debug)]
pub struct WholeBody {
    /// The bytes as they came.
    pub bytes: Bytes,
    held: BytesHeld,
}

impl WholeBody {
    /// The bytes, and their share of the aggregate cap.
    #[must_use]
    pub fn into_parts(self) -> (Bytes, BytesHeld) {
        (self.bytes, self.held)
    }
}

/// A chat request that may be answered.
#[derive(Debug)]
pub struct ValidChat {
    /// The parsed request.
    pub chat: ChatRequest,
    /// Where it goes.
    pub route: Route,
    /// What policy says of it.
    pub verdict: Verdict,
    /// The rules that it was admitted under.
    pub rules: Arc<Rules>,
    held: BytesHeld,
}

/// A request for another operation, of which only the model is read.
#[derive(Debug)]
pub struct ValidOther {
    /// What was read of it.
    pub seen: Passthrough,
    /// Where it goes.
    pub route: Route,
    held: BytesHeld,
}

impl ValidOther {
    /// Gives the body's share back: it has been sent.
    pub fn release(self) {
        drop(self.held);
    }
}

impl ValidChat {
    /// The request alone, for routes that send nothing.
    #[must_use]
    pub fn into_chat(self) -> ChatRequest {
        self.chat
    }

    /// Gives the body's share back: it has been sent.
    pub fn release(self) {
        drop(self.held);
    }
}

/// Why a body cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Larger than the limit, found while reading.
    #[error(transparent)]
    BodyLimit(#[from] BodyLimitError),
    /// The aggregate cap is reached.
    #[error("the service holds too many request bytes right now; try again shortly")]
    OverCap,
    /// The client was too slow.
    #[error("the request body did not arrive in time")]
    TooSlow,
    /// The client broke off, or its framing is broken.
    #[error("the request body could not be read")]
    Broken,
    /// Not a valid chat request.
    #[error(transparent)]
    Invalid(#[from] ValidationError),
    /// Policy denies the model.
    #[error(transparent)]
    Denied(#[from] super::admission::AdmissionError),
    /// Nobody serves the model.
    #[error("no provider is configured for this model")]
    NoProvider,
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::BodyLimit(inner) => inner.into(),
            ReadError::OverCap => {
                Self::new(Code::ServiceDegraded, error.to_string()).retry_after(1)
            }
            ReadError::TooSlow => Self::new(Code::RequestTimeout, error.to_string()),
            ReadError::Broken => Self::new(Code::InvalidRequest, error.to_string()),
            ReadError::Invalid(inner) => inner.into(),
            ReadError::Denied(inner) => inner.into(),
            ReadError::NoProvider => {
                Self::new(Code::ProviderNotConfigured, error.to_string()).param("model")
            }
        }
    }
}

/// Reads a whole body within the length, time and aggregate limits.
///
/// # Errors
/// When one of them is passed or the client breaks off.
pub async fn whole(
    app: &App,
    principal: &Principal,
    declared: DeclaredBody,
) -> Result<WholeBody, ReadError> {
    let limit = app.config.server.max_body_bytes;
    let mut held = app.inflight.hold(principal.org());
    let expected = declared.declared();
    held.grow(expected.unwrap_or(0))
        .map_err(|_| ReadError::OverCap)?;
    let mut body = declared.into_body();
    let mut gathered = Gathered::new(expected);
    let mut length = 0_usize;
    let reading = async {
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| ReadError::Broken)?.into_data() else {
                continue;
            };
            length += data.len();
            if length > limit {
                return Err(ReadError::BodyLimit(BodyLimitError::TooLarge { limit }));
            }
            if length > held.bytes() {
                held.grow(length - held.bytes())
                    .map_err(|_| ReadError::OverCap)?;
            }
            gathered.push(data);
        }
        Ok(())
    };
    let time = Duration::from_millis(app.config.server.body_read_timeout_ms);
    tokio::time::timeout(time, reading)
        .await
        .map_err(|_| ReadError::TooSlow)??;
    Ok(WholeBody {
        bytes: gathered.into_bytes(),
        held,
    })
}

/// A body as it arrives. One frame is used as it is; from the second on all are copied into one buffer, because what it costs to keep a
/// frame does not depend on its size, and the client chooses how many there are.
#[derive(Debug)]
struct Gathered {
    expected: usize,
    first: Bytes,
    joined: BytesMut,
}

impl Gathered {
    fn new(expected: Option<usize>) -> Self {
        Self {
            expected: expected.unwrap_or(0),
            first: Bytes::new(),
            joined: BytesMut::new(),
        }
    }

    fn push(&mut self, frame: Bytes) {
        if self.first.is_empty() && self.joined.is_empty() {
            self.first = frame;
            return;
        }
        if self.joined.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.joined
                .reserve(self.expected.max(first.len() + frame.len()));
            self.joined.extend_from_slice(&first);
        }
        self.joined.extend_from_slice(&frame);
    }

    fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() {
            self.first
        } else {
            self.joined.freeze()
        }
    }
}

/// Reads and validates a chat request.
///
/// # Errors
/// When it cannot be read, is not valid, or its model is denied or not served.
pub async fn chat(
    app: &App,
    principal: &Principal,
    admitted: &Admitted,
    declared: DeclaredBody,
) -> Result<ValidChat, ReadError> {
    let body = whole(app, principal, declared).await?;
    let most = app.config.server.max_messages;
    let chat = ChatRequest::parse(body.bytes, most).map_err(ValidationError::from)?;
    validate(&chat, Limits { max_messages: most })?;
    let model = chat.model().unwrap_or_default();
    let verdict = admitted.model(principal, model)?;
    let route = admitted
        .registry()
        .route(model)
        .ok_or(ReadError::NoProvider)?;
    Ok(ValidChat {
        chat,
        route,
        verdict,
        rules: Arc::clone(admitted.rules()),
        held: body.held,
    })
}

/// Reads a request of another `operation` (such as `/embeddings`), of which little is judged here.
///
/// # Errors
/// As for a chat request.
pub async fn other(
    app: &App,
    principal: &Principal,
    admitted: &Admitted,
    declared: DeclaredBody,
    operation: &str,
) -> Result<ValidOther, ReadError> {
    let body = whole(app, principal, declared).await?;
    let seen = Passthrough::parse(body.bytes).map_err(ValidationError::from)?;
    validate_other(&seen, operation)?;
    let model = seen.model().unwrap_or_default();
    admitted.model(principal, model)?;
    let route = admitted
        .registry()
        .route(model)
        .ok_or(ReadError::NoProvider)?;
    Ok(ValidOther {
        seen,
        route,
        held: body.held,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::Gathered;

    #[test]
    fn one_frame_is_not_copied_and_many_are_joined_in_order() {
        let only = Bytes::from(vec![7; 100]);
        let mut gathered = Gathered::new(None);
        gathered.push(Bytes::new());
        gathered.push(only.clone());
        assert_eq!(gathered.into_bytes().as_ptr(), only.as_ptr());
        for expected in [None, Some(3_000)] {
            let mut gathered = Gathered::new(expected);
            let bytes: Vec<u8> = (0..=255).cycle().take(3_000).collect();
            for frame in bytes.chunks(7) {
                gathered.push(Bytes::copy_from_slice(frame));
            }
            assert!(gathered.joined.capacity() <= 6_000);
            assert_eq!(gathered.into_bytes(), bytes);
        }
        assert_eq!(Gathered::new(Some(9)).into_bytes(), Bytes::new());
    }
}
