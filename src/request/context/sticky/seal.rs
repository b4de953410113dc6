//! The seal: the last thing before a handoff. What was forgotten by then does not go out.
//!
//! The store's revision of forgotten memories is read last of all that has to be waited for; nothing is awaited between the answer and the bytes that are
//! handed over. A store that is reached over a network lets a `DELETE` return only when no answer that was asked before it is in use any
//! more. So a handoff that starts after a `DELETE` has returned carries no copy, whoever forgot it and wherever.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::{Frozen, compose};
use crate::app::App;
use crate::ids::{MemoryId, hex};
use crate::memory::{Memory, Status};
use crate::openai::ChatRequest;
use crate::openai::edits::Edits;
use crate::providers::ModelProfile;
use crate::request::context::place::{self, build};
use crate::request::context::plan::{Level, SessionAccount, SessionEvent};
use crate::session::{Chain, ChainHash, Opening, OpeningParts, Outcome};
use crate::store::shared::{BlockFate, Sent};

/// Looks at the store before a request goes out without anything that was frozen: a memory is being forgotten all the time.
const LOOKS: usize = 4;
/// Time for asking which memories are gone. It is asked only after one was.
const PATIENCE: Duration = Duration::from_millis(50);

/// When the store was asked for what is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// Last of all: nothing was waited for since its answer.
    Last,
    /// Before something else that had to be waited for, or not at all.
    Before,
}

/// The request that is sealed.
#[derive(Debug, Clone, Copy)]
pub struct Envelope<'a> {
    /// The client's.
    pub chat: &'a ChatRequest,
    /// The model's.
    pub profile: ModelProfile,
    /// Its hashes.
    pub chain: &'a Chain,
}

impl Frozen {
    /// Checks, and writes the request.
    pub async fn seal(&mut self, app: &App, envelope: &Envelope<'_>, keep: bool) -> Edits {
        let chain = envelope.chain;
        let events = self.events(chain);
        for _ in 0..LOOKS {
            let looked = self.check(app, keep).await;
            if let Err(reason) = looked {
                self.strip(reason);
            }
            let waited = keep && self.note_sent(app, chain).await;
            // From here to the handoff nothing waits; where nothing has since the store was asked, it need not be asked again.
            let just_now = looked == Ok(Looked::Last) && !waited;
            if self.ids().is_empty() || just_now || self.is_current(app).await {
                return self.sealed(app, envelope, events, keep);
            }
        }
        self.strip("fence=contended");
        self.sealed(app, envelope, events, keep)
    }

    fn sealed(
        &mut self,
        app: &App,
        envelope: &Envelope<'_>,
        events: Vec<SessionEvent>,
        keep: bool,
    ) -> Edits {
        if keep {
            self.compare(app, envelope.chain, &events);
        }
        self.tell(envelope.chain, events);
        let frozen = place::Frozen {
            opening: &self.opening,
            blocks: &self.blocks(),
        };
        build(envelope.chat, &frozen, envelope.profile)
    }

    /// Whether nothing that could be in this request was forgotten since it was checked.
    async fn is_current(&self, app: &App) -> bool {
        let partitions = self.key.session.partitions();
        let fence = app.store.forget_fence(&partitions).await;
        fence.is_ok_and(|fence| fence <= self.checked)
    }

