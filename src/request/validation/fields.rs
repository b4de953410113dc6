//! The single fields of a chat request (contract, section 1.1).

use super::{Limits, MAX_LISTED, fault};
use crate::error::FieldError;
use crate::openai::chat::{ChatRequest, Content, Message, MessageFault, parse_number};

/// Greatest length of a model's name, in characters.
const MAX_MODEL_CHARS: usize = 256;

/// Greatest answer that may be asked for, in tokens.
const MAX_TOKENS: f64 = 1_048_576.0;

/// Greatest number of answers that may be asked for (OpenAI's API reference).
const MAX_N: f64 = 128.0;

/// Greatest temperature.
const MAX_TEMPERATURE: f64 = 2.0;

pub(super) fn check(chat: &ChatRequest, limits: Limits, faults: &mut Vec<FieldError>) {
    model(chat.model(), chat.present("model").is_some(), faults);
    for name in ["max_completion_tokens", "max_tokens"] {
        integer(chat, name, 0.0, MAX_TOKENS, faults);
    }
    integer(chat, "n", 1.0, MAX_N, faults);
    if chat
        .number("temperature")
        .is_some_and(|value| !(0.0..=MAX_TEMPERATURE).contains(&value))
    {
        fault(
            faults,
            "temperature",
            "RANGE_ERROR",
            format_args!("must be between 0 and {MAX_TEMPERATURE}"),
        );
    }
    boolean("stream", chat.present("stream"), faults);
    if let Some(options) = chat.stream_options() {
        if !options.is_object && chat.present("stream_options").is_some() {
            fault(
                faults,
                "stream_options",
                "INVALID_FORMAT",
                "must be an object",
            );
        }
        let include_usage = options
            .include_usage
            .as_ref()
            .map(|range| chat.raw(range))
            .filter(|raw| *raw != b"null");
        boolean("stream_options.include_usage", include_usage, faults);
    }
    messages(chat, limits, faults);
}

/// The model: its name when it is a string, and whether it is there at all.
pub(super) fn model(name: Option<&str>, present: bool, faults: &mut Vec<FieldError>) {
    match name {
        Some("") => fault(faults, "model", "REQUIRED", "must not be empty"),
        Some(name) if name.chars().count() > MAX_MODEL_CHARS => {
            fault(
                faults,
                "model",
                "TOO_LONG",
                format_args!("must have at most {MAX_MODEL_CHARS} characters"),
            );
        }
        Some(_) => {}
        None if present => fault(faults, "model", "INVALID_FORMAT", "must be a string"),
        None => fault(faults, "model", "REQUIRED", "is required"),
    }
}

fn integer(
    chat: &ChatRequest,
    name: &str,
    least: f64,
    greatest: f64,
    faults: &mut Vec<FieldError>,
) {
    let Some(raw) = chat.present(name) else {
        return;
    };
    match parse_number(raw) {
        Some(value) if value.is_finite() && value.fract() != 0.0 => {
            fault(faults, name, "INVALID_FORMAT", "must be an integer")
        }
        Some(value) if (least..=greatest).contains(&value) => {}
        Some(_) => fault(
            faults,
            name,
            "RANGE_ERROR",
            format_args!("must be between {least} and {greatest}"),
        ),
        None => fault(faults, name, "INVALID_FORMAT", "must be an integer"),
    }
}

fn boolean(name: &str, raw: Option<&[u8]>, faults: &mut Vec<FieldError>) {
    if !matches!(raw, None | Some(b"true" | b"false")) {
        fault(faults, name, "INVALID_FORMAT", "must be a boolean");
    }
}

fn messages(chat: &ChatRequest, limits: Limits, faults: &mut Vec<FieldError>) {
    if !chat.has_messages() {
        let (code, text) = match chat.present("messages") {
            Some(_) => ("INVALID_FORMAT", "must be an array"),
            None => ("REQUIRED", "is required"),
        };
        fault(faults, "messages", code, text);
    } else if chat.message_count() == 0 {
        fault(faults, "messages", "REQUIRED", "must not be empty");
    } else if chat.message_count() > limits.max_messages {
        fault(
            faults,
            "messages",
            "TOO_MANY",
            format_args!("must have at most {} items", limits.max_messages),
        );
    }
    for (index, message) in chat.messages().iter().enumerate() {
        self::message(index, message, faults);
    }
}

fn message(index: usize, message: &Message, faults: &mut Vec<FieldError>) {
    for found in message.faults.iter().take(MAX_LISTED) {
        let (field, code, text) = match found {
            MessageFault::NotAnObject => (String::new(), "INVALID_FORMAT", "must be an object"),
            MessageFault::NoRole => (".role".to_owned(), "REQUIRED", "is required"),
            MessageFault::RoleType => (".role".to_owned(), "INVALID_FORMAT", "must be a string"),
            MessageFault::CallsType => (
                ".tool_calls".to_owned(),
                "INVALID_FORMAT",
                "must be an array",
            ),
            MessageFault::CallId { index } => (
                format!(".tool_calls[{index}].id"),
                "REQUIRED",
                "must be a string",
            ),
            MessageFault::AnswerIdType => (
                ".tool_call_id".to_owned(),
                "INVALID_FORMAT",
                "must be a string",
            ),
            MessageFault::FunctionName => (
                ".function_call.name".to_owned(),
                "REQUIRED",
                "must be a string",
            ),
        };
        fault(faults, format_args!("messages[{index}]{field}"), code, text);
    }
    if matches!(message.content, Content::Other(_)) {
        fault(
            faults,
            format_args!("messages[{index}].content"),
            "INVALID_FORMAT",
            "must be a string, an array or null",
        );
    }
}
