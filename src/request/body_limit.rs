//! Stage 1, body limit: takes the request's head, yields a [`DeclaredBody`] whose length is acceptable as declared.
//!
//! Nothing of the body is read here. The limit is armed again while reading, for bodies without a declared length.

use axum::body::Body;
use http::{HeaderMap, header};

use crate::config::ServerConfig;
use crate::error::{ApiError, Code};

/// A body that may be read once the gates have passed.
#[derive(Debug)]
pub struct DeclaredBody {
    body: Body,
    declared: Option<usize>,
}

impl DeclaredBody {
    /// The `Content-Length`, when there is one.
    #[must_use]
    pub fn declared(&self) -> Option<usize> {
        self.declared
    }

    pub(in crate::request) fn into_body(self) -> Body {
        self.body
    }
}

/// Why a body is not even begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyLimitError {
    /// Declared larger than the limit.
    #[error("the request body is larger than {limit} bytes")]
    TooLarge {
        /// `server.max_body_bytes`.
        limit: usize,
    },
    /// A content encoding.
    #[error("request bodies must not be compressed; send Content-Encoding: identity or none")]
    Encoded,
    /// A media type other than JSON.
    #[error("the request body must be application/json")]
    NotJson,
}

impl From<BodyLimitError> for ApiError {
    fn from(error: BodyLimitError) -> Self {
        let code = match error {
            BodyLimitError::TooLarge { .. } => Code::PayloadTooLarge,
            BodyLimitError::Encoded | BodyLimitError::NotJson => Code::UnsupportedMediaType,
        };
        Self::new(code, error.to_string())
    }
}

/// Checks what the head says of the body.
///
/// # Errors
/// When the declared length is over the limit, the body is encoded, or it is declared to be something other than JSON.
pub fn declare(
    config: &ServerConfig,
    headers: &HeaderMap,
    body: Body,
) -> Result<DeclaredBody, BodyLimitError> {
    let limit = config.max_body_bytes;
    let declared = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok())
        .and_then(|t| t.parse::<usize>().ok());
    if declared.is_some_and(|n| n > limit) {
        return Err(BodyLimitError::TooLarge { limit });
    }
    let encoded = headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .any(|v| !v.as_bytes().eq_ignore_ascii_case(b"identity"));
    if encoded {
        return Err(BodyLimitError::Encoded);
    }
    if let Some(kind) = headers.get(header::CONTENT_TYPE) {
        let essence = kind
            .as_bytes()
            .split(|b| *b == b';')
            .next()
            .unwrap_or_default()
            .trim_ascii();
        if !essence.eq_ignore_ascii_case(b"application/json") {
            return Err(BodyLimitError::NotJson);
        }
    }
    Ok(DeclaredBody { body, declared })
}
