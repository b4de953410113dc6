//! Records of the request path, applied: the whole batch is one statement, whose function knows what each kind of record does
//! (`migrations/0003_sessions.sql`).

use serde_json::{Map, Value, json};

use crate::ids::MemoryId;
use crate::session::record::{OpeningRecord, SessionRecord, TurnEnd, TurnRecord};
use crate::session::{LaneKey, RotationReason, SessionKey};
use crate::store::StoreError;
use crate::store::postgres::error::constraint;
use crate::store::postgres::links::Links;
use crate::store::postgres::rows::{micros, stored_text, user_column};

pub(super) async fn apply(links: &Links, records: &[SessionRecord]) -> Result<(), StoreError> {
    let records: Vec<Value> = records.iter().map(record).collect();
    let statement = sqlx::query("SELECT record_sessions($1::text::jsonb)")
        .bind(Value::from(records).to_string());
    let applied = links.link().await?.execute(statement).await;
    applied.map_err(|fault| constraint(fault, "session", "agent"))?;
    Ok(())
}

/// A record as the function takes it.
fn record(record: &SessionRecord) -> Value {
    let (key, kind, mut members) = match record {
        SessionRecord::Opened(key, opening) => (key, "opened", opened(opening)),
        SessionRecord::Settled(key, turn) => (key, "settled", settled(turn)),
        SessionRecord::Forgotten(key, gone) => {
            (key, "forgotten", object(json!({ "gone": ids(gone) })))
        }
        SessionRecord::Ended(key, chain, end) => (key, "ended", ended(chain.as_bytes(), end)),
    };
    let LaneKey { session, lane } = key;
    let SessionKey {
        org,
        agent,
        user,
        id,
    } = session;
    let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
    put("kind", kind.into());
    put("org", org.to_string().into());
    put("agent", agent.to_string().into());
    put("user_id", user_column(user.as_ref()).into());
    put("id", id.as_str().into());
    put("lane", stored_text(lane.as_str()).into());
    Value::Object(members)
}

fn opened(opening: &OpeningRecord) -> Map<String, Value> {
    object(json!({
        "epoch": opening.epoch,
        "nonce_epoch": opening.nonce_epoch,
        "directive": opening.directive,
        "snapshot": ids(&opening.snapshot),
        "sha256": hex(&opening.sha256),
        "reason": opening.reason.map(RotationReason::as_str),
        "drops_blocks": opening.drops_blocks,
        "at": micros(opening.at),
    }))
}

fn settled(turn: &TurnRecord) -> Map<String, Value> {
    object(json!({
        "chain": hex(turn.chain.as_bytes()),
        "anchor": hex(turn.anchor.as_bytes()),
        "nonce_epoch": turn.nonce_epoch,
        "memories": ids(&turn.memories),
        "state_from": turn.state.map(|(from, _)| from),
        "state_to": turn.state.map(|(_, to)| to),
        "digest": turn.digest.map(|digest| hex(&digest)),
        "at": micros(turn.at),
    }))
}

fn ended(chain: &[u8], end: &TurnEnd) -> Map<String, Value> {
    object(json!({
        "chain": hex(chain),
        "prompt_tokens": bounded(end.prompt_tokens),
        "cached_tokens": bounded(end.cached_tokens),
        "completion_tokens": bounded(end.completion_tokens),
        "ms": bounded(end.ms),
        "stream": end.stream,
        "complete": end.complete,
        "at": micros(end.at),
    }))
}

/// The members of an object.
fn object(mut value: Value) -> Map<String, Value> {
    value
        .as_object_mut()
        .map(std::mem::take)
        .unwrap_or_default()
}

fn ids(ids: &[MemoryId]) -> Vec<String> {
    ids.iter().map(MemoryId::to_string).collect()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            write!(text, "{byte:02x}").ok();
            text
        })
}

/// Providers report these numbers. A sum that overflows the column would take the whole batch with it.
fn bounded(number: u64) -> i64 {
    u32::try_from(number).unwrap_or(u32::MAX).into()
}
