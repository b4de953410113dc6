//! Operations that get no context: completions, embeddings, models. Authenticated, limited and forwarded byte for byte.

use axum::body::Body;
use axum::response::Response;
use http::Method;
use http::request::Parts;

use crate::app::App;
use crate::auth::Permissions;
use crate::error::{ApiError, Code};
use crate::openai::edits::Edits;
use crate::openai::{Passthrough, RewrittenBody};
use crate::providers::Provider;
use crate::telemetry::{CallFacts, RequestMeta, Trail};

use super::handoff::{self, Call, Outgoing};
use super::{Stage, answer, gates, rate_limit, read};

/// Forwards a POST of `operation` (such as `/embeddings`).
///
/// # Errors
/// The first stage's refusal.
pub async fn post(
    app: &App,
    head: &Parts,
    body: Body,
    operation: &str,
    meta: &RequestMeta,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let gated = gates(app, head, body, Permissions::SESSION_CREATE, trail).await?;
    trail.enter(Stage::Validate);
    let valid = read::other(
        app,
        gated.bound.principal(),
        &gated.admitted,
        gated.declared,
        operation,
    )
    .await?;
    trail.enter(Stage::TokenRate);
    let ask = rate_limit::Ask {
        tokens: estimate(&valid.seen),
        stream: valid.seen.stream(),
        now: app.clock.now(),
    };
    let counted = rate_limit::tokens(app, gated.counted, ask).await?;
    trail.enter(Stage::Handoff);
    let facts = CallFacts::of(&valid.route, ask.stream);
    trail.call = Some(facts.clone());
    let outgoing = Outgoing {
        method: Method::POST,
        uri: join(&facts.provider, operation)?,
        body: rewritten(&valid),
        stream: ask.stream,
    };
    let call = Call::new(&facts, meta, &head.headers);
    let answered = handoff::send(app, call, outgoing).await?;
    valid.release();
    trail.enter(Stage::Relay);
    Ok(answer::other(
        app,
        answered,
        answer::Other {
            meta,
            trail,
            counted,
        },
    ))
}

/// Forwards a GET of `operation` (such as `/models`) to the default provider, or to the one that serves `model`.
///
/// # Errors
/// The first stage's refusal.
pub async fn get(
    app: &App,
    head: &Parts,
    operation: Operation<'_>,
    meta: &RequestMeta,
    trail: &mut Trail,
) -> Result<Response, ApiError> {
    let gated = gates(app, head, Body::empty(), Permissions::SESSION_CREATE, trail).await?;
    trail.enter(Stage::Validate);
    let registry = gated.admitted.registry();
    let facts = match operation {
        Operation::Models => registry
            .default_call()
            .map(|(provider, figures)| CallFacts {
                provider,
                lane: None,
                figures,
                stream: false,
            }),
        // A path that climbs would reach another operation of the provider.
        Operation::Model(id) if id.split('/').any(|part| matches!(part, "" | "." | "..")) => {
            return Err(ApiError::new(Code::NotFound, "no such model").param("model"));
        }
        Operation::Model(id) => {
            gated.admitted.model(gated.bound.principal(), id)?;
            registry.route(id).map(|route| CallFacts::of(&route, false))
        }
    };
    let facts = facts
        .ok_or_else(|| ApiError::new(Code::ProviderNotConfigured, "no provider is configured"))?;
    trail.enter(Stage::TokenRate);
    let ask = rate_limit::Ask {
        tokens: 0,
        stream: false,
        now: app.clock.now(),
    };
    let counted = rate_limit::tokens(app, gated.counted, ask).await?;
    trail.enter(Stage::Handoff);
    let uri = join(&facts.provider, &operation.path())?;
    trail.call = Some(facts.clone());
    let outgoing = Outgoing {
        method: Method::GET,
        uri,
        body: RewrittenBody::new(Vec::new()),
        stream: false,
    };
    let call = Call::new(&facts, meta, &head.headers);
    let answered = handoff::send(app, call, outgoing).await?;
    trail.enter(Stage::Relay);
    Ok(answer::other(
        app,
        answered,
        answer::Other {
            meta,
            trail,
            counted,
        },
    ))
}

/// A GET operation.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// The list of models.
    Models,
    /// One model.
    Model(&'a str),
}

impl Operation<'_> {
    fn path(self) -> String {
        match self {
            Self::Models => "/models".to_owned(),
            // A model id may hold slashes (`vendor/model`); everything else that is no path character is escaped again.
            Self::Model(id) => format!(
                "/models/{}",
                percent_encoding::utf8_percent_encode(id, MODEL_ID)
            ),
        }
    }
}

const MODEL_ID: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/')
    .remove(b':')
    .remove(b'@');

fn join(provider: &Provider, operation: &str) -> Result<http::Uri, ApiError> {
    provider.endpoint().uri(operation).map_err(|_| {
        ApiError::new(Code::InvalidRequest, "the model name makes no valid URL").param("model")
    })
}

/// The client's bytes; only a mapped model name differs.
fn rewritten(valid: &read::ValidOther) -> RewrittenBody {
    let mut edits = Edits::default();
    if let (Some(name), Some(range)) = (&valid.route.upstream_model, valid.seen.model_range()) {
        edits.set_model(range, name);
    }
    edits.into_body(valid.seen.body())
}

/// The labelled estimate of an unread body, three bytes a token, and the answer it asks for.
fn estimate(seen: &Passthrough) -> u32 {
    let prompt = u32::try_from(seen.body().len().div_ceil(3)).unwrap_or(u32::MAX);
    prompt.saturating_add(seen.max_tokens())
}
