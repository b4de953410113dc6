//! `ibex serve`: the proxy, until SIGINT or SIGTERM; then open requests finish and everything queued is written.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::server::listen;

use super::CliError;
use super::run::Opened;

/// Time for background work after the last request.
const SETTLE: Duration = Duration::from_secs(5);

pub(super) async fn run(opened: Opened) -> Result<(), CliError> {
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
    opened.store.close().await?;
    tracing::info!("stopped");
    Ok(())
}

/// A token that the first SIGINT or SIGTERM cancels.
pub(super) fn stop_on_signal(app: &App) -> Result<CancellationToken, CliError> {
    let failed = |e: std::io::Error| CliError::Failed(format!("signals cannot be handled: {e}"));
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt()).map_err(failed)?,
        signal(SignalKind::terminate()).map_err(failed)?,
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
