//! The end of a request, told once: its one wide log line, the metrics of its stages, and its spans where it is traced.
//!
//! [`FIELDS`] is the list of the line's fields; a test holds the line and the documents to it. All of it happens after the answer's last byte,
//! or when it is known that there will be none.

use std::time::Duration;

use tokio::time::Instant;

use super::metrics::{Metrics, StreamEnd};
use super::otlp::Traces;
use super::trail::{RequestMeta, StageEnd, Trail};
use crate::error::Code;
use crate::openai::sse::Usage;
use crate::request::Stage;
use crate::request::context::plan::Level;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    /// With an answer of our own, or with a provider's error as a whole.
    Answered,
    /// With a refusal.
    Refused,
    /// The client went away before there was an answer.
    ClientGone,
    /// With an answer that was relayed, so.
    Relayed(StreamEnd),
}

impl RequestEnd {
    /// The word in the log line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::ClientGone => StreamEnd::ClientGone.as_str(),
            Self::Relayed(end) => end.as_str(),
        }
    }

    const fn of_last_stage(self) -> StageEnd {
        match self {
            Self::Answered | Self::Relayed(StreamEnd::Complete) => StageEnd::Answered,
            Self::Refused => StageEnd::Refused,
            Self::ClientGone | Self::Relayed(StreamEnd::ClientGone) => StageEnd::ClientGone,
            Self::Relayed(
                StreamEnd::Stopped
                | StreamEnd::UpstreamError
                | StreamEnd::ErrorEvent
                | StreamEnd::IdleTimeout
                | StreamEnd::TotalTimeout,
            ) => StageEnd::Failed,
        }
    }
}

/// A request that is over.
#[derive(Debug)]
pub struct Ended {
    /// Identifiers.
    pub meta: RequestMeta,
    /// Stages, times and what it came to.
    pub trail: Trail,
    /// The status that the client was sent, or would have been.
    pub status: u16,
    /// How.
    pub end: RequestEnd,
    /// What the provider reported.
    pub usage: Option<Usage>,
    /// When the first bytes of the answer's body came.
    pub first_chunk: Option<Instant>,
    /// The model as the answer names it, where the request is traced.
    pub model: Option<String>,
    /// When.
    pub at: Instant,
}

/// A field of the log line: its name, what it says, and where the same is found in spans and metrics.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The name.
    pub name: &'static str,
    /// The meaning.
    pub meaning: &'static str,
    /// The span attribute and the metric with the same meaning, if there are any.
    pub elsewhere: &'static str,
}

macro_rules! fields {
    ($($name:ident $meaning:literal $elsewhere:literal;)*) => {
        /// Every field of a request's log line, besides time, level, target and message.
        pub const FIELDS: &[Field] = &[
            $(Field { name: stringify!($name), meaning: $meaning, elsewhere: $elsewhere },)*
        ];
    };
}

fields! {
    request_id "the request, as in `X-Request-ID`" "`ibex.request_id`";
    trace_id "the trace, as in `X-Trace-ID`" "the trace of its spans, exemplars";
    method "the HTTP method" "`http.request.method`";
    route "the template of the route" "`http.route`, label `route`";
    status "the status sent; 499 when the client left before" "`http.response.status_code`, label `code`";
    outcome "`answered`, `refused`, or how the relay ended: `complete`, `client_gone`, `stopped`, `upstream_error`, `error_event`, `idle_timeout`, `total_timeout`" "`ibex.outcome`, `ibex_answers_total`";
    stage "the last stage that it entered" "`ibex.stage`, label `stage`";
    code "the error code of a refusal" "`ibex.code`, `ibex_refusals_total`";
    org "the organisation" "`ibex.org.id`";
    agent "the agent" "`ibex.agent.id`";
    token "the token's public part" "";
    provider "the provider's configured name" "`gen_ai.provider.name`, label `provider`";
    model "the model as the provider knows it" "`gen_ai.request.model`";
    stream "whether events were asked for" "`gen_ai.request.stream`";
    context_status "the outcome of context" "`ibex.context.status`, `ibex_context_total`";
    degradation "the degradation level" "`ibex.context.degradation`, `ibex_context_total`";
    context_reason "why it is not full" "`ibex.context.reason`";
    epoch "the session's epoch; 0 where nothing is frozen" "`ibex.session.epoch`";
    memories_considered "candidates" "`ibex.memories.considered`, `ibex_context_candidates_total`";
    memories_packed "memories in the request as sent" "`ibex.memories.packed`";
    context_tokens "tokens injected" "`ibex.context.tokens`, `ibex_context_tokens_injected_total`";
    sent_bytes "bytes of the request to the provider" "`ibex.sent_bytes`, `ibex_session_sent_bytes_total`";
    stable_bytes "of those, what repeats the session's last request from its beginning" "`ibex.stable_bytes`, `ibex_session_stable_bytes_total`";
    input_tokens "prompt tokens that the provider reported" "`gen_ai.usage.input_tokens`, `ibex_tokens_total`";
    cached_tokens "of those, what it took from its cache" "`gen_ai.usage.cache_read.input_tokens`, `ibex_tokens_total`";
    output_tokens "completion tokens that it reported" "`gen_ai.usage.output_tokens`, `ibex_tokens_total`";
    overhead_ms "from the head to the handoff" "`ibex_request_overhead_seconds`";
    ttfb_ms "from the handoff to the provider's answer head" "`ibex_provider_first_byte_seconds`";
    first_chunk_ms "from the handoff to the first bytes of its body" "`gen_ai.response.time_to_first_chunk`, `ibex_provider_first_chunk_seconds`";
    duration_ms "from the head to the last byte" "the span of the request";
    stages_ms "every stage with its time, as `name=milliseconds`" "a span each, `ibex_stage_seconds`";
}

