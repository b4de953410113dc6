//! The little that is read of requests that pass unchanged (responses, completions, embeddings): the model and whether to stream.

use std::ops::Range;

use bytes::Bytes;

use super::chat::ParseError;
use super::chat::parse::{read_body, string_value};

/// A request body whose model and stream flag are known.
#[derive(Debug, Clone)]
pub struct Passthrough {
    body: Bytes,
    model: Option<String>,
    model_range: Option<Range<usize>>,
    stream: bool,
}

impl Passthrough {
    /// Reads a body, which must be one JSON object. Wrong types of `model` and `stream` read as absent: the provider judges them.
    ///
    /// # Errors
    /// When the body is not a JSON object, or has a top-level key twice.
    pub fn parse(body: Bytes) -> Result<Self, ParseError> {
        let (mut model, mut model_range, mut stream) = (None, None, false);
        read_body(&body, |scanner, name, _| {
            let next = scanner.peek();
            match name {
                b"model" if next == Some(b'"') => {
                    model_range = Some(string_value(scanner, &mut model)?)
                }
                b"stream" => {
                    scanner.skip()?;
                    stream = next == Some(b't');
                }
                _ => {
                    scanner.skip()?;
                }
            }
            Ok(())
        })?;
        Ok(Self {
            body,
            model,
            model_range,
            stream,
        })
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
