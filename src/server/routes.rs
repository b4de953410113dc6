//! Every route in one table. What may not live here: logic. A route without credentials says why.

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{MethodRouter, delete, get, post};
use tower_http::catch_panic::CatchPanicLayer;

use crate::app::App;
use crate::error::{ApiError, Code};

use super::{chat, console, context, directives, layers, memories, probes, sessions};

/// Whether a route asks for credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The gates of the request path.
    Protected,
    /// Open, for the stated reason.
    Open(&'static str),
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct RouteInfo {
    /// Methods, as OpenAPI writes them.
    pub methods: &'static [&'static str],
    /// Path, with parameters in braces.
    pub path: &'static str,
    /// Credentials.
    pub access: Access,
}

const fn protected(methods: &'static [&'static str], path: &'static str) -> RouteInfo {
    RouteInfo {
        methods,
        path,
        access: Access::Protected,
    }
}

const fn open(path: &'static str, reason: &'static str) -> RouteInfo {
    RouteInfo {
        methods: &["get"],
        path,
        access: Access::Open(reason),
    }
}

/// Every route. A test holds the router and the OpenAPI document to it. Each `/v1/chat|completions|embeddings|models` route also answers
/// without `/v1`, for clients whose base URL lacks it.
pub const ROUTES: &[RouteInfo] = &[
    protected(&["post"], "/v1/chat/completions"),
    protected(&["post"], "/v1/responses"),
    protected(&["post"], "/v1/completions"),
    protected(&["post"], "/v1/embeddings"),
    protected(&["get"], "/v1/models"),
    protected(&["get"], "/v1/models/{id}"),
    protected(&["get", "post"], "/v1/memories"),
    protected(&["post"], "/v1/memories/batch"),
    protected(&["post"], "/v1/memories/search"),
    protected(&["get"], "/v1/memories/hot"),
    protected(&["get"], "/v1/memories/quarantine"),
    protected(&["get"], "/v1/memories/dead-letters"),
    protected(&["get"], "/v1/memories/escalations"),
    protected(&["post"], "/v1/memories/escalations/{id}"),
    protected(&["delete", "get", "patch"], "/v1/memories/{id}"),
    protected(&["post"], "/v1/memories/{id}/feedback"),
    protected(&["post"], "/v1/memories/{id}/release"),
    protected(&["post"], "/v1/memories/{id}/reject"),
    protected(&["post"], "/v1/context/assemble"),
    protected(&["post"], "/v1/context/preview"),
    protected(&["get", "post"], "/v1/directives"),
    protected(&["get"], "/v1/directives/active"),
    protected(&["post"], "/v1/directives/rollback"),
    protected(&["post"], "/v1/directives/{version}/promote"),
    protected(&["post"], "/v1/directives/{version}/revoke"),
    protected(&["get"], "/v1/sessions/{id}"),
    protected(&["post"], "/v1/sessions/{id}/terminate"),
    protected(&["get", "put"], "/v1/sessions/{id}/working-state"),
    open(
        "/health",
        "a liveness probe has no credentials and touches nothing",
    ),
    open(
        "/ready",
        "a readiness probe has no credentials; it names checks, never versions or addresses",
    ),
    open(
        "/metrics",
        "scraped inside the network; holds no identifier of a tenant",
    ),
    open("/openapi.json", "the public description of this interface"),
    open(
        "/console",
        "a page without data: everything that it shows it asks for with the token that is typed into it",
    ),
    open("/console/{file}", "the parts of that page"),
    protected(&["get"], "/console/api/viewer"),
    protected(&["get"], "/console/api/live"),
    protected(&["get"], "/console/api/requests"),
    protected(&["get"], "/console/api/requests/{id}"),
];

fn handlers(path: &str) -> Option<MethodRouter<App>> {
    Some(match path {
        "/v1/chat/completions" => post(chat::chat_completions),
        "/v1/responses" => post(chat::responses),
        "/v1/completions" => post(chat::completions),
        "/v1/embeddings" => post(chat::embeddings),
        "/v1/models" => get(chat::models),
        "/v1/models/{id}" => get(chat::model),
        "/v1/memories" => get(memories::list).post(memories::create),
        "/v1/memories/batch" => post(memories::batch),
        "/v1/memories/search" => post(memories::search),
        "/v1/memories/hot" => get(memories::hot),
        "/v1/memories/quarantine" => get(memories::quarantine),
        "/v1/memories/dead-letters" => get(memories::dead_letters),
        "/v1/memories/escalations" => get(memories::escalations),
        "/v1/memories/escalations/{id}" => post(memories::resolve),
        "/v1/memories/{id}" => delete(memories::forget)
            .get(memories::get)
            .patch(memories::patch),
        "/v1/memories/{id}/feedback" => post(memories::feedback),
        "/v1/memories/{id}/release" => post(memories::release),
        "/v1/memories/{id}/reject" => post(memories::reject),
        "/v1/context/assemble" => post(context::assemble),
        "/v1/context/preview" => post(context::preview_request),
        "/v1/directives" => get(directives::list).post(directives::add),
        "/v1/directives/active" => get(directives::active),
        "/v1/directives/rollback" => post(directives::rollback),
        "/v1/directives/{version}/promote" => post(directives::promote),
        "/v1/directives/{version}/revoke" => post(directives::revoke),
        "/v1/sessions/{id}" => get(sessions::get),
        "/v1/sessions/{id}/terminate" => post(sessions::terminate),
        "/v1/sessions/{id}/working-state" => {
            get(sessions::working_state).put(sessions::put_working_state)
        }
        "/health" => get(probes::health),
        "/ready" => get(probes::ready),
        "/metrics" => get(probes::metrics),
        "/openapi.json" => get(probes::openapi),
        "/console" => get(console::page),
        "/console/{file}" => get(console::file),
        "/console/api/viewer" => get(console::viewer),
        "/console/api/live" => get(console::live),
        "/console/api/requests" => get(console::requests),
        "/console/api/requests/{id}" => get(console::request),
        _ => return None,
    })
}

/// The answer where there is no route.
pub(super) fn no_route() -> ApiError {
    ApiError::new(Code::NotFound, "no such route")
}

/// Model ids may hold slashes (`vendor/model`), which only a wildcard takes.
fn wildcard(path: &str) -> String {
    path.replace("/models/{id}", "/models/{*id}")
}

/// The provider's own surface, also served without `/v1`.
fn alias(path: &str) -> Option<String> {
    let bare = path.strip_prefix("/v1")?;
    let provider = [
        "/chat/",
        "/responses",
        "/completions",
        "/embeddings",
        "/models",
    ]
    .iter()
    .any(|p| bare.starts_with(p));
    provider.then(|| wildcard(bare))
}

/// The router of the whole service.
pub fn router(app: &App) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let Some(methods) = handlers(route.path) else {
            continue;
        };
        if let Some(alias) = alias(route.path) {
            router = router.route(&alias, methods.clone());
        }
        router = router.route(&wildcard(route.path), methods);
    }
    router
        .fallback(async || no_route())
        .method_not_allowed_fallback(async || {
            ApiError::new(
                Code::MethodNotAllowed,
                "this route does not know that method",
            )
        })
        // Read upwards: a panic becomes a 500 before the label is put on.
        .layer(CatchPanicLayer::custom(layers::panicked))
        .layer(from_fn(layers::labelled))
        .with_state(app.clone())
}
