//! Settings for tests that are not about time: limits so wide that a busy machine meets none of them.

use ibex::config::{Config, Layout};

/// A minute, where the defaults have milliseconds.
const WIDE_MS: u64 = 60_000;

/// Widens every limit on time between the client and the provider.
pub(crate) fn patient(config: &mut Config) {
    let context = &mut config.context;
    context.deadline_ms = WIDE_MS;
    context.timeout_ms = WIDE_MS + 5;
    context.directive_timeout_ms = WIDE_MS;
    context.hot_timeout_ms = WIDE_MS;
    context.cold_timeout_ms = WIDE_MS;
    config.auth.timeout_ms = WIDE_MS;
    config.rate_limit.default_rpm = 1_000_000;
}

/// The layout that puts one block into each request, with limits as wide.
pub(crate) fn assembled(config: &mut Config) {
    patient(config);
    in_assembled(config);
}

/// The layout that puts one block into each request.
pub(crate) fn in_assembled(config: &mut Config) {
    config.context.layout = Layout::Assembled;
    config.context.snapshot_tokens = 0;
}
