//! The background task: takes traced requests from the queue, makes spans of them and posts them in batches.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::proto::{AnyValue, Export, KeyValue, Resource, ResourceSpans, Scope, ScopeSpans, Span};
use super::spans::Traced;
use super::{Queue, Traces};
use crate::openai::RewrittenBody;
use crate::providers::Client;
use crate::tasks::Tasks;

/// Attempts for one batch, and the pause before the second, which doubles.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// Most bytes of an answer that are read, so that the connection can be used again.
const ANSWER_BYTES: usize = 64 << 10;

/// Exports what is offered, until the process stops; then what is left, once.
pub async fn export(traces: Traces, client: Client, tasks: Tasks) {
    let Some(queue) = traces.0 else { return };
    let Some(mut waiting) = queue.waiting.lock().take() else {
        return;
    };
    let exporter = Exporter { queue, client };
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            () = exporter.fill(&mut batch, &mut waiting) => {}
            () = tasks.stopping() => break,
        }
        tokio::select! {
            () = exporter.send(&batch, ATTEMPTS) => {}
            () = tasks.stopping() => break,
        }
        batch.clear();
    }
    // Whatever was not told as sent is sent once more, with no time for second attempts.
    waiting.close();
    while let Ok(traced) = waiting.try_recv() {
        batch.push(traced);
    }
    for batch in batch.chunks(exporter.queue.collector.batch.max(1)) {
        exporter.send(batch, 1).await;
    }
}

struct Exporter {
    queue: Queue,
    client: Client,
}

/// Why a batch was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum ExportError {
    #[error("the collector cannot be reached")]
    Unreachable,
    #[error("the collector did not answer in time")]
    Timeout,
    #[error("the collector answered with status {0}")]
    Status(StatusCode),
}

impl ExportError {
    /// Whether the same batch may be taken later (OTLP, retryable responses).
    fn may_pass(self) -> bool {
        match self {
            Self::Unreachable | Self::Timeout => true,
            Self::Status(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
        }
    }
}

impl Exporter {
    /// Waits for the next requests: as many as a batch takes, or what came within the interval after the first. What is taken stays in `batch`
    /// when this is broken off.
    async fn fill(&self, batch: &mut Vec<Traced>, waiting: &mut mpsc::Receiver<Traced>) {
        let collector = &self.queue.collector;
        let Some(first) = waiting.recv().await else {
            return std::future::pending().await;
        };
        batch.push(first);
        let until = Instant::now() + collector.interval;
        while batch.len() < collector.batch {
            match timeout_at(until, waiting.recv()).await {
                Ok(Some(next)) => batch.push(next),
                Ok(None) | Err(_) => break,
            }
        }
    }

    async fn send(&self, batch: &[Traced], attempts: u32) {
        let spans: Vec<Span> = batch.iter().flat_map(|traced| traced.spans()).collect();
        let count = spans.len() as u64;
        let body = Bytes::from(self.message(spans).encode_to_vec());
        let mut pause = PAUSE;
        for attempt in 1..=attempts {
            let Err(error) = self.post(body.clone()).await else {
                return self.queue.metrics.spans("exported", count);
            };
            if attempt == attempts || !error.may_pass() {
                tracing::warn!(spans = count, "traces: {error}; the spans are lost");
                break;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.queue.metrics.spans("rejected", count);
    }

    fn message(&self, spans: Vec<Span>) -> Export {
        let attribute = |key: &str, value: &str| KeyValue {
            key: key.to_owned(),
            value: Some(AnyValue {
                value: Some(value.into()),
            }),
        };
        let version = env!("CARGO_PKG_VERSION");
        Export {
            resource_spans: vec![ResourceSpans {
                resource: Some(Resource {
                    attributes: vec![
                        attribute("service.name", &self.queue.collector.service),
                        attribute("service.version", version),
                    ],
                }),
                scope_spans: vec![ScopeSpans {
                    scope: Some(Scope {
                        name: "ibex".to_owned(),
                        version: version.to_owned(),
                    }),
                    spans,
                }],
            }],
        }
    }

    async fn post(&self, body: Bytes) -> Result<(), ExportError> {
        let collector = &self.queue.collector;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(collector.uri.clone())
            .header(header::CONTENT_TYPE, "application/x-protobuf")
            .header(header::CONTENT_LENGTH, body.len())
            .body(RewrittenBody::from(body))
            .map_err(|_| ExportError::Unreachable)?;
        for (name, value) in &collector.headers {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        let whole = async {
            let answer = self.client.request(request).await;
            let answer = answer.map_err(|_| ExportError::Unreachable)?;
            let status = answer.status();
            // What it says of single spans is of no use here; it is read so that the connection stays.
            drop(
                Limited::new(answer.into_body(), ANSWER_BYTES)
                    .collect()
                    .await,
            );
            if status.is_success() {
                Ok(())
            } else {
                Err(ExportError::Status(status))
            }
        };
        let answered = timeout(collector.timeout, whole).await;
        answered.unwrap_or(Err(ExportError::Timeout))
    }
}
