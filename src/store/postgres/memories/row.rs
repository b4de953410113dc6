//! One memory as a row, and its vector as another.

use std::sync::Arc;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::words::words_of;
use crate::ids::MemoryId;
use crate::memory::{Category, Embedding, Memory, Source, Status};
use crate::store::StoreError;
use crate::store::postgres::rows::{
    Columns, Statement, memory_uuid, memory_uuids, micros, scope, stored_text,
};
use crate::tokens::TokenCounts;

/// Where a memory is read from.
pub(in crate::store::postgres) const FROM: &str =
    "memories m LEFT JOIN memory_vectors v ON v.org = m.org AND v.memory = m.id";

/// Every column that a [`Memory`] has, in the order in which [`Reader::memory`] reads them. The vector comes in the extension's own binary
/// form.
pub(in crate::store::postgres) const COLUMNS: &str = "m.id, m.org, m.agent, m.user_id, m.content, m.labels, m.confidence, m.valid_from, m.valid_until, m.observed_at, \
     m.source_kind, m.source_session, m.source_turn, m.metadata, m.pinned, m.status, m.revision, m.content_hash, m.retrieval_count, \
     m.votes_useful, m.votes_not_useful, m.created_at, m.updated_at, m.embedding_model, vector_send(v.embedding), m.tokens_o200k, \
     m.tokens_cl100k, m.tokens_claude, m.tokens_unknown, m.text_revision, m.supersedes";

/// Columns that an edit can change, in the order in which [`bind_changing`] binds them from the fifth parameter on.
const CHANGING: [&str; 25] = [
    "content",
    "labels",
    "confidence",
    "valid_from",
    "valid_until",
    "observed_at",
    "source_kind",
    "source_session",
    "source_turn",
    "metadata",
    "members",
    "words",
    "pinned",
    "status",
    "content_hash",
    "updated_at",
    "embedding_model",
    "tokens_o200k",
    "tokens_cl100k",
    "tokens_claude",
    "tokens_unknown",
    "text_revision",
    "supersedes",
    "slot",
    "review",
];
/// The other ones of [`insert`] and [`update`].
const COUNTS: [&str; 2] = ["votes_useful", "votes_not_useful"];
const INSERTED: [&str; 3] = ["revision", "retrieval_count", "created_at"];

/// What is stored beside a memory.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beside<'a> {
    pub(super) slot: Option<&'a [u8; 16]>,
    pub(super) review: Option<&'a str>,
}

/// Inserts `memory` and its vector at `revision`, whatever revision it carries itself.
pub(super) fn insert(
    memory: &Memory,
    beside: Beside<'_>,
    revision: i64,
) -> Result<Statement, StoreError> {
    let names: Vec<&str> = CHANGING.into_iter().chain(COUNTS).chain(INSERTED).collect();
    let last = names.len() + 4;
    let values: Vec<String> = (1..=last).map(|n| format!("${n}")).collect();
    let (names, values) = (names.join(", "), values.join(", "));
    let (status, model, vector) = (place("status"), place("embedding_model"), last + 1);
    let sql = format!(
        "WITH row AS (INSERT INTO memories (org, agent, user_id, id, {names}) VALUES ({values}) RETURNING id)
         INSERT INTO memory_vectors (org, agent, user_id, memory, model, embedding, live)
         SELECT $1, $2, $3, row.id, ${model}, ${vector}::real[]::vector, ${status} = 'active' FROM row WHERE ${vector}::real[] IS NOT NULL"
    );
    let statement = bind_changing(keyed(sql, memory), memory, beside)?;
    let statement = statement
        .bind(i64::from(memory.votes_useful))
        .bind(i64::from(memory.votes_not_useful))
        .bind(revision)
        .bind(i64::from(memory.retrieval_count))
        .bind(micros(memory.created_at));
    Ok(bind_vector(statement, memory))
}

/// Writes every column of `memory` that an edit can change, and its vector.
pub(super) fn update(memory: &Memory, beside: Beside<'_>) -> Result<Statement, StoreError> {
    let names = CHANGING.into_iter().chain(COUNTS).zip(5..);
    let set: Vec<String> = names
        .map(|(name, place)| format!("{name} = ${place}"))
        .collect();
    let vector = CHANGING.len() + COUNTS.len() + 5;
    let (set, status, model) = (set.join(", "), place("status"), place("embedding_model"));
    let sql = format!(
        "WITH row AS (UPDATE memories SET {set} WHERE org = $1 AND agent = $2 AND user_id = $3 AND id = $4 RETURNING id),
              gone AS (DELETE FROM memory_vectors v USING row WHERE v.org = $1 AND v.memory = row.id AND ${vector}::real[] IS NULL)
         INSERT INTO memory_vectors (org, agent, user_id, memory, model, embedding, live)
         SELECT $1, $2, $3, row.id, ${model}, ${vector}::real[]::vector, ${status} = 'active' FROM row WHERE ${vector}::real[] IS NOT NULL
         ON CONFLICT (memory) DO UPDATE SET model = excluded.model, embedding = excluded.embedding, live = excluded.live"
    );
    let statement = bind_changing(keyed(sql, memory), memory, beside)?;
    let statement = statement
        .bind(i64::from(memory.votes_useful))
        .bind(i64::from(memory.votes_not_useful));
    Ok(bind_vector(statement, memory))
}

