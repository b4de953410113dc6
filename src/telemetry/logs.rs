//! The log subscriber: one JSON object a line, or a readable form on a terminal, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::config::{LogConfig, LogFormat};

/// The log output could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("log.level: {0}")]
pub struct LogError(String);

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

/// Installs the subscriber for the process, and yields what changes its level.
///
/// # Errors
/// When `log.level` is no valid filter, or a subscriber is already installed.
pub fn init(config: &LogConfig) -> Result<LogLevel, LogError> {
    let filter = filter(config)?;
    let pretty = match config.format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Json => false,
        LogFormat::Pretty => true,
    };
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer()
        // It would be told on standard error, and panic there: a log on a full disk must not take the server along.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let log = tracing_subscriber::registry().with(filter);
    let installed = if pretty {
        log.with(lines.compact()).try_init()
    } else {
        let lines = lines.json().flatten_event(true).with_current_span(false);
        log.with(lines).try_init()
    };
    installed.map_err(|e| LogError(e.to_string()))?;
    Ok(LogLevel(handle))
}
