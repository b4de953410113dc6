//! The demonstration's provider: an OpenAI-compatible server that answers with what it was sent, so that everything the proxy puts into
//! a request can be seen.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use crate::tokens::{Counter, Family};

use super::transcript::transcript;

/// What the echo calls its own model; it answers under every other name too.
const MODEL: &str = "echo";
/// Between two pieces of a streamed answer, so that one can see it stream.
const PAUSE: Duration = Duration::from_millis(10);
/// Numbers in an embedding.
const DIMENSIONS: usize = 8;

/// Serves on `listener` until `stop`.
///
/// # Errors
/// When the listener fails.
pub(super) async fn serve(
    listener: TcpListener,
    counter: Counter,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completion))
        .route("/v1/embeddings", post(embeddings))
        .route("/v1/models", get(models))
        .route("/v1/models/{*model}", get(model))
        .with_state(counter);
    axum::serve(listener, router)
        .with_graceful_shutdown(stop)
        .await
}

async fn chat(State(counter): State<Counter>, Json(request): Json<Value>) -> Response {
    let messages = request.get("messages").unwrap_or(&Value::Null);
    let heard = transcript(messages);
    let count = messages.as_array().map_or(0, Vec::len);
    let text = format!("The echo provider was sent {count} message(s):\n\n{heard}");
    let usage = usage(&counter, &heard, &text);
    if !streamed(&request) {
        let message = json!({"role": "assistant", "content": text, "refusal": null});
        let choice =
            json!({"index": 0, "message": message, "logprobs": null, "finish_reason": "stop"});
        return answer(&request, "chat.completion", &choice, &usage);
    }
    let piece = |delta: Value, finish: Value| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
    let mut choices = vec![piece(
        json!({"role": "assistant", "content": ""}),
        Value::Null,
    )];
    choices.extend(
        text.split_inclusive(' ')
            .map(|word| piece(json!({"content": word}), Value::Null)),
    );
    choices.push(piece(json!({}), json!("stop")));
    events(&request, "chat.completion.chunk", &choices, &usage)
}

async fn completion(State(counter): State<Counter>, Json(request): Json<Value>) -> Response {
    let prompt = match request.get("prompt") {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let text = format!("The echo provider was sent this prompt:\n\n{prompt}");
    let usage = usage(&counter, &prompt, &text);
    let choice = json!({"index": 0, "text": text, "logprobs": null, "finish_reason": "stop"});
    if streamed(&request) {
        return events(&request, "text_completion", &[json!([choice])], &usage);
    }
    answer(&request, "text_completion", &choice, &usage)
}

async fn embeddings(State(counter): State<Counter>, Json(request): Json<Value>) -> Response {
    let inputs = match request.get("input") {
        Some(Value::Array(items)) if items.iter().any(|i| !i.is_number()) => items.clone(),
        Some(one) => vec![one.clone()],
        None => Vec::new(),
    };
    let packed = request.get("encoding_format") == Some(&json!("base64"));
    let data: Vec<Value> = inputs
        .iter()
        .enumerate()
        .map(|(index, input)| {
            let vector = vector(&input.to_string());
            let embedding = if packed {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                json!(STANDARD.encode(bytes))
            } else {
                json!(vector)
            };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    let tokens: u32 = inputs
        .iter()
        .map(|input| count(&counter, &input.to_string()))
        .sum();
    Json(json!({
        "object": "list",
        "data": data,
        "model": model_of(&request),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }))
    .into_response()
}

async fn models() -> Response {
    Json(json!({"object": "list", "data": [described(MODEL)]})).into_response()
}

async fn model(Path(id): Path<String>) -> Response {
    Json(described(&id)).into_response()
}

fn described(id: &str) -> Value {
    json!({"id": id, "object": "model", "created": 0, "owned_by": "ibex"})
}

fn model_of(request: &Value) -> &str {
    request
        .get("model")
        .and_then(Value::as_str)
        .unwrap_or(MODEL)
}

fn streamed(request: &Value) -> bool {
    request.get("stream") == Some(&Value::Bool(true))
}

fn count(counter: &Counter, text: &str) -> u32 {
    counter.counts(text).of(Family::O200kBase)
}

fn usage(counter: &Counter, prompt: &str, text: &str) -> Value {
    let (asked, answered) = (count(counter, prompt), count(counter, text));
    json!({"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked.saturating_add(answered)})
}

fn frame(request: &Value, object: &str, choices: &Value) -> Value {
    json!({"id": "echo-1", "object": object, "created": 0, "model": model_of(request), "choices": choices})
}

fn answer(request: &Value, object: &str, choice: &Value, usage: &Value) -> Response {
    let mut whole = frame(request, object, &json!([choice]));
    if let Some(members) = whole.as_object_mut() {
        members.insert("usage".to_owned(), usage.clone());
    }
    Json(whole).into_response()
}

/// A stream of chunks, then the usage when it was asked for, then the end mark.
fn events(request: &Value, object: &str, choices: &[Value], usage: &Value) -> Response {
    let mut texts: Vec<String> = choices
        .iter()
        .map(|choices| frame(request, object, choices).to_string())
        .collect();
    if request.pointer("/stream_options/include_usage") == Some(&Value::Bool(true)) {
        let mut last = frame(request, object, &json!([]));
        if let Some(members) = last.as_object_mut() {
            members.insert("usage".to_owned(), usage.clone());
        }
        texts.push(last.to_string());
    }
    texts.push("[DONE]".to_owned());
    Sse::new(paced(texts)).into_response()
}

fn paced(texts: Vec<String>) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::iter(texts).then(|text| async move {
        tokio::time::sleep(PAUSE).await;
        Ok(Event::default().data(text))
    })
}

/// A unit vector that depends on the text alone. It carries no meaning: likeness of texts is not likeness of vectors.
fn vector(text: &str) -> [f32; DIMENSIONS] {
    let digest = Sha256::digest(text.as_bytes());
    let mut numbers = [0.0_f32; DIMENSIONS];
    for (number, byte) in numbers.iter_mut().zip(digest) {
        *number = f32::from(byte) - 127.5;
    }
    let length = numbers.iter().map(|x| x * x).sum::<f32>().sqrt();
    numbers.map(|x| x / length)
}
