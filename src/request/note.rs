//! What is kept of a request for the console: identifiers and the plan of its context, no text. Nothing where the console is off.

use crate::app::App;
use crate::auth::Principal;
use crate::console::{About, Noted};
use crate::error::ApiError;
use crate::telemetry::RequestMeta;

use super::context::Attached;
use super::handoff::{Answer, HandoffError};
use super::read::ValidChat;
use super::resolution::Resolved;

/// Notes a request whose provider has answered, or has not.
pub(super) fn request(
    app: &App,
    meta: &RequestMeta,
    (who, valid, resolved): (&Principal, &ValidChat, &Resolved),
    attached: &mut Attached,
    answered: &Result<Answer, HandoffError>,
) -> Option<Box<Noted>> {
    if !app.console.is_on() {
        return None;
    }
    let (status, plan) = attached.take_plan();
    let level = plan.as_ref().map(|plan| plan.level);
    let mut noted = app.console.note((status, level), || About {
        request: meta.id.clone(),
        trace: meta.trace.id().hex().as_str().into(),
        at: app.clock.now(),
        scope: who.scope().clone(),
        session: resolved.session.clone(),
        lane: valid.route.lane.clone(),
        stream: valid.chat.stream(),
        plan,
    })?;
    let took = meta.started.elapsed();
    match answered {
        Ok(answer) => noted.answered(answer.head.status, took),
        Err(error) => {
            let error = ApiError::from(*error);
            let status = error.status.unwrap_or(error.code.status());
            noted.refused(error.code, status, took);
        }
    }
    Some(noted)
}
