//! Read and validate: what a chat request must be before anything is spent on it. Pure; unknown fields and roles pass.

mod fields;
mod tool_pairs;

#[cfg(test)]
mod tests;

use crate::error::{ApiError, Code, FieldError};
use crate::openai::chat::{ChatRequest, ParseError};

/// Limits that are settings.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Greatest number of messages.
    pub max_messages: usize,
}

/// At most this many wrong fields are listed in one answer.
pub const MAX_LISTED: usize = 100;

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
            ValidationError::Body(error) => {
                let text = error.to_string();
                match error {
                    ParseError::Json(_) | ParseError::NotAnObject => {
                        Self::new(Code::InvalidJson, text)
                    }
                    ParseError::DuplicateKey { path } => Self::new(
                        Code::ValidationError,
                        text.clone(),
                    )
                    .fields(vec![wrong(path, "DUPLICATE", text)]),
                    ParseError::TooManyKeys { path } => {
                        Self::new(Code::ValidationError, text.clone())
                            .fields(vec![wrong(path, "TOO_MANY", text)])
                    }
                }
            }
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

/// Checks a request that could be read, and reports every fault at once.
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
    faults.truncate(MAX_LISTED);
    if faults.is_empty() {
        Ok(())
    } else {
        Err(ValidationError::Fields(faults))
    }
}

fn wrong(field: impl Into<String>, code: &'static str, message: impl Into<String>) -> FieldError {
    FieldError {
        field: field.into(),
        code,
        message: message.into(),
    }
}
