//! THE REQUEST PATH: one chat request from its first header to the last byte of the answer, the stages called in order.
//!
//! Each stage takes what the one before it proved and yields a proof of its own, so none can be skipped or swapped. A stage that refuses
//! ends the request there; the provider is called in the eleventh.

pub mod stage;
pub mod body_limit;
pub mod bearer_token;
pub mod agent_binding;
pub mod admission;
pub mod rate_limit;
pub mod read;
pub mod validation;
pub mod resolution;
pub mod idempotency;
pub mod context;
pub mod handoff;
pub mod relay;
mod capture;
mod note;
pub mod answer;
pub mod pass_through;

use axum::body::Body;
use axum::response::Response;
use http::request::Parts;

use crate::app::App;
use crate::auth::Permissions;
use crate::error::ApiError;
use crate::telemetry::{CallFacts, RequestMeta, Trail};

use idempotency::Standing;

pub use stage::{OnFailure, Stage};

/// Answers one chat completion request.
///
/// # Errors
/// The first stage's refusal; none of them has called a provider but the handoff.
pub async fn handle(
    app: &App,
    head: &Parts,
    body: Body,
    meta: &RequestMeta,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let headers = &head.headers;
    trail.enter(Stage::BodyLimit);
    let declared = body_limit::declare(&app.config.server, headers, body)?;
    trail.enter(Stage::BearerToken);
    let token = bearer_token::bearer_token(headers, &app.verifier).await?;
    trail.enter(Stage::AgentBinding);
    let bound = agent_binding::agent_binding(&token, headers, &app.verifier)
        .await?
        .require(Permissions::CHAT)?;
    trail.identify(bound.principal());
    trail.enter(Stage::PolicySnapshot);
    let admitted = admission::snapshot(&app.rules);
    trail.enter(Stage::RequestRate);
    let counted = rate_limit::requests(app, bound.principal()).await?;
    trail.rates = Some((counted.figures(), app.clock.now()));
    trail.enter(Stage::Validate);
    let valid = read::chat(app, bound.principal(), &admitted, declared).await?;
    trail.enter(Stage::TokenRate);
    let facts = CallFacts::of(&valid.route, valid.chat.stream());
    trail.call = Some(facts.clone());
    let counted = rate_limit::tokens(app, counted, context::ask(app, &valid)).await?;
    trail.enter(Stage::Resolve);
    let resolved = resolution::resolve(app, bound.principal(), &valid.chat, headers);
    trail.carry(resolved.told());
    trail.enter(Stage::Idempotency);
    let claim = match idempotency::claim(app, bound.principal(), headers, &valid.chat).await? {
        Standing::First(claim) => claim,
        Standing::Repeated(reply) => return Ok(answer::repeated(*reply, &counted, &resolved)),
    };
    trail.enter(Stage::Context);
    let mut attached = context::attach(app, &bound, &valid, &resolved, headers).await;
    let capture = capture::turn(app, bound.principal(), headers, (&valid, &resolved));
    trail.enter(Stage::Handoff);
    let outgoing = attached.outgoing(app, &valid, &resolved).await;
    trail.context = Some(attached.facts());
    let call = handoff::send(app, handoff::Call::new(&facts, meta, headers), outgoing);
    trail.carry(attached.headers().iter().cloned());
    attached.count(app);
    let answered = call.await;
    let about = (bound.principal(), &valid, &resolved);
    let noted = note::request(app, meta, about, &mut attached, &answered);
    let answered = answered?;
    trail.enter(Stage::Relay);
    Ok(answer::chat(
        app,
        answered,
        answer::Told {
            meta,
            trail,
            counted,
            valid,
            resolved,
            attached,
            capture,
            claim,
            noted,
        },
    ))
}

/// The gates that every protected route passes before its body is read: the first five stages of the path.
#[derive(Debug)]
pub struct Gated {
    /// Who asks.
    pub bound: agent_binding::BoundPrincipal,
    /// The policy that holds.
    pub admitted: admission::Admitted,
    /// Proof of the request rate.
    pub counted: rate_limit::CountedRequest,
    /// The body, not read yet.
    pub declared: body_limit::DeclaredBody,
}

/// Passes the gates for a route that needs `needed`.
///
/// # Errors
/// The first gate's refusal.
pub async fn gates(
    app: &App,
    head: &Parts,
    body: Body,
    needed: Permissions,
    trail: &mut Trail,
) -> Result<Gated, ApiError> {
    let headers = &head.headers;
    trail.enter(Stage::BodyLimit);
    let declared = body_limit::declare(&app.config.server, headers, body)?;
    trail.enter(Stage::BearerToken);
    let token = bearer_token::bearer_token(headers, &app.verifier).await?;
    trail.enter(Stage::AgentBinding);
    let bound = agent_binding::agent_binding(&token, headers, &app.verifier)
        .await?
        .require(needed)?;
    trail.identify(bound.principal());
    trail.enter(Stage::PolicySnapshot);
    let admitted = admission::snapshot(&app.rules);
    trail.enter(Stage::RequestRate);
    let counted = rate_limit::requests(app, bound.principal()).await?;
    trail.rates = Some((counted.figures(), app.clock.now()));
    Ok(Gated {
        bound,
        admitted,
        counted,
        declared,
    })
}
