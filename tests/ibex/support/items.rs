//! The `messages` of a body, one by one, as the bytes that stand in it.

use bytes::Bytes;
use ibex::openai::ChatRequest;

/// More messages than any test sends.
const MOST: usize = 10_000;

/// A body that is a chat request.
pub(crate) fn parsed(body: impl Into<Bytes>) -> ChatRequest {
    ChatRequest::parse(body.into(), MOST).expect("a chat request")
}

/// Its messages.
pub(crate) fn items(chat: &ChatRequest) -> Vec<Bytes> {
    let messages = chat.messages().iter();
    messages
        .map(|message| chat.body().slice(message.range.clone()))
        .collect()
}
