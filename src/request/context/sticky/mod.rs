//! The `stable` layout: what was sent once in a session is sent again byte for byte, in the same place.
//!
//! ```text
//! lane      what is frozen for this session and model: from the cache, else rendered again from the store (restore, again)
//! flights   of several requests that would compute the same, one does
//! compose   Region A, the turn's block and the plan, from what is held and what was found; pure
//! account   what the plan says of it
//! render    the bytes                       settle    put if absent; losers take the winner's
//! frozen    the request as it will go out   seal      the last check before the handoff: nothing forgotten goes out
//! ```
//!
//! A turn is settled once, whatever came of it: nothing is filled in later. When the state cannot be known the request goes out with the
//! directive alone, and nothing of it is kept.

mod account;
mod compose;
mod flights;
mod frozen;
mod lane;
mod restore;
mod again;
mod render;
mod seal;
mod settle;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::time::Instant;

use crate::app::{App, Rules};
use crate::session::working_state::WorkingState;
use crate::session::{Block, Chain, LaneKey, SessionKey, StateDelta, is_derived};
use crate::store::shared::{Held, Known};
use crate::tokens::Count;

use super::assemble::View;
use super::measure::{self, Measured};
use super::place::takes_block;
use super::plan::Level;
use super::retrieve::{self, Deadline, Found, Wanted};
use super::{Estimate, Subject};
use crate::request::resolution::Resolved;
use crate::request::resolution::directive::Lookup;

use compose::{Composed, Inputs};
use lane::Standing;
use render::{Pinned, Press};

pub use flights::{Flight, Flights};
pub use frozen::Frozen;
pub use render::Renderings;
pub use seal::Envelope;

/// Why the state of a session cannot be known: the reason that the response names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unknown(&'static str);

/// One request on its way through the layout.
pub(super) struct Work<'a> {
    app: &'a App,
    rules: Arc<Rules>,
    subject: &'a Subject<'a>,
    chain: &'a Chain,
    directive: &'a Lookup,
    view: &'a View,
    key: Arc<LaneKey>,
    owner: Arc<SessionKey>,
    deadline: Deadline,
    /// Whether the outcome is frozen; a preview freezes nothing.
    keep: bool,
}

