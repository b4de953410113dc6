//! What the context stage hands on: the edits to the request, and the headers that tell of them.

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::openai::edits::Edits;
use crate::request::handoff::Outgoing;
use crate::request::read::ValidChat;
use crate::store::DirectiveVersion;

use super::Subject;
use super::assemble::Assembled;
use super::inject::{Directive, Injection, inject};
use super::plan::{ContextStatus, Level};

/// The request as it goes out, and the record of it.
#[derive(Debug)]
pub struct Attached {
    edits: Edits,
    headers: Vec<(HeaderName, HeaderValue)>,
}

const STATUS: HeaderName = HeaderName::from_static("x-ibex-context-status");
const FALLBACK: HeaderName = HeaderName::from_static("x-ibex-context-fallback");
const DEGRADATION: HeaderName = HeaderName::from_static("x-ibex-context-degradation");
const REASON: HeaderName = HeaderName::from_static("x-ibex-context-reason");
const INJECTED: HeaderName = HeaderName::from_static("x-ibex-memories-injected");
const NEW: HeaderName = HeaderName::from_static("x-ibex-memories-new");
const EXCLUDED: HeaderName = HeaderName::from_static("x-ibex-memories-excluded");
const TOKENS: HeaderName = HeaderName::from_static("x-ibex-context-tokens");

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
            edits,
            headers: vec![(STATUS, HeaderValue::from_static(status.as_str()))],
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
            edits: Edits::default(),
            headers,
        }
    }

    /// The whole assembly.
    #[must_use]
    pub fn with(subject: &Subject<'_>, assembled: &Assembled) -> Self {
        let edits = inject(
            subject.chat,
            &assembled.injection,
            subject.profile.system_role,
        );
        let plan = &assembled.plan;
        let fallback = if plan.level >= Level::L2 {
            "true"
        } else {
            "false"
        };
        let mut headers = Vec::with_capacity(8);
        headers.push((STATUS, HeaderValue::from_static(plan.status.as_str())));
        headers.push((FALLBACK, HeaderValue::from_static(fallback)));
        headers.push((DEGRADATION, HeaderValue::from_static(plan.level.as_str())));
        if let Some(reason) = plan
            .reason
            .as_deref()
            .and_then(|r| HeaderValue::try_from(r).ok())
        {
            headers.push((REASON, reason));
        }
        headers.push((INJECTED, assembled.injected().into()));
        // Each request of this layout is assembled afresh: everything in it is sent for the first time.
        headers.push((NEW, assembled.injected().into()));
        headers.push((EXCLUDED, assembled.excluded().into()));
        headers.push((TOKENS, plan.tokens.injected.into()));
        Self { edits, headers }
    }

    /// The request to the provider: the client's bytes with the edits spliced in.
    #[must_use]
    pub fn outgoing(&mut self, valid: &ValidChat) -> Outgoing {
        let mut edits = std::mem::take(&mut self.edits);
        if let (Some(name), Some(range)) = (&valid.route.upstream_model, valid.chat.model_range()) {
            edits.set_model(range, name);
        }
        Outgoing {
            method: Method::POST,
            uri: valid.route.provider.chat_uri().clone(),
            body: edits.into_body(valid.chat.body()),
            stream: valid.chat.stream(),
        }
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
