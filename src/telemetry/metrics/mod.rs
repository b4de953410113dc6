//! The Prometheus metrics: every name, its labels and its meaning in one list.

mod count;
mod index;
mod redis;
mod refinery;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub use index::{IndexFigures, LoadEnd};
pub use redis::{RedisCall, RedisFigures};
use refinery::Refinery;

/// Seconds, from 50 microseconds to 100 seconds.
const SECONDS: [f64; 16] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
    5.0, 30.0, 100.0,
];

/// Ratios around 1, where estimates should be.
const RATIOS: [f64; 11] = [0.25, 0.5, 0.75, 0.9, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0];

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

fn ratios() -> Histogram {
    Histogram::new(RATIOS)
}

macro_rules! labels {
    ($($name:ident { $($label:ident),* })*) => {
        $(
            #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
            struct $name { $($label: &'static str),* }
        )*
    };
}

labels! {
    RouteCode { route, code }
    RouteOnly { route }
    StageCode { stage, code }
    StatusLevel { status, level }
    BranchOutcome { branch, outcome }
    BranchOnly { branch }
    PathOnly { path }
    ResultOnly { result }
    DirectionOnly { direction }
    ReasonOnly { reason }
    EventOnly { event }
    FamilyOnly { family }
    KindResult { kind, result }
    CallOutcome { call, outcome }
    CallOnly { call }
}

/// Which way tokens went.
#[derive(Debug, Clone, Copy)]
pub enum Direction {
    /// To the provider.
    Input,
    /// From the provider.
    Output,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// Whole.
    Complete,
    /// The client went away.
    ClientGone,
    /// The provider broke off.
    UpstreamError,
    /// The provider sent an error object inside the stream.
    ErrorEvent,
    /// The provider fell silent.
    IdleTimeout,
    /// The answer took longer than allowed.
    TotalTimeout,
}

impl StreamEnd {
    /// The label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::ClientGone => "client_gone",
            Self::UpstreamError => "upstream_error",
            Self::ErrorEvent => "error_event",
            Self::IdleTimeout => "idle_timeout",
            Self::TotalTimeout => "total_timeout",
        }
    }
}

