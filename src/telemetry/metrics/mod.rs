//! The Prometheus metrics. [`catalogue`] is the one list of them; here each one has its cells, and [`count`] a method for each thing that
//! happens.
//!
//! ```text
//! catalogue   names, labels with their closed sets, meanings; the page of the documents
//! cells       counting without locks                          named     the same for names that the configuration gives
//! timings     histograms, with exemplars of traced requests
//! calls       provider calls, by provider and model           render    the exposition, in the format that the scraper asks for
//! ```

pub mod catalogue;
mod breakers;
mod calls;
mod cells;
mod count;
mod index;
mod labels;
mod named;
mod process;
mod redis;
mod refinery;
mod render;
mod store;
mod timings;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};
use tokio::time::Instant;

use catalogue::Spec;
use cells::Cells;

pub use breakers::{Breaker, BreakerFigures};
pub use calls::{Call, CallFigures, CallMetrics};
pub use cells::{Count, Level};
pub use index::{IndexFigures, LoadEnd};
pub use labels::{
    CALL_RESULTS, CAPTURE_RESULTS, CLIENT_GONE, Direction, IDEMPOTENCY_RESULTS, Queue,
    STATUS_LABELS, StreamEnd, WRITE_RESULTS,
};
pub use redis::{RedisCall, RedisFigures};
pub use render::Exposition;
pub use store::StoreFigures;
pub use timings::Histogram;

use breakers::Breakers;
use refinery::Refinery;

/// What is registered, in the catalogue's order.
#[derive(Debug, Default)]
struct Book(Registry);

impl Book {
    fn add(&mut self, spec: &'static Spec, metric: impl Metric) {
        self.0.register(spec.name, spec.help, metric);
    }
}

macro_rules! families {
    ($($field:ident: $cell:ty = $spec:ident,)*) => {
        /// The families that belong to no part with figures of its own.
        #[derive(Debug)]
        struct Families {
            $($field: Cells<$cell>,)*
        }

        impl Families {
            fn new(book: &mut Book) -> Self {
                let this = Self { $($field: Cells::of(&catalogue::$spec),)* };
                $(book.add(&catalogue::$spec, this.$field.clone());)*
                this
            }
        }
    };
}

families! {
    requests: Count = REQUESTS,
    request_seconds: Histogram = REQUEST_SECONDS,
    in_flight: Level = IN_FLIGHT,
    refusals: Count = REFUSALS,
    stage_seconds: Histogram = STAGE_SECONDS,
    overhead: Histogram = OVERHEAD,
    rate_limited: Count = RATE_LIMITED,
    stream_slots: Level = STREAM_SLOTS,
    flights_waiting: Level = FLIGHTS_WAITING,
    bytes_in_flight: Level = BYTES_IN_FLIGHT,
    context: Count = CONTEXT,
    branches: Count = CONTEXT_BRANCHES,
    branch_seconds: Histogram = CONTEXT_BRANCH_SECONDS,
    context_seconds: Histogram = CONTEXT_SECONDS,
    packs: Count = CONTEXT_PACKS,
    candidates: Count = CONTEXT_CANDIDATES,
    gate: Count = CONTEXT_GATE,
    injected: Count = CONTEXT_INJECTED,
    context_tokens: Count = CONTEXT_TOKENS,
    embeddings: Count = QUERY_EMBEDDINGS,
    fence_strips: Count = FENCE_STRIPS,
    epochs: Count = SESSION_EPOCHS,
    session_events: Count = SESSION_EVENTS,
    prefix_broken: Count = PREFIX_BROKEN,
    sent_bytes: Count = SENT_BYTES,
    stable_bytes: Count = STABLE_BYTES,
    records_lost: Count = RECORDS_LOST,
    lanes: Level = SESSION_LANES,
    lane_bytes: Level = SESSION_LANE_BYTES,
    chat_idempotency: Count = CHAT_IDEMPOTENCY,
    estimate_ratio: Histogram = TOKEN_ESTIMATE,
    taps_lost: Count = TAPS_LOST,
    answers: Count = ANSWERS,
    feed_reads: Count = FEED_READS,
    feed_age: Level = FEED_AGE,
    feed_revision: Level = FEED_REVISION,
    queue_depth: Level = QUEUE_DEPTH,
    spans: Count = TRACE_SPANS,
    config_current: Level = CONFIG_CURRENT,
    build: Level = BUILD,
    uptime: Level = UPTIME,
}

/// Every metric of the process.
#[derive(Debug)]
pub struct Metrics {
    book: Book,
    began: Instant,
    families: Families,
    breakers: Breakers,
    refinery: Refinery,
    /// Answers being relayed now.
    pub answers_open: Gauge,
    /// Memories that lack a vector of the configured embedder.
    pub memories_to_embed: Gauge,
    /// Provider calls.
    pub calls: CallMetrics,
    /// What the durable store counts.
    pub store: StoreFigures,
    /// What the index counts.
    pub index: IndexFigures,
    /// What the connection to Redis counts.
    pub redis: RedisFigures,
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
        let mut book = Book::default();
        book.0.register_collector(Box::new(process::Process));
        let families = Families::new(&mut book);
        let (answers_open, memories_to_embed) = (Gauge::default(), Gauge::default());
        book.add(&catalogue::ANSWERS_OPEN, answers_open.clone());
        book.add(&catalogue::TO_EMBED, memories_to_embed.clone());
        let this = Self {
            families,
            answers_open,
            memories_to_embed,
            breakers: Breakers::new(&mut book),
            refinery: Refinery::new(&mut book),
            calls: CallMetrics::registered(&mut book),
            store: StoreFigures::registered(&mut book),
            index: IndexFigures::registered(&mut book),
            redis: RedisFigures::registered(&mut book),
            began: Instant::now(),
            book,
        };
        let running = [env!("CARGO_PKG_VERSION"), labels::ONNX];
        this.families.build.set(&running, 1);
        this.watch(Breaker::Redis, this.redis.breaker.clone());
        this
    }
}
