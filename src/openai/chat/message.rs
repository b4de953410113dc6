//! One message of a chat request, as ranges of the body.

use std::ops::Range;

use smallvec::SmallVec;

use crate::openai::json::RawStr;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Instructions.
    System,
    /// Instructions, under the newer name.
    Developer,
    /// The end user.
    User,
    /// The model.
    Assistant,
    /// The answer to a tool call.
    Tool,
    /// The answer to a call in the older form.
    Function,
    /// A role that is not known, or none.
    #[default]
    Other,
}

impl Role {
    /// The role with this wire name.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        match name {
            "system" => Self::System,
            "developer" => Self::Developer,
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" => Self::Tool,
            "function" => Self::Function,
            _ => Self::Other,
        }
    }

    /// The wire name; one that is not known reads `other`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Function => "function",
            Self::Other => "other",
        }
    }
}

/// Content that is an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// The array's bytes, brackets included.
    pub range: Range<usize>,
    /// Where the first part starts; in an empty array behind the bracket.
    pub head: usize,
    /// Where the last part ends; the same as `head` when there is none.
    pub tail: usize,
    /// How many parts there are.
    pub count: usize,
    /// How many of them are images, sound, video or files.
    pub media: usize,
    /// The end of the last part that carries a `cache_control`.
    pub breakpoint: Option<usize>,
}

/// A message's content, each of the forms that clients send kept apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Content {
    /// No such key.
    #[default]
    Absent,
    /// `null`.
    Null,
    /// A string.
    Text(RawStr),
    /// An array.
    Parts(Parts),
    /// Anything else.
    Other(Range<usize>),
}

/// The ids of an assistant message's tool calls, in order.
pub type CallIds = SmallVec<[RawStr; 1]>;

/// What is wrong with a message's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFault {
    /// No object.
    NotAnObject,
    /// No `role`.
    NoRole,
    /// A `role` that is no string.
    RoleType,
    /// `tool_calls` that is neither an array nor `null`.
    CallsType,
    /// The first tool call without a string as its id.
    CallId {
        /// Which one.
        index: usize,
    },
    /// A `tool_call_id` that is neither a string nor `null`.
    AnswerIdType,
    /// A `function_call` without a string as its name.
    FunctionName,
}

/// One message.
#[derive(Debug, Clone, Default)]
pub struct Message {
    /// Its bytes, braces included.
    pub range: Range<usize>,
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: Content,
    /// The ids of its tool calls; empty for `null` and `[]`.
    pub tool_calls: CallIds,
    /// The call that it answers.
    pub tool_call_id: Option<RawStr>,
    /// The function that it calls, in the older form.
    pub function_call: Option<RawStr>,
    /// The speaker's or function's name.
    pub name: Option<RawStr>,
    /// Whether the message itself, outside its content, carries a `cache_control`.
    pub cache_control: bool,
    /// What is wrong with it.
    pub faults: Vec<MessageFault>,
}

impl Message {
    /// Whether it, or a part of its content, carries a client's cache breakpoint.
    #[must_use]
    pub fn has_cache_control(&self) -> bool {
        self.cache_control
            || matches!(&self.content, Content::Parts(parts) if parts.breakpoint.is_some())
    }

    /// How many of its parts are images, sound, video or files.
    #[must_use]
    pub fn media_parts(&self) -> usize {
        match &self.content {
            Content::Parts(parts) => parts.media,
            Content::Absent | Content::Null | Content::Text(_) | Content::Other(_) => 0,
        }
    }
}
