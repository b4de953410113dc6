//! Transactions of one organisation.
//!
//! Every transaction begins with the setting that row-level security asks for. One that writes to the change feed takes the organisation's
//! lock first, so that what it reads stays as it is until it writes, as under the write lock of the embedded engine. What it changes it
//! notes, and the feed gets all of it at the end, in one statement that holds the whole feed until the commit: the order of locks is
//! organisation, feed, everywhere, and a revision is never visible before a smaller one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::postgres::PgRow;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::error::Fault;
use super::links::{Link, Links};
use super::rows::{Columns, Statement, agent_uuid, memory_uuid, org_uuid, user_column};
use crate::ids::OrgId;
use crate::memory::PartitionKey;
use crate::store::{ChangeKind, StoreError};

/// The advisory lock of a row: the second half of its identifier, which is random. Two rows with the same one wait for each other and
/// nothing else.
pub(super) fn lock_key_of(id: Uuid) -> i64 {
    let [.., a, b, c, d, e, f, g, h] = id.into_bytes();
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The beginning of a transaction of `org`. An identifier is written in hexadecimal digits and hyphens.
fn beginning(org: OrgId, kind: &str) -> String {
    format!("BEGIN ISOLATION LEVEL {kind}; SELECT set_config('ibex.org', '{org}', TRUE)")
}

/// A transaction that reads one state of an organisation. It ends when it is dropped.
pub(super) async fn snapshot(links: &Links, org: OrgId) -> Result<Link, Fault> {
    let begin = beginning(org, "REPEATABLE READ READ ONLY");
    links.begin(&begin, links.deadline()).await
}

/// [`snapshot`] for a walk through everything that an organisation has.
pub(super) async fn long_snapshot(
    links: &Links,
    org: OrgId,
    patience: Duration,
) -> Result<Link, Fault> {
    let begin = format!(
        "{}; SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0",
        beginning(org, "REPEATABLE READ READ ONLY")
    );
    let mut link = links.begin(&begin, links.deadline()).await?;
    link.extend(patience);
    Ok(link)
}

/// A transaction that writes what the feed does not tell of.
pub(super) async fn unannounced(links: &Links, org: OrgId) -> Result<Link, Fault> {
    let begin = beginning(org, "READ COMMITTED");
    links.begin(&begin, links.deadline()).await
}

/// The writers of this process, one an organisation at a time: they wait for their turn here, so that a crowd of them does not hold every
/// connection while it waits for the organisation's lock.
#[derive(Debug, Default)]
pub(super) struct Turns {
    of: Mutex<HashMap<OrgId, Arc<tokio::sync::Mutex<()>>>>,
}

/// Organisations that are remembered before those without a writer are forgotten.
const REMEMBERED: usize = 1_024;

type Turn = OwnedMutexGuard<()>;

impl Turns {
    async fn take(&self, org: OrgId, until: Instant) -> Result<Turn, Fault> {
        let turn = {
            let mut of = self.of.lock();
            if of.len() >= REMEMBERED {
                of.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            Arc::clone(of.entry(org).or_default())
        };
        timeout_at(until, turn.lock_owned())
            .await
            .map_err(|_| Fault::Late)
    }
}

/// A change that a transaction has noted, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark(usize);

/// What a change means besides.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Means {
    /// A memory is gone from circulation: the fence of its partition rises to the change's revision.
    pub(super) forgets: bool,
    /// The memory's text is another one since this revision.
    pub(super) rewrites: bool,
}

/// A transaction that writes. Dropped without a commit it is rolled back.
pub(super) struct Tx {
    pub(super) link: Link,
    org: OrgId,
    changes: Vec<(ChangeKind, Means)>,
    _turn: Turn,
}

/// The revisions of a committed transaction's changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Revisions {
    first: i64,
}

impl Revisions {
    pub(super) fn of(self, mark: Mark) -> i64 {
        self.first
            .saturating_add(i64::try_from(mark.0).unwrap_or(i64::MAX))
    }
}

