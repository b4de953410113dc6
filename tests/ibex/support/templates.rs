//! What a model makes of the messages that it is sent: chat templates with the rules of the families that are in use, some of which
//! refuse a conversation. The templates are our own; the rules are the families'.

use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value as Rendered, context};
use serde_json::Value;

/// A family of chat templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Template {
    /// One system message, at the beginning; a user message somewhere.
    Qwen,
    /// No system message; user and assistant take turns.
    Gemma,
    /// One system message, at the beginning; user and assistant take turns; tools answer calls.
    Mistral,
    /// Anything goes.
    ChatMl,
}

impl Template {
    pub(crate) const ALL: [Self; 4] = [Self::Qwen, Self::Gemma, Self::Mistral, Self::ChatMl];

    fn source(self) -> &'static str {
        match self {
            Self::Qwen => include_str!("../../fixtures/templates/qwen.jinja"),
            Self::Gemma => include_str!("../../fixtures/templates/gemma.jinja"),
            Self::Mistral => include_str!("../../fixtures/templates/mistral.jinja"),
            Self::ChatMl => include_str!("../../fixtures/templates/chatml.jinja"),
        }
    }
}

/// The prompt for the next answer; the error is the template's reason to refuse the conversation.
pub(crate) fn render(
    template: Template,
    messages: &Value,
    tools: Option<&Value>,
) -> Result<String, String> {
    let mut environment = Environment::new();
    environment.add_function("raise_exception", refuse);
    // As servers set it up: the built-in filter escapes for HTML.
    environment.add_filter("tojson", plain_json);
    let source = template.source();
    let context = context! { messages => Serde(messages), tools => Serde(tools), add_generation_prompt => true };
    environment
        .render_str(source, context)
        .map_err(|error| error.to_string())
}

fn refuse(reason: String) -> Result<Rendered, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, reason))
}

fn plain_json(value: &Rendered) -> Result<String, Error> {
    serde_json::to_string(value)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))
}
