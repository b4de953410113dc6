//! The lease of one stream: asked for, then held and renewed, and given back whatever the way out.

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::store::shared::redis::keys::Key;
use crate::telemetry::RedisCall;

use super::Shared;

/// Renewals in the life of a lease: all but one may fail.
const RENEWALS: u32 = 3;

/// One stream's slot at every level that limits streams.
#[derive(Debug)]
pub(in crate::limits) struct Lease {
    shared: Shared,
    /// The keys of each script.
    scripts: Vec<Vec<Key>>,
    id: Uuid,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Redis knows nothing of it.
    New,
    /// It may be there: the answer is not in, or was lost.
    Asked,
    /// A task keeps it until this is dropped.
    Held {
        _kept_until_dropped: oneshot::Sender<()>,
    },
}

impl Lease {
    pub(super) fn new(shared: Shared, scripts: Vec<Vec<Key>>) -> Self {
        Self {
            shared,
            scripts,
            id: Uuid::new_v4(),
            state: State::New,
        }
    }

    pub(super) fn name(&self) -> String {
        self.id.simple().to_string()
    }

    /// From now on it has to be given back. Answers whether Redis knew nothing of it until now.
    pub(super) fn asked_for(&mut self) -> bool {
        matches!(std::mem::replace(&mut self.state, State::Asked), State::New)
    }

    /// Nothing of it is there.
    pub(super) fn refused(&mut self) {
        self.state = State::New;
    }

    /// Keeps it until it is dropped. One that Redis has not been asked for, or could not answer about, is put there by the first renewal
    /// that gets through.
    pub(in crate::limits) fn hold(mut self) -> Self {
        let (sender, gone) = oneshot::channel();
        self.state = State::Held {
            _kept_until_dropped: sender,
        };
        let keeper = self.keeper();
        self.shared.tasks.spawn(keeper.keep(gone));
        self
    }

    fn keeper(&self) -> Keeper {
        Keeper {
            shared: self.shared.clone(),
            scripts: self.scripts.clone(),
            name: self.name(),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // One that is held has its own task, which the sender's end wakes. Outside of a runtime the process ends, and it runs out.
        if matches!(self.state, State::Asked) && Handle::try_current().is_ok() {
            let keeper = self.keeper();
            let give_back = async move { keeper.give_back().await };
            self.shared.tasks.spawn(give_back);
        }
    }
}

/// What speaks for a lease while nobody waits.
struct Keeper {
    shared: Shared,
    scripts: Vec<Vec<Key>>,
    name: String,
}

impl Keeper {
    /// One task says everything about a lease, so that no renewal can come after its end.
    async fn keep(self, mut gone: oneshot::Receiver<()>) {
        let life = self.shared.life;
        while tokio::time::timeout(life / RENEWALS, &mut gone)
            .await
            .is_err()
        {
            self.say(RedisCall::LeaseRenew, life.as_millis()).await;
        }
        self.give_back().await;
    }

    async fn give_back(&self) {
        self.say(RedisCall::LeaseRelease, 0).await;
    }

    /// What is not heard is said again by the next renewal, or runs out.
    async fn say(&self, call: RedisCall, life_ms: u128) {
        let Shared { redis, scripts, .. } = &self.shared;
        for keys in &self.scripts {
            let args = [self.name.clone(), life_ms.to_string()];
            let _unheard = redis.script::<()>(call, &scripts.lease, keys, &args).await;
        }
    }
}
