//! Read and validate: what a chat request must be before anything is spent on it. Pure; unknown fields and roles pass.

mod fields;
mod tool_pairs;

#[cfg(test)]
mod tests;

use std::fmt::Display;

use crate::error::{ApiError, Code, FieldError, shown};
use crate::openai::Passthrough;
use crate::openai::chat::{ChatRequest, ParseError};

/// Limits that are settings.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Greatest number of messages.
    pub max_messages: usize,
}

/// At most this many wrong fields are listed in one answer.
pub const MAX_LISTED: usize = 100;

/// The operation whose requests can refer to what the provider stores.
const RESPONSES: &str = "/responses";

/// Why a request is refused as it stands.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ValidationError {
    /// The body could not be read.
    #[error(transparent)]
    Body(#[from] ParseError),
    /// It could, and these fields are wrong; never empty.
    #[error("{} wrong field(s)", .0.len())]
    Fields(Vec<FieldError>),
}

impl From<ValidationError> for ApiError {
    fn from(error: ValidationError) -> Self {
        match error {
            ValidationError::Body(error) => body_error(error),
            ValidationError::Fields(fields) => {
                let text = match fields.as_slice() {
                    [only] => format!("'{}' {}", only.field, only.message),
                    [first, others @ ..] => format!(
                        "'{}' {} ({} more: see field_errors)",
                        first.field,
                        first.message,
                        others.len()
                    ),
                    [] => "the request is not valid".to_owned(),
                };
                Self::new(Code::ValidationError, text).fields(fields)
            }
        }
    }
}

/// Checks a request that could be read, and reports every fault at once, up to [`MAX_LISTED`].
///
/// # Errors
/// The wrong fields, in the order: top level, messages, tool pairs.
pub fn validate(chat: &ChatRequest, limits: Limits) -> Result<(), ValidationError> {
    let mut faults = Vec::new();
    fields::check(chat, limits, &mut faults);
    // Beyond the limit messages are not kept, and a pair may be cut by it.
    if chat.message_count() <= chat.messages().len() {
        tool_pairs::check(chat, &mut faults);
    }
    conclude(faults)
}

/// Checks what is read of a request that passes unchanged to `operation`.
///
/// # Errors
/// When it names no model, or names something that the provider keeps under the key that all users share.
pub fn validate_other(seen: &Passthrough, operation: &str) -> Result<(), ValidationError> {
    let mut faults = Vec::new();
    fields::model(seen.model(), seen.has_model(), &mut faults);
    if operation == RESPONSES
        && let Some(name) = seen.stored_reference()
    {
        let text =
            "is not supported: stored responses are shared by every user of the provider's key";
        fault(&mut faults, name, "UNSUPPORTED", text);
    }
    conclude(faults)
}

fn conclude(faults: Vec<FieldError>) -> Result<(), ValidationError> {
    if faults.is_empty() {
        Ok(())
    } else {
        Err(ValidationError::Fields(faults))
    }
}

fn body_error(error: ParseError) -> ApiError {
    let (error, path, code) = match error {
        ParseError::Json(_) | ParseError::NotAnObject => {
            return ApiError::new(Code::InvalidJson, error.to_string());
        }
        ParseError::DuplicateKey { path } => {
            let path = shown(&path).to_owned();
            (
                ParseError::DuplicateKey { path: path.clone() },
                path,
                "DUPLICATE",
            )
        }
        ParseError::TooManyKeys { path } => {
            let path = shown(&path).to_owned();
            (
                ParseError::TooManyKeys { path: path.clone() },
                path,
                "TOO_MANY",
            )
        }
    };
    let mut faults = Vec::new();
    fault(&mut faults, path, code, &error);
    ApiError::new(Code::ValidationError, error.to_string()).fields(faults)
}

/// Notes a fault; its texts are written only while there is room for it.
fn fault(
    faults: &mut Vec<FieldError>,
    field: impl Display,
    code: &'static str,
    message: impl Display,
) {
    if faults.len() < MAX_LISTED {
        faults.push(FieldError {
            field: field.to_string(),
            code,
            message: message.to_string(),
        });
    }
}
