//! Rendering of what is frozen. Pure: the same parts give the same bytes, on every replica and after every restart.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::RandomState;
use moka::sync::Cache;

use crate::app::Rules;
use crate::config::ContextConfig;
use crate::ids::{AgentId, MemoryId, OrgId};
use crate::memory::Memory;
use crate::openai::edits::json_inner;
use crate::request::context::said::Said;
use crate::request::context::{envelope, regions};
use crate::session::working_state::{self, WorkingState};
use crate::session::{
    Anchor, Block, Element, Elements, Enveloped, Opening, OpeningParts, RotationReason, SessionKey,
    SessionNonce, SessionSecret, StateDelta, Text,
};
use crate::tokens::{Counter, Family, Tally};

/// Rendered text that many sessions share: heads by directive version, memories, the snapshots they make up, and which of the memories
/// that are offered make one up. Bounded in bytes.
#[derive(Clone)]
pub struct Renderings {
    heads: Cache<HeadKey, Arc<Head>, RandomState>,
    elements: Cache<Key, Arc<Element>, RandomState>,
    snapshots: Cache<Vec<Key>, Arc<Elements>, RandomState>,
    choices: Cache<Vec<Key>, Arc<Choice>, RandomState>,
}

/// A memory at a revision, counted for a model.
type Key = (MemoryId, i64, Family);

/// Owner and version of a directive, for a model, and the generation of the rules before it.
type HeadKey = (OrgId, AgentId, Option<u32>, Family, u64);

#[derive(Debug)]
struct Head {
    text: Text,
    cost: Tally,
}

/// What is taken of the memories that are offered.
#[derive(Debug)]
struct Choice {
    /// Their places among those, in order.
    places: Box<[usize]>,
    elements: Option<Arc<Elements>>,
}

/// The memories that a session opens with.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) memories: Vec<Arc<Memory>>,
    /// The same, rendered.
    pub(super) elements: Option<Arc<Elements>>,
}

/// Bytes of each of the four.
const KEPT: u64 = 32 << 20;
/// What an entry weighs besides its text.
const ENTRY: usize = 128;

impl fmt::Debug for Renderings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renderings").finish_non_exhaustive()
    }
}

impl Default for Renderings {
    fn default() -> Self {
        let weight = |text: usize| u32::try_from(text + ENTRY).unwrap_or(u32::MAX);
        Self {
            heads: Cache::builder()
                .max_capacity(KEPT)
                .weigher(move |_, head: &Arc<Head>| weight(head.text.json().len()))
                .build_with_hasher(RandomState::default()),
            elements: Cache::builder()
                .max_capacity(KEPT)
                .weigher(move |_, element: &Arc<Element>| weight(element.json.len()))
                .build_with_hasher(RandomState::default()),
            snapshots: Cache::builder()
                .max_capacity(KEPT)
                .weigher(move |key: &Vec<Key>, elements: &Arc<Elements>| {
                    weight(size_of_val(&**key) + elements.len())
                })
                .build_with_hasher(RandomState::default()),
            choices: Cache::builder()
                .max_capacity(KEPT)
                .weigher(move |key: &Vec<Key>, choice: &Arc<Choice>| {
                    weight(size_of_val(&**key) + size_of_val(&*choice.places))
                })
                .build_with_hasher(RandomState::default()),
        }
    }
}

impl Renderings {
    /// Drops every rendered memory: one was forgotten, and its text must not stay.
    pub fn forget(&self) {
        self.elements.invalidate_all();
        self.snapshots.invalidate_all();
        self.choices.invalidate_all();
    }
}

/// What rendering needs of the process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Press<'a> {
    pub(super) settings: &'a ContextConfig,
    pub(super) rules: &'a Rules,
    pub(super) secret: &'a SessionSecret,
    pub(super) counter: &'a Counter,
    pub(super) renderings: &'a Renderings,
    /// The model's tokenizer.
    pub(super) family: Family,
}

/// Which epoch is rendered, and why.
#[derive(Debug, Clone, Copy)]
pub(super) struct Epoch {
    /// Its number; 0 where nothing is frozen.
    pub(super) number: u32,
    /// The one that the nonce is derived from.
    pub(super) nonce: u32,
    pub(super) reason: Option<RotationReason>,
}

/// The directive of an opening: its version, and its text as the reader may see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pinned<'a> {
    pub(super) version: u32,
    pub(super) text: &'a str,
    /// Something else stands in its place, for a reader who may not see it.
    pub(super) hidden: bool,
}

