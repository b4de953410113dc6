//! What is read back: a lane to be rendered again, and a session to be looked at.

use sqlx::postgres::PgRow;

use super::{SESSION, keyed, row};
use crate::session::record::{
    LaneRecord, LaneView, OpeningRecord, SessionView, TurnEnd, TurnRecord, TurnView,
};
use crate::session::{Lane, LaneKey, SessionKey};
use crate::store::StoreError;
use crate::store::postgres::links::Link;
use crate::store::postgres::rows::{Columns, composed, limit, stored_text};

pub(super) async fn lane(link: &mut Link, key: &LaneKey) -> Result<Option<LaneRecord>, StoreError> {
    let of_lane =
        |sql: String| keyed(composed(sql), &key.session).bind(stored_text(key.lane.as_str()));
    let sql = format!(
        "SELECT {} FROM session_lanes WHERE org = $1 AND session = {SESSION} AND lane = $5 ORDER BY epoch DESC LIMIT 1",
        row::OPENING
    );
    let Some(current) = link.row(of_lane(sql)).await? else {
        return Ok(None);
    };
    let opening = row::opening(&mut Columns::of(&current, "session lane"))?;
    let sql = format!(
        "SELECT {}, live FROM session_turns WHERE org = $1 AND session = {SESSION} AND lane = $5 ORDER BY position",
        row::TURN
    );
    let rows = link.rows(of_lane(sql)).await?;
    let turns = rows.iter().map(settled).collect::<Result<_, _>>()?;
    Ok(Some(LaneRecord { opening, turns }))
}

/// A turn whose block was dropped has nothing, for good: it is settled all the same.
fn settled(row: &PgRow) -> Result<TurnRecord, StoreError> {
    let mut columns = Columns::of(row, "session turn");
    let turn = row::turn(&mut columns)?;
    let live: bool = columns.take()?;
    let nothing = TurnRecord {
        memories: Vec::new(),
        state: None,
        digest: None,
        ..turn.clone()
    };
    Ok(if live { turn } else { nothing })
}

pub(super) async fn session(
    link: &mut Link,
    key: &SessionKey,
    turns: usize,
) -> Result<Option<SessionView>, StoreError> {
    let sql = "SELECT created_at, used_at, terminated_at, turns FROM sessions WHERE org = $1 AND agent = $2 AND user_id = $3 AND id = $4";
    let Some(row) = link.row(keyed(sqlx::query(sql), key)).await? else {
        return Ok(None);
    };
    let mut view = head(&row)?;
    let sql = format!(
        "SELECT lane, {} FROM session_lanes WHERE org = $1 AND session = {SESSION} ORDER BY lane, epoch",
        row::OPENING
    );
    for row in &link.rows(keyed(composed(sql), key)).await? {
        let (lane, opening) = epoch(row)?;
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
         FROM session_turns WHERE org = $1 AND session = {SESSION} ORDER BY position DESC LIMIT $5",
        row::TURN
    );
    let rows = link
        .rows(keyed(composed(sql), key).bind(limit(turns)))
        .await?;
    view.latest = rows.iter().map(turn_view).collect::<Result<_, _>>()?;
    Ok(Some(view))
}

fn head(row: &PgRow) -> Result<SessionView, StoreError> {
    let mut columns = Columns::of(row, "session");
    Ok(SessionView {
        created_at: columns.time()?,
        used_at: columns.time()?,
        terminated_at: columns.optional_time()?,
        turns: columns.number()?,
        lanes: Vec::new(),
        latest: Vec::new(),
    })
}

fn epoch(row: &PgRow) -> Result<(Lane, OpeningRecord), StoreError> {
    let mut columns = Columns::of(row, "session lane");
    Ok((
        Lane::stored(columns.shared_text()?),
        row::opening(&mut columns)?,
    ))
}

fn turn_view(row: &PgRow) -> Result<TurnView, StoreError> {
    let mut columns = Columns::of(row, "session turn");
    let (lane, index) = (Lane::stored(columns.shared_text()?), columns.number()?);
    let turn = row::turn(&mut columns)?;
    let calls = columns.number()?;
    let mut sum = || columns.number::<u64>();
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
