//! Preview: the messages as they would go out, and the plan behind them. No provider is called.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::openai::ChatRequest;

use super::Subject;
use super::assemble::Assembled;
use super::inject::inject;
use super::plan::ContextPlan;

/// Injection adds at most a directive's and a memory block's message.
const ADDED: usize = 2;

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

/// Rewrites the subject's request as the handoff would.
///
/// # Errors
/// When the result is no chat request any more.
pub fn preview(subject: &Subject<'_>, assembled: Assembled) -> Result<Preview, Unreadable> {
    let chat = subject.chat;
    let body = inject(chat, &assembled.injection, subject.profile.system_role)
        .into_body(chat.body())
        .to_bytes();
    let most = chat.message_count().saturating_add(ADDED);
    let rewritten = ChatRequest::parse(body, most).map_err(|_| Unreadable)?;
    let range = rewritten.field("messages").ok_or(Unreadable)?;
    let messages = serde_json::from_slice(rewritten.raw(&range)).map_err(|_| Unreadable)?;
    Ok(Preview {
        messages,
        plan: assembled.plan,
    })
}
