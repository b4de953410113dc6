//! The pool of read connections. Each read runs on a blocking thread, so that no I/O thread ever waits for the disk.

use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::connect::Database;
use super::error::{OpenError, closed};
use crate::store::StoreError;

#[derive(Debug, Clone)]
pub(super) struct Readers {
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    database: Database,
    /// One permit a connection; closed when the store is.
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn open(database: &Database, connections: usize) -> Result<Self, OpenError> {
        let connections = connections.max(1);
        let idle = (0..connections)
            .map(|_| database.reader())
            .collect::<Result<Vec<_>, _>>()?;
        let permits = Arc::new(Semaphore::new(connections));
        Ok(Self {
            pool: Arc::new(Pool {
                database: database.clone(),
                permits,
                idle: Mutex::new(idle),
            }),
        })
    }

    /// Runs `work` with a connection, once one is free.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let permit = Arc::clone(&self.pool.permits)
            .acquire_owned()
            .await
            .map_err(|_| closed())?;
        let pool = Arc::clone(&self.pool);
        let read = move || {
            // Permit and connection travel with the work: a caller that goes away cannot lose either.
            let _permit = permit;
            let conn = pool.take()?;
            let answer = work(&conn);
            pool.give_back(conn);
            answer
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|_| StoreError::Unavailable("a read was broken off".to_owned()))?
    }

    /// Refuses further reads and closes the connections.
    pub(super) fn close(&self) {
        self.pool.permits.close();
        self.pool.idle.lock().clear();
    }
}

impl Pool {
    fn take(&self) -> Result<Connection, StoreError> {
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| self.database.reader().map_err(StoreError::from), Ok)
    }

    fn give_back(&self, conn: Connection) {
        let mut idle = self.idle.lock();
        if !self.permits.is_closed() {
            idle.push(conn);
        }
    }
}
