//! Assemble: from found memories to the text that is injected and the plan that tells why. Pure: no clock, no randomness, no store.
//! The same inputs give the same bytes.

mod account;
mod choose;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::app::App;
use crate::config::{ContextConfig, Layout};
use crate::ids::MemoryId;
use crate::memory::PartitionKey;
use crate::providers::ModelProfile;
use crate::seams::EntropyError;
use crate::store::{DirectiveMode, DirectiveVersion};
use crate::tokens::{Count, Family, MixedFamilies};

use super::budget::Budget;
use super::format::{Block, FormatInput, HistoryLine, Nonce, NonceError, format};
use super::inject::{Directive, Injection};
use super::measure::{Measured, estimated};
use super::plan::{ContextPlan, ContextStatus, Decision, Level, TokenAccount};
use super::rank::{RankSettings, Ranked, rank};
use super::retrieve::Found;
use super::{Estimate, Subject};

use account::account;
pub(super) use account::{outcome, record};
pub(super) use choose::{Chosen, Form, Room, choose, plan_budget};

/// Why there is no assembly.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub enum AssembleError {
    /// Counts of two tokenizers were added.
    #[error(transparent)]
    Mixed(#[from] MixedFamilies),
    /// No nonce could be made.
    #[error(transparent)]
    Nonce(#[from] NonceError),
    /// The random source failed.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
}

/// Who the result is for.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The reader may not see directives: its version and hash stand for its text. Counts stay those of the real one.
    pub hide_directive: bool,
    /// The string is all there is (no message list beside it), so it carries history and tools too (ADR-0070).
    pub whole: Option<Whole>,
}

/// What the string alone has to carry besides directive and memories.
#[derive(Debug, Clone, Default)]
pub struct Whole {
    /// Role and text of each message, oldest first.
    pub history: Vec<(String, String)>,
    /// Tool schemas as the client wrote them.
    pub tools: Vec<String>,
}

impl View {
    /// The directive's text as this reader sees it.
    pub(super) fn text(&self, directive: &DirectiveVersion) -> String {
        if self.hide_directive {
            let hash: String = directive
                .content_hash
                .iter()
                .take(8)
                .map(|b| format!("{b:02x}"))
                .collect();
            return format!("[directive version {}, sha256 {hash}]", directive.version);
        }
        directive.content.trim().to_owned()
    }
}

/// Time for counting a directive that was never counted before; then it is estimated, and all else with it.
pub(super) const DIRECTIVE_TIME: Duration = Duration::from_millis(2);

/// Everything an assembly depends on.
#[derive(Debug)]
pub struct Inputs<'a> {
    settings: &'a ContextConfig,
    profile: ModelProfile,
    found: Found,
    view: &'a View,
    now: Timestamp,
    nonce: Nonce,
    measured: Measured,
    directive_tokens: Count,
    requested_max: Option<u32>,
}

impl<'a> Inputs<'a> {
    /// Gathers the inputs: the last place that reads a clock or makes a nonce.
    ///
    /// # Errors
    /// When no nonce can be made.
    pub fn of(
        app: &'a App,
        subject: &Subject<'_>,
        found: Found,
        measured: &Measured,
        view: &'a View,
    ) -> Result<Self, AssembleError> {
        let org = subject.who.org();
        let text = found.directive.as_ref().map_or("", |d| &*d.content);
        let mut measured = *measured;
        let soon = Instant::now() + DIRECTIVE_TIME;
        let counted = app
            .counter
            .count_until(org, measured.family, text, soon)
            .unwrap_or_else(|| {
                measured = estimated(Family::Unknown, subject.chat);
                app.counter.count(org, Family::Unknown, text)
            });
        let directive_tokens = Count::new(measured.family, counted);
        let profile = ModelProfile {
            family: measured.family,
            ..subject.profile
        };
        let nonce = Nonce::generate(&*app.entropy, app.config.context.formatter_nonce_bytes)?;
        Ok(Self {
            settings: &app.config.context,
            profile,
            found,
            view,
            now: app.clock.now(),
            nonce,
            measured,
            directive_tokens,
            requested_max: subject.chat.max_tokens(),
        })
    }
}

impl Inputs<'_> {
    fn room(&self) -> Room<'_> {
        Room {
            settings: self.settings,
            profile: self.profile,
            form: Form::Assembled {
                nonce_bytes: self.settings.formatter_nonce_bytes,
            },
            directive: self.directive_tokens,
            messages: self.measured.messages,
            tools: self.measured.tools,
            frozen: Count::zero(self.profile.family),
            requested_max: self.requested_max,
        }
    }
}

/// The result of an assembly.
#[derive(Debug)]
pub struct Assembled {
    /// What goes into the request.
    pub injection: Injection,
    /// The directive that was used.
    pub directive: Option<Arc<DirectiveVersion>>,
    /// The memories that went in, in rank order.
    pub used: Vec<(PartitionKey, MemoryId)>,
    /// The record.
    pub plan: ContextPlan,
    /// What the whole prompt was counted as; nothing after a fault.
    pub counted: Option<Estimate>,
}

