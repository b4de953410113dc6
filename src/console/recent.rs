//! The context plans of the newest chat requests: a ring of a fixed number of places.
//!
//! A request that ends takes the next place by one atomic addition and puts its entry there. Each place has a lock of its own, which is
//! tried and never waited for: where somebody reads the place at that moment, the entry is dropped. Readers hold it for the copy of one
//! pointer. An entry has identifiers and figures and no text, so nothing that was forgotten can come back from here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use uuid::Uuid;

use crate::auth::{Permissions, Principal, Scope};
use crate::error::Code;
use crate::ids::{RequestId, SessionId};
use crate::openai::sse::Usage;
use crate::request::context::plan::{ContextPlan, ContextStatus};
use crate::session::Lane;
use crate::telemetry::StreamEnd;

/// What is known of a request when its context is made.
#[derive(Debug)]
pub struct About {
    /// Its identifier.
    pub request: RequestId,
    /// Its trace.
    pub trace: Arc<str>,
    /// When its provider was called.
    pub at: Timestamp,
    /// Whose it is.
    pub scope: Scope,
    /// The conversation.
    pub session: SessionId,
    /// Provider and model.
    pub lane: Lane,
    /// Whether events were asked for.
    pub stream: bool,
    /// The plan, where there was an assembly.
    pub plan: Option<Planned>,
}

/// A plan on its way into the ring; boxed, since it is large and handed on.
pub type Planned = Box<ContextPlan>;

/// How a request ended.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Ended {
    /// `complete`, `client_gone` and the other ends of an answer; nothing for an error that came whole.
    pub outcome: Option<&'static str>,
    /// The status that the client got.
    pub status: Option<u16>,
    /// The error that this service answered with.
    pub code: Option<&'static str>,
    /// Time to the answer's head, in milliseconds.
    pub first_byte_ms: Option<f64>,
    /// Time to the end of the answer, in milliseconds.
    pub whole_ms: Option<f64>,
    /// Prompt tokens that the provider reported.
    pub prompt_tokens: u64,
    /// Of them, read from its cache.
    pub cached_tokens: u64,
    /// Completion tokens that it reported.
    pub completion_tokens: u64,
}

/// One request.
#[derive(Debug)]
pub struct Entry {
    /// What it is asked for by: unlike a request identifier, no client chooses it.
    pub id: Uuid,
    /// What was known of it.
    pub about: About,
    /// Whether its plan was left behind because too many requests were under way.
    pub crowded: bool,
    /// How its context came out.
    pub status: ContextStatus,
    /// How it ended.
    pub ended: Ended,
}

impl Entry {
    /// Whether `who` may see it. It is of their organisation and agent, and of the user they act for. Whoever acts for no user sees what
    /// belongs to none; what belongs to users as well if they may name any of them.
    #[must_use]
    pub fn is_seen_by(&self, who: &Principal) -> bool {
        let scope = &self.about.scope;
        let same_agent = scope.org() == who.org() && scope.agent() == who.agent();
        let same_user = match who.scope().user() {
            Some(user) => scope.user() == Some(user),
            None => scope.user().is_none() || who.may(Permissions::ACT_FOR_USER),
        };
        same_agent && same_user
    }
}

/// The ring; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Recent(Arc<Ring>);

#[derive(Debug)]
struct Ring {
    places: Box<[Mutex<Option<Arc<Entry>>>]>,
    next: AtomicUsize,
    /// Requests under way.
    open: AtomicUsize,
}

impl Recent {
    /// A ring of this many places; none for 0.
    pub(super) fn new(places: usize) -> Option<Self> {
        let places: Box<[_]> = (0..places).map(|_| Mutex::new(None)).collect();
        let ring = |places| Ring {
            places,
            next: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        };
        (!places.is_empty()).then(|| Self(Arc::new(ring(places))))
    }

    pub(super) fn room(&self) -> usize {
        self.0.places.len()
    }

    /// A request that has not ended. Where more are under way than there are places it leaves its plan behind: thousands of open
    /// streams would hold thousands of plans, for a ring that shows a few hundred.
    pub(super) fn note(&self, status: ContextStatus, about: About) -> Noted {
        let open = self.0.open.fetch_add(1, Ordering::AcqRel);
        let crowded = open >= self.room() && about.plan.is_some();
        let plan = about.plan.filter(|_| !crowded);
        let entry = Entry {
            id: Uuid::new_v4(),
            about: About { plan, ..about },
            crowded,
            status,
            ended: Ended::default(),
        };
        Noted {
            ring: Arc::clone(&self.0),
            entry: Some(entry),
        }
    }

    /// The entries that `seen` lets through, newest first.
    pub(super) fn newest(&self, seen: impl Fn(&Entry) -> bool) -> Vec<Arc<Entry>> {
        let (places, room) = (&self.0.places, self.room());
        let next = self.0.next.load(Ordering::Acquire);
        // Places beyond the first round are empty.
        let back = (1..=room.min(next)).map(|n| (next - n) % room);
        back.filter_map(|i| places.get(i)?.lock().clone())
            .filter(|entry| seen(entry))
            .collect()
    }
}

