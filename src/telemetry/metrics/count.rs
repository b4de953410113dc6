//! Counting: one method for each thing that happens.

use std::time::Duration;

use super::Metrics;
use super::breakers::{Breaker, BreakerFigures};
use super::catalogue::sets;
use super::cells::Level;
use super::labels::{CLIENT_GONE, Queue, StreamEnd, status_label};
use crate::error::Code;
use crate::limits::Limited;
use crate::request::Stage;
use crate::request::context::plan::{ContextPlan, ContextStatus, Exclusion, SessionEvent};
use crate::session::RotationReason;
use crate::telemetry::trace::Trace;
use crate::telemetry::trail::StageEnd;
use crate::tokens;

impl Metrics {
    /// Counts a request that has begun.
    pub fn began(&self) {
        self.alone(|f| &f.in_flight, |gauge| gauge.add(1));
    }

    /// Counts an answered request, when its head is written.
    pub fn answered(&self, route: &'static str, status: u16, took: Duration, trace: &Trace) {
        let families = &self.families;
        self.alone(|f| &f.in_flight, |gauge| gauge.add(-1));
        families.requests.inc(&[route, status_label(status)]);
        if let Some(cell) = families.request_seconds.at(&[route]) {
            cell.observe_traced(took.as_secs_f64(), trace);
        }
    }

    /// Counts a request whose client left before there was a head.
    pub fn left(&self, route: &'static str, took: Duration, trace: &Trace) {
        self.answered(route, CLIENT_GONE, took, trace);
    }

    /// Counts a refusal.
    pub fn refused(&self, stage: Option<Stage>, code: Code) {
        let stage = stage.map_or(sets::NONE, Stage::name);
        self.families.refusals.inc(&[stage, code.as_str()]);
    }

    /// Counts a stage that has ended.
    pub fn stage(&self, stage: Stage, end: StageEnd, took: Duration) {
        let labels = [stage.name(), end.as_str()];
        let seconds = took.as_secs_f64();
        self.families.stage_seconds.observe(&labels, seconds);
    }

    /// Counts what a request spent here before its provider was called.
    pub fn handed_off(&self, took: Duration, trace: &Trace) {
        if let Some(cell) = self.families.overhead.at(&[]) {
            cell.observe_traced(took.as_secs_f64(), trace);
        }
    }

    /// Counts a request over a limit.
    pub fn rate_limited(&self, limited: &Limited) {
        let labels = [limited.what, limited.level.name()];
        self.families.rate_limited.inc(&labels);
    }

    /// Counts an epoch that replaced another one.
    pub fn epoch_rotated(&self, reason: RotationReason) {
        self.families.epochs.inc(&[reason.as_str()]);
    }

    /// Counts what happened to a session.
    pub fn session_event(&self, event: SessionEvent) {
        self.families.session_events.inc(&[event.as_str()]);
    }

    /// Counts a request that broke the law of this layout.
    pub fn prefix_broken(&self) {
        self.families.prefix_broken.inc(&[]);
    }

    /// Counts a request whose frozen memories could not be checked.
    pub fn fence_stripped(&self) {
        self.families.fence_strips.inc(&[]);
    }

    /// Counts the bytes of a request in the stable layout, and how many of them repeat the last one.
    pub fn sent(&self, bytes: u64, stable: u64) {
        self.families.sent_bytes.add(&[], bytes);
        self.families.stable_bytes.add(&[], stable);
    }

    /// Tells how much frozen state is in memory.
    pub fn sessions_held(&self, lanes: u64, bytes: u64) {
        self.families.lanes.set(&[], lanes);
        self.families.lane_bytes.set(&[], bytes);
    }

    /// Counts a keyed chat request.
    pub fn chat_idempotency(&self, result: &'static str) {
        self.families.chat_idempotency.inc(&[result]);
    }

    /// Tells how many session records were lost since the start.
    pub fn session_records_lost(&self, lost: u64) {
        if let Some(cell) = self.families.records_lost.at(&[]) {
            cell.raise_to(lost);
        }
    }

    /// Counts a context outcome without an assembly (skipped, disabled).
    pub fn context_off(&self, status: ContextStatus) {
        self.families.context.inc(&[status.as_str(), sets::NONE]);
    }

