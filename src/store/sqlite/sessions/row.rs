//! Epochs and turns as rows.

use rusqlite::{Connection, params};

use super::{SESSION, columns};
use crate::session::record::{OpeningRecord, TurnRecord};
use crate::session::{Anchor, ChainHash, LaneKey, RotationReason};
use crate::store::StoreError;
use crate::store::sqlite::rows::{Columns, id_bytes, micros};

/// An [`OpeningRecord`], in the order in which [`opening`] reads and [`insert_opening`] binds it.
pub(super) const OPENING: &str =
    "epoch, nonce_epoch, directive, snapshot, sha256, reason, drops_blocks, at";
/// A [`TurnRecord`], in the order in which [`turn`] reads and [`insert_turn`] binds it.
pub(super) const TURN: &str =
    "chain, anchor, nonce_epoch, memories, state_from, state_to, digest, at";

/// Inserts an epoch of a stored session, unless it is known. Answers whether it did.
pub(super) fn insert_opening(
    conn: &Connection,
    key: &LaneKey,
    opening: &OpeningRecord,
) -> Result<bool, StoreError> {
    let sql = format!(
        "INSERT INTO session_lanes (session, lane, {OPENING}) VALUES ({SESSION}, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT (session, lane, epoch) DO NOTHING"
    );
    let (org, agent, user, id) = columns(&key.session);
    let inserted = conn.prepare_cached(&sql)?.execute(params![
        org,
        agent,
        user,
        id,
        key.lane.as_str(),
        opening.epoch,
        opening.nonce_epoch,
        opening.directive,
        id_bytes(&opening.snapshot),
        opening.sha256,
        opening.reason.map(RotationReason::as_str),
        opening.drops_blocks,
        micros(opening.at)
    ])?;
    Ok(inserted > 0)
}

pub(super) fn opening(columns: &mut Columns<'_>) -> Result<OpeningRecord, StoreError> {
    Ok(OpeningRecord {
        epoch: columns.take()?,
        nonce_epoch: columns.take()?,
        directive: columns.take()?,
        snapshot: columns.ids()?,
        sha256: columns.take()?,
        reason: columns
            .take::<Option<String>>()?
            .map(|text| RotationReason::parse(&text).ok_or_else(|| columns.damaged()))
            .transpose()?,
        drops_blocks: columns.take()?,
        at: columns.time()?,
    })
}

/// Gives a turn whose block was dropped the one that it has in a later epoch. Answers whether it did.
pub(super) fn revive_turn(
    conn: &Connection,
    key: &LaneKey,
    turn: &TurnRecord,
) -> Result<bool, StoreError> {
    let sql = format!(
        "UPDATE session_turns SET live = TRUE, nonce_epoch = ?7, memories = ?8, state_from = ?9, state_to = ?10, digest = ?11
         WHERE session = {SESSION} AND lane = ?5 AND chain = ?6 AND NOT live AND nonce_epoch < ?7"
    );
    let (org, agent, user, id) = columns(&key.session);
    let revived = conn.prepare_cached(&sql)?.execute(params![
        org,
        agent,
        user,
        id,
        key.lane.as_str(),
        turn.chain.as_bytes(),
        turn.nonce_epoch,
        id_bytes(&turn.memories),
        turn.state.map(|(from, _)| from),
        turn.state.map(|(_, to)| to),
        turn.digest,
    ])?;
    Ok(revived > 0)
}

/// Inserts a turn of a known lane behind the session's others, unless it is known. Answers whether it did.
pub(super) fn insert_turn(
    conn: &Connection,
    key: &LaneKey,
    turn: &TurnRecord,
) -> Result<bool, StoreError> {
    let sql = format!(
        "INSERT INTO session_turns (session, position, lane, {TURN}) SELECT seq, turns, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13
         FROM sessions WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4
            AND EXISTS (SELECT 1 FROM session_lanes WHERE session = seq AND lane = ?5)
         ON CONFLICT (session, lane, chain) DO NOTHING"
    );
    let (org, agent, user, id) = columns(&key.session);
    let inserted = conn.prepare_cached(&sql)?.execute(params![
        org,
        agent,
        user,
        id,
        key.lane.as_str(),
        turn.chain.as_bytes(),
        turn.anchor.as_bytes(),
        turn.nonce_epoch,
        id_bytes(&turn.memories),
        turn.state.map(|(from, _)| from),
        turn.state.map(|(_, to)| to),
        turn.digest,
        micros(turn.at)
    ])?;
    Ok(inserted > 0)
}

pub(super) fn turn(columns: &mut Columns<'_>) -> Result<TurnRecord, StoreError> {
    Ok(TurnRecord {
        chain: ChainHash::from_bytes(columns.take()?),
        anchor: Anchor::from_bytes(columns.take()?),
        nonce_epoch: columns.take()?,
        memories: columns.ids()?,
        state: columns
            .take::<Option<u32>>()?
            .zip(columns.take::<Option<u32>>()?),
        digest: columns.take()?,
        at: columns.time()?,
    })
}
