//! `ibex serve`: the proxy, until SIGINT or SIGTERM; then open requests finish and everything queued is written.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::{App, Configuration};
use crate::config::{self, Variables};
use crate::server::{Drained, Stop, listen};
use crate::telemetry::LogLevel;

use super::CliError;
use super::run::Opened;

/// Time for background work after the last request.
const SETTLE: Duration = Duration::from_secs(5);

/// Where the configuration came from, to read it again.
pub(super) struct Source {
    pub(super) file: Option<PathBuf>,
    pub(super) env: Variables,
    /// What is logged.
    pub(super) level: LogLevel,
}

impl Source {
    /// Reads it again and takes over what can change: all of it or nothing. Answers with the changed keys that need a restart.
    fn reload(&self, app: &App) -> Result<BTreeSet<String>, String> {
        let loaded = config::load(self.file.as_deref(), &self.env).map_err(|e| e.to_string())?;
        warn_of(&loaded.warnings);
        let left = app.reload(&loaded.config).map_err(|e| e.to_string())?;
        // Its form was checked with the rest.
        self.level
            .set(&loaded.config.log)
            .map_err(|e| e.to_string())?;
        Ok(left)
    }
}

/// Says what is odd about a configuration that can be used.
pub(super) fn warn_of(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!("configuration: {warning}");
    }
}

/// The signals that a server answers to. What comes before it is ready waits here: by itself it would end the process.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Takes them over from now on.
    pub(super) fn take() -> Result<Self, CliError> {
        let of = |kind| {
            let cannot = |e| CliError::Failed(format!("signals cannot be handled: {e}"));
            signal(kind).map_err(cannot)
        };
        Ok(Self {
            interrupt: of(SignalKind::interrupt())?,
            terminate: of(SignalKind::terminate())?,
            hangup: of(SignalKind::hangup())?,
        })
    }

    /// The end of the server, for one that has no file to read again.
    pub(super) fn stop(self, app: &App) -> Stop {
        stop_on_signal(app, self.interrupt, self.terminate)
    }

    fn split(self, app: &App) -> (Stop, Signal) {
        (
            stop_on_signal(app, self.interrupt, self.terminate),
            self.hangup,
        )
    }
}

pub(super) async fn run(opened: Opened, source: Source, signals: Signals) -> Result<(), CliError> {
    let app = opened.app()?;
    let listening = listen(app.clone())
        .await
        .map_err(|e| CliError::Failed(e.to_string()))?;
    app.start();
    if app.rules.load().registry.default_provider().is_none() {
        tracing::warn!(
            "no provider is configured: chat requests will be refused until OPENAI_API_KEY or [providers] is set"
        );
    }
    tracing::info!(address = %listening.address(), "listening");
    let (stop, hangup) = signals.split(&app);
    reload_on_hangup(&app, source, hangup);
    match listening.serve(stop).await {
        Drained::Whole => {}
        Drained::OutOfTime => {
            tracing::warn!("the drain time passed with requests still open; they are cut");
        }
        Drained::ToldTo => tracing::warn!("requests that were still open are cut"),
    }
    close(&app, &opened).await
}

/// Ends background work and closes the store.
pub(super) async fn close(app: &App, opened: &Opened) -> Result<(), CliError> {
    let left = app.tasks.drain(SETTLE).await;
    if left > 0 {
        tracing::warn!(tasks = left, "background work was cut");
    }
    opened.close().await?;
    tracing::info!("stopped");
    Ok(())
}

/// Reads the configuration again on SIGHUP. A faulty one changes nothing.
fn reload_on_hangup(app: &App, source: Source, mut hangup: Signal) {
    let reloading = app.clone();
    app.tasks.spawn(async move {
        loop {
            tokio::select! {
                _ = hangup.recv() => {}
                () = reloading.tasks.stopping() => return,
            }
            match source.reload(&reloading) {
                Ok(left) if left.is_empty() => tracing::info!("configuration read again and in force"),
                Ok(left) => tracing::warn!(
                    keys = left.into_iter().collect::<Vec<_>>().join(", "),
                    "configuration read again and in force, but for these keys, which need a restart"
                ),
                Err(faults) => {
                    reloading.set_configuration(Configuration::LastGood);
                    tracing::error!("the configuration was not read again; the former one stays: {faults}");
                }
            }
        }
    });
}

/// Tells when to stop: the first SIGINT or SIGTERM drains, the second one cuts what is still open.
fn stop_on_signal(app: &App, mut interrupt: Signal, mut terminate: Signal) -> Stop {
    let stop = Stop::default();
    let (told, tasks) = (stop.clone(), app.tasks.clone());
    app.tasks.spawn(async move {
        tokio::select! {
            // Whoever presses Ctrl-C is no balancer that has to learn of it first.
            _ = interrupt.recv() => told.without_delay.cancel(),
            _ = terminate.recv() => {}
            () = told.gently.cancelled() => return,
        }
        tracing::info!("stopping: open requests may finish; once more ends them");
        told.gently.cancel();
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = told.at_once.cancelled() => return,
            () = tasks.stopping() => return,
        }
        tracing::warn!("stopping at once");
        told.at_once.cancel();
    });
    stop
}