/// Whose turn it is to compute what is missing.
enum Turn {
    /// Nothing is missing, or nothing will be kept.
    Free,
    /// This request's, until the flight is dropped.
    Mine(#[expect(dead_code, reason = "held for its drop")] Flight),
    /// Another request's, which took too long to be waited for.
    Late,
}

/// How often a request starts again because an epoch was rotated under it.
const ATTEMPTS: usize = 3;

/// Runs the layout for a request. With `keep` its outcome is frozen.
pub async fn run(
    app: &App,
    subject: &Subject<'_>,
    resolved: &Resolved,
    view: &View,
    keep: bool,
) -> Frozen {
    let began = Instant::now();
    let owner = Arc::new(SessionKey::new(
        subject.who.scope(),
        resolved.session.clone(),
    ));
    let work = Work {
        app,
        rules: Arc::clone(subject.rules),
        subject,
        chain: &resolved.chain,
        directive: &resolved.directive,
        view,
        key: Arc::new(LaneKey {
            session: SessionKey::clone(&owner),
            lane: subject.lane.clone(),
        }),
        owner,
        deadline: Deadline::new(began, &app.config.context),
        keep,
    };
    let mut frozen = work.frozen().await;
    let ms = began.elapsed().as_secs_f64() * 1_000.0;
    frozen.plan.timings_ms.insert("total", ms);
    frozen
}

impl Work<'_> {
    fn press(&self) -> Press<'_> {
        Press {
            settings: &self.app.config.context,
            rules: &self.rules,
            secret: &self.app.sessions.secret,
            counter: &self.app.counter,
            renderings: &self.app.sessions.renderings,
            family: self.subject.profile.family,
        }
    }

    async fn frozen(&self) -> Frozen {
        for _ in 0..ATTEMPTS {
            match self.attempt().await {
                Ok(Some(frozen)) => return frozen,
                // The epoch was rotated meanwhile: what is frozen now is read again.
                Ok(None) => {}
                Err(Unknown(reason)) => return self.bare(reason).await,
            }
        }
        self.bare("session=contended").await
    }

    async fn attempt(&self) -> Result<Option<Frozen>, Unknown> {
        // Held until everything is settled: who comes second reads what the first one froze.
        let (turn, standing) = self.standing().await?;
        // Who waited in vain for somebody else's turn still sends what is frozen, and whatever that one settles.
        let late = matches!(turn, Turn::Late);
        let asks = self.asks(&standing.held) && !late;
        let wanted = Wanted {
            recall: asks,
            snapshot: self.wants_snapshot(&standing.held),
            opens: standing.held.opening.is_none(),
        };
        let (org, family) = (self.subject.who.org(), self.subject.profile.family);
        let wall = self.deadline.wall;
        // Before the index is asked: what it hears of afterwards may be in the answer all the same.
        let known = self.app.applied();
        let (mut found, measured, state) = tokio::join!(
            retrieve::retrieve(
                self.app,
                self.subject,
                self.directive,
                wanted,
                self.deadline
            ),
            measure::measure(&self.app.counter, org, family, self.subject.chat, wall),
            self.state_delta(asks, &standing),
        );
        if late || Instant::now() > self.deadline.end {
            found = found.given_up("deadline");
        }
        let branches = (found.directive.clone(), found.branches.clone());
        let counted = measured;
        let measured = self.estimated(counted);
        let counts = (measured, counted);
        let compose = |found, state| self.composed(&standing, (found, known), counts, state);
        let mut composed = compose(found, state.clone())?;
        if Instant::now() > self.deadline.end && composed.plan.level < Level::L3 {
            // Too late to be worth its wait: what is frozen goes out, new memories do not.
            let (directive, branches) = branches;
            let late = Found {
                directive,
                branches,
                ..Found::empty()
            };
            composed = compose(late.given_up("deadline"), state)?;
        }
        let counted = whole_prompt(counted, composed.plan.tokens.injected);
        let settled = self.settled(&standing, composed, counted).await;
        drop(turn);
        settled
    }

    /// The client's share as this model will count it: a margin on top of what was counted, corrected by what the provider reported of
    /// former requests. What `ibex` itself puts in is counted exactly and stays as it is.
    fn estimated(&self, counted: Measured) -> Measured {
        let model = (self.subject.who.org(), self.key.lane.clone());
        let corrected = |count: Count| Count {
            tokens: self.app.estimator.estimate(&model, count.tokens),
            ..count
        };
        Measured {
            messages: corrected(counted.messages),
            tools: corrected(counted.tools),
            ..counted
        }
    }

    /// The lane's standing, and the right to change it where that is needed.
    async fn standing(&self) -> Result<(Turn, Standing), Unknown> {
        let mut cached = self.cached().await?;
        let mut turn = Turn::Free;
        if self.keep
            && let Some(wanted) = self.unsettled(cached.as_ref())
        {
            let flights = &self.app.sessions.flights;
            match flights.enter(&self.key, wanted, self.deadline.wall).await {
                Some(flight) => {
                    turn = Turn::Mine(flight);
                    cached = self.cached().await?;
                }
                None if wanted.is_some() => turn = Turn::Late,
                None => return Err(Unknown("session=timeout")),
            }
        }
        let standing = match cached {
            Some(held) if held.opening.is_some() => Standing::open(held),
            held => self.stored(held).await?,
        };
        Ok((turn, standing))
    }

    /// What a request has to compute that others might compute as well: the opening, or its turn.
    fn unsettled(&self, held: Option<&Held>) -> Option<Option<crate::session::ChainHash>> {
        match held {
            Some(held) if held.opening.is_some() => self
                .asks(held)
                .then(|| self.chain.turns().last().map(|turn| turn.chain)),
            Some(_) | None => Some(None),
        }
    }

    /// Whether the request's turn is open, and its message can take a block.
    fn asks(&self, held: &Held) -> bool {
        let (Some(turn), Some(Known::No)) = (self.chain.turns().last(), held.turns.last()) else {
            return false;
        };
        let message = self.subject.chat.messages().get(turn.message);
        message.is_some_and(|m| takes_block(m, self.subject.profile))
    }

    fn wants_snapshot(&self, held: &Held) -> usize {
        let settings = &self.app.config.context;
        if held.opening.is_some() || settings.snapshot_tokens == 0 {
            0
        } else {
            settings.snapshot_items
        }
    }

    /// What changed in the working state since the last block on this chain that told of it.
    async fn state_delta(&self, asks: bool, standing: &Standing) -> Option<StateDelta> {
        let held = &standing.held;
        if !asks || is_derived(&self.owner.id) {
            return None;
        }
        let states = &self.app.sessions.states;
        let latest = states.latest(&self.owner, self.deadline.wall).await?;
        let from = told_so_far(held);
        // What this process knows may be older than what another one has told the session: the state never goes back.
        if latest.version <= from {
            return None;
        }
        let before = match from {
            0 => Arc::new(WorkingState::default()),
            version => {
                states
                    .version(&self.owner, version, self.deadline.wall)
                    .await?
            }
        };
        let nonce_epoch = held
            .opening
            .as_ref()
            .map_or(standing.first, |o| o.nonce_epoch);
        let to = (latest.version, &*latest.state);
        self.press()
            .state(&self.owner, nonce_epoch, (from, &before), to)
    }

    /// The pure part. A fault in it costs what is new and what is frozen for this one request, never the request.
    fn composed(
        &self,
        standing: &Standing,
        (found, known): (Found, i64),
        (measured, counted): (Measured, Measured),
        state: Option<StateDelta>,
    ) -> Result<Composed, Unknown> {
        let revoked = self.app.directives.revoked(self.subject.who.scope());
        let inputs = Inputs {
            press: self.press(),
            owner: &self.owner,
            chat: self.subject.chat,
            turns: self.chain.turns(),
            profile: self.subject.profile,
            held: &standing.held,
            lost: standing.lost,
            first: standing.first,
            revoked: &revoked,
            found,
            known,
            measured,
            counted,
            state,
            view: self.view,
            explain: !self.keep || self.app.console.room() > 0,
            now: self.app.clock.now(),
        };
        match catch_unwind(AssertUnwindSafe(|| compose::compose(inputs))) {
            Ok(Ok(composed)) => Ok(composed),
            Ok(Err(error)) => {
                tracing::error!("context assembly failed: {error}");
                Err(Unknown("internal"))
            }
            Err(_) => {
                tracing::error!("context assembly panicked");
                Err(Unknown("internal"))
            }
        }
    }

    /// The directive alone, when the session's state cannot be known.
    async fn bare(&self, reason: &'static str) -> Frozen {
        let who = self.subject.who;
        let directive = super::directive_alone(self.app, who, self.directive).await;
        let text = directive.as_ref().map(|d| self.view.text(d));
        let pinned = directive
            .as_ref()
            .zip(text.as_ref())
            .map(|(d, text)| Pinned {
                version: d.version,
                text,
                hidden: self.view.hide_directive,
            });
        let opening = compose::bare(&self.press(), &self.owner, pinned);
        let mut plan = super::assemble::failed_plan(self.subject, directive.is_some());
        plan.layout = self.app.config.context.layout;
        plan.reason = Some(reason.to_owned());
        Frozen {
            key: Arc::clone(&self.key),
            opening: Arc::new(opening),
            turns: Vec::new(),
            used: Vec::new(),
            texts: Vec::new(),
            plan,
            checked: 0,
            known: 0,
            last: None,
            trimmed: false,
            recorded: false,
            counted: None,
            stripped: false,
            opened: false,
        }
    }
}

/// The version of the working state that the blocks of this conversation lead to. Where the client cut off the block that a change
/// builds on, the model knows nothing of it, and is told the whole once more.
fn told_so_far(held: &Held) -> u32 {
    let blocks = held.turns.iter().filter_map(block_of);
    let changes = blocks.filter_map(|b| b.state());
    changes.fold(0, |told, change| match change.from {
        0 => change.to,
        from if from == told => change.to,
        _ => told,
    })
}

/// What the whole prompt was counted as, before any correction.
fn whole_prompt(client: Measured, injected: u32) -> Estimate {
    let tokens = client.messages.tokens.saturating_add(client.tools.tokens);
    Estimate {
        family: client.family,
        tokens: tokens.saturating_add(injected),
    }
}

/// The block of a turn that is known.
fn block_of(known: &Known) -> Option<&Arc<Block>> {
    match known {
        Known::Chain(outcome) | Known::Anchor(outcome) => outcome.block(),
        Known::No => None,
    }
}
