//! What is deleted because its time is over: sessions that nobody uses, ledger entries that no
//! repetition can ask for any more, and dead letters that nobody has read.

use std::time::Duration;

use jiff::SignedDuration;

use crate::memory::write::idempotency;
use crate::store::StoreError;

use super::App;

/// How often it is looked for.
const PAUSE: Duration = Duration::from_secs(3_600);
/// Rows deleted in one transaction.
const AT_ONCE: usize = 1_000;

pub(super) async fn retire(app: App) {
    loop {
        if let Err(error) = sessions(&app).await {
            tracing::warn!("old sessions could not be deleted: {error}");
        }
        if let Err(error) = ledger(&app).await {
            tracing::warn!("old ledger entries could not be deleted: {error}");
        }
        if let Err(error) = letters(&app).await {
            tracing::warn!("old dead letters could not be deleted: {error}");
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = app.tasks.stopping() => return,
        }
    }
}

async fn sessions(app: &App) -> Result<(), StoreError> {
    let kept = SignedDuration::from_hours(24 * i64::from(app.config.session.retention_days));
    let Ok(before) = app.clock.now().checked_sub(kept) else {
        return Ok(());
    };
    while app.store.delete_sessions(before, AT_ONCE).await? == AT_ONCE as u64 {}
    Ok(())
}

async fn ledger(app: &App) -> Result<(), StoreError> {
    let Ok(before) = app.clock.now().checked_sub(idempotency::KEPT) else {
        return Ok(());
    };
    while app.store.prune_ledger(before, AT_ONCE).await? == AT_ONCE as u64 {}
    Ok(())
}

/// How long a dead letter is kept.
const LETTERS_KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

async fn letters(app: &App) -> Result<(), StoreError> {
    let Ok(before) = app.clock.now().checked_sub(LETTERS_KEPT) else {
        return Ok(());
    };
    while app.store.prune_dead_letters(before, AT_ONCE).await? == AT_ONCE as u64 {}
    Ok(())
}
