//! A chat request as the client sent it: the body's bytes, and where in them everything stands that the proxy reads or edits around.

mod message;
mod members;
pub(super) mod parse;
mod canonical;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::json::{JsonFault, RawStr};

pub use canonical::Sink;
pub use members::MAX_KEYS;
pub use message::{CallIds, Content, Message, MessageFault, Parts, Role};

/// Why a body is not taken as a request. Paths name keys, never values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not JSON.
    #[error(transparent)]
    Json(#[from] JsonFault),
    /// JSON, but no object.
    #[error("the body must be a JSON object")]
    NotAnObject,
    /// The same key twice in one object: two parsers may disagree about which one counts.
    #[error("the key '{path}' stands twice in one object")]
    DuplicateKey {
        /// Where, such as `messages[3].content`.
        path: String,
    },
    /// More than [`MAX_KEYS`] keys in one object that is read.
    #[error("'{path}' has more than {MAX_KEYS} keys")]
    TooManyKeys {
        /// Where; the body itself is `body`.
        path: String,
    },
}

/// One member of the body's top level.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name.
    pub key: RawStr,
    /// Its value's bytes.
    pub value: Range<usize>,
}

/// The client's tool schemas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// The whole array's bytes.
    pub range: Range<usize>,
    /// How many there are.
    pub count: usize,
}

/// What the client says about `stream_options`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamOptions {
    /// The value's bytes.
    pub range: Range<usize>,
    /// Whether it is an object.
    pub is_object: bool,
    /// Whether that object has no member.
    pub is_empty: bool,
    /// The bytes of `include_usage`, when it is there.
    pub include_usage: Option<Range<usize>>,
}

/// The `messages` array.
#[derive(Debug, Clone, Default)]
struct MessageList {
    /// Behind the opening bracket.
    open: usize,
    kept: Vec<Message>,
    count: usize,
}

/// A parsed chat request. Cloning shares the body.
#[derive(Debug, Clone)]
pub struct ChatRequest {
    body: Bytes,
    fields: Vec<Field>,
    model: Option<String>,
    messages: Option<MessageList>,
    tools: Option<Tools>,
    stream_options: Option<StreamOptions>,
}

impl ChatRequest {
    /// Reads a body in one pass. Messages beyond `max_messages` are checked as JSON and counted but not kept, so that what is kept stays
    /// in proportion to the body.
    ///
    /// # Errors
    /// When the body is not a JSON object, or when an object that is read has a key twice. Wrong types are left to validation.
    pub fn parse(body: Bytes, max_messages: usize) -> Result<Self, ParseError> {
        parse::read(body, max_messages)
    }

    /// The body as it came.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The bytes of a range of the body.
    #[must_use]
    pub fn raw(&self, range: &Range<usize>) -> &[u8] {
        self.body.get(range.clone()).unwrap_or_default()
    }

    /// The members of the top level, in order.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The value of a top-level member.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Range<usize>> {
        self.fields
            .iter()
            .find(|field| field.key.is(&self.body, name))
            .map(|field| field.value.clone())
    }

    /// The bytes of a top-level member that is there and not `null`.
    #[must_use]
    pub fn present(&self, name: &str) -> Option<&[u8]> {
        self.field(name)
            .and_then(|range| self.body.get(range))
            .filter(|raw| *raw != b"null")
    }

    /// A top-level number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        parse_number(self.present(name)?)
    }

    /// The model's name, when `model` is a string.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Where `model`'s value stands, for routing that maps it.
    #[must_use]
    pub fn model_range(&self) -> Option<Range<usize>> {
        self.field("model")
    }

    /// Whether the client asked for a stream.
    #[must_use]
    pub fn stream(&self) -> bool {
        self.present("stream") == Some(b"true")
    }

    /// The greatest answer in tokens that the client asked for: `max_completion_tokens`, else `max_tokens`.
    #[must_use]
    pub fn max_tokens(&self) -> Option<u32> {
        let asked = self
            .number("max_completion_tokens")
            .or_else(|| self.number("max_tokens"))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates on its way to an integer"
        )]
        Some(asked as u32)
    }

    /// How many answers the client asked for.
    #[must_use]
    pub fn n(&self) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float saturates on its way to an integer"
        )]
        self.number("n").map_or(1, |n| n.max(1.0) as u32)
    }

    /// The tool schemas.
    #[must_use]
    pub fn tools(&self) -> Option<&Tools> {
        self.tools.as_ref()
    }

    /// The stream options, whatever their type.
    #[must_use]
    pub fn stream_options(&self) -> Option<&StreamOptions> {
        self.stream_options.as_ref()
    }

    /// Whether the client asked for a usage event.
    #[must_use]
    pub fn include_usage(&self) -> bool {
        let wish = self
            .stream_options
            .as_ref()
            .and_then(|options| options.include_usage.as_ref());
        wish.is_some_and(|range| self.raw(range) == b"true")
    }

    /// Whether `messages` is there and an array.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.messages.is_some()
    }

    /// The messages that were kept.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        self.messages.as_ref().map_or(&[], |list| &list.kept)
    }

    /// How many messages the client sent.
    #[must_use]
    pub fn message_count(&self) -> usize {
        self.messages.as_ref().map_or(0, |list| list.count)
    }

    /// The offset behind the opening bracket of `messages`.
    #[must_use]
    pub fn messages_open(&self) -> Option<usize> {
        self.messages.as_ref().map(|list| list.open)
    }

    /// How many system and developer messages stand at the start without a break.
    #[must_use]
    pub fn leading_system(&self) -> usize {
        self.messages()
            .iter()
            .take_while(|message| matches!(message.role, Role::System | Role::Developer))
            .count()
    }

    /// A message's text: its string, or its text parts, one a line. Never an image's data.
    #[must_use]
    pub fn text(&self, message: &Message) -> Cow<'_, str> {
        match &message.content {
            Content::Text(text) => text.decode(&self.body),
            Content::Parts(parts) => Cow::Owned(parse::part_texts(&self.body, parts).join("\n")),
            Content::Absent | Content::Null | Content::Other(_) => Cow::Borrowed(""),
        }
    }

    /// What the user said last: the text of the last user message that has any. Answers of tools are never taken for it.
    #[must_use]
    pub fn last_user_text(&self) -> Option<Cow<'_, str>> {
        let users = self
            .messages()
            .iter()
            .rev()
            .filter(|message| message.role == Role::User);
        users
            .map(|message| self.text(message))
            .find(|text| !text.trim().is_empty())
    }
}

/// The value of a JSON number; nothing for any other value.
#[must_use]
pub fn parse_number(raw: &[u8]) -> Option<f64> {
    raw.first()
        .filter(|byte| byte.is_ascii_digit() || **byte == b'-')?;
    std::str::from_utf8(raw).ok()?.parse().ok()
}
