//! Logs and metrics. Telemetry is told what happened; it never decides anything.
//!
//! Never logged, never a label, never in an error text: message content, memory content, directives, embeddings, credentials, user
//! identifiers, query strings. Metric labels are closed sets; an organisation is never one.

mod logs;
mod metrics;
mod trail;

pub use logs::{LogError, LogLevel, init};
pub use metrics::{Direction, IndexFigures, LoadEnd, Metrics, RedisCall, RedisFigures, StreamEnd};
pub use trail::{RequestMeta, Trail, Who};
