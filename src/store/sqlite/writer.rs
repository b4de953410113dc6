//! The one thread that writes. It takes what has queued up meanwhile, runs it in one transaction and answers after the commit, so a
//! hundred waiting writes share one sync to disk. Each job has a savepoint of its own: one that fails takes nothing else with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use tokio::sync::{mpsc, oneshot};

use super::connect::{Database, Durability};
use super::error::{OpenError, closed};
use super::rows::{micros, user_column};
use crate::ids::MemoryId;
use crate::memory::PartitionKey;
use crate::store::StoreError;

/// Writes that wait in the queue; beyond it callers wait for a place.
const QUEUE: usize = 1_024;
/// Messages taken into one transaction, so that the first of them is not kept waiting for ever.
const GROUP: usize = 256;
/// Counters held back while acknowledged writes keep coming; beyond it they are stored all the same.
const HELD_COUNTS: usize = 4_096;
/// Changed rows between two checkpoints: a few megabytes of write-ahead log.
const CHECKPOINT_ROWS: u64 = 2_000;
/// How long emptying the log may wait for readers; while it waits nothing is written.
const SCRUB_WAIT: Duration = Duration::from_millis(25);

/// The handle that queues work for the thread.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Mutex<Option<mpsc::Sender<Message>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    scrub: Arc<Scrub>,
}

/// Whether the write-ahead log still holds a text that was forgotten.
#[derive(Debug, Default)]
pub(super) struct Scrub {
    /// The log is to be emptied after the current group.
    due: AtomicBool,
    /// A reader prevented it; the next [`Writer::retry_scrub`] makes it due again. Trying after every group would slow all writes for
    /// as long as that reader goes on.
    blocked: AtomicBool,
}

impl Scrub {
    /// To be called by the job that forgets, so that it counts also when nobody waits for the job's answer any more.
    pub(super) fn request(&self) {
        self.due.store(true, Ordering::Release);
    }
}

enum Message {
    Job(Box<dyn Job>),
    Retrieved(Vec<PartitionKey>, Vec<MemoryId>, Timestamp),
    /// Nothing to write: an occasion for what is done between groups.
    Nudge,
}

impl Writer {
    pub(super) fn start(database: &Database) -> Result<Self, OpenError> {
        let scrub = Arc::<Scrub>::default();
        let worker = Worker {
            conn: database.writer(Durability::Acknowledged)?,
            telemetry: database.writer(Durability::Telemetry)?,
            busy_timeout: database.busy_timeout,
            group: Vec::new(),
            counts: HashMap::new(),
            scrub: Arc::clone(&scrub),
            checkpointed: 0,
        };
        let (queue, work) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("ibex-store-writer".to_owned())
            .spawn(move || worker.run(work))?;
        Ok(Self {
            queue: Mutex::new(Some(queue)),
            thread: Mutex::new(Some(thread)),
            scrub,
        })
    }

    /// Runs `work` in the next group and answers once it is durable. It runs also when the caller goes away after queueing it.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let task = Task {
            work: Some(work),
            outcome: None,
            reply,
        };
        // The sender is dropped before the wait, or a write that waits for its answer would keep `close` from ending the thread.
        self.sender()?
            .send(Message::Job(Box::new(task)))
            .await
            .map_err(|_| closed())?;
        answer
            .await
            .map_err(|_| StoreError::Unavailable("the writer stopped".to_owned()))?
    }

    /// Queues use counts. When the queue is full they are dropped rather than waited for.
    pub(super) fn count_retrieved(
        &self,
        partitions: Vec<PartitionKey>,
        ids: Vec<MemoryId>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let full = |_| StoreError::Unavailable("the write queue is full".to_owned());
        self.sender()?
            .try_send(Message::Retrieved(partitions, ids, at))
            .map_err(full)
    }

    /// Where a job asks for the log to be emptied.
    pub(super) fn scrub(&self) -> Arc<Scrub> {
        Arc::clone(&self.scrub)
    }

    /// Tries again to empty the log when a reader prevented it.
    pub(super) fn retry_scrub(&self) {
        if self.scrub.blocked.swap(false, Ordering::AcqRel) {
            self.scrub.request();
            // A full queue brings the thread there too, and a closed one was emptied on the way out.
            if let Ok(queue) = self.sender() {
                queue.try_send(Message::Nudge).ok();
            }
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.thread
            .lock()
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Refuses further work, lets the thread finish what is queued, and waits for it. To be called from a thread that may block.
    pub(super) fn close(&self) -> Result<(), StoreError> {
        drop(self.queue.lock().take());
        let thread = self.thread.lock().take();
        thread
            .map_or(Ok(()), JoinHandle::join)
            .map_err(|_| StoreError::Unavailable("the writer stopped".to_owned()))
    }

    fn sender(&self) -> Result<mpsc::Sender<Message>, StoreError> {
        self.queue.lock().clone().ok_or_else(closed)
    }
}

/// A queued write: first run, then answered when the fate of its group is known.
trait Job: Send {
    fn run(&mut self, conn: &Connection) -> Result<(), StoreError>;
    fn answer(self: Box<Self>, group: Result<(), StoreError>);
}

struct Task<T, F> {
    work: Option<F>,
    outcome: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Task<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, conn: &Connection) -> Result<(), StoreError> {
        let Some(work) = self.work.take() else {
            return Ok(());
        };
        let outcome = work(conn);
        let state = outcome.as_ref().map(|_| ()).map_err(Clone::clone);
        self.outcome = Some(outcome);
        state
    }

    /// The group's failure hides the job's own outcome: even a conflict may have been with a row that was not committed.
    fn answer(self: Box<Self>, group: Result<(), StoreError>) {
        let Self { outcome, reply, .. } = *self;
        let not_run = || Err(StoreError::Unavailable("the write was not run".to_owned()));
        let answer = group.and_then(|()| outcome.unwrap_or_else(not_run));
        // The caller may have gone; the row is stored all the same.
        reply.send(answer).ok();
    }
}