/// Every metric of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RouteCode, Counter>,
    duration: Family<RouteOnly, Histogram, fn() -> Histogram>,
    refusals: Family<StageCode, Counter>,
    context: Family<StatusLevel, Counter>,
    branches: Family<BranchOutcome, Counter>,
    branch_seconds: Family<BranchOnly, Histogram, fn() -> Histogram>,
    assembly_seconds: Histogram,
    pack: Family<PathOnly, Counter>,
    injected: Counter,
    context_tokens: Counter,
    provider: Family<ResultOnly, Counter>,
    first_byte: Histogram,
    ends: Family<ResultOnly, Counter>,
    tokens: Family<DirectionOnly, Counter>,
    estimate_ratio: Family<FamilyOnly, Histogram, fn() -> Histogram>,
    taps_lost: Counter,
    refinery: Refinery,
    epochs: Family<ReasonOnly, Counter>,
    session_events: Family<EventOnly, Counter>,
    prefix_broken: Counter,
    records_lost: Counter,
    lanes_held: Gauge,
    lane_bytes: Gauge,
    /// What the index counts.
    pub index: IndexFigures,
    /// What the connection to Redis counts.
    pub redis: RedisFigures,
    /// Answers being relayed now.
    pub answers_open: Gauge,
    /// Bytes of request bodies held now.
    pub bytes_in_flight: Gauge,
    /// Memories that lack a vector of the configured embedder.
    pub memories_to_embed: Gauge,
    embeddings: Family<ResultOnly, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers every metric.
    #[must_use]
    pub fn new() -> Self {
        let make: fn() -> Histogram = seconds;
        let mut this = Self {
            registry: Registry::with_prefix("ibex"),
            requests: Family::default(),
            duration: Family::new_with_constructor(make),
            refusals: Family::default(),
            context: Family::default(),
            branches: Family::default(),
            branch_seconds: Family::new_with_constructor(make),
            assembly_seconds: seconds(),
            pack: Family::default(),
            injected: Counter::default(),
            context_tokens: Counter::default(),
            provider: Family::default(),
            first_byte: seconds(),
            ends: Family::default(),
            tokens: Family::default(),
            estimate_ratio: Family::new_with_constructor(ratios),
            taps_lost: Counter::default(),
            refinery: Refinery::default(),
            epochs: Family::default(),
            session_events: Family::default(),
            prefix_broken: Counter::default(),
            records_lost: Counter::default(),
            lanes_held: Gauge::default(),
            lane_bytes: Gauge::default(),
            index: IndexFigures::default(),
            redis: RedisFigures::default(),
            answers_open: Gauge::default(),
            bytes_in_flight: Gauge::default(),
            memories_to_embed: Gauge::default(),
            embeddings: Family::default(),
        };
        this.register();
        this
    }

    #[expect(clippy::too_many_lines, reason = "one list of names and meanings")]
    fn register(&mut self) {
        let r = &mut self.registry;
        r.register(
            "requests",
            "Requests answered, by route and status code",
            self.requests.clone(),
        );
        r.register(
            "request_duration_seconds",
            "Time from the request's head to the answer's head, by route",
            self.duration.clone(),
        );
        r.register(
            "refusals",
            "Requests refused, by stage and error code",
            self.refusals.clone(),
        );
        r.register(
            "context",
            "Context assemblies, by status and degradation level",
            self.context.clone(),
        );
        r.register(
            "context_branches",
            "Retrieval branches, by outcome",
            self.branches.clone(),
        );
        r.register(
            "context_branch_seconds",
            "Time of a retrieval branch",
            self.branch_seconds.clone(),
        );
        r.register(
            "context_assembly_seconds",
            "Time of a whole context assembly",
            self.assembly_seconds.clone(),
        );
        r.register("context_packs", "Packer runs, by path", self.pack.clone());
        r.register(
            "context_memories_injected",
            "Memories injected",
            self.injected.clone(),
        );
        r.register(
            "context_tokens_injected",
            "Tokens injected",
            self.context_tokens.clone(),
        );
        r.register(
            "provider_requests",
            "Provider calls, by result",
            self.provider.clone(),
        );
        r.register(
            "provider_first_byte_seconds",
            "Time from the handoff to the provider's answer head",
            self.first_byte.clone(),
        );
        r.register(
            "answers",
            "Answers relayed, by how they ended",
            self.ends.clone(),
        );
        r.register(
            "tokens",
            "Tokens that providers reported, by direction",
            self.tokens.clone(),
        );
        r.register(
            "token_estimate_ratio",
            "Prompt tokens a provider reported over tokens estimated, by tokenizer family",
            self.estimate_ratio.clone(),
        );
        r.register(
            "usage_taps_lost",
            "Answers whose usage could not be read",
            self.taps_lost.clone(),
        );
        self.refinery.register(r);
        r.register(
            "session_epochs_rotated",
            "Frozen prefixes that were replaced, by reason",
            self.epochs.clone(),
        );
        r.register(
            "session_events",
            "Requests whose history was trimmed, branched, or whose client changed its system text or tools",
            self.session_events.clone(),
        );
        r.register(
            "session_prefix_broken",
            "Requests that did not send again what was sent before; anything but 0 is a defect",
            self.prefix_broken.clone(),
        );
        r.register(
            "session_records_lost",
            "Session records that could not be stored",
            self.records_lost.clone(),
        );
        r.register(
            "session_lanes",
            "Frozen lanes in memory",
            self.lanes_held.clone(),
        );
        r.register(
            "session_lane_bytes",
            "Bytes of frozen lanes in memory",
            self.lane_bytes.clone(),
        );
        self.index.register(r);
        self.redis.register(r);
        r.register(
            "answers_open",
            "Answers being relayed now",
            self.answers_open.clone(),
        );
        r.register(
            "request_bytes_in_flight",
            "Bytes of request bodies held now",
            self.bytes_in_flight.clone(),
        );
        r.register(
            "memories_to_embed",
            "Memories that lack a vector of the configured embedder; above 0 after a change of it",
            self.memories_to_embed.clone(),
        );
        r.register(
            "query_embeddings",
            "Questions that were embedded, by outcome",
            self.embeddings.clone(),
        );
    }

    /// The exposition text; the error is the formatter's, which writing to a string never meets.
    ///
    /// # Errors
    /// Never in practice.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut out = String::with_capacity(16 << 10);
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}
