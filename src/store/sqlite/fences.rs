//! What requests ask on an I/O thread, over a connection of its own: the revision at which a partition last lost a memory (kept for as
//! long as nobody writes), and whether a session has rows.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};

use super::connect::Database;
use super::error::{OpenError, closed};
use super::feed::data_version;
use super::rows::user_column;
use crate::memory::PartitionKey;
use crate::session::SessionKey;
use crate::store::StoreError;

/// Partitions whose fence is kept; beyond it all are read again.
const KEPT: usize = 4_096;
/// How long a look may wait for a process that repairs or removes the log. No other lock keeps a reader out.
const WAIT: Duration = Duration::from_millis(10);

/// Raises the fence of a partition to the revision of a change, inside the caller's transaction.
pub(super) fn raise(
    conn: &Connection,
    partition: &PartitionKey,
    revision: i64,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO forget_fences (org, agent, user, revision) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (org, agent, user) DO UPDATE SET revision = excluded.revision";
    let PartitionKey { org, agent, user } = partition;
    conn.prepare_cached(sql)?.execute(params![
        org.as_bytes(),
        agent.as_bytes(),
        user_column(user.as_ref()),
        revision
    ])?;
    Ok(())
}

/// A read connection with what it has read since the last write. It has its own because the engine's data version is only comparable
/// on one connection, and `feed::Watch` gives each move of it away once.
#[derive(Debug)]
pub(super) struct Fences {
    state: Mutex<Option<Known>>,
}

#[derive(Debug)]
struct Known {
    conn: Connection,
    data_version: i64,
    fences: HashMap<PartitionKey, i64>,
}

impl Fences {
    pub(super) fn open(database: &Database) -> Result<Self, OpenError> {
        let conn = database.reader()?;
        conn.busy_timeout(WAIT)?;
        let known = Known {
            data_version: data_version(&conn)?,
            conn,
            fences: HashMap::new(),
        };
        Ok(Self {
            state: Mutex::new(Some(known)),
        })
    }

    /// The highest fence of `partitions`; 0 when none of them has one.
    pub(super) fn newest(&self, partitions: &[PartitionKey]) -> Result<i64, StoreError> {
        let mut state = self.state.lock();
        let known = state.as_mut().ok_or_else(closed)?;
        // Read before the fences: a write in between moves it again, and what was read is dropped at the next call.
        let now = data_version(&known.conn)?;
        if std::mem::replace(&mut known.data_version, now) != now {
            known.fences.clear();
        }
        partitions.iter().try_fold(0, |newest, partition| {
            Ok(known.fence(partition)?.max(newest))
        })
    }

    /// Whether there is such a session.
    pub(super) fn knows_session(&self, key: &SessionKey) -> Result<bool, StoreError> {
        let state = self.state.lock();
        let known = state.as_ref().ok_or_else(closed)?;
        let sql = "SELECT 1 FROM sessions WHERE org = ?1 AND agent = ?2 AND user = ?3 AND id = ?4";
        let (org, agent, user) = (&key.org, &key.agent, user_column(key.user.as_ref()));
        let values = params![org.as_bytes(), agent.as_bytes(), user, key.id.as_str()];
        Ok(known.conn.prepare_cached(sql)?.exists(values)?)
    }

    pub(super) fn close(&self) {
        drop(self.state.lock().take());
    }
}

impl Known {
    fn fence(&mut self, partition: &PartitionKey) -> Result<i64, StoreError> {
        if let Some(fence) = self.fences.get(partition) {
            return Ok(*fence);
        }
        let sql = "SELECT revision FROM forget_fences WHERE org = ?1 AND agent = ?2 AND user = ?3";
        let PartitionKey { org, agent, user } = partition;
        let user = user_column(user.as_ref());
        let fence = self
            .conn
            .prepare_cached(sql)?
            .query_row(params![org.as_bytes(), agent.as_bytes(), user], |row| {
                row.get(0)
            })
            .optional()?
            .unwrap_or(0);
        if self.fences.len() >= KEPT {
            self.fences.clear();
        }
        self.fences.insert(partition.clone(), fence);
        Ok(fence)
    }
}
