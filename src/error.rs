//! The one error a client can meet: a code, a text that is safe to show, and the envelope that OpenAI's SDKs parse.
//!
//! Every stage has an error type of its own and turns it into an [`ApiError`] beside it; only this file makes responses.

use std::borrow::Cow;
use std::ops::{Deref, DerefMut};

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::ids::MemoryId;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:ident, $kind:literal;)*) => {
        /// The stable, machine-readable reason of an error (contract, section 15).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The wire name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            /// The `type` field, in OpenAI's vocabulary.
            #[must_use]
            pub const fn kind(self) -> &'static str {
                match self { $(Self::$name => $kind,)* }
            }
        }
    };
}

codes! {
    /// The body is not JSON.
    InvalidJson = "INVALID_JSON", BAD_REQUEST, "invalid_request_error";
    /// A field is missing or wrong.
    ValidationError = "VALIDATION_ERROR", BAD_REQUEST, "invalid_request_error";
    /// The request contradicts itself.
    InvalidRequest = "INVALID_REQUEST", BAD_REQUEST, "invalid_request_error";
    /// The token is not bound to an agent and the header is absent.
    MissingAgentId = "MISSING_AGENT_ID", BAD_REQUEST, "invalid_request_error";
    /// No credential.
    MissingToken = "MISSING_TOKEN", UNAUTHORIZED, "authentication_error";
    /// A credential that is unknown, expired, revoked or malformed.
    InvalidToken = "INVALID_TOKEN", UNAUTHORIZED, "authentication_error";
    /// The credential lacks a permission.
    InsufficientPermissions = "INSUFFICIENT_PERMISSIONS", FORBIDDEN, "permission_error";
    /// The agent is unknown, foreign, or not the one the token is bound to.
    AgentNotAuthorized = "AGENT_NOT_AUTHORIZED", FORBIDDEN, "permission_error";
    /// The agent is paused, suspended or archived.
    AgentSuspended = "AGENT_SUSPENDED", FORBIDDEN, "permission_error";
    /// The organisation is suspended.
    OrgSuspended = "ORG_SUSPENDED", FORBIDDEN, "permission_error";
    /// Another user than the token's.
    UserNotAuthorized = "USER_NOT_AUTHORIZED", FORBIDDEN, "permission_error";
    /// A policy rule denies the model.
    ModelNotAllowed = "MODEL_NOT_ALLOWED", FORBIDDEN, "permission_error";
    /// No such route or resource.
    NotFound = "NOT_FOUND", NOT_FOUND, "invalid_request_error";
    /// The route exists, the method does not.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", METHOD_NOT_ALLOWED, "invalid_request_error";
    /// The body did not arrive in time.
    RequestTimeout = "REQUEST_TIMEOUT", REQUEST_TIMEOUT, "invalid_request_error";
    /// An active memory has the same content.
    DuplicateContent = "DUPLICATE_CONTENT", CONFLICT, "invalid_request_error";
    /// The idempotency key was used for another request.
    IdempotencyConflict = "IDEMPOTENCY_CONFLICT", CONFLICT, "invalid_request_error";
    /// The idempotency key was used for another chat request.
    IdempotencyKeyReuse = "IDEMPOTENCY_KEY_REUSE", CONFLICT, "invalid_request_error";
    /// The first request with this idempotency key is still under way.
    IdempotencyInProgress = "IDEMPOTENCY_IN_PROGRESS", CONFLICT, "invalid_request_error";
    /// The state does not allow the change.
    Conflict = "CONFLICT", CONFLICT, "invalid_request_error";
    /// The body is larger than the limit.
    PayloadTooLarge = "PAYLOAD_TOO_LARGE", PAYLOAD_TOO_LARGE, "invalid_request_error";
    /// Not JSON, or an encoded body.
    UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE", UNSUPPORTED_MEDIA_TYPE, "invalid_request_error";
    /// The directive is larger than its cap.
    PrefixTooLarge = "PREFIX_TOO_LARGE", UNPROCESSABLE_ENTITY, "invalid_request_error";
    /// A rate or concurrency limit.
    RateLimited = "RATE_LIMITED", TOO_MANY_REQUESTS, "rate_limit_exceeded";
    /// A fault of ours.
    InternalError = "INTERNAL_ERROR", INTERNAL_SERVER_ERROR, "server_error";
    /// No provider serves the model.
    ProviderNotConfigured = "PROVIDER_NOT_CONFIGURED", NOT_IMPLEMENTED, "server_error";
    /// The provider answered with something that is not an HTTP answer.
    BadGateway = "PROVIDER_BAD_RESPONSE", BAD_GATEWAY, "server_error";
    /// Something the request needs is down or full.
    ServiceDegraded = "SERVICE_DEGRADED", SERVICE_UNAVAILABLE, "server_error";
    /// The identity store is down.
    AuthUnavailable = "AUTH_UNAVAILABLE", SERVICE_UNAVAILABLE, "server_error";
    /// The provider cannot be reached or refuses our key.
    ProviderUnavailable = "PROVIDER_UNAVAILABLE", SERVICE_UNAVAILABLE, "server_error";
    /// A keyed write cannot be told from its repetition: the ledger is down. Nothing was stored.
    IdempotencyUnavailable = "IDEMPOTENCY_UNAVAILABLE", SERVICE_UNAVAILABLE, "server_error";
    /// The text could not be embedded; nothing was stored.
    EmbeddingFailed = "EMBEDDING_FAILED", SERVICE_UNAVAILABLE, "server_error";
    /// The provider did not answer in time.
    ProviderTimeout = "PROVIDER_TIMEOUT", GATEWAY_TIMEOUT, "server_error";
}

