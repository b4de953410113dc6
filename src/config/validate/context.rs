//! Context assembly and memory limits.

use super::super::{CaptureConfig, ContextConfig, Layout, MemoryConfig, SessionConfig};
use super::Faults;
use crate::tokens::Counter;

pub(super) fn context(context: &ContextConfig, faults: &mut Faults) {
    let wall = context.deadline_ms;
    faults.require(wall > 0, "context.deadline_ms", "0 would leave no time to retrieve anything; set context.enabled = false to switch context off");
    faults.require(
        context.timeout_ms >= wall,
        "context.timeout_ms",
        format!("must be at least context.deadline_ms ({wall})"),
    );
    branches(context, faults);
    // Written so that NaN fails.
    let floor = context.relevance_floor;
    faults.require(
        (0.0..0.5).contains(&floor),
        "context.relevance_floor",
        "must be at least 0 and below 0.5",
    );
    let nonce = context.formatter_nonce_bytes;
    faults.require(
        (1..=64).contains(&nonce),
        "context.formatter_nonce_bytes",
        "must be 1 to 64",
    );
    if context.layout == Layout::Assembled {
        let reason = "must be 0: the assembled layout has no snapshot";
        faults.require(
            context.snapshot_tokens == 0,
            "context.snapshot_tokens",
            reason,
        );
        let reason = "must be empty: the assembled layout has no platform policy";
        faults.require(
            context.platform_policy.is_empty(),
            "context.platform_policy",
            reason,
        );
    }
    faults.require(
        context.snapshot_tokens == 0 || context.snapshot_items > 0,
        "context.snapshot_items",
        "0 leaves context.snapshot_tokens unused; set that to 0 to have no snapshot",
    );
    platform_policy(context, faults);
    faults.require(
        context.default_context_window > 0,
        "context.default_context_window",
        "0 would leave no room for any message",
    );
    faults.require(
        context.directive_tokens > 0,
        "context.directive_tokens",
        "0 would refuse every directive",
    );
    faults.require(
        context.reserve_min <= context.reserve_max,
        "context.reserve_min",
        "must not be above context.reserve_max",
    );
}

/// The policy is part of every prompt and never cut, so a long one stops the start.
fn platform_policy(context: &ContextConfig, faults: &mut Faults) {
    if context.platform_policy.is_empty() {
        return;
    }
    let tokens = Counter::new([0; 32], 0)
        .counts(&context.platform_policy)
        .o200k;
    let cap = context.platform_policy_tokens;
    faults.require(
        tokens <= cap,
        "context.platform_policy",
        format!("has {tokens} tokens; context.platform_policy_tokens allows {cap} (PREFIX_TOO_LARGE: platform_policy)"),
    );
}

/// Each branch of the retrieval has time, and not more than the retrieval as a whole.
fn branches(context: &ContextConfig, faults: &mut Faults) {
    let wall = context.deadline_ms;
    let branches = [
        ("directive_timeout_ms", context.directive_timeout_ms),
        ("hot_timeout_ms", context.hot_timeout_ms),
        ("cold_timeout_ms", context.cold_timeout_ms),
    ];
    for (key, limit) in branches {
        let key = format!("context.{key}");
        faults.require(
            limit > 0,
            key.clone(),
            "0 would cut the branch off before it starts",
        );
        faults.require(
            limit <= wall,
            key,
            format!("must not be above context.deadline_ms ({wall}), which ends every branch"),
        );
    }
}

pub(super) fn session(session: &SessionConfig, faults: &mut Faults) {
    for (key, value, effect) in [
        (
            "idle_s",
            session.idle_s,
            "0 would forget every session at once",
        ),
        ("max_lanes", session.max_lanes, "0 would keep no session"),
        ("max_bytes", session.max_bytes, "0 would keep no session"),
        (
            "retention_days",
            session.retention_days.into(),
            "0 would delete every session while it is in use",
        ),
    ] {
        faults.require(value > 0, format!("session.{key}"), effect);
    }
}

pub(super) fn capture(capture: &CaptureConfig, faults: &mut Faults) {
    for (key, is_zero, effect) in [
        ("queue", capture.queue == 0, "0 would drop every turn"),
        (
            "workers",
            capture.workers == 0,
            "0 would leave every turn waiting",
        ),
        ("attempts", capture.attempts == 0, "0 would try no turn"),
        (
            "timeout_ms",
            capture.timeout_ms == 0,
            "0 would leave no time for an answer",
        ),
    ] {
        faults.require(!is_zero, format!("capture.{key}"), effect);
    }
}

/// A few thousand memories; less is a mistaken unit rather than a wish.
const LEAST_INDEX_BYTES: usize = 16 << 20;

pub(super) fn memory(memory: &MemoryConfig, faults: &mut Faults) {
    // Written so that NaN fails.
    faults.require(
        (0.0..=1.0).contains(&memory.pii.threshold),
        "memory.pii.threshold",
        "must be 0 to 1",
    );
    faults.require(
        memory.classifier.timeout_ms > 0,
        "memory.classifier.timeout_ms",
        "0 would leave no time for an answer; empty the model to have no classifier",
    );
    for (key, value) in [
        ("max_content_chars", memory.max_content_chars),
        ("max_batch", memory.max_batch),
    ] {
        faults.require(
            value > 0,
            format!("memory.{key}"),
            "0 would refuse every memory",
        );
    }
    faults.require(
        memory.index_bytes >= LEAST_INDEX_BYTES,
        "memory.index_bytes",
        "less than 16 MiB would evict what the next request asks for",
    );
}
