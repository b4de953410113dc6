//! What is kept of a request for capture: the user's own words, where the agent asks for it. Nothing for every other request.

use http::HeaderMap;

use crate::app::App;
use crate::auth::Principal;
use crate::memory::PartitionKey;
use crate::memory::capture::{Capture, Turn};
use crate::openai::chat::Role;

use super::context::skipped;
use super::read::ValidChat;
use super::resolution::Resolved;

/// The turn that this request asks, if its answer may make memory of it. A request that goes on with tools repeats a message that was
/// asked before, and a client that opts out of memory opts out of this.
pub(super) fn turn(
    app: &App,
    who: &Principal,
    headers: &HeaderMap,
    (valid, resolved): (&ValidChat, &Resolved),
) -> Option<Box<Turn>> {
    let partition = Capture::partition(who)?;
    let last = valid
        .chat
        .messages()
        .last()
        .filter(|m| m.role == Role::User)?;
    let text = valid.chat.text(last);
    let longest = app.config.capture.max_message_bytes;
    if text.len() > longest || text.trim().is_empty() || skipped(headers) {
        return None;
    }
    let turns = resolved.chain.turns();
    Some(Box::new(Turn {
        partition,
        own: PartitionKey::for_write(who.scope()),
        session: resolved.session.clone(),
        index: u32::try_from(turns.len().saturating_sub(1)).unwrap_or(u32::MAX),
        chain: turns.last()?.chain,
        text: text.into_owned(),
    }))
}