#[derive(Clone, Copy)]
struct Uses {
    count: u32,
    last: Timestamp,
}

struct Worker {
    conn: Connection,
    /// A second connection, because the sync level of a commit is a property of the connection.
    telemetry: Connection,
    busy_timeout: Duration,
    group: Vec<Box<dyn Job>>,
    counts: HashMap<(PartitionKey, MemoryId), Uses>,
    scrub: Arc<Scrub>,
    /// Rows changed by both connections up to the last checkpoint.
    checkpointed: u64,
}

impl Worker {
    fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        while let Some(first) = queue.blocking_recv() {
            self.take(first);
            for _ in 1..GROUP {
                let Ok(next) = queue.try_recv() else { break };
                self.take(next);
            }
            self.commit_group();
            if queue.is_empty() || self.counts.len() > HELD_COUNTS {
                self.store_counts();
            }
            self.empty_log();
            self.checkpoint();
        }
        self.store_counts();
        if self.scrub.blocked.load(Ordering::Acquire) {
            self.scrub.request();
            self.empty_log();
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Job(job) => self.group.push(job),
            Message::Retrieved(partitions, ids, at) => {
                for key in partitions
                    .iter()
                    .flat_map(|p| ids.iter().map(|id| (p.clone(), *id)))
                {
                    let uses = self
                        .counts
                        .entry(key)
                        .or_insert(Uses { count: 0, last: at });
                    uses.count = uses.count.saturating_add(1);
                    uses.last = uses.last.max(at);
                }
            }
            Message::Nudge => {}
        }
    }

    fn commit_group(&mut self) {
        if self.group.is_empty() {
            return;
        }
        let mut group = std::mem::take(&mut self.group);
        let fate = transaction(&self.conn, |conn| {
            group
                .iter_mut()
                .try_for_each(|job| in_savepoint(conn, job.as_mut()))
        });
        if let Err(error) = &fate {
            tracing::error!(%error, writes = group.len(), "a group of writes was not stored");
        }
        for job in group {
            job.answer(fate.clone());
        }
    }

    /// Stores the use counts without waiting for the disk. What cannot be stored is lost: the counts are telemetry.
    fn store_counts(&mut self) {
        if self.counts.is_empty() {
            return;
        }
        let counts = std::mem::take(&mut self.counts);
        let stored = transaction(&self.telemetry, |conn| {
            counts
                .iter()
                .try_for_each(|((partition, id), uses)| store_uses(conn, partition, *id, *uses))
        });
        if let Err(error) = stored {
            tracing::warn!(%error, memories = counts.len(), "use counts were not stored");
        }
    }

    fn checkpoint(&mut self) {
        let changed = self.conn.total_changes() + self.telemetry.total_changes();
        if changed.saturating_sub(self.checkpointed) < CHECKPOINT_ROWS {
            return;
        }
        self.checkpointed = changed;
        if let Err(error) = self
            .conn
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
        {
            tracing::warn!(error = %StoreError::from(error), "the write-ahead log could not be checkpointed");
        }
    }

    /// Moves the log into the file and cuts it to nothing when it is due, because its older frames still hold what was forgotten. A reader
    /// in an older snapshot prevents it for a while; the last connection to close the file removes the log anyway.
    fn empty_log(&self) {
        if !self.scrub.due.swap(false, Ordering::AcqRel) {
            return;
        }
        let truncate = || -> rusqlite::Result<bool> {
            self.conn.busy_timeout(SCRUB_WAIT)?;
            let blocked = self
                .conn
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
            self.conn.busy_timeout(self.busy_timeout)?;
            blocked
        };
        if truncate().unwrap_or(true) {
            self.scrub.blocked.store(true, Ordering::Release);
        }
    }
}

/// Runs `work` in one transaction that holds the write lock from its start; dropped without a commit it rolls back.
fn transaction(
    conn: &Connection,
    work: impl FnOnce(&Connection) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let transaction = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    work(&transaction)?;
    Ok(transaction.commit()?)
}

/// Runs one job; an error from here is one of the whole group.
fn in_savepoint(conn: &Connection, job: &mut dyn Job) -> Result<(), StoreError> {
    conn.prepare_cached("SAVEPOINT job")?.execute([])?;
    if let Err(error) = job.run(conn) {
        // A full or failing disk can make the engine give up the whole transaction. Going on would then commit each later statement
        // by itself.
        if conn.is_autocommit() {
            return Err(error);
        }
        conn.prepare_cached("ROLLBACK TO job")?.execute([])?;
    }
    conn.prepare_cached("RELEASE job")?.execute([])?;
    Ok(())
}

fn store_uses(
    conn: &Connection,
    partition: &PartitionKey,
    id: MemoryId,
    uses: Uses,
) -> Result<(), StoreError> {
    let sql = "UPDATE memories SET retrieval_count = min(retrieval_count + ?5, 4294967295), retrieved_at = max(coalesce(retrieved_at, ?6), ?6)
               WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4 AND status <> 'forgotten'";
    let PartitionKey { org, agent, user } = partition;
    let user = user_column(user.as_ref());
    conn.prepare_cached(sql)?.execute(params![
        org.as_bytes(),
        agent.as_bytes(),
        user,
        id.as_bytes(),
        uses.count,
        micros(uses.last)
    ])?;
    Ok(())
}
