//! Measure: what the client's own messages and tools cost in tokens of the model's family.
//!
//! Exact families count decoded text, cached by content; estimated ones take three bytes a token of the raw JSON, which needs no
//! decoding and is never below the text's own estimate. Images cost a flat figure, whatever the length of their data.

use crate::ids::OrgId;
use crate::openai::ChatRequest;
use crate::openai::chat::{Content, Message};
use crate::tokens::{Count, Counter, Family, IMAGE_TOKENS};

/// Tokens that separate one message from the next in chat formats.
const PER_MESSAGE: u32 = 4;

/// The client's share of the window.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// All messages.
    pub messages: Count,
    /// All tool schemas.
    pub tools: Count,
}

/// Measures a request.
#[must_use]
pub fn measure(counter: &Counter, org: OrgId, family: Family, chat: &ChatRequest) -> Measured {
    let messages = chat
        .messages()
        .iter()
        .map(|m| message(counter, org, family, chat, m))
        .fold(0_u32, u32::saturating_add);
    let tools = chat
        .tools()
        .map_or(0, |t| raw(counter, org, family, chat.raw(&t.range)));
    Measured {
        messages: Count::new(family, messages),
        tools: Count::new(family, tools),
    }
}

fn message(
    counter: &Counter,
    org: OrgId,
    family: Family,
    chat: &ChatRequest,
    message: &Message,
) -> u32 {
    let media = u32::try_from(message.media_parts())
        .unwrap_or(u32::MAX)
        .saturating_mul(IMAGE_TOKENS);
    let text = match (&message.content, family) {
        (
            Content::Text(_) | Content::Absent | Content::Null | Content::Other(_),
            Family::Claude | Family::Unknown,
        ) => {
            return raw(counter, org, family, chat.raw(&message.range)).saturating_add(PER_MESSAGE);
        }
        (
            Content::Parts(_)
            | Content::Text(_)
            | Content::Absent
            | Content::Null
            | Content::Other(_),
            _,
        ) => chat.text(message),
    };
    // Tool calls are arguments in JSON: counted with the whole message's text, which holds little else then.
    let calls = if message.tool_calls.is_empty() {
        0
    } else {
        raw(counter, org, family, chat.raw(&message.range))
    };
    counter
        .count(org, family, &text)
        .saturating_add(calls)
        .saturating_add(media)
        .saturating_add(PER_MESSAGE)
}

fn raw(counter: &Counter, org: OrgId, family: Family, json: &[u8]) -> u32 {
    match family {
        Family::O200kBase | Family::Cl100kBase => {
            counter.count(org, family, std::str::from_utf8(json).unwrap_or_default())
        }
        Family::Claude | Family::Unknown => {
            u32::try_from(json.len().div_ceil(3)).unwrap_or(u32::MAX)
        }
    }
}
