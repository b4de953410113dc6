//! Records of the request path, applied: the whole batch is one statement, whose function knows what each kind of record does
//! (`migrations/0003_sessions.sql`).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::ids::{AgentId, MemoryId, OrgId};
use crate::session::record::{OpeningRecord, SessionRecord, TurnEnd, TurnRecord};
use crate::session::{LaneKey, RotationReason, SessionKey};
use crate::store::StoreError;
use crate::store::postgres::error::constraint;
use crate::store::postgres::links::Links;
use crate::store::postgres::rows::{micros, stored_text, user_column};

pub(super) async fn apply(links: &Links, records: &[SessionRecord]) -> Result<(), StoreError> {
    let statement =
        sqlx::query("SELECT record_sessions($1::text::jsonb)").bind(batch(records).to_string());
    let applied = links.link().await?.execute(statement).await;
    applied.map_err(|fault| constraint(fault, "session", "agent"))?;
    Ok(())
}

/// What a session's records are sorted by, at every replica.
type Place<'a> = (OrgId, AgentId, &'a str, &'a str);

/// The records of one session, in their order.
#[derive(Default)]
struct Records {
    opened_at: Option<i64>,
    records: Vec<Value>,
}

/// Records by their session: those of two sessions do not depend on each other.
fn batch(records: &[SessionRecord]) -> Value {
    let mut sessions: BTreeMap<Place<'_>, Records> = BTreeMap::new();
    for record in records {
        let (key, value) = as_json(record);
        let SessionKey {
            org,
            agent,
            user,
            id,
        } = &key.session;
        let place = (*org, *agent, user_column(user.as_ref()), id.as_str());
        let of_session = sessions.entry(place).or_default();
        if let SessionRecord::Opened(_, opening) = record {
            of_session.opened_at.get_or_insert(micros(opening.at));
        }
        of_session.records.push(value);
    }
    let session = |((org, agent, user, id), of_session): (Place<'_>, Records)| {
        json!({
            "org": org.to_string(),
            "agent": agent.to_string(),
            "user_id": user,
            "id": id,
            "opened_at": of_session.opened_at,
            "records": of_session.records,
        })
    };
    sessions.into_iter().map(session).collect()
}

/// A record as the function takes it.
fn as_json(record: &SessionRecord) -> (&LaneKey, Value) {
    let (key, kind, mut value) = match record {
        SessionRecord::Opened(key, opening) => (key, "opened", opened(opening)),
        SessionRecord::Settled(key, turn) => (key, "settled", settled(turn)),
        SessionRecord::Forgotten(key, gone) => (key, "forgotten", json!({ "gone": ids(gone) })),
        SessionRecord::Ended(key, chain, end) => (key, "ended", ended(chain.as_bytes(), end)),
    };
    if let Some(members) = value.as_object_mut() {
        members.insert("kind".to_owned(), kind.into());
        members.insert("lane".to_owned(), stored_text(key.lane.as_str()).into());
    }
    (key, value)
}

fn opened(opening: &OpeningRecord) -> Value {
    json!({
        "epoch": opening.epoch,
        "nonce_epoch": opening.nonce_epoch,
        "directive": opening.directive,
        "snapshot": ids(&opening.snapshot),
        "sha256": hex(&opening.sha256),
        "reason": opening.reason.map(RotationReason::as_str),
        "drops_blocks": opening.drops_blocks,
        "at": micros(opening.at),
    })
}

fn settled(turn: &TurnRecord) -> Value {
    json!({
        "chain": hex(turn.chain.as_bytes()),
        "anchor": hex(turn.anchor.as_bytes()),
        "nonce_epoch": turn.nonce_epoch,
        "memories": ids(&turn.memories),
        "state_from": turn.state.map(|(from, _)| from),
        "state_to": turn.state.map(|(_, to)| to),
        "digest": turn.digest.map(|digest| hex(&digest)),
        "at": micros(turn.at),
    })
}

fn ended(chain: &[u8], end: &TurnEnd) -> Value {
    json!({
        "chain": hex(chain),
        "prompt_tokens": bounded(end.prompt_tokens),
        "cached_tokens": bounded(end.cached_tokens),
        "completion_tokens": bounded(end.completion_tokens),
        "ms": bounded(end.ms),
        "stream": end.stream,
        "complete": end.complete,
        "at": micros(end.at),
    })
}

fn ids(ids: &[MemoryId]) -> Vec<String> {
    ids.iter().map(MemoryId::to_string).collect()
}

/// Bytes as the engine reads them.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        write!(text, "{byte:02x}").ok();
    }
    text
}

/// Providers report these numbers. A sum that overflows the column would take the whole batch with it.
fn bounded(number: u64) -> i64 {
    u32::try_from(number).unwrap_or(u32::MAX).into()
}
