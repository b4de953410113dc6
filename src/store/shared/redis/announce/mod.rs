//! Announcements: a replica that has committed a change says so, and the others read the change feed at once instead of at their next poll.
//!
//! They only make things faster. What changed is read from the store by revision, so one that is lost, late or made up costs a poll at
//! most; none says anything but a revision and a kind. After a connection was lost, whoever listens reads the feed as if one had come.
//!
//! `redis.pubsub = false` does without: nothing is announced, and nobody listens.
//!
//! Nobody waits for an announcement: writes leave a note, and a task makes one announcement of all notes that came meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use redis::aio::PubSubSink;
use serde::{Deserialize, Serialize};

use crate::store::Store;
use crate::tasks::Tasks;
use crate::telemetry::RedisCall;

use super::{Outage, Redis};

/// The form of announcements.
const VERSION: u32 = 1;

/// Between two announcements of one replica: an import is not worth one for each of its writes.
const PAUSE: Duration = Duration::from_millis(10);

/// After so long without a message, the connection is asked whether it still is one.
const SILENCE: Duration = Duration::from_secs(5);

/// Before a lost connection is opened again: at first, and at most.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Memories.
    Memory,
    /// Tokens.
    Token,
    /// Organisations.
    Org,
    /// Agents.
    Agent,
    /// Directives.
    Directive,
    /// Anything: a whole store was loaded.
    Everything,
}

/// An announcement. Unlike the change feed it names nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Announcement {
    v: u32,
    /// The store's revision when it was made; what it is about is no newer.
    revision: i64,
    kind: Kind,
}

/// Announces what a replica writes; cheap to clone.
#[derive(Clone)]
pub struct Announcer(Arc<Inner>);

struct Inner {
    redis: Redis,
    store: Arc<dyn Store>,
    tasks: Tasks,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    kinds: BTreeSet<Kind>,
    /// A task is announcing, and will see what is noted.
    announcing: bool,
}

impl std::fmt::Debug for Announcer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Announcer").finish_non_exhaustive()
    }
}

impl Announcer {
    /// Announces changes of `store`, which is asked for its revision.
    #[must_use]
    pub fn new(redis: Redis, store: Arc<dyn Store>, tasks: Tasks) -> Self {
        Self(Arc::new(Inner {
            redis,
            store,
            tasks,
            notes: Mutex::default(),
        }))
    }

    /// Says that something of this kind was committed. It returns at once; draining the tasks waits until it is out, or given up.
    pub fn announce(&self, kind: Kind) {
        if !self.0.redis.0.announces {
            return;
        }
        let mut notes = self.0.notes.lock();
        notes.kinds.insert(kind);
        if !std::mem::replace(&mut notes.announcing, true) {
            let this = self.clone();
            self.0.tasks.spawn(async move { this.run().await });
        }
    }

    async fn run(&self) {
        loop {
            let kinds = {
                let mut notes = self.0.notes.lock();
                notes.announcing = !notes.kinds.is_empty();
                std::mem::take(&mut notes.kinds)
            };
            if kinds.is_empty() {
                return;
            }
            self.publish(kinds).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// One that does not get out is missed by nobody for longer than a poll.
    async fn publish(&self, kinds: BTreeSet<Kind>) {
        let Inner { redis, store, .. } = &*self.0;
        let Ok(revision) = store.revision().await else {
            return;
        };
        for kind in kinds {
            let announcement = Announcement {
                v: VERSION,
                revision,
                kind,
            };
            let Ok(text) = serde_json::to_string(&announcement) else {
                return;
            };
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(redis.keys().changes()).arg(text);
            let _heard_by: Result<i64, Outage> = redis.run(RedisCall::Publish, &publish).await;
        }
    }
}

/// Calls `heard` with the revision of each announcement, until the tasks stop. Without a revision, something may have been missed.
pub async fn listen(redis: Redis, tasks: Tasks, heard: impl Fn(Option<i64>) + Send + Sync) {
    if !redis.0.announces {
        return;
    }
    let mut wait = FIRST_WAIT;
    for attempt in 0_usize.. {
        let lost = async {
            if let Some(listener) = Listener::open(&redis, attempt).await {
                wait = FIRST_WAIT;
                redis.figures().listening(true);
                listener.run(&heard).await;
                redis.figures().listening(false);
            }
            tokio::time::sleep(wait).await;
        };
        tokio::select! {
            () = lost => {}
            () = tasks.stopping() => return,
        }
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// A connection of its own: one that is subscribed does nothing else.
struct Listener {
    sink: PubSubSink,
    stream: redis::aio::PubSubStream,
    limit: Duration,
}

impl Listener {
    async fn open(redis: &Redis, attempt: usize) -> Option<Self> {
        let connection = &redis.0.connection;
        let open = async {
            let client = connection.source.for_listening(attempt).await.ok()?;
            let (mut sink, stream) = client.get_async_pubsub().await.ok()?.split();
            sink.subscribe(redis.keys().changes()).await.ok()?;
            Some((sink, stream))
        };
        let (sink, stream) = tokio::time::timeout(connection.limit, open).await.ok()??;
        Some(Self {
            sink,
            stream,
            limit: connection.limit,
        })
    }

    /// Until the connection is lost.
    async fn run(mut self, heard: &(impl Fn(Option<i64>) + Send + Sync)) {
        // What was announced before is not heard any more.
        heard(None);
        loop {
            match tokio::time::timeout(SILENCE, self.stream.next()).await {
                Ok(Some(message)) => heard(revision(message.get_payload_bytes())),
                Ok(None) => return,
                Err(_) => {
                    let ping = self.sink.ping::<redis::Value>();
                    if !matches!(tokio::time::timeout(self.limit, ping).await, Ok(Ok(_))) {
                        return;
                    }
                }
            }
        }
    }
}

/// The revision of an announcement; nothing of one in another form, which a newer version may have sent.
fn revision(payload: &[u8]) -> Option<i64> {
    let announcement: Announcement = serde_json::from_slice(payload).ok()?;
    (announcement.v == VERSION).then_some(announcement.revision)
}

#[cfg(test)]
mod tests;
