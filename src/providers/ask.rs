//! A question of the service's own to a model: one chat completion whose answer is JSON of a given schema.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::openai::RewrittenBody;

use super::{Client, Route};

/// An answer larger than this is none: what is asked for are a few short texts.
const ANSWER_BYTES: usize = 256 << 10;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The model, by the name that routes it.
    pub model: &'a str,
    /// What the model has to do.
    pub rules: &'a str,
    /// What it has to do it with: data, never instructions.
    pub data: &'a str,
    /// A name for the schema: letters, digits, `_` and `-`.
    pub name: &'a str,
    /// JSON schema of the answer.
    pub schema: &'a Value,
    /// Most tokens of the answer.
    pub max_tokens: u32,
    /// How long it may take.
    pub timeout: Duration,
}

/// Why there is no answer. It never holds what was asked or answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// No provider serves the model.
    #[error("no provider serves the model")]
    NoRoute,
    /// No connection, or a broken answer.
    #[error("the provider cannot be reached")]
    Unreachable,
    /// No answer in time.
    #[error("the provider did not answer in time")]
    Timeout,
    /// Another status than 200.
    #[error("the provider answered with status {0}")]
    Status(StatusCode),
    /// The answer is not what was asked for.
    #[error("the answer is not of the asked form")]
    Unreadable,
}

impl AskError {
    /// Whether the same question may have an answer later.
    #[must_use]
    pub fn may_pass(self) -> bool {
        match self {
            Self::Unreachable | Self::Timeout => true,
            Self::Status(status) => {
                status.is_server_error()
                    || matches!(
                        status,
                        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
                    )
            }
            // A model that answers in another form may answer in the right one when it is asked again.
            Self::Unreadable => true,
            Self::NoRoute => false,
        }
    }
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
}

/// Asks, and parses the answer.
///
/// # Errors
/// When there is no answer, or not one of the asked form.
pub async fn ask<T: DeserializeOwned>(
    client: &Client,
    route: &Route,
    question: &Question<'_>,
) -> Result<T, AskError> {
    let request = request(route, question)?;
    let whole = async {
        let answer = client.request(request).await;
        let answer = answer.map_err(|_| AskError::Unreachable)?;
        if answer.status() != StatusCode::OK {
            return Err(AskError::Status(answer.status()));
        }
        let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect();
        Ok(body.await.map_err(|_| AskError::Unreadable)?.to_bytes())
    };
    let body = tokio::time::timeout(question.timeout, whole)
        .await
        .map_err(|_| AskError::Timeout)??;
    parsed(&body).ok_or(AskError::Unreadable)
}

fn request(route: &Route, question: &Question<'_>) -> Result<Request<RewrittenBody>, AskError> {
    let model = route.upstream_model.as_deref().unwrap_or(question.model);
    let body = json!({
        "model": model,
        "temperature": 0,
        "max_tokens": question.max_tokens,
        "messages": [
            {"role": "system", "content": question.rules},
            {"role": "user", "content": question.data},
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": question.name, "strict": true, "schema": question.schema},
        },
    });
    let body = RewrittenBody::new(vec![Bytes::from(body.to_string())]);
    let length = body.remaining();
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(route.provider.chat_uri().clone())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .header(header::CONTENT_LENGTH, HeaderValue::from(length))
        .body(body)
        .map_err(|_| AskError::NoRoute)?;
    if let Some((name, value)) = route.provider.key_header() {
        request.headers_mut().insert(name.clone(), value.clone());
    }
    Ok(request)
}

/// The JSON in the first choice's text; some models put it into a fenced block although they were not asked to.
fn parsed<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    let completion: Completion = serde_json::from_slice(body).ok()?;
    let text = completion.choices.into_iter().next()?.message.content?;
    let text = text.trim();
    let inside = text
        .strip_prefix("```json")
        .or_else(|| text.strip_prefix("```"))
        .and_then(|rest| rest.strip_suffix("```"))
        .unwrap_or(text);
    serde_json::from_str(inside.trim()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::parsed;

    fn answer(content: &str) -> Vec<u8> {
        json!({"choices": [{"message": {"role": "assistant", "content": content}}]})
            .to_string()
            .into_bytes()
    }

    #[test]
    fn an_answer_is_read_plain_or_fenced_and_nothing_else() {
        for text in [
            "{\"a\": 1}",
            " {\"a\":1}\n",
            "```json\n{\"a\":1}\n```",
            "```\n{\"a\":1}```",
        ] {
            assert_eq!(
                parsed::<Value>(&answer(text)),
                Some(json!({"a": 1})),
                "{text}"
            );
        }
        for text in ["", "I think {\"a\": 1}", "```json\n{\"a\":1}"] {
            assert_eq!(parsed::<Value>(&answer(text)), None, "{text}");
        }
        assert_eq!(parsed::<Value>(b"{\"choices\": []}"), None);
        assert_eq!(
            parsed::<Value>(b"{\"choices\": [{\"message\": {\"content\": null}}]}"),
            None
        );
    }
}
