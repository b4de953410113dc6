//! Liveness, readiness, metrics and the OpenAPI document. Open, so they tell nothing about tenants, versions or addresses.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::future::OptionFuture;
use http::{HeaderMap, StatusCode, header};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::app::{App, Configuration};
use crate::limits::OnOutage;
use crate::telemetry::metrics::Exposition;

/// The public description of the interface.
const OPENAPI: &str = include_str!("openapi.json");
/// Time for one readiness check (contract, section 15).
const CHECK: Duration = Duration::from_millis(500);

/// Alive: the process answers. It never asks anything else, so a dependency's outage restarts nobody.
pub(super) async fn health() -> impl IntoResponse {
    axum::Json(json!({"status": "ok", "checks": {}}))
}

/// Ready: `ok` and `degraded` answer 200, `unhealthy` (and a draining process) 503. A provider is no check: without it requests get a
/// clear 503 of their own, and taking every replica out of service would not bring it back.
pub(super) async fn ready(State(app): State<App>) -> Response {
    let standing = standing(&app).await;
    (standing.code, axum::Json(standing)).into_response()
}

/// How the service stands, and what it needs.
#[derive(Debug, Serialize)]
pub(super) struct Standing {
    #[serde(skip)]
    code: StatusCode,
    status: &'static str,
    checks: Value,
}

/// Asks everything that is needed.
pub(super) async fn standing(app: &App) -> Standing {
    let asked = app.redis.as_ref();
    let (store, redis) = tokio::join!(
        Check::of(app.store.ping()),
        OptionFuture::from(asked.map(|redis| Check::of(redis.takes_writes())))
    );
    let draining = app.is_draining();
    // Without the rates that replicas share a request is refused, unless this replica counts by itself.
    let needs_redis = OnOutage::of(&app.config.rate_limit, app.config.env) == OnOutage::Refuse;
    let without_redis = redis.as_ref().is_some_and(|redis| redis.status != "ok");
    // While the store is down cached credentials and directives still serve, but nobody new gets in: not ready.
    let no_provider = app.rules.load().registry.default_provider().is_none();
    let configuration = app.configuration();
    let (status, code) = match (draining, store.status) {
        (true, _) => ("draining", StatusCode::SERVICE_UNAVAILABLE),
        (false, "ok") if without_redis && needs_redis => {
            ("unhealthy", StatusCode::SERVICE_UNAVAILABLE)
        }
        (false, "ok")
            if no_provider || without_redis || configuration == Configuration::LastGood =>
        {
            ("degraded", StatusCode::OK)
        }
        (false, "ok") => ("ok", StatusCode::OK),
        (false, _) => ("unhealthy", StatusCode::SERVICE_UNAVAILABLE),
    };
    let provider = if no_provider { "not_configured" } else { "ok" };
    // While vectors are missing everything is served, so it is no reason to be less than ready.
    let embeddings = if app.metrics.memories_to_embed.get() > 0 {
        "catching_up"
    } else {
        "ok"
    };
    let mut checks = json!({
        "store": store,
        "provider": {"status": provider},
        "embeddings": {"status": embeddings},
        "configuration": {"status": configuration.as_str()},
    });
    if let (Some(redis), Some(checks)) = (redis, checks.as_object_mut()) {
        checks.insert("redis".to_owned(), json!(redis));
    }
    Standing {
        code,
        status,
        checks,
    }
}

/// How something that is needed answers.
#[derive(Debug, Serialize)]
struct Check {
    status: &'static str,
    latency_ms: f64,
}

impl Check {
    async fn of<E>(asked: impl Future<Output = Result<(), E>>) -> Self {
        let began = Instant::now();
        let status = match timeout(CHECK, asked).await {
            Ok(Ok(())) => "ok",
            Ok(Err(_)) => "failed",
            Err(_) => "timeout",
        };
        Self {
            status,
            latency_ms: began.elapsed().as_secs_f64() * 1_000.0,
        }
    }
}

/// The Prometheus exposition, in the format that the scraper reads.
pub(super) async fn metrics(State(app): State<App>, headers: HeaderMap) -> Response {
    app.look_around();
    let format = Exposition::asked_by(&headers);
    match app.metrics.render(format) {
        Ok(text) => {
            let about = [
                (header::CONTENT_TYPE, format.content_type()),
                (header::VARY, "accept"),
            ];
            (about, text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// The OpenAPI document.
pub(super) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI)
}