impl Ended {
    /// Tells of it.
    pub fn tell(self, metrics: &Metrics, traces: &Traces) {
        let last = self.end.of_last_stage();
        let mut stages = self.trail.stages(self.at).peekable();
        while let Some((stage, began, ended)) = stages.next() {
            let end = if stages.peek().is_some() {
                StageEnd::Passed
            } else {
                last
            };
            metrics.stage(stage, end, ended.duration_since(began));
        }
        drop(stages);
        if let Some(took) = self.overhead() {
            metrics.handed_off(took, &self.meta.trace);
        }
        if tracing::enabled!(tracing::Level::INFO) {
            self.log();
        }
        if self.meta.trace.is_sampled() {
            traces.offer(self);
        }
    }

    /// From the head to the handoff.
    pub(super) fn overhead(&self) -> Option<Duration> {
        let handoff = self.trail.began(Stage::Handoff)?;
        Some(handoff.duration_since(self.meta.started))
    }

    /// From the handoff to the provider's head.
    pub(super) fn ttfb(&self) -> Option<Duration> {
        let handoff = self.trail.began(Stage::Handoff)?;
        Some(self.trail.began(Stage::Relay)?.duration_since(handoff))
    }

    /// From the handoff to the first bytes of its body.
    pub(super) fn to_first_chunk(&self) -> Option<Duration> {
        let handoff = self.trail.began(Stage::Handoff)?;
        Some(self.first_chunk?.duration_since(handoff))
    }

    fn log(&self) {
        let Self {
            meta, trail, usage, ..
        } = self;
        let who = trail.who();
        let call = trail.call.as_ref();
        let context = trail.context.as_ref();
        let ms = |time: Option<Duration>| time.map(millis);
        // One field for each line of the list above; a test compares them.
        tracing::info!(
            request_id = meta.id.as_str(),
            trace_id = meta.trace.id().hex().as_str(),
            method = meta.method,
            route = meta.route,
            status = self.status,
            outcome = self.end.as_str(),
            stage = trail.current().map(Stage::name),
            code = trail.code.map(Code::as_str),
            org = who.map(|w| w.org.to_string()),
            agent = who.map(|w| w.agent.to_string()),
            token = who.map(|w| w.token.to_string()),
            provider = call.map(|c| c.provider.name()),
            model = call.and_then(|c| c.model()),
            stream = call.map(|c| c.stream),
            context_status = context.map(|c| c.status.as_str()),
            degradation = context.and_then(|c| c.level).map(Level::as_str),
            context_reason = context.and_then(|c| c.reason.as_deref()),
            epoch = context.map(|c| c.epoch),
            memories_considered = context.map(|c| c.considered),
            memories_packed = context.map(|c| c.packed),
            context_tokens = context.map(|c| c.tokens),
            sent_bytes = context.map(|c| c.sent_bytes),
            stable_bytes = context.map(|c| c.stable_bytes),
            input_tokens = usage.map(|u| u.prompt_tokens),
            cached_tokens = usage.map(|u| u.cached_tokens),
            output_tokens = usage.map(|u| u.completion_tokens),
            overhead_ms = ms(self.overhead()),
            ttfb_ms = ms(self.ttfb()),
            first_chunk_ms = ms(self.to_first_chunk()),
            duration_ms = millis(self.at.duration_since(meta.started)),
            stages_ms = trail.stage_millis(self.at),
            "request"
        );
    }
}

/// Milliseconds to the microsecond.
fn millis(time: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a request")]
    let micros = time.as_micros() as f64;
    micros / 1_000.0
}
