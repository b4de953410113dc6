//! What the context stage hands on: the edits to the request, or what is frozen for it until the last moment, and the headers that tell
//! of them.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::app::App;
use crate::console::Planned;
use crate::openai::edits::Edits;
use crate::request::handoff::Outgoing;
use crate::request::read::ValidChat;
use crate::request::resolution::Resolved;
use crate::session::{ChainHash, LaneKey};
use crate::store::DirectiveVersion;
use crate::telemetry::ContextFacts;
use crate::tokens::Family;

use super::Subject;
use super::assemble::Assembled;
use super::inject::{Directive, Injection, inject};
use super::plan::{ContextPlan, ContextStatus, Decision, Level};
use super::sticky::{Envelope, Frozen};

/// The request as it goes out, and the record of it.
#[derive(Debug)]
pub struct Attached {
    body: Body,
    headers: Vec<(HeaderName, HeaderValue)>,
    checkpoint: Option<Checkpoint>,
    estimate: Option<Estimate>,
    facts: ContextFacts,
    status: ContextStatus,
    /// The record; that of a frozen request stands in its body until it is asked for.
    plan: Option<Planned>,
}

/// What a prompt was counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// By which tokenizer.
    pub family: Family,
    /// Tokens of the whole prompt, before any correction.
    pub tokens: u32,
}

/// What is put between the client's bytes.
#[derive(Debug)]
enum Body {
    /// Made for this request alone.
    Edits(Edits),
    /// Frozen, and checked once more before it goes out.
    Frozen(Box<Frozen>),
}

/// The turn that a provider call belongs to.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Session and model.
    pub lane: LaneKey,
    /// The turn.
    pub turn: ChainHash,
}

const STATUS: HeaderName = HeaderName::from_static("x-ibex-context-status");
const FALLBACK: HeaderName = HeaderName::from_static("x-ibex-context-fallback");
const DEGRADATION: HeaderName = HeaderName::from_static("x-ibex-context-degradation");
const REASON: HeaderName = HeaderName::from_static("x-ibex-context-reason");
const INJECTED: HeaderName = HeaderName::from_static("x-ibex-memories-injected");
const NEW: HeaderName = HeaderName::from_static("x-ibex-memories-new");
const EXCLUDED: HeaderName = HeaderName::from_static("x-ibex-memories-excluded");
const TOKENS: HeaderName = HeaderName::from_static("x-ibex-context-tokens");
const PREFIX: HeaderName = HeaderName::from_static("x-ibex-prefix-sha256");
const EPOCH: HeaderName = HeaderName::from_static("x-ibex-epoch");

impl Attached {
    /// The directive alone: memory was skipped or is switched off. Only the status is told, as if there were no assembly.
    #[must_use]
    pub fn without_recall(
        subject: &Subject<'_>,
        directive: Option<&DirectiveVersion>,
        status: ContextStatus,
    ) -> Self {
        let text = directive
            .map(|d| d.content.trim().to_owned())
            .unwrap_or_default();
        let injection = Injection {
            directive: directive.map(|d| Directive {
                text: text.clone(),
                mode: d.mode,
            }),
            assembled: text,
            memory_block: String::new(),
        };
        let edits = inject(subject.chat, &injection, subject.profile.system_role);
        Self {
            body: Body::Edits(edits),
            headers: vec![(STATUS, HeaderValue::from_static(status.as_str()))],
            checkpoint: None,
            estimate: None,
            facts: ContextFacts::of(status),
            status,
            plan: None,
        }
    }

    /// The client's request, untouched, after a fault of our own.
    #[must_use]
    pub fn as_it_came() -> Self {
        let headers = vec![
            (
                STATUS,
                HeaderValue::from_static(ContextStatus::HistoryOnly.as_str()),
            ),
            (FALLBACK, HeaderValue::from_static("true")),
            (DEGRADATION, HeaderValue::from_static(Level::L3.as_str())),
            (REASON, HeaderValue::from_static("internal")),
        ];
        Self {
            body: Body::Edits(Edits::default()),
            headers,
            checkpoint: None,
            estimate: None,
            facts: ContextFacts {
                level: Some(Level::L3),
                reason: Some("internal".to_owned()),
                ..ContextFacts::of(ContextStatus::HistoryOnly)
            },
            status: ContextStatus::HistoryOnly,
            plan: None,
        }
    }

    /// What is frozen. Its headers are known when it is sealed.
    #[must_use]
    pub fn frozen(frozen: Frozen) -> Self {
        Self {
            checkpoint: frozen.checkpoint(),
            estimate: frozen.counted(),
            facts: ContextFacts::of(frozen.plan.status),
            status: frozen.plan.status,
            body: Body::Frozen(Box::new(frozen)),
            headers: Vec::new(),
            plan: None,
        }
    }

