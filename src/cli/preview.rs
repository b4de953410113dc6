//! `ibex preview`: what a request would be sent with, and why.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::App;
use crate::auth::Principal;
use crate::error::ApiError;
use crate::ids::MemoryId;
use crate::memory::PartitionKey;
use crate::openai::ChatRequest;
use crate::request::context::assemble::View;
use crate::request::context::plan::{
    BranchReport, ContextPlan, Decision, Exclusion, PlannedMemory,
};
use crate::request::context::{Subject, preview};
use crate::request::resolution::resolve;
use crate::request::validation::{Limits, ValidationError, validate};
use crate::session::Lane;

use super::args::PreviewArgs;
use super::output::Record;
use super::remember::refused;
use super::transcript::transcript;
use super::{CliError, Desk, Out};

/// Assembles context for the message or request of `args`.
///
/// # Errors
/// When the agent does not exist, or the request cannot be read or is not valid.
pub(super) async fn run(
    args: PreviewArgs,
    desk: &Desk<'_>,
    app: &App,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let who = desk.principal(&args.scope).await?;
    let chat = request(&args, app.config.server.max_messages)?;
    let rules = app.rules.load_full();
    let (registry, model) = (&rules.registry, chat.model().unwrap_or_default());
    let lane = registry
        .route(model)
        .map_or_else(|| Lane::new("", model), |r| r.lane);
    let subject = Subject {
        who: &who,
        chat: &chat,
        profile: registry.profile(model),
        lane: &lane,
        rules: &rules,
    };
    let resolved = resolve(app, &who, &chat, &headers(&args));
    let shown = preview::preview(app, &subject, &resolved, &View::default())
        .await
        .map_err(|e| CliError::Failed(e.to_string()))?;
    if out.is_json() {
        return Ok(out.value(&shown)?);
    }
    let messages: Value = serde_json::from_str(shown.messages.get())
        .map_err(|e| CliError::Failed(format!("the messages cannot be shown: {e}")))?;
    out.line(visible(&transcript(&messages)))?;
    explain(&shown.plan, app, &who, out).await
}

/// The chat request that is meant.
fn request(args: &PreviewArgs, max_messages: usize) -> Result<ChatRequest, CliError> {
    let body = match (&args.file, &args.message) {
        (Some(file), _) => read(file)?,
        (None, message) => {
            let content = message.as_deref().unwrap_or_default();
            let message = json!({"role": "user", "content": content});
            Bytes::from(json!({"model": args.model, "messages": [message]}).to_string())
        }
    };
    let invalid = |error: ValidationError| refused(&ApiError::from(error));
    let chat = ChatRequest::parse(body, max_messages).map_err(|e| invalid(e.into()))?;
    validate(&chat, Limits { max_messages }).map_err(invalid)?;
    Ok(chat)
}

fn read(file: &std::path::Path) -> Result<Bytes, CliError> {
    let mut bytes = Vec::new();
    let read = if file.as_os_str() == "-" {
        std::io::Read::read_to_end(&mut std::io::stdin(), &mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    read.map(Bytes::from)
        .map_err(|e| CliError::Failed(format!("{} cannot be read: {e}", file.display())))
}

/// The headers that a client would send.
fn headers(args: &PreviewArgs) -> HeaderMap {
    let session = args
        .session
        .as_ref()
        .map(|s| HeaderValue::try_from(s.as_str()));
    session
        .and_then(Result::ok)
        .map(|value| (HeaderName::from_static("x-ibex-session-id"), value))
        .into_iter()
        .collect()
}

/// The plan for people: outcome, budget, branches, memories.
async fn explain(
    plan: &ContextPlan,
    app: &App,
    who: &Principal,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let reason = plan
        .reason
        .as_ref()
        .map_or_else(String::new, |r| format!(": {r}"));
    out.line(format_args!(
        "\nCONTEXT  {} ({}){reason}\n",
        plan.status.as_str(),
        plan.level.as_str()
    ))?;
    let (budget, tokens) = (&plan.budget, &plan.tokens);
    out.line(format_args!(
        "BUDGET   {} tokens of window = {} answer + {} safety + {} directive + {} messages + {} tools + {} wrappers + {} left{}",
        budget.context_window,
        budget.response_reserve,
        budget.safety_buffer,
        budget.directive,
        budget.messages,
        budget.tool_schemas,
        budget.formatter_overhead,
        budget.usable,
        if budget.constrained { " (tight)" } else { "" },
    ))?;
    out.line(format_args!(
        "INJECTED {} tokens = {} directive + {} memories + {} wrappers\n",
        tokens.injected, tokens.directive, tokens.memories, tokens.formatter
    ))?;
    let branches: Vec<BranchRecord> = plan
        .branches
        .iter()
        .map(|(name, report)| BranchRecord {
            name,
            report: *report,
        })
        .collect();
    out.table(&branches)?;
    if plan.memories.is_empty() {
        return Ok(());
    }
    let mut rows = Vec::with_capacity(plan.memories.len());
    for planned in &plan.memories {
        let content = content(app, who, planned.id).await?;
        rows.push(MemoryRow {
            planned: planned.clone(),
            content,
        });
    }
    out.line("")?;
    Ok(out.table(&rows)?)
}

async fn content(app: &App, who: &Principal, id: MemoryId) -> Result<String, CliError> {
    let partitions = PartitionKey::for_read(who.scope());
    let memory = app.store.memory(&partitions, id).await?;
    Ok(memory.map_or_else(String::new, |m| m.content.to_string()))
}

#[derive(Debug, Serialize)]
struct BranchRecord {
    name: &'static str,
    #[serde(flatten)]
    report: BranchReport,
}

impl Record for BranchRecord {
    const HEADERS: &'static [&'static str] = &["BRANCH", "OUTCOME", "MS", "HITS"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.to_owned(),
            self.report.outcome.as_str().to_owned(),
            format!("{:.1}", self.report.ms),
            self.report.hits.to_string(),
        ]
    }
}

#[derive(Debug, Serialize)]
struct MemoryRow {
    #[serde(flatten)]
    planned: PlannedMemory,
    content: String,
}

impl Record for MemoryRow {
    const HEADERS: &'static [&'static str] = &[
        "DECISION",
        "REASON",
        "SCORE",
        "RELEVANCE",
        "TOKENS",
        "ID",
        "CONTENT",
    ];

    fn cells(&self) -> Vec<String> {
        let decision = match self.planned.decision {
            Decision::Packed => "packed",
            Decision::Excluded => "excluded",
        };
        vec![
            decision.to_owned(),
            self.planned.reason.map_or("-", why).to_owned(),
            format!("{:.3}", self.planned.score),
            format!("{:.3}", self.planned.components.relevance),
            self.planned.tokens.to_string(),
            self.planned.id.to_string(),
            self.content.clone(),
        ]
    }
}

const fn why(reason: Exclusion) -> &'static str {
    match reason {
        Exclusion::Floor => "below the floor",
        Exclusion::Gate => "not relevant enough",
        Exclusion::Budget => "no room",
        Exclusion::Duplicate => "duplicate",
        Exclusion::AlreadyInContext => "already in context",
        Exclusion::Filter => "not valid now",
    }
}

/// A whole text made safe for a terminal: its lines stay, other control characters do not.
fn visible(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && c != '\n' { ' ' } else { c })
        .collect()
}
