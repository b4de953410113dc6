//! The log subscriber: one JSON object a line, or a readable form on a terminal, on standard error.
//!
//! Lines are handed to a thread that writes them. Whoever reads standard error may stop reading (a log shipper that hangs, a full disk, a
//! terminal on hold), and a thread that serves requests must not wait for that: lines that find no room are dropped and counted.

use std::io::{self, BufWriter, IsTerminal};
use std::sync::OnceLock;

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use super::json_line::JsonLine;
use crate::config::{LogConfig, LogFormat};

/// The log output could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("log.level: {0}")]
pub struct LogError(String);

/// Lines that wait at most: some eight megabytes, a second or two of requests.
const WAITING: usize = 8_192;
/// Bytes that are written at once when there is more than one line.
const BATCH: usize = 64 << 10;

static LOST: OnceLock<ErrorCounter> = OnceLock::new();

/// Lines that found no room.
pub(super) fn lost() -> u64 {
    LOST.get().map_or(0, |lost| lost.dropped_lines() as u64)
}

/// The log of the process.
#[derive(Debug)]
pub struct Logging {
    /// Changes its level.
    pub level: LogLevel,
    /// Writes what waits when it is dropped; for a second at most, if nobody reads.
    pub lines: WorkerGuard,
}

/// Changes what is logged.
#[derive(Debug)]
pub struct LogLevel(reload::Handle<EnvFilter, Registry>);

impl LogLevel {
    /// Logs by `config.level` from now on.
    ///
    /// # Errors
    /// When it is no valid filter; the former one stays.
    pub fn set(&self, config: &LogConfig) -> Result<(), LogError> {
        let level = filter(config)?;
        self.0.reload(level).map_err(|e| LogError(e.to_string()))
    }
}

fn filter(config: &LogConfig) -> Result<EnvFilter, LogError> {
    EnvFilter::try_new(&config.level).map_err(|e| LogError(e.to_string()))
}

/// A writer that waits for nobody, and what writes the rest in the end.
fn lines() -> (NonBlocking, WorkerGuard) {
    let (lines, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(WAITING)
        .lossy(true)
        .thread_name("ibex-log")
        .finish(BufWriter::with_capacity(BATCH, io::stderr()));
    LOST.get_or_init(|| lines.error_counter());
    (lines, guard)
}

/// Installs the subscriber for the process.
///
/// # Errors
/// When `log.level` is no valid filter, or a subscriber is already installed.
pub fn init(config: &LogConfig) -> Result<Logging, LogError> {
    let filter = filter(config)?;
    let pretty = match config.format {
        LogFormat::Auto => io::stderr().is_terminal(),
        LogFormat::Json => false,
        LogFormat::Pretty => true,
    };
    let (filter, handle) = reload::Layer::new(filter);
    let (writer, guard) = lines();
    let lines = tracing_subscriber::fmt::layer()
        // It would be told on standard error, and panic there: a log on a full disk must not take the server along.
        .log_internal_errors(false)
        .with_writer(writer);
    let log = tracing_subscriber::registry().with(filter);
    let installed = if pretty {
        log.with(lines.compact()).try_init()
    } else {
        log.with(lines.event_format(JsonLine)).try_init()
    };
    installed.map_err(|e| LogError(e.to_string()))?;
    Ok(Logging {
        level: LogLevel(handle),
        lines: guard,
    })
}