    /// Takes out what was forgotten.
    async fn check(&mut self, app: &App, keep: bool) -> Result<Looked, &'static str> {
        let ids = self.ids();
        if ids.is_empty() {
            return Ok(Looked::Before);
        }
        let partitions = self.key.session.partitions();
        let failed = |_| "fence=error";
        let fence = app.store.forget_fence(&partitions).await.map_err(failed)?;
        let cache = &app.sessions.cache;
        // What is new came from the index, which knew of everything up to this revision when it was asked.
        let new_is_current = self.new_memories() == 0 || fence <= self.known;
        if fence <= self.checked && new_is_current {
            return Ok(Looked::Last);
        }
        let mut asked = ids;
        let held = cache.turns(&self.key).await.map_err(|_| "fence=error")?;
        asked.extend(
            held.iter()
                .filter_map(|(_, o)| o.block())
                .flat_map(|b| b.ids()),
        );
        if new_is_current && self.are_new(&asked) {
            return self.current(app, (fence, held.len()), keep).await;
        }
        asked.sort_unstable();
        asked.dedup();
        let known = timeout(PATIENCE, app.store.memories_by_id(&partitions, &asked));
        let known = known.await.map_err(|_| "fence=timeout")?.map_err(failed)?;
        let mut gone = asked;
        gone.retain(|id| {
            !known
                .iter()
                .any(|memory| memory.id == *id && self.still_says(memory))
        });
        if !gone.is_empty() {
            self.scrub(app, &gone, keep).await?;
        }
        self.current(app, (fence, held.len()), keep).await
    }

    /// Whether a memory may be sent with the text that was rendered: it does not wait for review, and its text is what it was then.
    fn still_says(&self, memory: &Memory) -> bool {
        let rendered = self.texts.iter().find(|(id, _)| *id == memory.id);
        let same = match rendered {
            Some((_, revision)) => memory.text_revision == *revision,
            // Rendered for an earlier request, and checked up to there.
            None => memory.text_revision <= self.checked,
        };
        same && memory.status != Status::Quarantined
    }

    /// Notes that nothing in the lane was forgotten up to this revision, as far as its turns have been looked at.
    async fn current(
        &mut self,
        app: &App,
        (fence, turns): (i64, usize),
        keep: bool,
    ) -> Result<Looked, &'static str> {
        self.checked = fence;
        if keep {
            let noted = app.sessions.cache.checked(&self.key, fence, turns).await;
            noted.map_err(|_| "fence=error")?;
        }
        Ok(Looked::Before)
    }

    /// Whether this request is the first to send every one of them.
    fn are_new(&self, ids: &[MemoryId]) -> bool {
        let opening: Vec<MemoryId> = if self.opened {
            self.opening.ids().collect()
        } else {
            Vec::new()
        };
        let is_new =
            |id: &MemoryId| self.used.iter().any(|(_, new)| new == id) || opening.contains(id);
        ids.iter().all(is_new)
    }

    /// A new epoch without these memories. Every other byte stays.
    async fn scrub(
        &mut self,
        app: &App,
        gone: &[MemoryId],
        keep: bool,
    ) -> Result<(), &'static str> {
        let next = Arc::new(self.opening.without(gone));
        let holds = |opening: &Opening| opening.ids().any(|id| gone.contains(&id));
        let next = if keep && self.opening.epoch > 0 {
            let fate = BlockFate::Without(gone.to_vec());
            let rotating =
                app.sessions
                    .cache
                    .rotate(&self.key, self.opening.epoch, Arc::clone(&next), fate);
            let held = rotating.await.map_err(|_| "fence=error")?;
            if Arc::ptr_eq(&held, &next) {
                super::frozen::announce(app, &held);
                let at = app.clock.now();
                app.sessions.records.opened(&self.key, &held, false, at);
                app.sessions.records.forgotten(&self.key, gone.to_vec());
            }
            // Another rotation came first; whatever it was for, this request carries none of them.
            if holds(&held) {
                Arc::new(held.without(gone))
            } else {
                held
            }
        } else {
            // A session that is not open, or a preview: no epoch to count.
            Arc::new(Opening::new(OpeningParts {
                epoch: self.opening.epoch,
                ..next.parts()
            }))
        };
        self.opening = next;
        for (_, outcome) in &mut self.turns {
            *outcome = outcome.without(gone);
        }
        self.used.retain(|(_, id)| !gone.contains(id));
        Ok(())
    }

    /// Leaves the directive alone: the store cannot tell what was forgotten.
    fn strip(&mut self, reason: &'static str) {
        self.stripped = true;
        tracing::warn!(
            reason,
            "frozen memories could not be checked; the request goes out without them"
        );
        self.opening = Arc::new(self.opening.bare());
        self.opened = false;
        self.turns
            .iter_mut()
            .for_each(|(_, outcome)| *outcome = Outcome::Nothing);
        self.used.clear();
        self.plan.status = compose::bare_status(&self.opening);
        self.plan.level = Level::L3;
        self.plan.reason = Some(reason.to_owned());
    }

    /// How many bytes of the request, as `edits` write it, repeat the lane's last one from its beginning. Nothing where the client changed what
    /// it had sent, or an epoch began.
    pub(in crate::request::context) fn repeated(
        &self,
        envelope: &Envelope<'_>,
        edits: &Edits,
    ) -> u64 {
        let (chat, chain) = (envelope.chat, envelope.chain);
        let goes_on = |last: &&Sent| {
            last.epoch == self.opening.epoch
                && last.client_prefix == chain.client_prefix()
                && extends(chain, last)
        };
        let last = self.last.as_ref().filter(goes_on);
        let message = last.and_then(|last| chat.messages().get(last.messages.checked_sub(1)?));
        message.map_or(0, |message| edits.length_up_to(message.range.end))
    }

    /// Hash over what is sent up to one of the client's messages: its own chain, what stands around it, and the blocks up to there.
    fn sent_up_to(&self, chain: &Chain, messages: usize) -> Option<ChainHash> {
        let link = chain.links().get(messages.checked_sub(1)?)?;
        let mut hash = Sha256::new();
        hash.update(self.opening.sha256());
        hash.update(chain.client_prefix().as_bytes());
        hash.update(link.as_bytes());
        let turns = self
            .turns
            .iter()
            .filter(|(turn, _)| turn.message < messages);
        for block in turns.filter_map(|(_, outcome)| outcome.block()) {
            hash.update(block.digest());
        }
        let whole: [u8; 32] = hash.finalize().into();
        Some(ChainHash::from_bytes(*whole.first_chunk()?))
    }

    /// Holds the request against the last one: where the client only went on, what is sent must only go on as well.
    fn compare(&self, app: &App, chain: &Chain, events: &[SessionEvent]) {
        for event in events {
            app.metrics.session_event(*event);
        }
        if let Some(last) = self.last
            && last.epoch == self.opening.epoch
            && events.is_empty()
            && self.sent_up_to(chain, last.messages) != Some(last.sent)
        {
            app.metrics.prefix_broken();
            tracing::error!(
                session_id = self.key.session.id.as_str(),
                epoch = last.epoch,
                "what was sent before is not sent again: a defect"
            );
        }
    }

    /// Notes what is sent; answers whether that waited for anything.
    async fn note_sent(&self, app: &App, chain: &Chain) -> bool {
        let messages = chain.links().len();
        let (Some(link), Some(sent)) = (chain.links().last(), self.sent_up_to(chain, messages))
        else {
            return false;
        };
        let note = Sent {
            messages,
            link: *link,
            client_prefix: chain.client_prefix(),
            sent,
            epoch: self.opening.epoch,
            recorded: self.recorded,
        };
        if note.epoch == 0 {
            return false;
        }
        let mut noting = app.sessions.cache.sent(&self.key, note);
        let at_once = noting.as_mut().now_or_never();
        let waited = at_once.is_none();
        let noted = match at_once {
            Some(noted) => noted,
            None => noting.await,
        };
        if noted.is_err() {
            tracing::warn!("what was sent could not be noted");
        }
        waited
    }

    fn events(&self, chain: &Chain) -> Vec<SessionEvent> {
        let mut events = Vec::new();
        if self.trimmed {
            events.push(SessionEvent::HistoryTrimmed);
        }
        if let Some(last) = &self.last {
            if last.client_prefix != chain.client_prefix() {
                events.push(SessionEvent::ClientPrefixChanged);
            }
            if !self.trimmed && !extends(chain, last) {
                events.push(SessionEvent::Branched);
            }
        }
        events
    }

    /// The account of what is frozen, for the plan and the headers.
    fn tell(&mut self, chain: &Chain, events: Vec<SessionEvent>) {
        let sent = self.sent_up_to(chain, chain.links().len());
        self.plan.session = Some(SessionAccount {
            prefix_sha256: hex(self.opening.sha256()),
            epoch: self.opening.epoch,
            sent_chain: sent.map(|s| hex(s.as_bytes())).unwrap_or_default(),
            memories: self.ids().len(),
            new: self.new_memories(),
            events,
        });
    }
}

/// Whether a request's messages begin with those of the last one.
fn extends(chain: &Chain, last: &Sent) -> bool {
    let at = last
        .messages
        .checked_sub(1)
        .and_then(|i| chain.links().get(i));
    at == Some(&last.link)
}
