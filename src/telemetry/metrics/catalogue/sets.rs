//! What labels may say. Each set is closed, or is what the configuration names; none ever holds an identifier or a text of a client.

use super::{Label, Values};
use crate::error::Code;
use crate::limits;
use crate::memory::pii;
use crate::request::Stage;
use crate::request::context::plan::{ContextStatus, Exclusion, Level, Outcome, SessionEvent};
use crate::server::ROUTES;
use crate::session::RotationReason;
use crate::store::shared::redis::Outage;
use crate::store::{Operation, Relation, StoreError};
use crate::telemetry::metrics::{
    Breaker, CALL_RESULTS, CAPTURE_RESULTS, IDEMPOTENCY_RESULTS, LoadEnd, Queue, RedisCall,
    STATUS_LABELS, StreamEnd, WRITE_RESULTS,
};
use crate::telemetry::trail::StageEnd;
use crate::tokens;

const fn closed(name: &'static str, values: fn() -> Vec<&'static str>) -> Label {
    let values = Values::Closed(values);
    Label { name, values }
}

/// For requests that no route answers, and for refusals before any stage.
pub(in crate::telemetry) const NONE: &str = "none";
/// For models that no entry of the configuration names.
pub(in crate::telemetry) const OTHER: &str = "other";

pub(super) const ROUTE: Label = closed("route", || {
    ROUTES.iter().map(|r| r.path).chain([NONE]).collect()
});
pub(super) const STATUS: Label = closed("code", || STATUS_LABELS.to_vec());
pub(super) const STAGE: Label = closed("stage", || Stage::ALL.iter().map(|s| s.name()).collect());
pub(super) const STAGE_OR_NONE: Label = closed("stage", || {
    Stage::ALL.iter().map(|s| s.name()).chain([NONE]).collect()
});
pub(super) const STAGE_END: Label = closed("outcome", || {
    StageEnd::ALL.iter().map(|e| e.as_str()).collect()
});
pub(super) const CODE: Label = closed("code", || Code::ALL.iter().map(|c| c.as_str()).collect());
pub(super) const CONTEXT: Label = closed("status", || {
    ContextStatus::ALL.iter().map(|s| s.as_str()).collect()
});
pub(super) const LEVEL: Label = closed("level", || {
    Level::ALL
        .iter()
        .map(|l| l.as_str())
        .chain([NONE])
        .collect()
});
pub(super) const BRANCH: Label = closed("branch", || {
    vec!["directive", "embedding", "hot", "cold", "snapshot"]
});
pub(super) const BRANCH_OUTCOME: Label = closed("outcome", || {
    Outcome::ALL.iter().map(|o| o.as_str()).collect()
});
pub(super) const EMBEDDED: Label = closed("result", || {
    Outcome::ALL.iter().map(|o| o.as_str()).collect()
});
pub(super) const PACK_PATH: Label = closed("path", || vec!["dp", "greedy"]);
pub(super) const CANDIDATE: Label = closed("outcome", || {
    let excluded = Exclusion::ALL.iter().map(|e| e.as_str());
    [PACKED].into_iter().chain(excluded).collect()
});
/// A candidate that went out.
pub(in crate::telemetry) const PACKED: &str = "packed";
pub(super) const GATE: Label = closed("decision", || {
    vec![GATE_ADMITTED, GATE_NARROWED, GATE_CLOSED]
});
/// The gate took nothing away.
pub(in crate::telemetry) const GATE_ADMITTED: &str = "admitted";
/// It took some candidates away.
pub(in crate::telemetry) const GATE_NARROWED: &str = "narrowed";
/// It took all of them away.
pub(in crate::telemetry) const GATE_CLOSED: &str = "closed";
pub(super) const ROTATION: Label = closed("reason", || {
    RotationReason::ALL.iter().map(|r| r.as_str()).collect()
});
pub(super) const SESSION_EVENT: Label = closed("event", || {
    SessionEvent::ALL.iter().map(|e| e.as_str()).collect()
});
pub(super) const IDEMPOTENCY: Label = closed("result", || IDEMPOTENCY_RESULTS.to_vec());
pub(super) const PROVIDER: Label = Label {
    name: "provider",
    values: Values::Configured("names of `[providers]`"),
};
pub(super) const MODEL: Label = Label {
    name: "model",
    values: Values::Configured("patterns of `[[models]]`, and `other` for every other model"),
};
pub(super) const CALL_RESULT: Label = closed("result", || CALL_RESULTS.to_vec());
pub(super) const STATUS_CLASS: Label = closed("class", || CLASSES.to_vec());
/// Classes of a provider's status.
pub(in crate::telemetry) const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];
pub(super) const ANSWER_END: Label = closed("result", || {
    StreamEnd::ALL.iter().map(|e| e.as_str()).collect()
});
pub(super) const DIRECTION: Label = closed("direction", || DIRECTIONS.to_vec());
/// Which tokens; `cached` ones are among the `input`.
pub(in crate::telemetry) const DIRECTIONS: [&str; 3] = ["input", "cached", "output"];
pub(super) const FAMILY: Label = closed("family", || {
    tokens::Family::ALL.iter().map(|f| f.as_str()).collect()
});
pub(super) const LIMITED: Label = closed("what", || vec!["requests", "tokens", "streams"]);
pub(super) const LIMIT_LEVEL: Label = closed("level", || {
    limits::Level::NARROW_TO_WIDE
        .iter()
        .map(|l| l.name())
        .collect()
});
pub(super) const OPERATION: Label = closed("operation", || {
    Operation::ALL.iter().map(|o| o.as_str()).collect()
});
pub(super) const STORE_ERROR: Label = closed("error", || StoreError::LABELS.to_vec());
pub(super) const REDIS_CALL: Label = closed("call", || {
    RedisCall::ALL.iter().map(|c| c.as_str()).collect()
});
pub(super) const REDIS_OUTCOME: Label = closed("outcome", || {
    let outages = Outage::ALL.iter().map(|o| o.as_str());
    ["ok"].into_iter().chain(outages).collect()
});
pub(super) const BREAKER: Label = closed("breaker", || {
    Breaker::ALL.iter().map(|b| b.as_str()).collect()
});
pub(super) const LOAD_END: Label = closed("result", || {
    LoadEnd::ALL.iter().map(|e| e.as_str()).collect()
});
pub(super) const QUEUE: Label = closed("queue", || Queue::ALL.iter().map(|q| q.as_str()).collect());
pub(super) const FEED: Label = closed("result", || vec!["ok", "error"]);
pub(super) const WRITE: Label = closed("result", || WRITE_RESULTS.to_vec());
pub(super) const COMPARED: Label = closed("result", || vec!["compared", "skipped"]);
pub(super) const PII_KIND: Label = closed("kind", || {
    pii::Kind::ALL.iter().map(|k| k.as_str()).collect()
});
pub(super) const PII_RESULT: Label = closed("result", || vec!["redacted", "quarantined", "kept"]);
pub(super) const CONFLICT: Label = closed("result", || {
    let relations = Relation::ALL.iter().map(|r| r.as_str());
    ["superseded", "arrived_late", "escalated"]
        .into_iter()
        .chain(relations)
        .collect()
});
pub(super) const CLASSIFIER: Label = closed("result", || vec!["answered", "failed"]);
pub(super) const CAPTURE: Label = closed("result", || CAPTURE_RESULTS.to_vec());
pub(super) const SPANS: Label = closed("result", || SPAN_RESULTS.to_vec());
/// What becomes of spans.
pub(in crate::telemetry) const SPAN_RESULTS: [&str; 3] = ["exported", "dropped", "rejected"];
pub(super) const VERSION: Label = Label {
    name: "version",
    values: Values::Built("the version of the binary", || {
        vec![env!("CARGO_PKG_VERSION")]
    }),
};
pub(super) const ONNX: Label = Label {
    name: "onnx",
    values: Values::Built(
        "whether the ONNX embedder is built in: `true` or `false`",
        || {
            vec![if cfg!(feature = "onnx") {
                "true"
            } else {
                "false"
            }]
        },
    ),
};