impl Tx {
    pub(super) async fn begin(links: &Links, turns: &Turns, org: OrgId) -> Result<Self, Fault> {
        let until = links.deadline();
        let turn = turns.take(org, until).await?;
        let begin = format!(
            "{}; SELECT pg_advisory_xact_lock({})",
            beginning(org, "READ COMMITTED"),
            lock_key_of(org_uuid(org))
        );
        Ok(Self {
            link: links.begin(&begin, until).await?,
            org,
            changes: Vec::new(),
            _turn: turn,
        })
    }

    /// Notes a change of this organisation.
    pub(super) fn changed(&mut self, kind: ChangeKind) -> Mark {
        self.changed_so(kind, Means::default())
    }

    pub(super) fn changed_so(&mut self, kind: ChangeKind, means: Means) -> Mark {
        self.changes.push((kind, means));
        Mark(self.changes.len() - 1)
    }

    /// The rows of a statement.
    pub(super) async fn rows(&mut self, statement: Statement) -> Result<Vec<PgRow>, StoreError> {
        Ok(self.link.rows(statement).await?)
    }

    /// The first row of a statement.
    pub(super) async fn row(&mut self, statement: Statement) -> Result<Option<PgRow>, StoreError> {
        Ok(self.link.row(statement).await?)
    }

    /// How many rows a statement changed.
    pub(super) async fn execute(&mut self, statement: Statement) -> Result<u64, StoreError> {
        Ok(self.link.execute(statement).await?)
    }

    /// Gives the changes their revisions and ends the transaction.
    pub(super) async fn commit(mut self) -> Result<Revisions, StoreError> {
        let mut first = 0;
        if !self.changes.is_empty() {
            let row = self.link.row(append(self.org, &self.changes)).await?;
            let row = row.ok_or(StoreError::Damaged("feed"))?;
            let newest: i64 = Columns::of(&row, "feed").take()?;
            let many = i64::try_from(self.changes.len()).unwrap_or(i64::MAX);
            first = newest.saturating_sub(many).saturating_add(1);
        }
        self.link.commit().await?;
        Ok(Revisions { first })
    }
}

/// The entries of a transaction as columns.
fn append(org: OrgId, changes: &[(ChangeKind, Means)]) -> Statement {
    let entries = changes.iter().map(|(kind, _)| entry(kind));
    let (mut kinds, mut agents, mut users, mut refs) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (kind, agent, user, id) in entries {
        kinds.push(kind);
        agents.push(agent);
        users.push(user);
        refs.push(id);
    }
    let forgets: Vec<bool> = changes.iter().map(|(_, means)| means.forgets).collect();
    let rewrites: Vec<bool> = changes.iter().map(|(_, means)| means.rewrites).collect();
    sqlx::query("SELECT append_changes($1, $2, $3, $4, $5, $6, $7)")
        .bind(org_uuid(org))
        .bind(kinds)
        .bind(agents)
        .bind(users)
        .bind(refs)
        .bind(forgets)
        .bind(rewrites)
}

type Entry<'a> = (&'static str, Option<Uuid>, Option<&'a str>, Uuid);

fn entry(kind: &ChangeKind) -> Entry<'_> {
    match kind {
        ChangeKind::Org(org) => ("org", None, None, org_uuid(*org)),
        ChangeKind::Agent(_, agent) => {
            ("agent", Some(agent_uuid(*agent)), None, agent_uuid(*agent))
        }
        ChangeKind::Token(token) => ("token", None, None, Uuid::from_bytes(*token.as_bytes())),
        ChangeKind::Directive(_, agent) => (
            "directive",
            Some(agent_uuid(*agent)),
            None,
            agent_uuid(*agent),
        ),
        ChangeKind::Memory(PartitionKey { agent, user, .. }, id) => (
            "memory",
            Some(agent_uuid(*agent)),
            Some(user_column(user.as_ref())),
            memory_uuid(*id),
        ),
        // Read from the gaps of the feed, never written; the table refuses it.
        ChangeKind::Everything => ("everything", None, None, Uuid::nil()),
    }
}
