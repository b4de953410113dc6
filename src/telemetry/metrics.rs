//! The Prometheus metrics: every name, its labels and its meaning in one list.

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::error::Code;
use crate::request::Stage;
use crate::request::context::plan::{ContextPlan, ContextStatus, SessionEvent};
use crate::session::RotationReason;
use crate::tokens;

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
    memory_writes: Family<ResultOnly, Counter>,
    epochs: Family<ReasonOnly, Counter>,
    session_events: Family<EventOnly, Counter>,
    prefix_broken: Counter,
    records_lost: Gauge,
    lanes_held: Gauge,
    lane_bytes: Gauge,
    /// Answers being relayed now.
    pub answers_open: Gauge,
    /// Bytes of request bodies held now.
    pub bytes_in_flight: Gauge,
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
            memory_writes: Family::default(),
            epochs: Family::default(),
            session_events: Family::default(),
            prefix_broken: Counter::default(),
            records_lost: Gauge::default(),
            lanes_held: Gauge::default(),
            lane_bytes: Gauge::default(),
            answers_open: Gauge::default(),
            bytes_in_flight: Gauge::default(),
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
        r.register(
            "memory_writes",
            "Memory writes, by outcome",
            self.memory_writes.clone(),
        );
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
            "Session records that could not be stored since the start",
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

    /// Counts an epoch that replaced another one.
    pub fn epoch_rotated(&self, reason: RotationReason) {
        let reason = reason.as_str();
        self.epochs.get_or_create(&ReasonOnly { reason }).inc();
    }

    /// Counts what happened to a session.
    pub fn session_event(&self, event: SessionEvent) {
        let event = event.as_str();
        self.session_events
            .get_or_create(&EventOnly { event })
            .inc();
    }

    /// Counts a request that broke the law of this layout.
    pub fn prefix_broken(&self) {
        self.prefix_broken.inc();
    }

    /// Tells how much frozen state is in memory.
    pub fn sessions_held(&self, lanes: u64, bytes: u64) {
        let gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.lanes_held.set(gauge(lanes));
        self.lane_bytes.set(gauge(bytes));
    }

    /// Tells how many session records were lost since the start.
    pub fn session_records_lost(&self, lost: u64) {
        self.records_lost
            .set(i64::try_from(lost).unwrap_or(i64::MAX));
    }

    /// Counts an answered request.
    pub fn answered(&self, route: &'static str, status: http::StatusCode, seconds: f64) {
        self.requests
            .get_or_create(&RouteCode {
                route,
                code: status_label(status),
            })
            .inc();
        self.duration
            .get_or_create(&RouteOnly { route })
            .observe(seconds);
    }

    /// Counts a refusal.
    pub fn refused(&self, stage: Option<Stage>, code: Code) {
        let stage = stage.map_or("none", Stage::name);
        self.refusals
            .get_or_create(&StageCode {
                stage,
                code: code.as_str(),
            })
            .inc();
    }

    /// Counts a context outcome without an assembly (skipped, disabled).
    pub fn context_off(&self, status: ContextStatus) {
        self.context
            .get_or_create(&StatusLevel {
                status: status.as_str(),
                level: "none",
            })
            .inc();
    }

    /// Counts an assembly.
    pub fn assembled(&self, plan: &ContextPlan, packed: u64, seconds: f64) {
        self.context
            .get_or_create(&StatusLevel {
                status: plan.status.as_str(),
                level: plan.level.as_str(),
            })
            .inc();
        for (branch, report) in &plan.branches {
            self.branches
                .get_or_create(&BranchOutcome {
                    branch,
                    outcome: report.outcome.as_str(),
                })
                .inc();
            self.branch_seconds
                .get_or_create(&BranchOnly { branch })
                .observe(report.ms / 1_000.0);
        }
        if let Some(pack) = &plan.pack {
            self.pack.get_or_create(&PathOnly { path: pack.path }).inc();
        }
        self.assembly_seconds.observe(seconds);
        self.injected.inc_by(packed);
        self.context_tokens.inc_by(u64::from(plan.tokens.injected));
    }

    /// Counts a provider call.
    pub fn provider(&self, result: &'static str, seconds: f64) {
        self.provider.get_or_create(&ResultOnly { result }).inc();
        self.first_byte.observe(seconds);
    }

    /// Counts the end of an answer.
    pub fn ended(&self, end: StreamEnd) {
        self.ends
            .get_or_create(&ResultOnly {
                result: end.as_str(),
            })
            .inc();
    }

    /// Counts tokens a provider reported.
    pub fn tokens(&self, direction: Direction, count: u64) {
        let direction = match direction {
            Direction::Input => "input",
            Direction::Output => "output",
        };
        self.tokens
            .get_or_create(&DirectionOnly { direction })
            .inc_by(count);
    }

    /// Notes how far a provider's count of a prompt was from what had been estimated.
    pub fn token_estimate(&self, family: tokens::Family, ratio: f64) {
        let family = family.as_str();
        self.estimate_ratio
            .get_or_create(&FamilyOnly { family })
            .observe(ratio);
    }

    /// Counts an answer whose usage could not be read.
    pub fn tap_lost(&self) {
        self.taps_lost.inc();
    }

    /// Counts a memory write by outcome.
    pub fn memory_write(&self, result: &'static str) {
        self.memory_writes
            .get_or_create(&ResultOnly { result })
            .inc();
    }
}

/// A closed set: the codes that occur by name, everything else by class.
fn status_label(status: http::StatusCode) -> &'static str {
    match status.as_u16() {
        200 => "200",
        201 => "201",
        204 => "204",
        207 => "207",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        409 => "409",
        413 => "413",
        429 => "429",
        500 => "500",
        502 => "502",
        503 => "503",
        504 => "504",
        code => match code / 100 {
            1 | 2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        },
    }
}
