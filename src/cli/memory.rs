//! `ibex memory`: what needs the store alone. Adding, searching and importing need the embedder and stand with the running parts.

use std::sync::Arc;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::ids::{MemoryId, UserId};
use crate::memory::{Category, Label, Memory, PartitionKey, Source, Status};
use crate::store::{Agent, ListFilter, Matching, Reading};

use super::args::{MemoryAddArgs, MemoryImportArgs, MemorySearchArgs, ScopeChoice};
use super::output::{Record, minute};
use super::{CliError, Desk, Out};

/// The commands about memories.
#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    /// Add a memory
    Add(MemoryAddArgs),
    /// List memories, newest first
    List(MemoryListArgs),
    /// Search memories as a request would
    Search(MemorySearchArgs),
    /// Add many memories from a file
    Import(MemoryImportArgs),
    /// Erase a memory; the same content does not come back by itself
    Forget(MemoryForgetArgs),
}

/// `ibex memory list`.
#[derive(Debug, Args)]
pub struct MemoryListArgs {
    /// Whose memories.
    #[command(flatten)]
    scope: ScopeChoice,
    /// Only these: active, superseded, quarantined or forgotten [default: all but forgotten]
    #[arg(long, value_parser = status)]
    status: Option<Status>,
    /// Only memories of this kind
    #[arg(long, value_name = "LABEL")]
    label: Option<Category>,
    /// Most memories
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Only memories after this one in the list
    #[arg(long, value_name = "ID")]
    after: Option<MemoryId>,
}

/// `ibex memory forget`.
#[derive(Debug, Args)]
pub struct MemoryForgetArgs {
    /// Which memory
    id: MemoryId,
    /// Whose memory.
    #[command(flatten)]
    scope: ScopeChoice,
}

fn status(text: &str) -> Result<Status, &'static str> {
    Status::parse(text)
        .filter(|status| *status != Status::Forgotten)
        .ok_or("must be active, superseded or quarantined")
}

/// A memory as the commands show it.
#[derive(Debug, Serialize)]
pub(super) struct MemoryRecord {
    pub(super) id: MemoryId,
    pub(super) user_id: Option<UserId>,
    status: Status,
    pub(super) category: Category,
    labels: Vec<Label>,
    confidence: f32,
    pub(super) content: Arc<str>,
    metadata: Option<Arc<RawValue>>,
    source: Source,
    pinned: bool,
    valid_from: Timestamp,
    valid_until: Option<Timestamp>,
    created_at: Timestamp,
}

impl From<Memory> for MemoryRecord {
    fn from(memory: Memory) -> Self {
        Self {
            id: memory.id,
            category: memory.category(),
            user_id: memory.partition.user,
            status: memory.status,
            labels: memory.labels,
            confidence: memory.confidence,
            content: memory.content,
            metadata: memory.metadata,
            source: memory.source,
            pinned: memory.pinned,
            valid_from: memory.valid_from,
            valid_until: memory.valid_until,
            created_at: memory.created_at,
        }
    }
}

impl Record for MemoryRecord {
    const HEADERS: &'static [&'static str] =
        &["ID", "USER", "STATUS", "CATEGORY", "CREATED", "CONTENT"];

    fn cells(&self) -> Vec<String> {
        let user = self
            .user_id
            .as_ref()
            .map_or_else(|| "-".to_owned(), ToString::to_string);
        vec![
            self.id.to_string(),
            user,
            self.status.as_str().to_owned(),
            self.category.to_string(),
            minute(self.created_at),
            self.content.to_string(),
        ]
    }
}

#[derive(Debug, Serialize)]
struct Page<'a> {
    memories: &'a [MemoryRecord],
    has_more: bool,
}

/// The partitions that a command may read: the agent-wide one, and the user's when there is a user.
fn partitions(agent: &Agent, user: Option<&UserId>) -> Vec<PartitionKey> {
    let users = std::iter::once(None).chain(user.cloned().map(Some));
    users
        .map(|user| PartitionKey {
            org: agent.org,
            agent: agent.id,
            user,
        })
        .collect()
}

/// Lists memories.
///
/// # Errors
/// When the agent does not exist, or the store fails.
pub async fn list(
    args: MemoryListArgs,
    desk: &Desk<'_>,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let agent = desk.chosen(&args.scope.choice).await?;
    let who = desk.principal(&args.scope).await?;
    let reading = match args.status {
        Some(Status::Quarantined) => who.review().map(Reading::Review),
        _ => who.history().map(Reading::History),
    };
    let filter = ListFilter {
        // The operator has every right.
        reading: reading.unwrap_or(Reading::Current(desk.clock.now())),
        after: args.after,
        limit: args.limit,
        matching: Matching {
            status: args.status,
            category: args.label,
            ..Matching::default()
        },
    };
    let page = desk
        .store
        .list_memories(&partitions(&agent, args.scope.user.as_ref()), filter)
        .await?;
    let records: Vec<MemoryRecord> = page.memories.into_iter().map(MemoryRecord::from).collect();
    if out.is_json() {
        return Ok(out.value(&Page {
            memories: &records,
            has_more: page.has_more,
        })?);
    }
    out.table(&records)?;
    if let Some(last) = records.last().filter(|_| page.has_more) {
        out.line(format_args!("\nthere are more: --after {}", last.id))?;
    }
    Ok(())
}

/// Forgets one memory.
///
/// # Errors
/// When the agent or memory does not exist, or the store fails.
pub async fn forget(
    args: MemoryForgetArgs,
    desk: &Desk<'_>,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    #[derive(Debug, Serialize)]
    struct Forgotten {
        id: MemoryId,
        status: Status,
    }
    let agent = desk.chosen(&args.scope.choice).await?;
    let partitions = partitions(&agent, args.scope.user.as_ref());
    let found = desk
        .store
        .forget_memory(&partitions, args.id, desk.clock.now())
        .await?;
    if found.is_none() {
        let hint = if args.scope.user.is_none() {
            "; memories of a user need --user"
        } else {
            ""
        };
        return Err(CliError::Failed(format!(
            "the agent has no such memory{hint}"
        )));
    }
    let forgotten = Forgotten {
        id: args.id,
        status: Status::Forgotten,
    };
    Ok(out.one(&forgotten, format_args!("memory {} is forgotten", args.id))?)
}
