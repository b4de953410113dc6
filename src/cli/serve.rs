//! `ibex serve`: the proxy, until SIGINT or SIGTERM; then open requests finish and everything queued is written.

use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::{self, Variables};
use crate::server::listen;

use super::CliError;
use super::run::Opened;

/// Time for background work after the last request.
const SETTLE: Duration = Duration::from_secs(5);

/// Where the configuration came from, to read it again.
pub(super) struct Source {
    pub(super) file: Option<PathBuf>,
    pub(super) env: Variables,
}

pub(super) async fn run(opened: Opened, source: Source) -> Result<(), CliError> {
    let app = opened.app()?;
    let listening = listen(app.clone())
        .await
        .map_err(|e| CliError::Failed(e.to_string()))?;
    app.start();
    if app.registry.load().default_provider().is_none() {
        tracing::warn!(
            "no provider is configured: chat requests will be refused until OPENAI_API_KEY or [providers] is set"
        );
    }
    tracing::info!(address = %listening.address(), "listening");
    let stop = stop_on_signal(&app)?;
    reload_on_hangup(&app, source)?;
    let drained = listening.serve(stop).await;
    if !drained {
        tracing::warn!("the drain time passed with requests still open; they are cut");
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
fn reload_on_hangup(app: &App, source: Source) -> Result<(), CliError> {
    let mut hangup = signal(SignalKind::hangup()).map_err(|e| no_signals(&e))?;
    let reloading = app.clone();
    app.tasks.spawn(async move {
        loop {
            tokio::select! {
                _ = hangup.recv() => {}
                () = reloading.tasks.stopping() => return,
            }
            let loaded =
                config::load(source.file.as_deref(), &source.env).map_err(|e| e.to_string());
            match loaded.and_then(|l| reloading.reload(&l.config).map_err(|e| e.to_string())) {
                Ok(()) => tracing::info!(
                    "configuration read again: policy, providers and models are in force"
                ),
                Err(faults) => tracing::error!(
                    "the configuration was not read again; the former one stays: {faults}"
                ),
            }
        }
    });
    Ok(())
}

fn no_signals(error: &std::io::Error) -> CliError {
    CliError::Failed(format!("signals cannot be handled: {error}"))
}

/// A token that the first SIGINT or SIGTERM cancels.
pub(super) fn stop_on_signal(app: &App) -> Result<CancellationToken, CliError> {
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt()).map_err(|e| no_signals(&e))?,
        signal(SignalKind::terminate()).map_err(|e| no_signals(&e))?,
    );
    let stop = CancellationToken::new();
    let told = stop.clone();
    app.tasks.spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = told.cancelled() => return,
        }
        tracing::info!("stopping: no new connections, open requests may finish");
        told.cancel();
    });
    Ok(stop)
}
