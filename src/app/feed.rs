//! The change feed's follower: what other processes (the command line, mostly) wrote reaches this one's caches within a poll.
//!
//! Changes of this process come back too; applying one twice changes nothing, because every cache compares revisions or only forgets.

use std::time::Duration;

use crate::store::{Change, ChangeKind, StoreError};

use super::App;

/// Changes taken at once.
const BATCH: usize = 1_000;

pub(super) async fn follow(app: App) {
    let pause = Duration::from_millis(app.config.store.poll_interval_ms);
    let mut seen = None;
    loop {
        match catch_up(&app, seen).await {
            Ok(revision) => seen = Some(revision),
            Err(error) => tracing::warn!("change feed: {error}"),
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = app.tasks.stopping() => return,
        }
    }
}

/// Applies what is new; answers with the revision reached.
async fn catch_up(app: &App, seen: Option<i64>) -> Result<i64, StoreError> {
    let Some(mut seen) = seen else {
        return app.store.revision().await;
    };
    if !app.store.poll().await? {
        return Ok(seen);
    }
    loop {
        let changes = app.store.changes_after(seen, BATCH).await?;
        let Some(last) = changes.last() else {
            return Ok(seen);
        };
        seen = last.revision;
        for change in &changes {
            apply(app, change).await?;
        }
    }
}

async fn apply(app: &App, change: &Change) -> Result<(), StoreError> {
    match &change.kind {
        ChangeKind::Org(_) | ChangeKind::Agent(..) | ChangeKind::Token(_) => {
            app.verifier.invalidate(&change.kind)
        }
        ChangeKind::Directive(org, agent) => app.cached_directives.invalidate(*org, *agent),
        ChangeKind::Everything => {
            app.verifier.invalidate_all();
            app.cached_directives.invalidate_all();
            app.index.invalidate_all();
        }
        ChangeKind::Memory(partition, id) => {
            match app
                .store
                .memory(std::slice::from_ref(partition), *id)
                .await?
            {
                Some(memory) => app.index.upsert(memory),
                None => app.index.remove(partition, *id),
            }
        }
    }
    Ok(())
}
