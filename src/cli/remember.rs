//! `ibex memory add` and `ibex memory search`: the write path and the recall of the API, for the operator.

use serde::Serialize;
use serde_json::value::to_raw_value;

use crate::app::App;
use crate::error::ApiError;
use crate::ids::UserId;
use crate::memory::write::{WriteError, write};
use crate::memory::{Category, Status};
use crate::request::context::plan::Components;
use crate::request::context::recall;

use super::args::{MemoryAddArgs, MemorySearchArgs};
use super::memory::MemoryRecord;
use super::output::Record;
use super::{CliError, Desk, Out};

/// The object that a write takes, as far as the flags fill it.
#[derive(Debug, Serialize)]
struct NewMemory {
    content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<f32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    labels: Vec<NewLabel>,
    pinned: bool,
    source: Producer,
}

#[derive(Debug, Serialize)]
struct NewLabel {
    label: Category,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<f32>,
}

#[derive(Debug, Serialize)]
struct Producer {
    kind: &'static str,
}

/// Adds one memory.
///
/// # Errors
/// When the agent does not exist, the memory is not valid or is there already, or the store fails.
pub(super) async fn add(
    args: MemoryAddArgs,
    desk: &Desk<'_>,
    app: &App,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let who = desk.principal(&args.scope).await?;
    let labels = args.labels.iter().map(|label| NewLabel {
        label: *label,
        confidence: args.confidence,
    });
    let new = NewMemory {
        content: args.content,
        confidence: args.confidence,
        labels: labels.collect(),
        pinned: args.pinned,
        source: Producer { kind: "cli" },
    };
    let object = to_raw_value(&new).map_err(|e| CliError::Failed(e.to_string()))?;
    let outcome = write(app, &who, &[&object])
        .await
        .pop()
        .unwrap_or(Err(WriteError::StoreUnavailable));
    let written = outcome.map_err(|e| refused(&e.into()))?;
    let memory = &written.memory;
    let stands = match memory.status {
        Status::Quarantined => "waits for review",
        Status::Superseded => "is stored as history: a newer one replaces it",
        Status::Active | Status::Forgotten => "is stored",
    };
    let sentence = format!("memory {} {stands}", memory.id);
    Ok(out.one(&MemoryRecord::from(memory.clone()), sentence)?)
}

/// One result, with what the search thinks of it.
#[derive(Debug, Serialize)]
struct FoundRecord {
    rank: usize,
    similarity: f32,
    score: f32,
    components: Components,
    #[serde(flatten)]
    memory: MemoryRecord,
}

impl Record for FoundRecord {
    const HEADERS: &'static [&'static str] = &[
        "RANK",
        "SCORE",
        "RELEVANCE",
        "ID",
        "CATEGORY",
        "USER",
        "CONTENT",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.rank.to_string(),
            format!("{:.3}", self.score),
            format!("{:.3}", self.components.relevance),
            self.memory.id.to_string(),
            self.memory.category.to_string(),
            self.memory
                .user_id
                .as_ref()
                .map_or("-", UserId::as_str)
                .to_owned(),
            self.memory.content.to_string(),
        ]
    }
}

/// Searches the memories that a request of this scope could see.
///
/// # Errors
/// When the agent does not exist, there is nothing to search for, or the store fails.
pub(super) async fn search(
    args: MemorySearchArgs,
    desk: &Desk<'_>,
    app: &App,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    if args.query.trim().is_empty() {
        return Err(CliError::Usage("the query must not be empty".to_owned()));
    }
    let who = desk.principal(&args.scope).await?;
    let asked = recall::Asked {
        text: &args.query,
        limit: args.limit,
        ..recall::Asked::default()
    };
    let found = recall::search(app, &who, &asked)
        .await
        .map_err(|e| refused(&e))?;
    let records: Vec<FoundRecord> = found
        .into_iter()
        .enumerate()
        .map(|(i, (similarity, ranked))| FoundRecord {
            rank: i + 1,
            similarity,
            score: ranked.score,
            components: ranked.components,
            memory: MemoryRecord::from((*ranked.memory).clone()),
        })
        .collect();
    Ok(out.list(&records)?)
}

/// What the API would refuse, as a failed command says it.
pub(super) fn refused(error: &ApiError) -> CliError {
    CliError::Failed(reason(error))
}

/// The reason of a refusal in one line.
pub(super) fn reason(error: &ApiError) -> String {
    let mut text = if error.fields.is_empty() {
        error.message.to_string()
    } else {
        let fields: Vec<String> = error
            .fields
            .iter()
            .map(|fault| format!("{} {}", fault.field, fault.message))
            .collect();
        fields.join("; ")
    };
    if let Some(id) = error.existing_memory_id {
        text.push_str(&format!(": {id}"));
    }
    text
}
