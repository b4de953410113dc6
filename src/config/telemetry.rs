//! `[telemetry]`: where traces go.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How spans are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum TraceProtocol {
    /// OTLP over HTTP, as protobuf.
    #[default]
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
}

/// Traces. Metrics and logs need no section: `/metrics` is scraped, and lines go to standard error.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// Base URL of an OTLP collector; `/v1/traces` is added. Unset, nothing is recorded (`OTEL_EXPORTER_OTLP_ENDPOINT`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// `http/protobuf`.
    pub protocol: TraceProtocol,
    /// Headers of every export, `name=value` parted by commas: keys, mostly (`OTEL_EXPORTER_OTLP_HEADERS`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<String>,
    /// A file with the headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers_file: Option<PathBuf>,
    /// The share of traces that are recorded when the caller brings none, 0 to 1. A caller's decision holds (`OTEL_TRACES_SAMPLER_ARG`).
    pub sample_ratio: f64,
    /// What the service is called in traces (`OTEL_SERVICE_NAME`).
    pub service_name: String,
    /// Time for one export, in milliseconds.
    pub timeout_ms: u64,
    /// Traced requests that wait at most; beyond it new ones are dropped and counted.
    pub queue: usize,
    /// Requests in one export.
    pub batch: usize,
    /// How long a request waits at most for others to be exported with, in milliseconds.
    pub interval_ms: u64,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            protocol: TraceProtocol::HttpProtobuf,
            headers: None,
            headers_file: None,
            sample_ratio: 1.0,
            service_name: "ibex".to_owned(),
            timeout_ms: 10_000,
            queue: 2_048,
            batch: 256,
            interval_ms: 2_000,
        }
    }
}

impl std::fmt::Debug for TelemetryConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TelemetryConfig")
            .field("endpoint", &self.endpoint)
            .field("headers", &self.headers.as_ref().map(|_| "<set>"))
            .finish_non_exhaustive()
    }
}
