//! The log subscriber: one JSON object a line, or a readable form on a terminal, on standard error.
//!
//! Lines are handed to a thread that writes them. Whoever reads standard error may stop reading (a log shipper that hangs, a full disk, a
//! terminal on hold), and a thread that serves requests must not wait for that: lines that find no room are dropped and counted.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

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

static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();
static UNWRITTEN: AtomicU64 = AtomicU64::new(0);

/// Lines that found no room, and lines that could not be written.
pub(super) fn lost() -> u64 {
    let dropped = DROPPED
        .get()
        .map_or(0, |lines| lines.dropped_lines() as u64);
    dropped + UNWRITTEN.load(Ordering::Relaxed)
}

/// Writes the lines that have come together at once. A fault costs these lines and is no fault of whoever logs.
#[derive(Debug)]
struct Batches<W> {
    to: W,
    waiting: Vec<u8>,
    lines: u64,
}

impl<W: Write> Write for Batches<W> {
    /// Takes a line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(line);
        self.lines += 1;
        if self.waiting.len() >= BATCH {
            self.flush()?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.to.write_all(&self.waiting).is_err() {
            UNWRITTEN.fetch_add(self.lines, Ordering::Relaxed);
        }
        self.waiting.clear();
        self.lines = 0;
        Ok(())
    }
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
        .finish(Batches {
            to: io::stderr(),
            waiting: Vec::new(),
            lines: 0,
        });
    DROPPED.get_or_init(|| lines.error_counter());
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

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use super::{BATCH, Batches, lost};

    /// Takes so many bytes.
    struct Small(Vec<u8>, usize);

    impl Write for Small {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.1.saturating_sub(self.0.len()).min(bytes.len());
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.extend_from_slice(&bytes[..room]);
            Ok(room)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_are_no_fault() {
        let mut lines = Batches {
            to: Small(Vec::new(), BATCH + 2),
            waiting: Vec::new(),
            lines: 0,
        };
        lines.write_all(b"a\n").unwrap();
        assert!(lines.to.0.is_empty(), "it waits for others");
        lines.write_all(&vec![b'b'; BATCH]).unwrap();
        assert_eq!((lines.to.0.len(), lost()), (BATCH + 2, 0));
        lines.write_all(b"c\n").unwrap();
        lines.write_all(b"d\n").unwrap();
        lines.flush().unwrap();
        assert_eq!(lost(), 2);
        lines.flush().unwrap();
        assert_eq!(lost(), 2);
    }
}
