//! One memory as a row.

use std::sync::Arc;

use rusqlite::{Connection, Row, params};
use serde_json::value::RawValue;

use crate::ids::{AgentId, MemoryId, OrgId};
use crate::memory::{Category, Embedding, Label, Memory, PartitionKey, Source, Status};
use crate::store::StoreError;
use crate::store::sqlite::rows::{Columns, id_bytes, micros, user_column};
use crate::tokens::TokenCounts;

/// Every column that a [`Memory`] has, in the order in which [`Reader::memory`] reads and [`insert`] binds them.
pub(super) const COLUMNS: &str = "id, org, agent, user, content, labels, confidence, valid_from, valid_until, observed_at, \
     source_kind, source_session, source_turn, metadata, pinned, status, revision, content_hash, retrieval_count, votes_useful, \
     votes_not_useful, created_at, updated_at, embedding_model, embedding, tokens_o200k, tokens_cl100k, tokens_claude, tokens_unknown, \
     text_revision, supersedes";

/// Inserts `memory` at `revision`, whatever revision it carries itself.
pub(super) fn insert(
    conn: &Connection,
    memory: &Memory,
    slot: Option<&[u8; 16]>,
    revision: i64,
) -> rusqlite::Result<()> {
    let sql = format!(
        "INSERT INTO memories ({COLUMNS}, slot) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
         ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32)"
    );
    let Memory {
        partition,
        source,
        tokens,
        embedding,
        ..
    } = memory;
    conn.prepare_cached(&sql)?.execute(params![
        memory.id.as_bytes(),
        partition.org.as_bytes(),
        partition.agent.as_bytes(),
        user_column(partition.user.as_ref()),
        memory.content,
        labels_text(&memory.labels)?,
        memory.confidence,
        micros(memory.valid_from),
        memory.valid_until.map(micros),
        memory.observed_at.map(micros),
        source.kind,
        source.session,
        source.turn,
        memory.metadata.as_ref().map(|json| json.get()),
        memory.pinned,
        memory.status.as_str(),
        revision,
        memory.content_hash,
        memory.retrieval_count,
        memory.votes_useful,
        memory.votes_not_useful,
        micros(memory.created_at),
        micros(memory.updated_at),
        embedding.as_ref().map(|e| &e.model),
        embedding.as_ref().map(|e| vector_bytes(&e.vector)),
        tokens.o200k,
        tokens.cl100k,
        tokens.claude,
        tokens.unknown,
        memory.text_revision,
        id_bytes(&memory.supersedes),
        slot,
    ])?;
    Ok(())
}

/// Writes every column of `memory` that an edit can change, by its identifier.
pub(super) fn update(
    conn: &Connection,
    memory: &Memory,
    slot: Option<&[u8; 16]>,
) -> rusqlite::Result<()> {
    let sql = "UPDATE memories SET content = ?2, labels = ?3, confidence = ?4, valid_from = ?5, valid_until = ?6, observed_at = ?7,
                      source_kind = ?8, source_session = ?9, source_turn = ?10, metadata = ?11, pinned = ?12, status = ?13,
                      content_hash = ?14, updated_at = ?15, embedding_model = ?16, embedding = ?17, tokens_o200k = ?18,
                      tokens_cl100k = ?19, tokens_claude = ?20, tokens_unknown = ?21, text_revision = ?22, supersedes = ?23,
                      slot = ?24, votes_useful = ?25, votes_not_useful = ?26
               WHERE id = ?1";
    let Memory {
        source,
        tokens,
        embedding,
        ..
    } = memory;
    conn.prepare_cached(sql)?.execute(params![
        memory.id.as_bytes(),
        memory.content,
        labels_text(&memory.labels)?,
        memory.confidence,
        micros(memory.valid_from),
        memory.valid_until.map(micros),
        memory.observed_at.map(micros),
        source.kind,
        source.session,
        source.turn,
        memory.metadata.as_ref().map(|json| json.get()),
        memory.pinned,
        memory.status.as_str(),
        memory.content_hash,
        micros(memory.updated_at),
        embedding.as_ref().map(|e| &e.model),
        embedding.as_ref().map(|e| vector_bytes(&e.vector)),
        tokens.o200k,
        tokens.cl100k,
        tokens.claude,
        tokens.unknown,
        memory.text_revision,
        id_bytes(&memory.supersedes),
        slot,
        memory.votes_useful,
        memory.votes_not_useful,
    ])?;
    Ok(())
}

/// Reads memories of one result. Rows of one load mostly share the embedder, so they share its name too.
#[derive(Debug, Default)]
pub(super) struct Reader {
    model: Option<Arc<str>>,
}

impl Reader {
    pub(super) fn memory(&mut self, row: &Row<'_>) -> Result<Memory, StoreError> {
        let mut columns = Columns::of(row, "memory");
        Ok(Memory {
            id: MemoryId::from_bytes(columns.take()?),
            partition: PartitionKey {
                org: OrgId::from_bytes(columns.take()?),
                agent: AgentId::from_bytes(columns.take()?),
                user: columns.user()?,
            },
            content: columns.take()?,
            labels: columns.parsed(|text| serde_json::from_str(text).ok())?,
            confidence: columns.take()?,
            valid_from: columns.time()?,
            valid_until: columns.optional_time()?,
            observed_at: columns.optional_time()?,
            source: Source {
                kind: columns.take()?,
                session: columns.take()?,
                turn: columns.take()?,
            },
            metadata: metadata(&mut columns)?,
            pinned: columns.take()?,
            status: columns.parsed(Status::parse)?,
            revision: columns.take()?,
            content_hash: columns.take()?,
            retrieval_count: columns.take()?,
            votes_useful: columns.take()?,
            votes_not_useful: columns.take()?,
            created_at: columns.time()?,
            updated_at: columns.time()?,
            embedding: self.embedding(&mut columns)?,
            tokens: TokenCounts {
                o200k: columns.take()?,
                cl100k: columns.take()?,
                claude: columns.take()?,
                unknown: columns.take()?,
            },
            text_revision: columns.take()?,
            supersedes: columns.ids()?.into(),
        })
    }

    fn embedding(&mut self, columns: &mut Columns<'_>) -> Result<Option<Embedding>, StoreError> {
        let model: Option<Arc<str>> = columns.take()?;
        let bytes: Option<Vec<u8>> = columns.take()?;
        let (Some(model), Some(bytes)) = (model, bytes) else {
            return Ok(None);
        };
        let vector = vector(&bytes).ok_or_else(|| columns.damaged())?;
        let model = self.model.take_if(|last| **last == *model).unwrap_or(model);
        self.model = Some(Arc::clone(&model));
        Ok(Some(Embedding { model, vector }))
    }
}

fn metadata(columns: &mut Columns<'_>) -> Result<Option<Arc<RawValue>>, StoreError> {
    let text: Option<String> = columns.take()?;
    let json = text
        .map(RawValue::from_string)
        .transpose()
        .map_err(|_| columns.damaged())?;
    Ok(json.map(Arc::from))
}

/// Labels as the JSON text that [`label_needle`] searches.
fn labels_text(labels: &[Label]) -> rusqlite::Result<String> {
    serde_json::to_string(labels).map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))
}

/// What the stored labels contain exactly when `category` is among them.
pub(super) fn label_needle(category: Category) -> String {
    format!(r#""label":"{category}""#)
}

/// Little-endian `f32`, on every machine.
fn vector_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn vector(bytes: &[u8]) -> Option<Arc<[f32]>> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    rest.is_empty()
        .then(|| numbers.iter().map(|x| f32::from_le_bytes(*x)).collect())
}
