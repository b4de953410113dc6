//! Preview: the messages as they would go out, and the plan behind them. No provider is called.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::app::App;
use crate::config::Layout;
use crate::openai::ChatRequest;
use crate::openai::edits::Edits;
use crate::request::resolution::Resolved;

use super::assemble::View;
use super::inject::inject;
use super::plan::ContextPlan;
use super::sticky::{self, Envelope};
use super::{Subject, run};

/// What a request would become.
#[derive(Debug, Serialize)]
pub struct Preview {
    /// The rewritten `messages` array.
    pub messages: Box<RawValue>,
    /// Why it looks like that.
    pub plan: ContextPlan,
}

/// The rewritten request can no longer be read: a fault of ours.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("an internal error occurred")]
pub struct Unreadable;

/// Rewrites the subject's request as the handoff would. Nothing is frozen.
///
/// # Errors
/// When the result is no chat request any more.
pub async fn preview(
    app: &App,
    subject: &Subject<'_>,
    resolved: &Resolved,
    view: &View,
) -> Result<Preview, Unreadable> {
    let (chat, profile) = (subject.chat, subject.profile);
    match app.config.context.layout {
        Layout::Stable => {
            let mut frozen = sticky::run(app, subject, resolved, view, false).await;
            let envelope = Envelope {
                chat,
                profile,
                chain: &resolved.chain,
            };
            let edits = frozen.seal(app, &envelope, false).await;
            rewritten(chat, edits, frozen.plan)
        }
        Layout::Assembled => {
            let assembled = run(app, subject, &resolved.directive, view).await;
            let edits = inject(chat, &assembled.injection, profile.system_role);
            rewritten(chat, edits, assembled.plan)
        }
    }
}

fn rewritten(chat: &ChatRequest, edits: Edits, plan: ContextPlan) -> Result<Preview, Unreadable> {
    let body = edits.into_body(chat.body()).to_bytes();
    // Every message of the client's may have one of ours before it, and two stand at the start.
    let most = chat.message_count().saturating_mul(2).saturating_add(2);
    let rewritten = ChatRequest::parse(body, most).map_err(|_| Unreadable)?;
    let range = rewritten.field("messages").ok_or(Unreadable)?;
    let messages = serde_json::from_slice(rewritten.raw(&range)).map_err(|_| Unreadable)?;
    Ok(Preview { messages, plan })
}
