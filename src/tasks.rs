//! Background work that finishes: every task is tracked, and shutdown waits for all of them.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The set of running background tasks; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `work` to its end, also after the request that started it has gone.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the tracked spawn the ban points to"
    )]
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(self.tracker.track_future(work));
    }

    /// Tasks that run now.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tracker.len()
    }

    /// Resolves when shutdown begins. Loops select on it and return.
    pub async fn stopping(&self) {
        self.stop.cancelled().await;
    }

    /// Asks loops to stop and waits for every task, at most `limit`. Returns how many were still running.
    pub async fn drain(&self, limit: Duration) -> usize {
        self.stop.cancel();
        self.tracker.close();
        if tokio::time::timeout(limit, self.tracker.wait())
            .await
            .is_err()
        {
            return self.tracker.len();
        }
        0
    }
}