/// One wrong field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// Path of the field, such as `messages[3].tool_call_id`.
    pub field: String,
    /// `REQUIRED`, `TOO_LONG`, `TOO_MANY`, `INVALID_ENUM`, `INVALID_FORMAT`, `RANGE_ERROR`, `DUPLICATE`, `UNKNOWN_FIELD` or `UNSUPPORTED`.
    pub code: &'static str,
    /// What is wrong, without repeating the value.
    pub message: String,
}

/// Greatest length of a client's own field name in an error, in characters.
const MAX_NAME_CHARS: usize = 64;

/// A client's field name as an error shows it: its beginning, because an error must not grow with the request.
#[must_use]
pub fn shown(name: &str) -> &str {
    name.char_indices()
        .nth(MAX_NAME_CHARS)
        .and_then(|(end, _)| name.get(..end))
        .unwrap_or(name)
}

/// An error on its way to the client. The message never repeats user text or secrets.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Refusal>);

/// What an [`ApiError`] holds; boxed, so that the good path does not carry its size.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The reason.
    pub code: Code,
    /// A provider's status that is kept although the code has another.
    pub status: Option<StatusCode>,
    /// For people.
    pub message: Cow<'static, str>,
    /// The offending parameter, when it is one.
    pub param: Option<String>,
    /// Every wrong field, when there are several.
    pub fields: Vec<FieldError>,
    /// Whole seconds after which a retry makes sense.
    pub retry_after: Option<u64>,
    /// The memory that already says this.
    pub existing_memory_id: Option<MemoryId>,
    /// Further response headers (the rate headers of a refusal).
    pub headers: Vec<(http::HeaderName, HeaderValue)>,
}

impl ApiError {
    /// An error with a text for the client.
    #[must_use]
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Refusal {
            code,
            status: None,
            message: message.into(),
            param: None,
            fields: Vec::new(),
            retry_after: None,
            existing_memory_id: None,
            headers: Vec::new(),
        }))
    }

    /// Keeps a provider's status.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// Names the offending parameter.
    #[must_use]
    pub fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Lists wrong fields; the first becomes `param`.
    #[must_use]
    pub fn fields(mut self, fields: Vec<FieldError>) -> Self {
        self.param = fields.first().map(|f| f.field.clone());
        self.fields = fields;
        self
    }

    /// Says when to come back.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds.max(1));
        self
    }

    /// The object under `error`, as batch results and mid-stream events carry it.
    #[must_use]
    pub fn body<'a>(
        &'a self,
        request_id: Option<&'a str>,
        timestamp: Option<String>,
    ) -> ErrorBody<'a> {
        ErrorBody {
            message: &self.message,
            kind: self.code.kind(),
            param: self.param.as_deref(),
            code: self.code.as_str(),
            request_id,
            timestamp,
            field_errors: &self.fields,
            existing_memory_id: self.existing_memory_id,
        }
    }
}

impl Deref for ApiError {
    type Target = Refusal;

    fn deref(&self) -> &Refusal {
        &self.0
    }
}

impl DerefMut for ApiError {
    fn deref_mut(&mut self) -> &mut Refusal {
        &mut self.0
    }
}

/// The wire form of an error.
#[derive(Debug, Serialize)]
pub struct ErrorBody<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    param: Option<&'a str>,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    field_errors: &'a [FieldError],
    #[serde(skip_serializing_if = "Option::is_none")]
    existing_memory_id: Option<MemoryId>,
}

/// The envelope around [`ErrorBody`].
#[derive(Debug, Serialize)]
pub struct Envelope<'a> {
    /// The error.
    pub error: ErrorBody<'a>,
}

impl IntoResponse for ApiError {
    /// Renders status and headers and leaves itself in the extensions: the outermost layer knows the request's id and time and writes
    /// the body (`server::layers`).
    fn into_response(self) -> Response {
        let mut response = self.status.unwrap_or(self.code.status()).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code.status() == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        headers.extend(
            self.headers
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        response.extensions_mut().insert(std::sync::Arc::new(self));
        response
    }
}