impl Press<'_> {
    /// Region A.
    pub(super) fn opening(
        &self,
        owner: &Arc<SessionKey>,
        epoch: Epoch,
        directive: Option<Pinned<'_>>,
        snapshot: Option<Arc<Elements>>,
    ) -> Opening {
        let nonce = self.secret.nonce(owner, epoch.nonce);
        let head = self.head(owner, directive);
        Opening::new(OpeningParts {
            owner: Arc::clone(owner),
            epoch: epoch.number,
            nonce_epoch: epoch.nonce,
            directive: directive.map(|d| d.version),
            line: regions::session_line(nonce.as_str()),
            snapshot: snapshot.map(|elements| envelope::snapshot(&nonce, elements, self.family)),
            cost: head.cost.plus(Tally::given(self.family, LINE_TOKENS)),
            head: head.text.clone(),
            nonce,
            reason: epoch.reason,
        })
    }

    /// The same opening with another directive.
    pub(super) fn redirected(
        &self,
        opening: &Opening,
        epoch: Epoch,
        directive: Option<Pinned<'_>>,
    ) -> Opening {
        let head = self.head(&opening.owner, directive);
        Opening::new(OpeningParts {
            epoch: epoch.number,
            directive: directive.map(|d| d.version),
            cost: head.cost.plus(Tally::given(self.family, LINE_TOKENS)),
            head: head.text.clone(),
            reason: epoch.reason,
            ..opening.parts()
        })
    }

    /// The recalled memories of a turn, under the nonce of its epoch.
    pub(super) fn recall(
        &self,
        nonce: &SessionNonce,
        anchor: &Anchor,
        memories: &[&Memory],
    ) -> Option<Enveloped> {
        let elements = Arc::new(Elements::new(&self.elements(memories))?);
        let assembly = self.secret.assembly(anchor);
        Some(envelope::recall(nonce, &assembly, elements, self.family))
    }

    /// A change of the working state; nothing when there is none.
    pub(super) fn state(
        &self,
        owner: &SessionKey,
        nonce_epoch: u32,
        from: (u32, &WorkingState),
        to: (u32, &WorkingState),
    ) -> Option<StateDelta> {
        let delta = working_state::delta(from.1, to.1)?;
        let nonce = self.secret.nonce(owner, nonce_epoch);
        let text = working_state::render(&delta, nonce.as_str(), to.0);
        Some(StateDelta {
            json: Bytes::from(json_inner(&text)),
            from: from.0,
            to: to.0,
            cost: Tally::of(self.counter, owner.org, self.family, &text),
        })
    }

    /// A whole block of memories that are known at this revision of the store.
    pub(super) fn block(
        owner: &Arc<SessionKey>,
        nonce_epoch: u32,
        known: i64,
        recall: Option<Enveloped>,
        state: Option<StateDelta>,
    ) -> Option<Arc<Block>> {
        let block = Block::new(Arc::clone(owner), nonce_epoch, recall, state)?;
        Some(Arc::new(block.known_at(known)))
    }

    /// The head, rendered and counted once for all sessions of the agent.
    fn head(&self, owner: &SessionKey, directive: Option<Pinned<'_>>) -> Arc<Head> {
        let write = || {
            let text = directive.map(|d| d.text.trim());
            let parts = [
                regions::FRAMING,
                &self.rules.platform_policy,
                text.unwrap_or_default(),
            ];
            Arc::new(Head {
                text: Text::new(regions::head(&self.rules.platform_policy, text)),
                cost: Tally::of(self.counter, owner.org, self.family, &parts.join("\n\n")),
            })
        };
        // The count of a vocabulary that is still being loaded is an estimate, and not worth keeping.
        if directive.is_some_and(|d| d.hidden) || !self.counter.is_ready(self.family) {
            return write();
        }
        let version = directive.map(|d| d.version);
        let generation = self.rules.generation;
        let key = (owner.org, owner.agent, version, self.family, generation);
        self.renderings.heads.get_with(key, write)
    }

    /// Of the memories that a session may open with, best first, those that fit and say what none before them says. Sessions that are
    /// offered the same take the same, so it is found out once.
    pub(super) fn snapshot(&self, offered: &[&Arc<Memory>]) -> Snapshot {
        let choose = || Arc::new(self.choice(offered));
        let choice = if self.counter.is_ready(self.family) {
            let key = self.key(offered.iter().map(|memory| &***memory));
            self.renderings.choices.get_with(key, choose)
        } else {
            choose()
        };
        let taken = choice.places.iter().filter_map(|place| offered.get(*place));
        Snapshot {
            memories: taken.map(|memory| Arc::clone(memory)).collect(),
            elements: choice.elements.clone(),
        }
    }

    fn choice(&self, offered: &[&Arc<Memory>]) -> Choice {
        let mut left = self.settings.snapshot_tokens;
        let mut said = Said::default();
        let taken = offered.iter().enumerate().filter(|(_, memory)| {
            let tokens = memory.tokens.of(self.family);
            let fits = tokens <= left && said.is_news(memory);
            left -= if fits { tokens } else { 0 };
            fits
        });
        let taken = taken.take(self.settings.snapshot_items);
        let (places, memories): (Vec<usize>, Vec<&Memory>) =
            taken.map(|(place, memory)| (place, &***memory)).unzip();
        Choice {
            places: places.into(),
            elements: self.together(&memories),
        }
    }

    /// Sessions that open with the same memories share their text.
    pub(super) fn together(&self, memories: &[&Memory]) -> Option<Arc<Elements>> {
        let write = || Some(Arc::new(Elements::new(&self.elements(memories))?));
        if !self.counter.is_ready(self.family) {
            return write();
        }
        let key = self.key(memories.iter().copied());
        self.renderings.snapshots.optionally_get_with(key, write)
    }

    fn key<'m>(&self, memories: impl Iterator<Item = &'m Memory>) -> Vec<Key> {
        memories.map(|m| (m.id, m.revision, self.family)).collect()
    }

    fn elements(&self, memories: &[&Memory]) -> Vec<Arc<Element>> {
        let render =
            |memory: &Memory| Arc::new(envelope::element(memory, self.counter, self.family));
        if !self.counter.is_ready(self.family) {
            return memories.iter().map(|memory| render(memory)).collect();
        }
        let elements = &self.renderings.elements;
        memories
            .iter()
            .map(|memory| {
                let key = (memory.id, memory.revision, self.family);
                elements.get_with(key, || render(memory))
            })
            .collect()
    }
}

/// Most tokens of the line that names the nonce: a token a byte of the nonce, and the words.
const LINE_TOKENS: u32 = 32;
