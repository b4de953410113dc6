//! Stage 10, context: takes a valid request and what was resolved, yields [`Attached`]: the request as it goes out, and the record of it.
//!
//! ```text
//! retrieve   three branches at once, clamped to one deadline
//! rank       one score for every candidate, and the gate
//! budget     what is left of the model's window
//! pack       the set that is worth most within it
//! format     serialised as data, under a fresh nonce
//! inject     spliced between the client's own bytes
//! plan       the record
//! ```
//!
//! That is the `assembled` layout. In the `stable` one (`sticky`) the same steps run for what is new, and what was sent before in the
//! session is sent again: `regions` and `envelope` write it, `place` puts it where it was.
//!
//! It never refuses a request: whatever fails, the request goes out with less, and headers say so.

pub mod retrieve;
pub mod rank;
pub mod said;
pub mod budget;
pub mod measure;
pub mod pack;
pub mod format;
pub mod inject;
pub mod assemble;
pub mod plan;
pub mod preview;
pub mod recall;
pub mod regions;
pub mod envelope;
pub mod place;
pub mod sticky;
mod attached;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use crate::app::{App, Rules};
use crate::auth::Principal;
use crate::config::Layout;
use crate::openai::ChatRequest;
use crate::providers::ModelProfile;
use crate::session::Lane;
use crate::store::DirectiveVersion;
use crate::tokens::Family;

use super::agent_binding::BoundPrincipal;
use super::rate_limit::Ask;
use super::read::ValidChat;
use super::resolution::Resolved;
use super::resolution::directive::Lookup;

use assemble::{Assembled, Inputs, View};
use measure::Measured;
use plan::{ContextStatus, Outcome};
use retrieve::{Deadline, Found, Wanted};

pub use attached::{Attached, Checkpoint, Estimate};

/// What the request asks of the token rate: its prompt by the labelled estimate, and the greatest answers it allows. One that sets no
/// limit is taken to want the reserve that a budget would keep for it.
#[must_use]
pub fn ask(app: &App, valid: &ValidChat) -> Ask {
    let chat = &valid.chat;
    let tokens = if app.rates.limits_tokens() {
        let prompt = measure::estimated(Family::Unknown, chat);
        let profile = valid.route.profile;
        let reserve = app.config.context.reserve_max.min(profile.max_output);
        let answers = chat
            .max_tokens()
            .unwrap_or(reserve)
            .saturating_mul(chat.n());
        [prompt.tools.tokens, answers]
            .into_iter()
            .fold(prompt.messages.tokens, u32::saturating_add)
    } else {
        0
    };
    Ask {
        tokens,
        stream: chat.stream(),
        now: app.clock.now(),
    }
}

/// Assembles context and attaches it to the request.
pub async fn attach(
    app: &App,
    bound: &BoundPrincipal,
    valid: &ValidChat,
    resolved: &Resolved,
    headers: &HeaderMap,
) -> Attached {
    let who = bound.principal();
    let subject = Subject::of(bound, valid);
    let off = match (skipped(headers), valid.verdict.context) {
        (true, _) => Some(ContextStatus::Skipped),
        (false, false) => Some(ContextStatus::Disabled),
        (false, true) => None,
    };
    if let Some(status) = off {
        let directive = directive_alone(app, who, &resolved.directive).await;
        app.metrics.context_off(status);
        return Attached::without_recall(&subject, directive.as_deref(), status);
    }
    if app.config.context.layout == Layout::Stable {
        let frozen = sticky::run(app, &subject, resolved, &View::default(), true).await;
        return Attached::frozen(frozen);
    }
    let began = Instant::now();
    let assembled = run(app, &subject, &resolved.directive, &View::default()).await;
    app.metrics.assembled(
        &assembled.plan,
        assembled.injected(),
        began.elapsed().as_secs_f64(),
    );
    // Being injected is a use. Counted off the path.
    app.uses.note(assembled.used.iter().cloned());
    let attempt = || Attached::with(&subject, assembled);
    catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|_| {
        tracing::error!("the injection panicked; the request goes out as it came");
        Attached::as_it_came()
    })
}