    /// Counts an assembly.
    pub fn assembled(&self, plan: &ContextPlan, packed: u64, seconds: f64) {
        let families = &self.families;
        let labels = [plan.status.as_str(), plan.level.as_str()];
        families.context.inc(&labels);
        for (branch, report) in &plan.branches {
            families.branches.inc(&[branch, report.outcome.as_str()]);
            let took = report.ms / 1_000.0;
            families.branch_seconds.observe(&[branch], took);
        }
        if let Some(pack) = &plan.pack {
            families.packs.inc(&[pack.path]);
        }
        self.judged(plan);
        families.context_seconds.observe(&[], seconds);
        families.injected.add(&[], packed);
        let tokens = plan.tokens.injected.into();
        families.context_tokens.add(&[], tokens);
    }

    /// Counts what became of the candidates, and what the gate made of them.
    fn judged(&self, plan: &ContextPlan) {
        let of = |reason: Option<Exclusion>| {
            let these = plan.memories.iter().filter(|m| m.reason == reason);
            these.count() as u64
        };
        self.families.candidates.add(&[sets::PACKED], of(None));
        // Filter and floor come before the gate: it was not asked about those.
        let (mut gated, mut passed) = (false, of(None) > 0);
        for reason in Exclusion::ALL {
            let count = of(Some(reason));
            if count == 0 {
                continue;
            }
            self.families.candidates.add(&[reason.as_str()], count);
            match reason {
                Exclusion::Gate => gated = true,
                Exclusion::Filter | Exclusion::Floor => {}
                Exclusion::Budget | Exclusion::Duplicate | Exclusion::AlreadyInContext => {
                    passed = true;
                }
            }
        }
        let decision = match (gated, passed) {
            (false, false) => return,
            (false, true) => sets::GATE_ADMITTED,
            (true, true) => sets::GATE_NARROWED,
            (true, false) => sets::GATE_CLOSED,
        };
        self.families.gate.inc(&[decision]);
    }

    /// Counts an answer that begins to be relayed.
    pub fn relaying(&self) {
        self.answers_open.inc();
    }

    /// Counts the end of an answer.
    pub fn ended(&self, end: StreamEnd) {
        self.answers_open.dec();
        self.families.answers.inc(&[end.as_str()]);
    }

    /// Notes how far a provider's count of a prompt was from what had been estimated.
    pub fn token_estimate(&self, family: tokens::Family, ratio: f64) {
        let family = [family.as_str()];
        self.families.estimate_ratio.observe(&family, ratio);
    }

    /// Counts an answer whose usage could not be read.
    pub fn tap_lost(&self) {
        self.families.taps_lost.inc(&[]);
    }

    /// Counts a question whose vector was asked for.
    pub fn query_embedded(&self, result: &'static str) {
        self.families.embeddings.inc(&[result]);
    }

    /// Counts a look at the change feed.
    pub fn feed_read(&self, well: bool) {
        let result = if well { "ok" } else { "error" };
        self.families.feed_reads.inc(&[result]);
    }

    /// Tells how old the last good look at the change feed is, and how far it reached.
    pub fn feed_stands(&self, age: Duration, revision: i64) {
        self.families.feed_age.set(&[], age.as_secs());
        self.alone(|f| &f.feed_revision, |gauge| gauge.set(revision));
    }

    /// Tells whether the configuration in force is the one that was read last.
    pub fn configuration(&self, current: bool) {
        self.families.config_current.set(&[], current.into());
    }

    /// Tells how much waits in a queue.
    pub fn queue(&self, queue: Queue, depth: usize) {
        self.families
            .queue_depth
            .set(&[queue.as_str()], depth as u64);
    }

    /// Tells what requests hold.
    pub fn held(&self, slots: u64, flights: usize, bytes: usize) {
        self.families.stream_slots.set(&[], slots);
        self.families.flights_waiting.set(&[], flights as u64);
        self.families.bytes_in_flight.set(&[], bytes as u64);
    }

    /// Tells how long there have been metrics: for as long as the process is up.
    pub fn up(&self) -> Duration {
        let time = self.began.elapsed();
        self.families.uptime.set(&[], time.as_secs());
        time
    }

    /// Counts spans that were exported, dropped or rejected.
    pub fn spans(&self, result: &'static str, count: u64) {
        self.families.spans.add(&[result], count);
    }

    /// Spans that met this end.
    #[must_use]
    pub fn spans_so_far(&self, result: &'static str) -> u64 {
        self.families
            .spans
            .at(&[result])
            .map_or(0, |cell| cell.get())
    }

    /// Shows what the breakers before a dependency count.
    pub fn watch(&self, breaker: Breaker, figures: BreakerFigures) {
        self.breakers.watch(breaker, figures);
    }

    fn alone(
        &self,
        family: impl FnOnce(&super::Families) -> &super::Cells<Level>,
        change: impl FnOnce(&Level),
    ) {
        if let Some(gauge) = family(&self.families).at(&[]) {
            change(gauge);
        }
    }
}