    /// The whole assembly.
    #[must_use]
    pub fn with(subject: &Subject<'_>, assembled: Assembled) -> Self {
        let edits = inject(
            subject.chat,
            &assembled.injection,
            subject.profile.system_role,
        );
        let mut headers = described(&assembled.plan);
        // Each request of this layout is assembled afresh: everything in it is sent for the first time.
        headers.push((INJECTED, assembled.injected().into()));
        headers.push((NEW, assembled.injected().into()));
        Self {
            body: Body::Edits(edits),
            headers,
            checkpoint: None,
            estimate: assembled.counted,
            facts: ContextFacts {
                packed: usize::try_from(assembled.injected()).unwrap_or(usize::MAX),
                ..planned(&assembled.plan)
            },
            status: assembled.plan.status,
            plan: Some(Box::new(assembled.plan)),
        }
    }

    /// The request to the provider: the client's bytes with the edits spliced in. What is frozen is checked first, and nothing waits
    /// between that and the answer of this function.
    pub async fn outgoing(
        &mut self,
        app: &App,
        valid: &ValidChat,
        resolved: &Resolved,
    ) -> Outgoing {
        let mut edits = match &mut self.body {
            Body::Edits(edits) => std::mem::take(edits),
            Body::Frozen(frozen) => {
                let envelope = Envelope {
                    chat: &valid.chat,
                    profile: valid.route.profile,
                    chain: &resolved.chain,
                };
                let edits = frozen.seal(app, &envelope, true).await;
                self.headers = frozen_headers(&frozen.plan);
                self.facts = planned(&frozen.plan);
                self.facts.stable_bytes = frozen.repeated(&envelope, &edits);
                edits
            }
        };
        if let (Some(name), Some(range)) = (&valid.route.upstream_model, valid.chat.model_range()) {
            edits.set_model(range, name);
        }
        let body = edits.into_body(valid.chat.body());
        self.facts.sent_bytes = body.remaining();
        Outgoing {
            method: Method::POST,
            uri: valid.route.provider.chat_uri().clone(),
            body,
            stream: valid.chat.stream(),
        }
    }

    /// Counts what went out.
    pub fn count(&self, app: &App) {
        if let Body::Frozen(frozen) = &self.body {
            frozen.count(app);
            let facts = &self.facts;
            app.metrics.sent(facts.sent_bytes, facts.stable_bytes);
        }
    }

    /// The turn that this request's provider call belongs to.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }

    /// Gives up the record, once the request has gone out and everything was counted.
    pub fn take_plan(&mut self) -> (ContextStatus, Option<Planned>) {
        let body = std::mem::replace(&mut self.body, Body::Edits(Edits::default()));
        let plan = match body {
            Body::Frozen(frozen) => Some(Box::new(frozen.plan)),
            Body::Edits(_) => self.plan.take(),
        };
        let status = plan.as_ref().map_or(self.status, |plan| plan.status);
        (status, plan)
    }

    /// What the whole prompt was counted as.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        self.estimate
    }

    /// What the context came to, once the request is written.
    #[must_use]
    pub fn facts(&self) -> ContextFacts {
        self.facts.clone()
    }

    /// The context headers, for a refusal that comes later.
    #[must_use]
    pub fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.headers
    }

    /// Writes the context headers.
    pub fn write(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
    }
}

/// What a plan came to.
fn planned(plan: &ContextPlan) -> ContextFacts {
    let session = plan.session.as_ref();
    ContextFacts {
        level: Some(plan.level),
        reason: plan.reason.clone(),
        epoch: session.map_or(0, |s| s.epoch),
        considered: plan.memories.len(),
        packed: session.map_or(0, |s| s.memories),
        tokens: plan.tokens.injected,
        ..ContextFacts::of(plan.status)
    }
}

/// The headers that every assembly has.
fn described(plan: &ContextPlan) -> Vec<(HeaderName, HeaderValue)> {
    let fallback = if plan.level >= Level::L2 {
        "true"
    } else {
        "false"
    };
    let mut headers = Vec::with_capacity(10);
    headers.push((STATUS, HeaderValue::from_static(plan.status.as_str())));
    headers.push((FALLBACK, HeaderValue::from_static(fallback)));
    headers.push((DEGRADATION, HeaderValue::from_static(plan.level.as_str())));
    let reason = plan.reason.as_deref();
    if let Some(reason) = reason.and_then(|r| HeaderValue::try_from(r).ok()) {
        headers.push((REASON, reason));
    }
    let excluded = |m: &&super::plan::PlannedMemory| m.decision == Decision::Excluded;
    headers.push((
        EXCLUDED,
        plan.memories.iter().filter(excluded).count().into(),
    ));
    headers.push((TOKENS, plan.tokens.injected.into()));
    headers
}

/// The headers of a request with frozen parts.
fn frozen_headers(plan: &ContextPlan) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = described(plan);
    if let Some(session) = &plan.session {
        headers.push((INJECTED, session.memories.into()));
        headers.push((NEW, session.new.into()));
        headers.push((EPOCH, session.epoch.into()));
        let prefix = HeaderValue::try_from(session.prefix_sha256.as_str());
        headers.extend(prefix.ok().map(|value| (PREFIX, value)));
    }
    headers
}
