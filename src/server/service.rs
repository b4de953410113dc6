//! What a connection calls: identifiers and closing headers around every request, and a short way to the one route that is hot.
//!
//! A chat request goes straight to the request path. Through the router it would pay for boxed layers, a matched path and extensions on
//! its way; every other route does.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures_util::FutureExt;
use http::{Method, Request};
use hyper::body::Incoming;
use tower::ServiceExt;

use crate::app::App;

use super::layers::{Around, NO_ROUTE, RouteLabel, panicked};
use super::{chat, routes};

const CHAT: &str = "/v1/chat/completions";

/// The whole service; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Service {
    app: App,
    router: Router,
}

impl Service {
    pub(super) fn new(app: App) -> Self {
        let router = routes::router(&app);
        Self { app, router }
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let _under_way = self.app.console.opened();
        let hot = request.method() == Method::POST
            && matches!(request.uri().path(), CHAT | "/chat/completions");
        let route = if hot { CHAT } else { NO_ROUTE };
        let Self { app, router } = self;
        let mut around = Around::new(app, &request, route);
        let request = request.map(Body::new);
        let (route, response) = if hot {
            let (app, meta, trail) = around.parts();
            let answered = AssertUnwindSafe(chat::answer(app, meta, request, trail))
                .catch_unwind()
                .await;
            (CHAT, answered.unwrap_or_else(panicked))
        } else {
            routed(router, &around, request).await?
        };
        Ok(around.finish(route, response))
    }
}

async fn routed(
    router: Router,
    around: &Around,
    mut request: Request<Body>,
) -> Result<(&'static str, Response), Infallible> {
    request.extensions_mut().insert(around.meta().clone());
    let response = router.oneshot(request).await?;
    let route = response
        .extensions()
        .get::<RouteLabel>()
        .map_or(NO_ROUTE, |label| label.0);
    Ok((route, response))
}

impl hyper::service::Service<Request<Incoming>> for Service {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        Box::pin(self.clone().answer(request))
    }
}
