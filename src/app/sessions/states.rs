//! Working states of the sessions in use, as the store has them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use tokio::time::{Instant, timeout_at};

use crate::session::SessionKey;
use crate::session::working_state::WorkingState;
use crate::store::{Store, StoreError, StoredState};

/// Sessions whose state is kept.
const SESSIONS: u64 = 20_000;
/// States are read again after this time even if no write was seen: another process may have written.
const TTL: Duration = Duration::from_secs(60);

/// The newest state of a session.
#[derive(Debug, Clone)]
pub struct LatestState {
    /// Its version.
    pub version: u32,
    /// What it says.
    pub state: Arc<WorkingState>,
}

/// The states of many sessions.
pub struct States {
    latest: Cache<SessionKey, Option<LatestState>, foldhash::fast::RandomState>,
    store: Arc<dyn Store>,
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("States").finish_non_exhaustive()
    }
}

impl States {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let latest = Cache::builder()
            .max_capacity(SESSIONS)
            .time_to_live(TTL)
            .build_with_hasher(foldhash::fast::RandomState::default());
        Self { latest, store }
    }

    /// The newest state; nothing when there is none, or when it cannot be read by `deadline`: then it is told in a later turn.
    pub async fn latest(&self, key: &SessionKey, deadline: Instant) -> Option<LatestState> {
        if let Some(known) = self.latest.get(key) {
            return known;
        }
        let read = timeout_at(deadline, self.store.working_state(key, None)).await;
        let stored = parsed(read.ok()?)?;
        self.note(key, stored)
    }

    /// Takes what was read or written; of two versions the newer one stays, whichever comes last. Answers with that one.
    pub fn note(&self, key: &SessionKey, state: Option<LatestState>) -> Option<LatestState> {
        let version = |state: &Option<LatestState>| state.as_ref().map_or(0, |s| s.version);
        let entry = self.latest.entry(key.clone());
        let kept = entry.and_upsert_with(|known| match known.map(moka::Entry::into_value) {
            Some(known) if version(&known) >= version(&state) => known,
            Some(_) | None => state,
        });
        kept.into_value()
    }

    /// One version.
    pub async fn version(
        &self,
        key: &SessionKey,
        version: u32,
        deadline: Instant,
    ) -> Option<Arc<WorkingState>> {
        let read = self.store.working_state(key, Some(version));
        let read = timeout_at(deadline, read).await.ok()?;
        Some(parsed(read)??.state)
    }
}

/// What a read brought; nothing at all after a failure.
fn parsed(read: Result<Option<StoredState>, StoreError>) -> Option<Option<LatestState>> {
    match read {
        Ok(None) => Some(None),
        Ok(Some(stored)) => {
            let state = serde_json::from_str(&stored.json);
            let state = state.inspect_err(|_| tracing::error!("a stored working state is damaged"));
            Some(Some(LatestState {
                version: stored.version,
                state: Arc::new(state.ok()?),
            }))
        }
        Err(error) => {
            tracing::warn!("working state: {error}");
            None
        }
    }
}