/// The parameter of a column that can change.
fn place(name: &str) -> usize {
    5 + CHANGING
        .iter()
        .take_while(|column| **column != name)
        .count()
}

fn keyed(sql: String, memory: &Memory) -> Statement {
    let (org, agent, user) = scope(&memory.partition);
    crate::store::postgres::rows::composed(sql)
        .bind(org)
        .bind(agent)
        .bind(user)
        .bind(memory_uuid(memory.id))
}

fn bind_changing(
    statement: Statement,
    memory: &Memory,
    beside: Beside<'_>,
) -> Result<Statement, StoreError> {
    let Memory { source, tokens, .. } = memory;
    let labels = serde_json::to_string(&memory.labels)
        .map_err(|_| StoreError::Refused("a value".to_owned()))?;
    Ok(statement
        .bind(stored_text(&memory.content))
        .bind(labels)
        .bind(memory.confidence)
        .bind(micros(memory.valid_from))
        .bind(memory.valid_until.map(micros))
        .bind(memory.observed_at.map(micros))
        .bind(stored_text(&source.kind))
        .bind(source.session.as_deref().map(stored_text))
        .bind(source.turn.map(i64::from))
        .bind(memory.metadata.as_ref().map(|json| stored_text(json.get())))
        .bind(memory.metadata.as_deref().map(members).unwrap_or_default())
        .bind(words_of(&memory.partition, &memory.content))
        .bind(memory.pinned)
        .bind(memory.status.as_str())
        .bind(memory.content_hash)
        .bind(micros(memory.updated_at))
        .bind(memory.embedding.as_ref().map(|e| stored_text(&e.model)))
        .bind(i64::from(tokens.o200k))
        .bind(i64::from(tokens.cl100k))
        .bind(i64::from(tokens.claude))
        .bind(i64::from(tokens.unknown))
        .bind(memory.text_revision)
        .bind(memory_uuids(&memory.supersedes))
        .bind(beside.slot.map(<[u8; 16]>::as_slice))
        .bind(beside.review.map(stored_text)))
}

fn bind_vector(statement: Statement, memory: &Memory) -> Statement {
    // One without numbers is only named: the extension knows none of that dimension.
    let vector = memory.embedding.as_ref().map(|e| &*e.vector);
    statement.bind(vector.filter(|vector| !vector.is_empty()))
}

/// Reads memories of one result. Rows of one load mostly share the embedder, so they share its name too.
#[derive(Debug, Default)]
pub(in crate::store::postgres) struct Reader {
    model: Option<Arc<str>>,
}

impl Reader {
    pub(in crate::store::postgres) fn memory(&mut self, row: &PgRow) -> Result<Memory, StoreError> {
        let mut columns = Columns::of(row, "memory");
        Ok(Memory {
            id: MemoryId::from_bytes(columns.id()?),
            partition: columns.partition()?,
            content: columns.shared_text()?,
            labels: columns.parsed(|text| serde_json::from_str(text).ok())?,
            confidence: columns.take()?,
            valid_from: columns.time()?,
            valid_until: columns.optional_time()?,
            observed_at: columns.optional_time()?,
            source: Source {
                kind: columns.text()?,
                session: columns.optional_text()?,
                turn: columns.optional_number()?,
            },
            metadata: metadata(&mut columns)?,
            pinned: columns.take()?,
            status: columns.parsed(Status::parse)?,
            revision: columns.take()?,
            content_hash: columns.bytes()?,
            retrieval_count: columns.number()?,
            votes_useful: columns.number()?,
            votes_not_useful: columns.number()?,
            created_at: columns.time()?,
            updated_at: columns.time()?,
            embedding: self.embedding(&mut columns)?,
            tokens: TokenCounts {
                o200k: columns.number()?,
                cl100k: columns.number()?,
                claude: columns.number()?,
                unknown: columns.number()?,
            },
            text_revision: columns.take()?,
            supersedes: columns.ids()?.into(),
        })
    }

