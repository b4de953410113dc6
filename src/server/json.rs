//! What the JSON routes share: gates, body, query string, answers.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::auth::{Permissions, Principal};
use crate::error::{ApiError, Code};
use crate::limits::BytesHeld;
use crate::request::agent_binding::BoundPrincipal;
use crate::request::{Gated, gates, read};
use crate::store::StoreError;
use crate::telemetry::Trail;

use super::chat::conclude;

/// Answers a request with what `route` makes of it, and counts a refusal under its stage.
pub(super) async fn told(
    app: &App,
    request: Request,
    route: impl AsyncFnOnce(&App, Request, &mut Trail) -> Result<Response, ApiError>,
) -> Response {
    let mut trail = Trail::default();
    let result = route(app, request, &mut trail).await;
    conclude(app, trail, result)
}

/// A path's parameter; empty when it is no text, so that the gates and not the router have the first word.
pub(super) struct Segment(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        Ok(Self(path.map(|Path(text)| text).unwrap_or_default()))
    }
}

/// A protected request whose body has been read.
pub(super) struct Asked {
    bound: BoundPrincipal,
    pub(super) body: Bytes,
    counted: crate::request::rate_limit::CountedRequest,
    /// The body's share of the aggregate cap, for as long as the body is worked on.
    _held: BytesHeld,
}

impl Asked {
    pub(super) fn principal(&self) -> &Principal {
        self.bound.principal()
    }

    /// Demands a permission that depends on the request.
    pub(super) fn require(self, needed: Permissions) -> Result<Self, ApiError> {
        Ok(Self {
            bound: self.bound.require(needed)?,
            ..self
        })
    }

    /// Parses the body as `T`; an empty one counts as `{}`.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let text: &[u8] = if self.body.is_empty() {
            b"{}"
        } else {
            &self.body
        };
        serde_json::from_slice(text).map_err(|e| invalid(&e))
    }

    /// A JSON answer with the rate headers.
    pub(super) fn answer(&self, app: &App, status: StatusCode, body: &impl Serialize) -> Response {
        let mut response = (status, axum::Json(body)).into_response();
        self.counted.write(response.headers_mut(), app.clock.now());
        response
    }

    /// An answer without a body.
    pub(super) fn empty(&self, app: &App, status: StatusCode) -> Response {
        let mut response = status.into_response();
        self.counted.write(response.headers_mut(), app.clock.now());
        response
    }
}

/// Passes the gates and reads the body.
pub(super) async fn ask(
    app: &App,
    head: &Parts,
    body: Body,
    needed: Permissions,
    trail: &mut Trail,
) -> Result<Asked, ApiError> {
    let Gated {
        bound,
        counted,
        declared,
        ..
    } = gates(app, head, body, needed, trail).await?;
    trail.enter(crate::request::Stage::Validate);
    let whole = read::whole(app, bound.principal(), declared).await?;
    let (body, held) = whole.into_parts();
    Ok(Asked {
        bound,
        body,
        counted,
        _held: held,
    })
}

/// A body that serde refuses: the text names the place and the expected type, and never repeats a value.
pub(super) fn invalid(error: &serde_json::Error) -> ApiError {
    let place = format!("line {}, column {}", error.line(), error.column());
    match error.classify() {
        serde_json::error::Category::Syntax
        | serde_json::error::Category::Eof
        | serde_json::error::Category::Io => ApiError::new(
            Code::InvalidJson,
            format!("the request body is not valid JSON (at {place})"),
        ),
        serde_json::error::Category::Data => ApiError::new(
            Code::ValidationError,
            format!("the request body has a missing, unknown or wrongly typed field (at {place})"),
        ),
    }
}

/// Parses the request's query string as `T`.
pub(super) fn query<T: DeserializeOwned>(head: &Parts) -> Result<T, ApiError> {
    query_of(head.uri.query().unwrap_or_default())
}

/// Parses a query string as `T`.
pub(super) fn query_of<T: DeserializeOwned>(text: &str) -> Result<T, ApiError> {
    serde_urlencoded::from_str(text).map_err(|_| {
        ApiError::new(
            Code::ValidationError,
            "the query string has an unknown or wrongly typed parameter",
        )
    })
}

/// A failing store, as the management routes tell it.
pub(super) fn store_failed(error: &StoreError) -> ApiError {
    match error {
        StoreError::Missing(what) => ApiError::new(Code::NotFound, format!("no such {what}")),
        StoreError::Conflict(what) => {
            ApiError::new(Code::Conflict, format!("{what} already exists"))
        }
        StoreError::Revoked(_) => ApiError::new(Code::Conflict, error.to_string()),
        StoreError::Unavailable(_) | StoreError::Refused(_) | StoreError::Damaged(_) => {
            tracing::warn!("store: {error}");
            ApiError::new(Code::ServiceDegraded, "the store is unavailable").retry_after(1)
        }
    }
}

/// The one answer for resources that are absent or somebody else's.
pub(super) fn absent() -> ApiError {
    ApiError::new(Code::NotFound, "no such resource")
}