impl Ring {
    fn push(&self, entry: Entry) {
        let place = self.next.fetch_add(1, Ordering::AcqRel) % self.places.len().max(1);
        let entry = Some(Arc::new(entry));
        // What stood there is dropped after the lock is given back.
        let _former = self
            .places
            .get(place)
            .and_then(Mutex::try_lock)
            .and_then(|mut held| std::mem::replace(&mut *held, entry));
    }
}

/// A request under way; dropped, it is put into the ring with what is known of its end by then.
#[derive(Debug)]
pub struct Noted {
    ring: Arc<Ring>,
    entry: Option<Entry>,
}

impl Noted {
    fn ended(&mut self) -> Option<&mut Ended> {
        self.entry.as_mut().map(|entry| &mut entry.ended)
    }

    /// The answer's head is there.
    pub fn answered(&mut self, status: StatusCode, took: Duration) {
        if let Some(ended) = self.ended() {
            ended.status = Some(status.as_u16());
            ended.first_byte_ms = Some(took.as_secs_f64() * 1_000.0);
        }
    }

    /// There is no answer.
    pub fn refused(&mut self, code: Code, status: StatusCode, took: Duration) {
        self.answered(status, took);
        if let Some(ended) = self.ended() {
            ended.code = Some(code.as_str());
        }
    }

    /// The answer has ended.
    pub(super) fn end(mut self, end: StreamEnd, usage: Usage, took: Duration) {
        if let Some(ended) = self.ended() {
            ended.outcome = Some(end.as_str());
            ended.whole_ms = Some(took.as_secs_f64() * 1_000.0);
            ended.prompt_tokens = usage.prompt_tokens;
            ended.cached_tokens = usage.cached_tokens;
            ended.completion_tokens = usage.completion_tokens;
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.ring.open.fetch_sub(1, Ordering::AcqRel);
        if let Some(entry) = self.entry.take() {
            self.ring.push(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use http::StatusCode;
    use jiff::Timestamp;

    use super::{About, Recent};
    use crate::auth::Scope;
    use crate::config::Layout;
    use crate::ids::{AgentId, OrgId, RequestId, SessionId};
    use crate::request::context::budget::Budget;
    use crate::request::context::plan::{ContextPlan, ContextStatus, Level, TokenAccount};
    use crate::session::Lane;

    fn about(name: &str) -> About {
        About {
            request: name.parse().unwrap(),
            trace: Arc::from("0"),
            at: Timestamp::UNIX_EPOCH,
            scope: Scope::for_test(OrgId::new(), AgentId::new(), None),
            session: SessionId::mint(),
            lane: Lane::new("openai", "gpt-4o"),
            stream: false,
            plan: None,
        }
    }

    fn plan() -> ContextPlan {
        ContextPlan {
            status: ContextStatus::Full,
            level: Level::L0,
            reason: None,
            layout: Layout::Stable,
            branches: BTreeMap::new(),
            budget: Budget::default(),
            memories: Vec::new(),
            pack: None,
            tokens: TokenAccount::default(),
            timings_ms: BTreeMap::new(),
            session: None,
        }
    }

    fn push(ring: &Recent, name: &str) {
        let mut noted = ring.note(ContextStatus::Full, about(name));
        noted.answered(StatusCode::OK, Duration::from_millis(3));
    }

    fn names(ring: &Recent) -> Vec<RequestId> {
        let all = ring.newest(|_| true);
        all.iter().map(|e| e.about.request.clone()).collect()
    }

    #[test]
    fn only_the_newest_are_kept() {
        assert!(Recent::new(0).is_none());
        let ring = Recent::new(3).unwrap();
        push(&ring, "r0");
        assert_eq!(names(&ring).len(), 1);
        for n in 1..=7 {
            push(&ring, &format!("r{n}"));
        }
        let kept: Vec<RequestId> = ["r7", "r6", "r5"].map(|n| n.parse().unwrap()).to_vec();
        assert_eq!(names(&ring), kept);
    }

    #[test]
    fn no_more_plans_are_held_than_there_are_places() {
        let ring = Recent::new(2).unwrap();
        let note = |name| {
            let about = About {
                plan: Some(Box::new(plan())),
                ..about(name)
            };
            ring.note(ContextStatus::Full, about)
        };
        let open = ["r1", "r2", "r3"].map(note);
        drop(open);
        let first = note("r4");
        drop(first);
        let kept = ring.newest(|_| true);
        let kept = kept.iter().map(|e| (e.about.plan.is_some(), e.crowded));
        let expected = [(true, false), (false, true)];
        assert_eq!(kept.collect::<Vec<_>>(), expected, "r4, r3");
    }

    #[test]
    fn a_place_that_is_being_read_is_left_alone() {
        let ring = Recent::new(2).unwrap();
        push(&ring, "r1");
        push(&ring, "r2");
        let held = ring.0.places[0].lock();
        push(&ring, "r3");
        drop(held);
        assert_eq!(names(&ring).len(), 2);
        assert!(!names(&ring).iter().any(|n| n.as_str() == "r3"));
    }
}
