//! Logs, metrics and traces. Telemetry is told what happened; it never decides anything.
//!
//! Never logged, never a label or an attribute, never in an error text: message content, memory content, directives, embeddings, credentials,
//! user identifiers, query strings. Metric labels are closed sets; an organisation is never one.
//!
//! ```text
//! logs      where log lines go, and which           json_line one of them
//! trace     which trace a request belongs to, and whether it is recorded
//! trail     what is noted on its way            ended     its end: one log line, metrics of its stages, spans
//! metrics   the catalogue and what counts       otlp      spans on their way to a collector
//! ```

mod logs;
mod json_line;
pub mod metrics;
pub mod trace;
mod trail;
mod ended;
pub mod otlp;

pub use ended::{Ended, FIELDS, Field, RequestEnd};
pub use json_line::JsonLine;
pub use logs::{LogError, LogLevel, Logging, init};
pub use metrics::{
    Breaker, BreakerFigures, CLIENT_GONE, CallFigures, CallMetrics, Direction, IndexFigures,
    LoadEnd, Metrics, Queue, RedisCall, RedisFigures, StoreFigures, StreamEnd,
};
pub use otlp::Traces;
pub use trail::{CallFacts, ContextFacts, OTHER_METHOD, RequestMeta, StageEnd, Trail, Who};
