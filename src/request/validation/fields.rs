//! The single fields of a chat request (contract, section 1.1).

use super::{Limits, wrong};
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
    model(chat, faults);
    for name in ["max_completion_tokens", "max_tokens"] {
        integer(chat, name, 0.0, MAX_TOKENS, faults);
    }
    integer(chat, "n", 1.0, MAX_N, faults);
    if chat
        .number("temperature")
        .is_some_and(|value| !(0.0..=MAX_TEMPERATURE).contains(&value))
    {
        faults.push(wrong(
            "temperature",
            "RANGE_ERROR",
            format!("must be between 0 and {MAX_TEMPERATURE}"),
        ));
    }
    boolean("stream", chat.present("stream"), faults);
    if let Some(options) = chat.stream_options() {
        if !options.is_object && chat.present("stream_options").is_some() {
            faults.push(wrong(
                "stream_options",
                "INVALID_FORMAT",
                "must be an object",
            ));
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

fn model(chat: &ChatRequest, faults: &mut Vec<FieldError>) {
    match chat.model() {
        Some("") => faults.push(wrong("model", "REQUIRED", "must not be empty")),
        Some(name) if name.chars().count() > MAX_MODEL_CHARS => {
            faults.push(wrong(
                "model",
                "TOO_LONG",
                format!("must have at most {MAX_MODEL_CHARS} characters"),
            ));
        }
        Some(_) => {}
        None if chat.present("model").is_some() => {
            faults.push(wrong("model", "INVALID_FORMAT", "must be a string"))
        }
        None => faults.push(wrong("model", "REQUIRED", "is required")),
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
            faults.push(wrong(name, "INVALID_FORMAT", "must be an integer"))
        }
        Some(value) if (least..=greatest).contains(&value) => {}
        Some(_) => faults.push(wrong(
            name,
            "RANGE_ERROR",
            format!("must be between {least} and {greatest}"),
        )),
        None => faults.push(wrong(name, "INVALID_FORMAT", "must be an integer")),
    }
}

fn boolean(name: &str, raw: Option<&[u8]>, faults: &mut Vec<FieldError>) {
    if !matches!(raw, None | Some(b"true" | b"false")) {
        faults.push(wrong(name, "INVALID_FORMAT", "must be a boolean"));
    }
}

fn messages(chat: &ChatRequest, limits: Limits, faults: &mut Vec<FieldError>) {
    if !chat.has_messages() {
        let (code, text) = match chat.present("messages") {
            Some(_) => ("INVALID_FORMAT", "must be an array"),
            None => ("REQUIRED", "is required"),
        };
        faults.push(wrong("messages", code, text));
    } else if chat.message_count() == 0 {
        faults.push(wrong("messages", "REQUIRED", "must not be empty"));
    } else if chat.message_count() > limits.max_messages {
        faults.push(wrong(
            "messages",
            "TOO_MANY",
            format!("must have at most {} items", limits.max_messages),
        ));
    }
    for (index, message) in chat.messages().iter().enumerate() {
        self::message(index, message, faults);
    }
}

fn message(index: usize, message: &Message, faults: &mut Vec<FieldError>) {
    for fault in &message.faults {
        let (field, code, text) = match fault {
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
        faults.push(wrong(format!("messages[{index}]{field}"), code, text));
    }
    if matches!(message.content, Content::Other(_)) {
        faults.push(wrong(
            format!("messages[{index}].content"),
            "INVALID_FORMAT",
            "must be a string, an array or null",
        ));
    }
}