impl Assembled {
    /// The directive alone, after a fault of our own (L3, `internal`).
    #[must_use]
    pub fn failed(
        subject: &Subject<'_>,
        directive: Option<Arc<DirectiveVersion>>,
        view: &View,
    ) -> Self {
        let text = directive.as_ref().map(|d| view.text(d)).unwrap_or_default();
        let injection = Injection {
            directive: directive.as_ref().map(|d| Directive {
                text: text.clone(),
                mode: d.mode,
            }),
            assembled: text,
            memory_block: String::new(),
        };
        let plan = failed_plan(subject, directive.is_some());
        Self {
            injection,
            directive,
            used: Vec::new(),
            plan,
            counted: None,
        }
    }

    /// How many memories went in.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.used.len() as u64
    }

    /// Candidates that did not.
    #[must_use]
    pub fn excluded(&self) -> usize {
        self.plan
            .memories
            .iter()
            .filter(|m| m.decision == Decision::Excluded)
            .count()
    }
}

/// The record of an assembly that failed, for a fault of our own.
pub(super) fn failed_plan(subject: &Subject<'_>, directive: bool) -> ContextPlan {
    ContextPlan {
        status: alone(directive),
        level: Level::L3,
        reason: Some("internal".to_owned()),
        layout: Layout::Assembled,
        branches: BTreeMap::new(),
        budget: Budget {
            context_window: subject.profile.context_window,
            ..Budget::default()
        },
        memories: Vec::new(),
        pack: None,
        tokens: TokenAccount::default(),
        timings_ms: BTreeMap::new(),
        session: None,
    }
}

/// The status of a request that got no memories because something is missing.
pub(super) const fn alone(directive: bool) -> ContextStatus {
    if directive {
        ContextStatus::DirectiveOnly
    } else {
        ContextStatus::HistoryOnly
    }
}

/// Assembles.
///
/// # Errors
/// When counts of two tokenizers meet, which no configuration brings about.
pub fn assemble(mut inputs: Inputs<'_>) -> Result<Assembled, AssembleError> {
    let hits = std::mem::take(&mut inputs.found.hits);
    let any = !hits.is_empty();
    let ranked = rank(hits, inputs.now, &RankSettings::new(inputs.settings));
    let chosen = choose(&inputs.room(), &ranked)?;
    let injection = write(&inputs, &chosen.memories);
    let used = chosen
        .memories
        .iter()
        .map(|r| (r.memory.partition.clone(), r.memory.id))
        .collect();
    let known = inputs.found.directive.is_some();
    let (status, level, reason) =
        outcome(&inputs.found, known, chosen.memories.is_empty(), &ranked);
    let plan = ContextPlan {
        status,
        level,
        reason,
        layout: inputs.settings.layout,
        memories: record(&ranked, &chosen.memories, inputs.profile),
        tokens: account(&inputs, &chosen),
        budget: chosen.budget,
        pack: any.then_some(chosen.report),
        branches: inputs.found.branches,
        timings_ms: BTreeMap::new(),
        session: None,
    };
    let counted = Estimate {
        family: inputs.measured.family,
        tokens: [plan.budget.tool_schemas, plan.tokens.injected]
            .into_iter()
            .fold(plan.budget.messages, u32::saturating_add),
    };
    Ok(Assembled {
        counted: Some(counted),
        injection,
        directive: inputs.found.directive,
        used,
        plan,
    })
}

/// Serialises. Without memories there is nothing to fence off, so the directive stands alone.
fn write(inputs: &Inputs<'_>, chosen: &[&Ranked]) -> Injection {
    let directive = inputs.found.directive.as_ref().map(|d| Directive {
        text: inputs.view.text(d),
        mode: d.mode,
    });
    let text = directive.as_ref().map(|d| d.text.as_str());
    let memories: Vec<Block<'_>> = chosen
        .iter()
        .map(|r| Block {
            id: r.memory.id,
            category: r.memory.category(),
            content: &r.memory.content,
        })
        .collect();
    if let Some(Whole { history, tools }) = &inputs.view.whole {
        let history: Vec<HistoryLine<'_>> = history
            .iter()
            .map(|(role, content)| HistoryLine { role, content })
            .collect();
        let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
        let assembled = format(&FormatInput {
            directive: text,
            history: &history,
            memories: &memories,
            tools: &tools,
            nonce: &inputs.nonce,
        });
        return Injection {
            assembled,
            directive,
            memory_block: String::new(),
        };
    }
    if memories.is_empty() {
        return Injection {
            assembled: text.unwrap_or_default().to_owned(),
            directive,
            memory_block: String::new(),
        };
    }
    let form = |directive| {
        format(&FormatInput {
            directive,
            history: &[],
            memories: &memories,
            tools: &[],
            nonce: &inputs.nonce,
        })
    };
    // Only one of the modes needs the block by itself.
    let apart = directive
        .as_ref()
        .is_some_and(|d| d.mode == DirectiveMode::UserPrepend);
    Injection {
        assembled: form(text),
        memory_block: if apart { form(None) } else { String::new() },
        directive,
    }
}
