//! Measure: what the client's own messages and tools cost in tokens of the model's family.
//!
//! Exact families count decoded text, cached by content; estimated ones take three bytes a token of the raw JSON, which needs no
//! decoding and is never below the text's own estimate. Images cost a flat figure, whatever the length of their data.
//!
//! Counting is CPU work whose amount the client chooses. A short request is counted where it stands; a longer one on a worker thread,
//! beside retrieval and inside its wall. What cannot be counted in time makes the whole assembly an estimated one: two kinds of counts
//! are never added.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::ids::OrgId;
use crate::openai::ChatRequest;
use crate::openai::chat::{Content, Message};
use crate::tokens::{Count, Counter, Family, IMAGE_TOKENS};

/// Tokens that separate one message from the next in chat formats.
const PER_MESSAGE: u32 = 4;
/// Bodies up to this many bytes are tried on the request's own thread first: their hashes alone take a tenth of a millisecond.
const INLINE_BYTES: usize = 64 << 10;
/// The time for that. A conversation that was counted before takes a fraction of it.
const INLINE_TIME: Duration = Duration::from_micros(500);

/// The client's share of the window.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// How it was counted: the model's family, or [`Family::Unknown`] when there was no time for that.
    pub family: Family,
    /// All messages.
    pub messages: Count,
    /// All tool schemas.
    pub tools: Count,
}

/// Measures a request by `deadline`.
pub async fn measure(
    counter: &Counter,
    org: OrgId,
    family: Family,
    chat: &ChatRequest,
    deadline: Instant,
) -> Measured {
    if matches!(family, Family::Claude | Family::Unknown) {
        return estimated(family, chat);
    }
    if !counter.is_ready(family) {
        return estimated(Family::Unknown, chat);
    }
    let soon = (Instant::now() + INLINE_TIME).min(deadline);
    let inline = (chat.body().len() <= INLINE_BYTES)
        .then(|| exact(counter, org, family, chat, soon))
        .flatten();
    if let Some(measured) = inline {
        return measured;
    }
    let (counter, shared) = (counter.clone(), chat.clone());
    let work = tokio::task::spawn_blocking(move || exact(&counter, org, family, &shared, deadline));
    match timeout_at(deadline, work).await {
        Ok(Ok(Some(measured))) => measured,
        Ok(Ok(None) | Err(_)) | Err(_) => estimated(Family::Unknown, chat),
    }
}

/// The labelled estimate: no decoding, no tokenizer.
#[must_use]
pub fn estimated(family: Family, chat: &ChatRequest) -> Measured {
    let thirds = |bytes: usize| u32::try_from(bytes.div_ceil(3)).unwrap_or(u32::MAX);
    let message = |m: &Message| match m.content {
        // The data of an image is no text: what counts is the text beside it.
        Content::Parts(_) if m.media_parts() > 0 => {
            thirds(chat.text(m).len()).saturating_add(media(m))
        }
        Content::Parts(_)
        | Content::Text(_)
        | Content::Absent
        | Content::Null
        | Content::Other(_) => thirds(m.range.len()),
    };
    let messages = chat
        .messages()
        .iter()
        .map(|m| message(m).saturating_add(PER_MESSAGE))
        .fold(0, u32::saturating_add);
    let tools = chat.tools().map_or(0, |t| thirds(t.range.len()));
    Measured {
        family,
        messages: Count::new(family, messages),
        tools: Count::new(family, tools),
    }
}

fn exact(
    counter: &Counter,
    org: OrgId,
    family: Family,
    chat: &ChatRequest,
    deadline: Instant,
) -> Option<Measured> {
    let count = |text: &str| counter.count_until(org, family, text, deadline);
    let json = |raw: &[u8]| count(std::str::from_utf8(raw).unwrap_or_default());
    let mut messages = 0_u32;
    for message in chat.messages() {
        // The arguments of calls are JSON beside the text; a message that has them is counted as it stands, text and all.
        let text = if message.tool_calls.is_empty() {
            count(&chat.text(message))?
        } else {
            json(chat.raw(&message.range))?
        };
        messages = [text, media(message), PER_MESSAGE]
            .into_iter()
            .fold(messages, u32::saturating_add);
    }
    let tools = match chat.tools() {
        Some(tools) => json(chat.raw(&tools.range))?,
        None => 0,
    };
    Some(Measured {
        family,
        messages: Count::new(family, messages),
        tools: Count::new(family, tools),
    })
}

fn media(message: &Message) -> u32 {
    u32::try_from(message.media_parts())
        .unwrap_or(u32::MAX)
        .saturating_mul(IMAGE_TOKENS)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::time::Instant;

    use super::{estimated, measure};
    use crate::ids::OrgId;
    use crate::openai::ChatRequest;
    use crate::tokens::{Counter, Family};

    fn chat(text: &str) -> ChatRequest {
        let body =
            serde_json::json!({"model": "m", "messages": [{"role": "user", "content": text}]})
                .to_string();
        ChatRequest::parse(Bytes::from(body), 10).unwrap()
    }

    #[tokio::test]
    async fn a_request_is_counted_exactly_while_there_is_time() {
        let counter = Counter::new([7; 32], 100);
        counter.warm();
        let far = Instant::now() + std::time::Duration::from_secs(60);
        let long = chat(&"a word and another ".repeat(20_000));
        for request in [chat("Which tea does Mara drink?"), long] {
            let measured = measure(&counter, OrgId::new(), Family::O200kBase, &request, far).await;
            assert_eq!(measured.family, Family::O200kBase);
            let text = request.text(&request.messages()[0]);
            assert_eq!(
                measured.messages.tokens,
                counter.counts(&text).o200k + super::PER_MESSAGE
            );
        }
    }

    #[tokio::test]
    async fn a_message_with_calls_is_counted_once() {
        let counter = Counter::new([7; 32], 100);
        counter.warm();
        let far = Instant::now() + std::time::Duration::from_secs(60);
        let text = "I look that up in the harbour's timetable. ".repeat(50);
        let message = serde_json::json!({"role": "assistant", "content": text, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]});
        let body = format!(r#"{{"model": "m", "messages": [{message}]}}"#);
        let request = ChatRequest::parse(Bytes::from(body), 10).unwrap();
        let measured = measure(&counter, OrgId::new(), Family::O200kBase, &request, far).await;
        assert_eq!(
            measured.messages.tokens,
            counter.counts(&message.to_string()).o200k + super::PER_MESSAGE
        );
    }

    #[tokio::test]
    async fn without_time_the_whole_request_is_estimated() {
        let counter = Counter::new([7; 32], 100);
        counter.warm();
        let request = chat(&"a".repeat(1 << 20));
        let measured = measure(
            &counter,
            OrgId::new(),
            Family::O200kBase,
            &request,
            Instant::now(),
        )
        .await;
        let expected = estimated(Family::Unknown, &request);
        assert_eq!(
            (measured.family, measured.messages),
            (Family::Unknown, expected.messages)
        );
        assert_eq!(measured.tools.family, Family::Unknown);
    }
}
