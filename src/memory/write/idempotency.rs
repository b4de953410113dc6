//! Keyed writes: a client that repeats one under the same key gets what the first one got, and nothing is written twice.
//!
//! | case | result |
//! |---|---|
//! | same key, same request | the first outcome again, `X-Idempotency-Replayed: true` |
//! | same key, another request | 409 `IDEMPOTENCY_CONFLICT` |
//! | the first one is still under way | 409 `IDEMPOTENCY_IN_PROGRESS`, `Retry-After` |
//! | the ledger cannot be read | 503 `IDEMPOTENCY_UNAVAILABLE` |
//! | rows and entry cannot be committed | the same; neither is there |
//!
//! The entry is committed with the rows, so there is no moment at which one is durable and the other is not, and no claim that outlives a
//! process. What is under way is known in memory alone; a second process that comes to the end first is found out by the transaction.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::app::App;
use crate::auth::Principal;
use crate::error::{ApiError, Code};
use crate::ids::IdempotencyKey;
use crate::store::{LedgerEntry, LedgerKey, LedgerMember, LedgerOutcome, LedgerRow, StoreError};

use super::{Batch, Member, WriteError};

/// How long a key is remembered (contract, section 12).
pub const KEPT: SignedDuration = SignedDuration::from_hours(24);

/// Keyed writes that are under way in this process.
#[derive(Debug, Default)]
pub struct Claims(Mutex<HashSet<LedgerKey, RandomState>>);

/// The right to carry a keyed write out, until it is dropped.
#[derive(Debug)]
pub struct Claim<'a> {
    claims: &'a Claims,
    key: LedgerKey,
    asked: [u8; 32],
    now: Timestamp,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.0.lock().remove(&self.key);
    }
}

/// How a keyed write stands.
#[derive(Debug)]
pub enum Keyed<'a> {
    /// It is to be carried out.
    First(Claim<'a>),
    /// It is over.
    Over(LedgerRow),
}

impl Claims {
    fn enter(&self, key: LedgerKey) -> bool {
        self.0.lock().insert(key)
    }
}

/// Asks for the right to carry a write out. `route` and `body` are what a repetition has to agree in.
///
/// # Errors
/// Every case of the table but the first.
pub async fn claim<'a>(
    app: &'a App,
    who: &Principal,
    key: IdempotencyKey,
    (route, body): (&str, &[u8]),
) -> Result<Keyed<'a>, ApiError> {
    let scope = who.scope();
    let key = LedgerKey {
        org: scope.org(),
        agent: scope.agent(),
        key,
    };
    let asked = asked(scope.user().map_or("", |u| u.as_str()), route, body);
    let now = app.clock.now();
    if !app.claims.enter(key.clone()) {
        return Err(under_way());
    }
    let claim = Claim {
        claims: &app.claims,
        key,
        asked,
        now,
    };
    // Asked under the claim: what a writer before this one committed is seen.
    match claim.row(app).await? {
        Some(row) => Ok(Keyed::Over(row)),
        None => Ok(Keyed::First(claim)),
    }
}

fn under_way() -> ApiError {
    ApiError::new(
        Code::IdempotencyInProgress,
        "the first request with this key is still under way",
    )
    .retry_after(1)
}

impl Claim<'_> {
    /// The entry of the key, if it is of the same request.
    ///
    /// # Errors
    /// 409 when it is of another one, 503 when the ledger cannot be read.
    pub async fn row(&self, app: &App) -> Result<Option<LedgerRow>, ApiError> {
        let row = app.store.ledger_row(&self.key, self.since()).await;
        let row = row.map_err(|error| unavailable(&error))?;
        if row.as_ref().is_some_and(|row| row.asked != self.asked) {
            return Err(ApiError::new(
                Code::IdempotencyConflict,
                "the key was used for another request",
            ));
        }
        Ok(row)
    }

    fn since(&self) -> Timestamp {
        self.now.checked_sub(KEPT).unwrap_or(Timestamp::MIN)
    }

    /// The entry for a batch whose rows are about to be inserted; none when a member failed for a reason that may pass.
    pub(super) fn entry(&self, batch: &Batch) -> Option<LedgerEntry> {
        let mut members: Vec<LedgerMember> = Vec::with_capacity(batch.members.len());
        let mut rows = 0..;
        for member in &batch.members {
            let member = match member {
                Member::Going(_) => LedgerMember::Row(rows.next()?),
                Member::Repeats(earlier) => match members.get(*earlier)? {
                    LedgerMember::Row(row) | LedgerMember::Repeats(row) => {
                        LedgerMember::Repeats(*row)
                    }
                    LedgerMember::Known(outcome) => LedgerMember::Known(outcome.repeated()),
                },
                Member::Stored(written) => {
                    LedgerMember::Known(LedgerOutcome::Stored(written.memory.id))
                }
                Member::Refused(WriteError::Duplicate(id)) => {
                    LedgerMember::Known(LedgerOutcome::Duplicate(*id))
                }
                Member::Refused(
                    WriteError::Invalid(_) | WriteError::OwnText | WriteError::Tombstoned,
                ) => LedgerMember::Known(LedgerOutcome::Invalid),
                Member::Refused(
                    WriteError::EmbeddingFailed
                    | WriteError::StoreUnavailable
                    | WriteError::LedgerUnavailable
                    | WriteError::Settled
                    | WriteError::Forgotten
                    | WriteError::Stale,
                ) => return None,
            };
            members.push(member);
        }
        Some(LedgerEntry {
            key: self.key.clone(),
            asked: self.asked,
            members,
            at: self.now,
            since: self.since(),
        })
    }
}

fn unavailable(error: &StoreError) -> ApiError {
    tracing::warn!("idempotency ledger: {error}");
    WriteError::LedgerUnavailable.into()
}

/// SHA-256 of who asks for what. Spaces and the order of members make no other request.
fn asked(user: &str, route: &str, body: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [user, route] {
        hash.update(part);
        hash.update([0]);
    }
    let canonical = serde_json::from_slice::<Value>(body)
        .ok()
        .and_then(|value| serde_json::to_vec(&value).ok());
    hash.update(canonical.as_deref().unwrap_or(body));
    hash.finalize().into()
}