/// Whose request, and for which model.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Who asks.
    pub who: &'a Principal,
    /// The request.
    pub chat: &'a ChatRequest,
    /// The model.
    pub profile: ModelProfile,
    /// Model and provider as they are called.
    pub lane: &'a Lane,
    /// The rules that it was admitted under.
    pub rules: &'a Arc<Rules>,
}

impl<'a> Subject<'a> {
    /// The subject of a valid request.
    #[must_use]
    pub fn of(bound: &'a BoundPrincipal, valid: &'a ValidChat) -> Self {
        Self {
            who: bound.principal(),
            chat: &valid.chat,
            profile: valid.route.profile,
            lane: &valid.route.lane,
            rules: &valid.rules,
        }
    }
}

/// One whole assembly under its deadline.
pub async fn run(app: &App, subject: &Subject<'_>, directive: &Lookup, view: &View) -> Assembled {
    let began = Instant::now();
    let deadline = Deadline::new(began, &app.config.context);
    let (org, family) = (subject.who.org(), subject.profile.family);
    let (mut found, measured) = tokio::join!(
        retrieve::retrieve(app, subject, directive, Wanted::RECALL, deadline),
        measure::measure(&app.counter, org, family, subject.chat, deadline.wall),
    );
    let known = (found.directive.clone(), found.branches.clone());
    if Instant::now() > deadline.end {
        found = found.given_up("deadline");
    }
    let mut assembled = guarded(app, subject, found, &measured, view);
    if Instant::now() > deadline.end && assembled.plan.level < plan::Level::L3 {
        // Too late to be worth its wait: the directive goes out, the memories do not.
        let (directive, branches) = known;
        assembled = guarded(
            app,
            subject,
            Found {
                directive,
                branches,
                ..Found::empty()
            }
            .given_up("deadline"),
            &measured,
            view,
        );
    }
    assembled
        .plan
        .timings_ms
        .insert("total", began.elapsed().as_secs_f64() * 1_000.0);
    assembled
}

/// The pure part. A fault in it costs the memories, never the request.
fn guarded(
    app: &App,
    subject: &Subject<'_>,
    found: Found,
    measured: &Measured,
    view: &View,
) -> Assembled {
    let directive = found.directive.clone();
    let attempt = || assemble::assemble(Inputs::of(app, subject, found, measured, view)?);
    match catch_unwind(AssertUnwindSafe(attempt)) {
        Ok(Ok(assembled)) => assembled,
        Ok(Err(error)) => {
            tracing::error!("context assembly failed: {error}");
            Assembled::failed(subject, directive, view)
        }
        Err(_) => {
            tracing::error!("context assembly panicked");
            Assembled::failed(subject, directive, view)
        }
    }
}

/// `X-IBEX-Skip-Memory`: 1, true, yes or on (contract, section 6).
pub(super) fn skipped(headers: &HeaderMap) -> bool {
    let Some(value) = headers
        .get("x-ibex-skip-memory")
        .and_then(|v| v.to_str().ok())
    else {
        return false;
    };
    ["1", "true", "yes", "on"]
        .iter()
        .any(|yes| value.trim().eq_ignore_ascii_case(yes))
}

/// The directive of a request without an assembly, inside its own slice.
async fn directive_alone(
    app: &App,
    who: &Principal,
    lookup: &Lookup,
) -> Option<Arc<DirectiveVersion>> {
    match lookup {
        Lookup::AtHand(active) => active.clone(),
        Lookup::ToLoad => {
            let slice = Duration::from_millis(app.config.context.directive_timeout_ms);
            let end = Instant::now() + slice;
            retrieve::branch(end, true, app.directives.load(who.scope()))
                .await
                .value
                .flatten()
        }
    }
}

/// Whether a branch is missing from a result.
const fn missing(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Timeout | Outcome::Error)
}
