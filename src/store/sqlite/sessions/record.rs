//! Records of the request path, applied. Opening and settling twice is like once.

use rusqlite::{Connection, params};

use super::{SESSION, columns, open, row, used};
use crate::ids::MemoryId;
use crate::session::record::{OpeningRecord, SessionRecord, TurnEnd, TurnRecord};
use crate::session::{ChainHash, LaneKey};
use crate::store::StoreError;
use crate::store::sqlite::rows::{Columns, all, id_bytes, micros};

pub(super) fn apply(conn: &Connection, record: &SessionRecord) -> Result<(), StoreError> {
    match record {
        SessionRecord::Opened(key, opening) => opened(conn, key, opening),
        SessionRecord::Settled(key, turn) => settled(conn, key, turn),
        SessionRecord::Forgotten(key, gone) => forgotten(conn, key, gone),
        SessionRecord::Ended(key, chain, end) => ended(conn, key, *chain, end),
    }
}

fn opened(conn: &Connection, key: &LaneKey, opening: &OpeningRecord) -> Result<(), StoreError> {
    let LaneKey { session, lane } = key;
    open(conn, session, opening.at)?;
    // An epoch that is known has dropped its blocks already, and the turns since then are its own.
    if !row::insert_opening(conn, key, opening)? || !opening.drops_blocks {
        return Ok(());
    }
    let sql = format!(
        "UPDATE session_turns SET live = FALSE WHERE session = {SESSION} AND lane = ?5 AND live"
    );
    let (org, agent, user, id) = columns(session);
    conn.prepare_cached(&sql)?
        .execute(params![org, agent, user, id, lane.as_str()])?;
    Ok(())
}

fn settled(conn: &Connection, key: &LaneKey, turn: &TurnRecord) -> Result<(), StoreError> {
    if row::revive_turn(conn, key, turn)? {
        return used(conn, &key.session, micros(turn.at), micros(turn.at));
    }
    // The lane is unknown when the session was deleted meanwhile: a turn must not bring it back.
    if !row::insert_turn(conn, key, turn)? {
        return Ok(());
    }
    let sql = "UPDATE sessions SET turns = turns + 1 WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4";
    let (org, agent, user, id) = columns(&key.session);
    conn.prepare_cached(sql)?
        .execute(params![org, agent, user, id])?;
    used(conn, &key.session, micros(turn.at), micros(turn.at))
}

/// Rewrites the turns that held one of `gone`.
fn forgotten(conn: &Connection, key: &LaneKey, gone: &[MemoryId]) -> Result<(), StoreError> {
    let (org, agent, user, id) = columns(&key.session);
    let lane = key.lane.as_str();
    let sql = format!(
        "SELECT position, memories FROM session_turns WHERE session = {SESSION} AND lane = ?5 AND length(memories) > 0"
    );
    let values = params![org, agent, user, id, lane];
    let turns = all(conn, &sql, values, |row| {
        let mut columns = Columns::of(row, "session turn");
        Ok((columns.take::<i64>()?, columns.ids()?))
    })?;
    let sql = format!(
        "UPDATE session_turns SET memories = ?6, digest = NULL WHERE session = {SESSION} AND position = ?5"
    );
    for (position, mut memories) in turns {
        let before = memories.len();
        memories.retain(|id| !gone.contains(id));
        if memories.len() < before {
            let left = id_bytes(&memories);
            conn.prepare_cached(&sql)?
                .execute(params![org, agent, user, id, position, left])?;
        }
    }
    Ok(())
}

fn ended(
    conn: &Connection,
    key: &LaneKey,
    chain: ChainHash,
    end: &TurnEnd,
) -> Result<(), StoreError> {
    let sql = format!(
        "UPDATE session_turns SET calls = calls + 1, prompt_tokens = prompt_tokens + ?7, cached_tokens = cached_tokens + ?8,
                completion_tokens = completion_tokens + ?9, ms = ms + ?10, stream = stream OR ?11, complete = complete AND ?12,
                ended_at = max(coalesce(ended_at, ?13), ?13)
         WHERE session = {SESSION} AND lane = ?5 AND chain = ?6"
    );
    let (org, agent, user, id) = columns(&key.session);
    let (ms, at) = (bounded(end.ms), micros(end.at));
    let known = conn.prepare_cached(&sql)?.execute(params![
        org,
        agent,
        user,
        id,
        key.lane.as_str(),
        chain.as_bytes(),
        bounded(end.prompt_tokens),
        bounded(end.cached_tokens),
        bounded(end.completion_tokens),
        ms,
        end.stream,
        end.complete,
        at
    ])?;
    if known == 0 {
        return Ok(());
    }
    used(
        conn,
        &key.session,
        at.saturating_sub(ms.saturating_mul(1_000)),
        at,
    )
}

/// Providers report these numbers. The engine turns a sum that overflows into a float, which the column refuses, and with it the batch.
fn bounded(number: u64) -> i64 {
    u32::try_from(number).unwrap_or(u32::MAX).into()
}
