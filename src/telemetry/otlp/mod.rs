//! Traces on their way to a collector: OTLP over HTTP, as protobuf.
//!
//! ```text
//! a request ends -> bounded queue -> spans, in batches -> POST <endpoint>/v1/traces
//! ```
//!
//! A request leaves what it noted in the queue and goes; everything else happens in one background task. A collector that is slow or away costs
//! requests nothing: what finds no room in the queue is dropped and counted.

mod export;
mod proto;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::ended::Ended;
use super::metrics::Metrics;
use super::trace::Sampler;
use crate::config::TelemetryConfig;
use crate::seams::Clock;

pub use export::export;

use spans::Traced;

/// The configuration names no collector that could be asked. The text never holds a header's value.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("telemetry.{key}: {reason}")]
pub struct InvalidTelemetry {
    key: &'static str,
    reason: &'static str,
}

impl InvalidTelemetry {
    /// Which key of the section.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        self.key
    }

    /// What is wrong with it.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        self.reason
    }
}

/// Where spans go.
#[derive(Debug, Clone)]
struct Collector {
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    service: String,
    timeout: Duration,
    batch: usize,
    interval: Duration,
}

impl Collector {
    fn of(config: &TelemetryConfig) -> Result<Option<Self>, InvalidTelemetry> {
        let Some(endpoint) = config.endpoint.as_deref().filter(|e| !e.is_empty()) else {
            return Ok(None);
        };
        let uri = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let wrong = |reason| InvalidTelemetry {
            key: "endpoint",
            reason,
        };
        const NO_URL: &str = "must be an http or https URL, such as http://127.0.0.1:4318";
        let uri: Uri = uri.parse().map_err(|_| wrong(NO_URL))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
            return Err(wrong(NO_URL));
        }
        if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err(wrong("holds credentials: telemetry.headers is for them"));
        }
        Ok(Some(Self {
            uri,
            headers: headers(config.headers.as_deref().unwrap_or_default())?,
            service: config.service_name.clone(),
            timeout: Duration::from_millis(config.timeout_ms),
            batch: config.batch,
            interval: Duration::from_millis(config.interval_ms),
        }))
    }
}

/// `name=value,name=value`, values percent-encoded, as `OTEL_EXPORTER_OTLP_HEADERS` writes them.
fn headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, InvalidTelemetry> {
    const WRONG: InvalidTelemetry = InvalidTelemetry {
        key: "headers",
        reason: "must be name=value, parted by commas",
    };
    let pairs = text.split(',').map(str::trim).filter(|p| !p.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').ok_or(WRONG)?;
            let value = percent_encoding::percent_decode_str(value.trim());
            let value = value.decode_utf8().map_err(|_| WRONG)?;
            let mut value = HeaderValue::try_from(&*value).map_err(|_| WRONG)?;
            value.set_sensitive(true);
            Ok((name.trim().parse().map_err(|_| WRONG)?, value))
        })
        .collect()
}

/// What is wrong with the section, if anything is.
///
/// # Errors
/// When no collector can be asked with it.
pub fn check(config: &TelemetryConfig) -> Result<(), InvalidTelemetry> {
    Collector::of(config).map(drop)
}

/// The queue of traced requests.
#[derive(Debug, Clone)]
pub struct Traces(Option<Queue>);

#[derive(Debug, Clone)]
struct Queue {
    sampler: Sampler,
    offered: mpsc::Sender<Traced>,
    waiting: Arc<Mutex<Option<mpsc::Receiver<Traced>>>>,
    collector: Arc<Collector>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl Traces {
    /// The queue that the configuration asks for; without an endpoint nothing is ever recorded.
    ///
    /// # Errors
    /// When the endpoint or its headers cannot be used.
    pub fn new(
        config: &TelemetryConfig,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, InvalidTelemetry> {
        let Some(collector) = Collector::of(config)? else {
            return Ok(Self(None));
        };
        let (offered, waiting) = mpsc::channel(config.queue.max(1));
        Ok(Self(Some(Queue {
            sampler: Sampler::new(config.sample_ratio),
            offered,
            waiting: Arc::new(Mutex::new(Some(waiting))),
            collector: Arc::new(collector),
            clock,
            metrics,
        })))
    }

    /// Which requests are recorded.
    #[must_use]
    pub fn sampler(&self) -> Sampler {
        self.0
            .as_ref()
            .map_or(Sampler::off(), |queue| queue.sampler)
    }

    /// Takes a traced request whose end has come; drops it when there is no room.
    pub fn offer(&self, ended: Ended) {
        let Some(queue) = &self.0 else { return };
        let spans = spans::count(&ended);
        let at = queue.clock.now();
        if queue.offered.try_send(Traced { ended, at }).is_err() {
            queue.metrics.spans("dropped", spans);
        }
    }

    /// Traced requests that wait.
    #[must_use]
    pub fn depth(&self) -> usize {
        let depth = |queue: &Queue| queue.offered.max_capacity() - queue.offered.capacity();
        self.0.as_ref().map_or(0, depth)
    }
}

#[cfg(test)]
mod tests {
    use super::{check, headers};
    use crate::config::TelemetryConfig;

    #[test]
    fn headers_are_read_as_the_specification_writes_them() {
        let found = headers("api-key=invented, x-scope = a%20b ,").unwrap();
        let texts: Vec<_> = found
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        assert_eq!(texts, [("api-key", "invented"), ("x-scope", "a b")]);
        assert!(found.iter().all(|(_, value)| value.is_sensitive()));
        for wrong in ["api-key", "a b=c", "k=%0a"] {
            let error = headers(wrong).unwrap_err().to_string();
            assert!(!error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn an_endpoint_is_an_http_url() {
        let with = |endpoint: &str| TelemetryConfig {
            endpoint: Some(endpoint.to_owned()),
            ..TelemetryConfig::default()
        };
        for right in ["", "http://127.0.0.1:4318", "https://traces.example/otlp/"] {
            assert!(check(&with(right)).is_ok(), "{right}");
        }
        for wrong in [
            "127.0.0.1:4318",
            "grpc://x:4317",
            "http://",
            "not a url",
            "http://u:p@x",
        ] {
            assert!(check(&with(wrong)).is_err(), "{wrong}");
        }
    }
}
