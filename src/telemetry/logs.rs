//! The log subscriber: one JSON object a line, or a readable form on a terminal, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// The log output could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("log.level: {0}")]
pub struct LogError(String);

/// Installs the subscriber for the process.
///
/// # Errors
/// When `log.level` is no valid filter, or a subscriber is already installed.
pub fn init(config: &LogConfig) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(&config.level).map_err(|e| LogError(e.to_string()))?;
    let pretty = match config.format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Json => false,
        LogFormat::Pretty => true,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // It would be told on standard error, and panic there: a log on a full disk must not take the server along.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    let installed = if pretty {
        builder.compact().try_init()
    } else {
        builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .try_init()
    };
    installed.map_err(|e| LogError(e.to_string()))
}
