//! Labels that name something of the request path, each a closed set.

macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The label.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

pub(in crate::telemetry) use label;

label! {
    /// Which way tokens went.
    Direction {
        /// To the provider.
        Input = "input",
        /// Of those, what the provider took from its cache.
        Cached = "cached",
        /// From the provider.
        Output = "output",
    }
}

label! {
    /// How an answer ended.
    StreamEnd {
        /// Whole.
        Complete = "complete",
        /// The client went away.
        ClientGone = "client_gone",
        /// This process ended before it: the drain time was over.
        Stopped = "stopped",
        /// The provider broke off.
        UpstreamError = "upstream_error",
        /// The provider sent an error object inside the stream.
        ErrorEvent = "error_event",
        /// The provider fell silent.
        IdleTimeout = "idle_timeout",
        /// The answer took longer than allowed.
        TotalTimeout = "total_timeout",
    }
}

label! {
    /// What waits to be worked on.
    Queue {
        /// Background tasks under way, the process's own loops included.
        Tasks = "background_tasks",
        /// Session records that are not in the store yet.
        SessionRecords = "session_records",
        /// Uses of memories that are not counted yet.
        Uses = "uses",
        /// Turns that may become memory.
        Capture = "capture",
        /// Traced requests whose spans are not exported yet.
        Traces = "traces",
    }
}

/// Whether the ONNX embedder is built in.
pub(super) const ONNX: &str = if cfg!(feature = "onnx") {
    "true"
} else {
    "false"
};

/// Statuses that occur by name; every other one by its class.
pub const STATUS_LABELS: [&str; 20] = [
    "200", "201", "204", "207", "400", "401", "403", "404", "409", "413", "429", "499", "500",
    "502", "503", "504", "2xx", "3xx", "4xx", "5xx",
];

/// The status that stands for a client that left before it had an answer.
pub const CLIENT_GONE: u16 = 499;

/// The label of a status.
pub(super) fn status_label(status: u16) -> &'static str {
    match status {
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
        CLIENT_GONE => "499",
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

/// How provider calls end.
pub const CALL_RESULTS: [&str; 7] = [
    "ok",
    "error_status",
    "unreachable",
    "timeout",
    "key_refused",
    "bad_response",
    "client_gone",
];

/// What becomes of the key of a chat request.
pub const IDEMPOTENCY_RESULTS: [&str; 6] = [
    "claimed",
    "replayed",
    "in_progress",
    "reused",
    "unavailable",
    "lost",
];

/// What becomes of a memory write.
pub const WRITE_RESULTS: [&str; 14] = [
    "stored",
    "quarantined",
    "voted",
    "forgotten",
    "invalid",
    "duplicate",
    "tombstoned",
    "own_text",
    "embedding_failed",
    "store_unavailable",
    "ledger_unavailable",
    "settled",
    "stale",
    "forgotten_since",
];

/// What becomes of a turn of an agent that captures.
pub const CAPTURE_RESULTS: [&str; 6] = [
    "queued", "repeated", "dropped", "captured", "nothing", "failed",
];

#[cfg(test)]
mod tests {
    use super::{STATUS_LABELS, status_label};

    #[test]
    fn every_status_has_a_label_of_the_set() {
        for status in 100..=999 {
            assert!(STATUS_LABELS.contains(&status_label(status)), "{status}");
        }
    }
}
