//! The little that is read of requests that pass unchanged (responses, completions, embeddings): the model, whether to stream, how long
//! the answer may be, and references to what the provider keeps.

use std::ops::Range;

use bytes::Bytes;

use super::chat::parse::{read_body, string_value};
use super::chat::{ParseError, parse_number};

/// Members of a Responses request that name something stored at the provider (OpenAI's API reference).
const STORED: [&str; 3] = ["previous_response_id", "conversation", "prompt"];

/// A request body whose model and stream flag are known.
#[derive(Debug, Clone)]
pub struct Passthrough {
    body: Bytes,
    model: Option<String>,
    model_range: Option<Range<usize>>,
    has_model: bool,
    stream: bool,
    max_tokens: u32,
    stored: Option<&'static str>,
}

impl Passthrough {
    /// Reads a body, which must be one JSON object. A wrong type of `stream` reads as absent: the provider judges it.
    ///
    /// # Errors
    /// When the body is not a JSON object, or has a top-level key twice.
    pub fn parse(body: Bytes) -> Result<Self, ParseError> {
        let mut seen = Self {
            body: Bytes::new(),
            model: None,
            model_range: None,
            has_model: false,
            stream: false,
            max_tokens: 0,
            stored: None,
        };
        read_body(&body, |scanner, name, _| {
            let next = scanner.peek();
            if name == b"model" && next == Some(b'"') {
                seen.has_model = true;
                seen.model_range = Some(string_value(scanner, &mut seen.model)?);
                return Ok(());
            }
            let value = scanner.skip()?;
            match name {
                b"model" => seen.has_model = next != Some(b'n'),
                b"stream" => seen.stream = next == Some(b't'),
                b"max_tokens" | b"max_output_tokens" => {
                    let asked = body.get(value).and_then(parse_number).unwrap_or(0.0);
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "a float saturates on its way to an integer"
                    )]
                    let asked = asked as u32;
                    seen.max_tokens = seen.max_tokens.max(asked);
                }
                _ => {
                    let stored = STORED.iter().find(|stored| stored.as_bytes() == name);
                    if next != Some(b'n') {
                        seen.stored = seen.stored.or(stored.copied());
                    }
                }
            }
            Ok(())
        })?;
        seen.body = body;
        Ok(seen)
    }

    /// The body as it came.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The model's name, when `model` is a string.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Where that string stands, for routing that maps it.
    #[must_use]
    pub fn model_range(&self) -> Option<Range<usize>> {
        self.model_range.clone()
    }

    /// Whether `model` is there and not `null`.
    #[must_use]
    pub fn has_model(&self) -> bool {
        self.has_model
    }

    /// The greatest answer asked for, in tokens: `max_tokens` or `max_output_tokens`; 0 when neither is a number.
    #[must_use]
    pub fn max_tokens(&self) -> u32 {
        self.max_tokens
    }

    /// The first member that would, in a Responses request, name something stored at the provider and is not `null`.
    #[must_use]
    pub fn stored_reference(&self) -> Option<&'static str> {
        self.stored
    }

    /// Whether the client asked for a stream.
    #[must_use]
    pub fn stream(&self) -> bool {
        self.stream
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{ParseError, Passthrough};
    use crate::openai::edits::Edits;

    fn parse(body: &'static str) -> Result<Passthrough, ParseError> {
        Passthrough::parse(Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn model_and_stream_are_read_and_the_model_can_be_mapped() {
        let request =
            parse(r#"{"input": [1.0, 1e-7], "mod\u0065l" : "a\u00e9", "stream":true}"#).unwrap();
        assert_eq!((request.model(), request.stream()), (Some("aé"), true));
        let mut edits = Edits::default();
        edits.set_model(request.model_range().unwrap(), "b\"c");
        let sent = edits.into_body(request.body()).to_bytes();
        assert_eq!(
            sent,
            r#"{"input": [1.0, 1e-7], "mod\u0065l" : "b\"c", "stream":true}"#
        );
    }

    #[test]
    fn odd_types_read_as_absent() {
        let request = parse(r#"{"model":3,"stream":"true"}"#).unwrap();
        assert_eq!(
            (request.model(), request.model_range(), request.stream()),
            (None, None, false)
        );
        assert!(!parse(r#"{"stream":null}"#).unwrap().stream());
    }

    #[test]
    fn references_and_limits_are_seen() {
        let request = parse(r#"{"model":null,"previous_response_id":null,"conversation":"c","max_output_tokens":7.0,"max_tokens":"9"}"#).unwrap();
        assert_eq!(
            (
                request.has_model(),
                request.max_tokens(),
                request.stored_reference()
            ),
            (false, 7, Some("conversation"))
        );
        let plain = parse(r#"{"model":3,"prompt":null,"max_tokens":-1}"#).unwrap();
        assert_eq!(
            (
                plain.has_model(),
                plain.max_tokens(),
                plain.stored_reference()
            ),
            (true, 0, None)
        );
    }

    #[test]
    fn only_one_object_without_repeated_keys_passes() {
        assert_eq!(parse("[]").unwrap_err(), ParseError::NotAnObject);
        assert!(matches!(parse("[}").unwrap_err(), ParseError::Json(_)));
        assert!(matches!(parse("").unwrap_err(), ParseError::Json(_)));
        assert!(matches!(parse("{} {}").unwrap_err(), ParseError::Json(_)));
        let twice = parse(r#"{"model":"a","m\u006fdel":"b"}"#).unwrap_err();
        assert_eq!(
            twice,
            ParseError::DuplicateKey {
                path: "model".to_owned()
            }
        );
    }
}
