//! A session cache, a search and a hot set that stop a request at one of its steps until a test lets it go on.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use ibex::app::App;
use ibex::auth::Scope;
use ibex::config::SessionConfig;
use ibex::memory::Memory;
use ibex::memory::search::{BranchError, ColdBranch, Hit, HotBranch, HotSet, Query};
use ibex::session::{LaneKey, Opening, Outcome, Turn};
use ibex::store::StoreError;
use ibex::store::shared::{BlockFate, CacheError, Held, InProcess, Sent, SessionCache};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::support::{Event, Overrides};

/// A step of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Read,
    Restore,
    Open,
    Settle,
    Rotate,
    Turns,
    Checked,
    Sent,
    /// Before the search, and with what it found in hand.
    Search,
    Found,
    /// With what a session opens with in hand.
    Standing,
}

/// What happens at a step.
#[derive(Debug, Clone)]
enum Act {
    Stop { reached: Event, go: Event },
    Fail,
    Hang,
}

/// Shared by everything that a request passes.
#[derive(Debug)]
pub(super) struct Gate {
    lanes: InProcess,
    /// Whether other replicas are said to stand behind the same lanes.
    shared: bool,
    acts: Mutex<Vec<(Step, Act)>>,
    app: OnceLock<App>,
}

impl Gate {
    pub(super) fn new() -> Arc<Self> {
        Self::over(false)
    }

    /// One over lanes that other replicas share: a test does to them what those would do.
    pub(super) fn shared() -> Arc<Self> {
        Self::over(true)
    }

    fn over(shared: bool) -> Arc<Self> {
        Arc::new(Self {
            lanes: InProcess::new(&SessionConfig::default()),
            shared,
            acts: Mutex::default(),
            app: OnceLock::new(),
        })
    }

    /// The parts that pass through this gate.
    pub(super) fn overrides(self: &Arc<Self>) -> Overrides {
        Overrides {
            sessions: Some(self.clone()),
            hot: Some(self.clone()),
            cold: Some(self.clone()),
            ..Overrides::default()
        }
    }

    /// Whose index and hot set stand behind it.
    pub(super) fn serve(&self, app: &App) {
        self.app.set(app.clone()).expect("one service");
    }

    /// The lanes behind it.
    pub(super) fn lanes(&self) -> &InProcess {
        &self.lanes
    }

    /// The next request that comes to `step` sets the first event, and goes on with the second. Nothing happens at any other step.
    pub(super) fn stop_at(&self, step: Step) -> (Event, Event) {
        self.mend();
        self.stop_also_at(step)
    }

    /// The same beside what happens already.
    pub(super) fn stop_also_at(&self, step: Step) -> (Event, Event) {
        let (reached, go) = (Event::default(), Event::default());
        let act = Act::Stop {
            reached: reached.clone(),
            go: go.clone(),
        };
        self.acts.lock().push((step, act));
        (reached, go)
    }

    /// From now on `step` fails, and nothing happens at any other one.
    pub(super) fn fail(&self, step: Step) {
        *self.acts.lock() = vec![(step, Act::Fail)];
    }

    /// From now on `step` never ends, and nothing happens at any other one.
    pub(super) fn hang(&self, step: Step) {
        *self.acts.lock() = vec![(step, Act::Hang)];
    }

    /// From now on nothing happens at any step.
    pub(super) fn mend(&self) {
        self.acts.lock().clear();
    }

    fn hot_set(&self) -> HotSet {
        HotSet::new(Arc::clone(&self.app().index))
    }

    async fn pass(&self, step: Step) -> Result<(), CacheError> {
        let act = {
            let mut acts = self.acts.lock();
            let place = acts.iter().position(|(at, _)| *at == step);
            place.map(|place| match &acts[place] {
                (_, Act::Stop { .. }) => acts.remove(place),
                other => other.clone(),
            })
        };
        match act {
            None => Ok(()),
            Some((_, Act::Fail)) => Err(CacheError::Unavailable("out of order".to_owned())),
            Some((_, Act::Hang)) => std::future::pending().await,
            Some((_, Act::Stop { reached, go })) => {
                reached.set();
                go.wait().await;
                Ok(())
            }
        }
    }

    async fn pass_branch(&self, step: Step) -> Result<(), BranchError> {
        let failed = |_| BranchError::Store(StoreError::Unavailable("out of order".to_owned()));
        self.pass(step).await.map_err(failed)
    }

    fn app(&self) -> &App {
        self.app.get().expect("a service")
    }
}

#[async_trait]
impl SessionCache for Gate {
    fn is_shared(&self) -> bool {
        self.shared
    }

    async fn read(&self, key: &LaneKey, turns: &[Turn]) -> Result<Option<Held>, CacheError> {
        self.pass(Step::Read).await?;
        self.lanes.read(key, turns).await
    }

    async fn restore(
        &self,
        key: &LaneKey,
        opening: Arc<Opening>,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(), CacheError> {
        self.pass(Step::Restore).await?;
        self.lanes.restore(key, opening, turns).await
    }

    async fn open(
        &self,
        key: &LaneKey,
        opening: Arc<Opening>,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<(Arc<Opening>, Vec<Outcome>), CacheError> {
        self.pass(Step::Open).await?;
        self.lanes.open(key, opening, turns).await
    }

    async fn settle(
        &self,
        key: &LaneKey,
        nonce_epoch: u32,
        turns: Vec<(Turn, Outcome)>,
    ) -> Result<Vec<Outcome>, CacheError> {
        self.pass(Step::Settle).await?;
        self.lanes.settle(key, nonce_epoch, turns).await
    }

    async fn rotate(
        &self,
        key: &LaneKey,
        from: u32,
        opening: Arc<Opening>,
        blocks: BlockFate,
    ) -> Result<Arc<Opening>, CacheError> {
        self.pass(Step::Rotate).await?;
        self.lanes.rotate(key, from, opening, blocks).await
    }

    async fn turns(&self, key: &LaneKey) -> Result<Vec<(Turn, Outcome)>, CacheError> {
        self.pass(Step::Turns).await?;
        self.lanes.turns(key).await
    }

    async fn checked(&self, key: &LaneKey, revision: i64, turns: usize) -> Result<(), CacheError> {
        self.pass(Step::Checked).await?;
        self.lanes.checked(key, revision, turns).await
    }

    async fn sent(&self, key: &LaneKey, sent: Sent) -> Result<(), CacheError> {
        self.pass(Step::Sent).await?;
        self.lanes.sent(key, sent).await
    }
}

#[async_trait]
impl ColdBranch for Gate {
    async fn cold(
        &self,
        scope: &Scope,
        query: &Query,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Hit>, BranchError> {
        self.pass_branch(Step::Search).await?;
        let hits = self.app().index.cold(scope, query, limit, deadline).await?;
        self.pass_branch(Step::Found).await?;
        Ok(hits)
    }
}

#[async_trait]
impl HotBranch for Gate {
    async fn hot(
        &self,
        scope: &Scope,
        query: &Query,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Hit>, BranchError> {
        self.hot_set().hot(scope, query, limit, deadline).await
    }

    async fn standing(
        &self,
        scope: &Scope,
        limit: usize,
        deadline: Instant,
    ) -> Result<Vec<Arc<Memory>>, BranchError> {
        let members = self.hot_set().standing(scope, limit, deadline).await?;
        self.pass_branch(Step::Standing).await?;
        Ok(members)
    }
}