    fn embedding(&mut self, columns: &mut Columns<'_>) -> Result<Option<Embedding>, StoreError> {
        let model = columns.optional_text()?;
        let bytes: Option<&[u8]> = columns.take()?;
        let Some(model) = model else {
            return Ok(None);
        };
        let vector = bytes.map_or_else(|| Some(Arc::default()), vector);
        let vector = vector.ok_or_else(|| columns.damaged())?;
        let last = self.model.take_if(|last| **last == *model);
        let model = last.unwrap_or_else(|| model.into());
        self.model = Some(Arc::clone(&model));
        Ok(Some(Embedding { model, vector }))
    }
}

fn metadata(columns: &mut Columns<'_>) -> Result<Option<Arc<RawValue>>, StoreError> {
    let json = columns
        .optional_text()?
        .map(RawValue::from_string)
        .transpose()
        .map_err(|_| columns.damaged())?;
    Ok(json.map(Arc::from))
}

/// What the stored labels contain exactly when `category` is among them.
pub(super) fn label_needle(category: Category) -> String {
    format!(r#""label":"{category}""#)
}

/// The extension's binary form: the dimension in two bytes, two of nothing, and the numbers, most significant byte first.
fn vector(bytes: &[u8]) -> Option<Arc<[f32]>> {
    let (head, numbers) = bytes.split_first_chunk::<4>()?;
    let [high, low, ..] = *head;
    let (numbers, rest) = numbers.as_chunks::<4>();
    let whole = rest.is_empty() && numbers.len() == usize::from(u16::from_be_bytes([high, low]));
    whole.then(|| numbers.iter().map(|x| f32::from_be_bytes(*x)).collect())
}

/// A hash for each member of a client's object that can be asked for. The engine's own JSON types refuse texts that JSON allows, so the
/// object itself is stored as it was sent.
fn members(json: &RawValue) -> Vec<Uuid> {
    let object: std::collections::BTreeMap<String, &RawValue> =
        serde_json::from_str(json.get()).unwrap_or_default();
    object
        .into_iter()
        .map(|(name, value)| member(&name, value.get()))
        .collect()
}

/// [`members`] of an object's text.
pub(in crate::store::postgres) fn members_of(json: &str) -> Vec<Uuid> {
    let json: Option<&RawValue> = serde_json::from_str(json).ok();
    json.map(members).unwrap_or_default()
}

/// The hash of a member by its name and its JSON text. However a text value is spelt in JSON, it has one hash.
pub(super) fn member(name: &str, json: &str) -> Uuid {
    let text: Option<String> = serde_json::from_str(json).ok();
    let spelt = text.as_deref().map(quoted);
    let mut hash = Sha256::new();
    hash.update(quoted(name));
    hash.update(":");
    hash.update(spelt.as_deref().unwrap_or(json));
    let hash: [u8; 32] = hash.finalize().into();
    hash.first_chunk()
        .map_or_else(Uuid::nil, |first| Uuid::from_bytes(*first))
}

/// A text as JSON.
pub(super) fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{label_needle, member, members, quoted, vector};
    use crate::memory::{Category, Label};
    use serde_json::value::RawValue;

    #[test]
    fn a_member_is_found_however_it_is_spelt() {
        let json = r#"{"a": "caf\u00e9", "n": 1.50, "deep": {"x": 1}, "t": true}"#;
        let held = members(&RawValue::from_string(json.to_owned()).unwrap());
        assert!(held.contains(&member("a", &quoted("café"))));
        assert!(held.contains(&member("n", "1.50")));
        assert!(held.contains(&member("t", "true")));
        assert!(
            !held.contains(&member("t", &quoted("true"))),
            "a text is no truth value"
        );
        assert!(!held.contains(&member("b", &quoted("café"))));
        assert!(members(&RawValue::from_string("[1]".to_owned()).unwrap()).is_empty());
    }

    #[test]
    fn a_needle_stands_in_labels() {
        let label = Label {
            label: Category::Episodic,
            confidence: 0.5,
        };
        let labels = serde_json::to_string(&[label]).unwrap();
        assert!(labels.contains(&label_needle(Category::Episodic)));
        assert!(!labels.contains(&label_needle(Category::Factual)));
    }

    #[test]
    fn a_vector_is_read_as_it_was_sent_or_not_at_all() {
        let sent = [0, 2, 0, 0, 0x3f, 0x80, 0, 0, 0x80, 0, 0, 0];
        let read = vector(&sent).unwrap();
        assert_eq!(read[0].to_bits(), 1.0_f32.to_bits());
        assert_eq!(read[1].to_bits(), (-0.0_f32).to_bits());
        assert!(vector(&sent[..11]).is_none());
        assert!(vector(&sent[..8]).is_none(), "fewer numbers than it says");
    }
}
