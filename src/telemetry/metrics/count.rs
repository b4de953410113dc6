//! Counting: one method for each thing that happens.

use std::sync::atomic::Ordering;

use super::{
    BranchOnly, BranchOutcome, Direction, DirectionOnly, EventOnly, FamilyOnly, Metrics, PathOnly,
    ReasonOnly, ResultOnly, RouteCode, RouteOnly, StageCode, StatusLevel, StreamEnd,
};
use crate::error::Code;
use crate::request::Stage;
use crate::request::context::plan::{ContextPlan, ContextStatus, SessionEvent};
use crate::session::RotationReason;
use crate::tokens;

impl Metrics {
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

    /// Counts a keyed chat request.
    pub fn chat_idempotency(&self, result: &'static str) {
        let keys = &self.chat_idempotency;
        keys.get_or_create(&ResultOnly { result }).inc();
    }

    /// Tells how many session records were lost since the start.
    pub fn session_records_lost(&self, lost: u64) {
        let counter = self.records_lost.inner();
        counter.fetch_max(lost, Ordering::Relaxed);
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

    /// Counts a question whose vector was asked for.
    pub fn query_embedded(&self, result: &'static str) {
        self.embeddings.get_or_create(&ResultOnly { result }).inc();
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
