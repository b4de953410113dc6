//! What requests ask just before a handoff: one round trip each, over connections that nothing slow uses.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::PostgresStore;
use super::error::Fault;
use super::rows::{Columns, OfOrg, agent_uuid, by_org, org_uuid, user_column};
use crate::memory::PartitionKey;
use crate::session::SessionKey;
use crate::store::StoreError;

/// Runs `work` for as long as its answer is of use. An answer that comes late is none, also when it is there by the time somebody looks.
async fn within<T>(
    time: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let asked = Instant::now();
    let answer = timeout(time, work).await;
    if asked.elapsed() > time {
        return Err(Fault::Late.into());
    }
    answer.map_err(|_| Fault::Late)?
}

impl PostgresStore {
    /// The highest fence of `partitions`; 0 when none of them has one. The answer was true at some moment after the call began, and the
    /// call ends within `fence_timeout_ms`.
    pub(super) async fn newest_fence(
        &self,
        partitions: &[PartitionKey],
    ) -> Result<i64, StoreError> {
        within(self.fence_timeout, async {
            let mut newest = 0;
            for OfOrg { org, agents, users } in by_org(partitions) {
                let fence = || {
                    sqlx::query("SELECT forget_fence($1, $2, $3)")
                        .bind(org_uuid(org))
                        .bind(agents.as_slice())
                        .bind(users.as_slice())
                };
                let rows = self.fences.ask(fence).await?;
                let row = rows.first().ok_or(StoreError::Damaged("fence"))?;
                newest = newest.max(Columns::of(row, "fence").take()?);
            }
            Ok(newest)
        })
        .await
    }

    /// Whether there is such a session.
    pub(super) async fn has_session(&self, key: &SessionKey) -> Result<bool, StoreError> {
        let SessionKey {
            org,
            agent,
            user,
            id,
        } = key;
        let known = || {
            sqlx::query("SELECT knows_session($1, $2, $3, $4)")
                .bind(org_uuid(*org))
                .bind(agent_uuid(*agent))
                .bind(user_column(user.as_ref()))
                .bind(id.as_str())
        };
        let rows = self.fences.ask(known).await?;
        let row = rows.first().ok_or(StoreError::Damaged("session"))?;
        Columns::of(row, "session").take()
    }
}
