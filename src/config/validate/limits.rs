//! Sizes, times and rates: zero would refuse everything.

use uuid::Uuid;

use super::super::{Config, ConsoleConfig, LimitOverride, RateLimitConfig, ServerConfig};
use super::Faults;

pub(super) fn server(server: &ServerConfig, faults: &mut Faults) {
    let sizes = [
        ("max_body_bytes", server.max_body_bytes),
        ("max_messages", server.max_messages),
        ("max_bytes_in_flight", server.max_bytes_in_flight),
    ];
    for (key, value) in sizes {
        faults.require(
            value > 0,
            format!("server.{key}"),
            "0 would refuse every request",
        );
    }
    if !(server.org_share > 0.0 && server.org_share <= 1.0) {
        faults.add("server.org_share", "must be above 0 and at most 1");
    } else {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a size in bytes; the last bits do not matter"
        )]
        let fits =
            server.max_body_bytes as f64 <= server.max_bytes_in_flight as f64 * server.org_share;
        faults.require(
            fits,
            "server.max_bytes_in_flight",
            "one organisation's share (times server.org_share) is less than server.max_body_bytes, so a body of that size could never be taken",
        );
    }
}

/// Most context plans that are kept. With a hundred candidates each they take some 100 MB.
const MOST_RECENT: usize = 10_000;

pub(super) fn console(console: &ConsoleConfig, faults: &mut Faults) {
    faults.require(
        console.recent_requests <= MOST_RECENT,
        "console.recent_requests",
        format!("must not be above {MOST_RECENT}: they are kept in memory"),
    );
}

pub(super) fn timeouts(config: &Config, faults: &mut Faults) {
    let times = [
        (
            "server.header_read_timeout_ms",
            config.server.header_read_timeout_ms,
        ),
        (
            "server.body_read_timeout_ms",
            config.server.body_read_timeout_ms,
        ),
        ("server.write_timeout_ms", config.server.write_timeout_ms),
        (
            "upstream.connect_timeout_ms",
            config.upstream.connect_timeout_ms,
        ),
        (
            "upstream.first_byte_timeout_ms",
            config.upstream.first_byte_timeout_ms,
        ),
        ("upstream.idle_timeout_ms", config.upstream.idle_timeout_ms),
        ("auth.timeout_ms", config.auth.timeout_ms),
    ];
    for (key, value) in times {
        faults.require(value > 0, key, "0 would refuse every request");
    }
    faults.require(
        config.store.read_connections > 0,
        "store.read_connections",
        "0 would leave no connection to read with",
    );
    faults.require(
        config.store.poll_interval_ms > 0,
        "store.poll_interval_ms",
        "0 would poll without a pause",
    );
    faults.require(
        !config.store.path.as_os_str().is_empty(),
        "store.path",
        "must name a file",
    );
}

pub(super) fn rates(rates: &RateLimitConfig, faults: &mut Faults) {
    let all = LimitOverride {
        rpm: Some(rates.default_rpm),
        tpm: rates.default_tpm,
        streams: rates.default_streams,
    };
    figures(&all, "rate_limit.default_", faults);
    for (name, level) in [
        ("global", &rates.global),
        ("org", &rates.org),
        ("agent", &rates.agent),
        ("token", &rates.token),
    ] {
        figures(level, &format!("rate_limit.{name}."), faults);
    }
    for (id, level) in &rates.ids {
        faults.require(
            Uuid::try_parse(id).is_ok(),
            format!("rate_limit.ids.{id}"),
            "is not the identifier of an organisation, agent or token (a UUID)",
        );
        figures(level, &format!("rate_limit.ids.{id}."), faults);
    }
}

fn figures(level: &LimitOverride, prefix: &str, faults: &mut Faults) {
    for (key, value) in [
        ("rpm", level.rpm),
        ("tpm", level.tpm),
        ("streams", level.streams),
    ] {
        faults.require(
            value != Some(0),
            format!("{prefix}{key}"),
            "0 would refuse everything; leave it out for no limit of its own",
        );
    }
}
