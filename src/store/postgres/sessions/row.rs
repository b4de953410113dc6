//! Epochs and turns as rows.

use crate::session::record::{OpeningRecord, TurnRecord};
use crate::session::{Anchor, ChainHash, RotationReason};
use crate::store::StoreError;
use crate::store::postgres::rows::Columns;

/// An [`OpeningRecord`], in the order in which [`opening`] reads it.
pub(super) const OPENING: &str =
    "epoch, nonce_epoch, directive, snapshot, sha256, reason, drops_blocks, at";
/// A [`TurnRecord`], in the order in which [`turn`] reads it.
pub(super) const TURN: &str =
    "chain, anchor, nonce_epoch, memories, state_from, state_to, digest, at";

pub(super) fn opening(columns: &mut Columns<'_>) -> Result<OpeningRecord, StoreError> {
    Ok(OpeningRecord {
        epoch: columns.number()?,
        nonce_epoch: columns.number()?,
        directive: columns.optional_number()?,
        snapshot: columns.ids()?,
        sha256: columns.bytes()?,
        reason: columns
            .take::<Option<&str>>()?
            .map(|text| RotationReason::parse(text).ok_or_else(|| columns.damaged()))
            .transpose()?,
        drops_blocks: columns.take()?,
        at: columns.time()?,
    })
}

pub(super) fn turn(columns: &mut Columns<'_>) -> Result<TurnRecord, StoreError> {
    Ok(TurnRecord {
        chain: ChainHash::from_bytes(columns.bytes()?),
        anchor: Anchor::from_bytes(columns.bytes()?),
        nonce_epoch: columns.number()?,
        memories: columns.ids()?,
        state: columns.optional_number()?.zip(columns.optional_number()?),
        digest: columns.optional_bytes()?,
        at: columns.time()?,
    })
}
