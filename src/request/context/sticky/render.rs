//! Rendering of what is frozen. Pure: the same parts give the same bytes, on every replica and after every restart.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::config::ContextConfig;
use crate::ids::OrgId;
use crate::memory::Memory;
use crate::openai::edits::json_inner;
use crate::request::context::assemble::DIRECTIVE_TIME;
use crate::request::context::{envelope, regions};
use crate::session::working_state::{self, WorkingState};
use crate::session::{
    Anchor, Block, Enveloped, Opening, OpeningParts, RotationReason, SessionKey, SessionSecret,
    StateDelta,
};
use crate::tokens::{Counter, Family, TokenCounts};

/// What rendering needs of the process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Press<'a> {
    pub(super) settings: &'a ContextConfig,
    pub(super) secret: &'a SessionSecret,
    pub(super) counter: &'a Counter,
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
}

impl Press<'_> {
    /// Region A.
    pub(super) fn opening(
        &self,
        owner: &Arc<SessionKey>,
        epoch: Epoch,
        directive: Option<Pinned<'_>>,
        snapshot: &[&Memory],
    ) -> Opening {
        let nonce = self.secret.nonce(owner, epoch.nonce);
        let text = directive.map(|d| d.text);
        let head = regions::head(&self.settings.platform_policy, text);
        Opening::new(OpeningParts {
            owner: Arc::clone(owner),
            epoch: epoch.number,
            nonce_epoch: epoch.nonce,
            directive: directive.map(|d| d.version),
            line: regions::session_line(nonce.as_str()),
            snapshot: envelope::snapshot(&nonce, snapshot, self.counter),
            tokens: self.prefix_tokens(owner.org, text.unwrap_or_default()),
            head,
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
        let text = directive.map(|d| d.text);
        Opening::new(OpeningParts {
            epoch: epoch.number,
            directive: directive.map(|d| d.version),
            head: regions::head(&self.settings.platform_policy, text),
            tokens: self.prefix_tokens(opening.owner.org, text.unwrap_or_default()),
            reason: epoch.reason,
            ..opening.parts()
        })
    }

    /// The recalled memories of a turn.
    pub(super) fn recall(
        &self,
        owner: &SessionKey,
        nonce_epoch: u32,
        anchor: &Anchor,
        memories: &[&Memory],
    ) -> Option<Enveloped> {
        let nonce = self.secret.nonce(owner, nonce_epoch);
        envelope::recall(
            &nonce,
            &self.secret.assembly(anchor),
            memories,
            self.counter,
        )
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
            tokens: envelope::tokens(self.counter, &text),
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

    /// Counted exactly where the vocabulary is known, and from the cache: every session of an agent has the same head.
    fn prefix_tokens(&self, org: OrgId, directive: &str) -> TokenCounts {
        // The framing and the line are counted as text of their own; joining them costs no token more than their sum.
        let fixed = [regions::FRAMING, &self.settings.platform_policy, LINE].join("\n\n");
        let soon = Instant::now() + DIRECTIVE_TIME;
        let counted = |text: &str, family| {
            let ready = self.counter.is_ready(family);
            let exact = ready.then(|| self.counter.count_until(org, family, text, soon));
            exact
                .flatten()
                .unwrap_or_else(|| self.counter.count(org, Family::Unknown, text))
        };
        let of = |family| counted(&fixed, family).saturating_add(counted(directive, family));
        TokenCounts {
            o200k: of(Family::O200kBase),
            cl100k: of(Family::Cl100kBase),
            claude: of(Family::Claude),
            unknown: of(Family::Unknown),
        }
    }
}

/// A line as long as the one that names the nonce, which costs at most a token a byte.
const LINE: &str = "This session's nonce: A-B_C-D_E-F_G-H_I-J_K-";
