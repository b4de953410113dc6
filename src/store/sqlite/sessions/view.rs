//! What is read back: a lane to be rendered again, and a session to be looked at.

use rusqlite::{Connection, Row, params};

use super::{SESSION, columns, row};
use crate::session::record::{LaneRecord, LaneView, OpeningRecord, SessionView, TurnEnd, TurnView};
use crate::session::{Lane, LaneKey, SessionKey};
use crate::store::StoreError;
use crate::store::sqlite::rows::{Columns, all, limit, one, snapshot};

pub(super) fn lane(conn: &Connection, key: &LaneKey) -> Result<Option<LaneRecord>, StoreError> {
    let snapshot = snapshot(conn)?;
    let sql = format!(
        "SELECT {} FROM session_lanes WHERE session = {SESSION} AND lane = ?5 ORDER BY epoch DESC LIMIT 1",
        row::OPENING
    );
    let (org, agent, user, id) = columns(&key.session);
    let values = params![org, agent, user, id, key.lane.as_str()];
    let current = |row: &Row<'_>| row::opening(&mut Columns::of(row, "session lane"));
    let Some(opening) = one(&snapshot, &sql, values, current)? else {
        return Ok(None);
    };
    let sql = format!(
        "SELECT {} FROM session_turns WHERE session = {SESSION} AND lane = ?5 AND live ORDER BY position",
        row::TURN
    );
    let turn = |row: &Row<'_>| row::turn(&mut Columns::of(row, "session turn"));
    let turns = all(&snapshot, &sql, values, turn)?;
    Ok(Some(LaneRecord { opening, turns }))
}

pub(super) fn session(
    conn: &Connection,
    key: &SessionKey,
    turns: usize,
) -> Result<Option<SessionView>, StoreError> {
    let snapshot = snapshot(conn)?;
    let (org, agent, user, id) = columns(key);
    let sql = "SELECT created_at, used_at, terminated_at, turns FROM sessions WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4";
    let Some(mut view) = one(&snapshot, sql, params![org, agent, user, id], head)? else {
        return Ok(None);
    };
    let sql = format!(
        "SELECT lane, {} FROM session_lanes WHERE session = {SESSION} ORDER BY lane, epoch",
        row::OPENING
    );
    for (lane, opening) in all(&snapshot, &sql, params![org, agent, user, id], epoch)? {
        match view.lanes.last_mut().filter(|last| last.lane == lane) {
            Some(last) => last.epochs.push(opening),
            None => view.lanes.push(LaneView {
                lane,
                epochs: vec![opening],
            }),
        }
    }
    let sql = format!(
        "SELECT lane, position, {}, calls, prompt_tokens, cached_tokens, completion_tokens, ms, stream, complete, ended_at
         FROM session_turns WHERE session = {SESSION} ORDER BY position DESC LIMIT ?5",
        row::TURN
    );
    let values = params![org, agent, user, id, limit(turns)];
    view.latest = all(&snapshot, &sql, values, turn_view)?;
    Ok(Some(view))
}

fn head(row: &Row<'_>) -> Result<SessionView, StoreError> {
    let mut columns = Columns::of(row, "session");
    Ok(SessionView {
        created_at: columns.time()?,
        used_at: columns.time()?,
        terminated_at: columns.optional_time()?,
        turns: columns.take()?,
        lanes: Vec::new(),
        latest: Vec::new(),
    })
}

fn epoch(row: &Row<'_>) -> Result<(Lane, OpeningRecord), StoreError> {
    let mut columns = Columns::of(row, "session lane");
    Ok((Lane::stored(columns.take()?), row::opening(&mut columns)?))
}

fn turn_view(row: &Row<'_>) -> Result<TurnView, StoreError> {
    let mut columns = Columns::of(row, "session turn");
    let (lane, index) = (Lane::stored(columns.take()?), columns.take()?);
    let turn = row::turn(&mut columns)?;
    let calls = columns.take()?;
    let mut sum = || Ok::<_, StoreError>(columns.take::<i64>()?.cast_unsigned());
    let (prompt_tokens, cached_tokens, completion_tokens, ms) = (sum()?, sum()?, sum()?, sum()?);
    let (stream, complete) = (columns.take()?, columns.take()?);
    let end = columns.optional_time()?.map(|at| TurnEnd {
        prompt_tokens,
        cached_tokens,
        completion_tokens,
        ms,
        stream,
        complete,
        at,
    });
    Ok(TurnView {
        lane,
        index,
        turn,
        calls,
        end,
    })
}
