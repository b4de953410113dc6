//! `ibex directive`.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;

use crate::ids::AgentId;
use crate::store::{DirectiveMode, DirectiveVersion, NewDirective};
use crate::tokens::{Counter, Family};

use super::args::AgentChoice;
use super::output::{Record, minute};
use super::{CliError, Desk, Out};

/// Greatest directive in bytes (contract, section 4).
const MAX_BYTES: usize = 32_768;

/// Refuses a text over the token cap: a cut directive would make an agent that is quietly wrong.
///
/// # Errors
/// When it is over `cap` tokens of `o200k_base`.
pub fn fits(counter: &Counter, cap: u32, text: &str) -> Result<(), CliError> {
    let tokens = counter.counts(text).of(Family::O200kBase);
    if tokens > cap {
        return Err(CliError::Failed(format!(
            "the directive has {tokens} tokens; context.directive_tokens allows {cap}"
        )));
    }
    Ok(())
}

/// The commands about directives.
#[derive(Debug, Subcommand)]
pub enum DirectiveCommand {
    /// Add a version; it is not in use until it is promoted
    Add {
        /// File with the text, - for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Where it goes: system_first, system_append or user_prepend
        #[arg(long, value_parser = mode, default_value = "system_first")]
        mode: DirectiveMode,
        /// Put it in use at once
        #[arg(long)]
        promote: bool,
        /// The agent.
        #[command(flatten)]
        choice: AgentChoice,
    },
    /// List every version, newest first
    List {
        /// The agent.
        #[command(flatten)]
        choice: AgentChoice,
    },
    /// Print the text of a version
    Show {
        /// Which version [default: the one in use]
        #[arg(long, value_name = "N")]
        version: Option<u32>,
        /// The agent.
        #[command(flatten)]
        choice: AgentChoice,
    },
    /// Put a version in use
    Promote {
        /// Which version
        version: u32,
        /// The agent.
        #[command(flatten)]
        choice: AgentChoice,
    },
    /// Take a version out of use for good; what was in use before it is in use again
    Revoke {
        /// Which version
        version: u32,
        /// The agent.
        #[command(flatten)]
        choice: AgentChoice,
    },
    /// Put the version back in use that was before the present one
    Rollback {
        /// The agent.
        #[command(flatten)]
        choice: AgentChoice,
    },
}

fn mode(text: &str) -> Result<DirectiveMode, &'static str> {
    DirectiveMode::parse(text).ok_or("must be system_first, system_append or user_prepend")
}

#[derive(Debug, Serialize)]
struct DirectiveRecord {
    agent_id: AgentId,
    version: u32,
    active: bool,
    mode: DirectiveMode,
    bytes: usize,
    sha256: String,
    created_at: Timestamp,
    revoked_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<std::sync::Arc<str>>,
}

impl From<DirectiveVersion> for DirectiveRecord {
    fn from(directive: DirectiveVersion) -> Self {
        Self {
            agent_id: directive.agent,
            version: directive.version,
            active: directive.active,
            mode: directive.mode,
            bytes: directive.content.len(),
            sha256: directive
                .content_hash
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            created_at: directive.created_at,
            revoked_at: directive.revoked_at,
            content: None,
        }
    }
}

impl Record for DirectiveRecord {
    const HEADERS: &'static [&'static str] =
        &["VERSION", "IN USE", "MODE", "BYTES", "SHA-256", "CREATED"];

    fn cells(&self) -> Vec<String> {
        let in_use = match (self.active, self.revoked_at) {
            (_, Some(_)) => "revoked",
            (true, None) => "yes",
            (false, None) => "",
        };
        let hash = self.sha256.chars().take(12).collect();
        vec![
            self.version.to_string(),
            in_use.to_owned(),
            self.mode.as_str().to_owned(),
            self.bytes.to_string(),
            hash,
            minute(self.created_at),
        ]
    }
}

/// Runs one of them.
///
/// # Errors
/// When the agent or version does not exist, the text is too large, or the store fails.
pub async fn run(
    command: DirectiveCommand,
    desk: &Desk<'_>,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    match command {
        DirectiveCommand::Add {
            file,
            mode,
            promote,
            choice,
        } => add(&file, mode, promote, &choice, desk, out).await?,
        DirectiveCommand::List { choice } => {
            let agent = desk.chosen(&choice).await?;
            let versions = desk.store.directive_versions(agent.org, agent.id).await?;
            out.list(
                &versions
                    .into_iter()
                    .map(DirectiveRecord::from)
                    .collect::<Vec<_>>(),
            )?;
        }
        DirectiveCommand::Show { version, choice } => {
            let directive = find(version, &choice, desk).await?;
            let content = directive.content.clone();
            let record = DirectiveRecord {
                content: Some(content.clone()),
                ..DirectiveRecord::from(directive)
            };
            // The line ends once, also when the text brings its own end.
            out.one(&record, content.strip_suffix('\n').unwrap_or(&content))?;
        }
        DirectiveCommand::Promote { version, choice } => {
            let agent = desk.chosen(&choice).await?;
            in_use(
                desk.store
                    .promote_directive(agent.org, agent.id, version)
                    .await?,
                out,
            )?;
        }
        DirectiveCommand::Revoke { version, choice } => revoke(version, &choice, desk, out).await?,
        DirectiveCommand::Rollback { choice } => {
            let agent = desk.chosen(&choice).await?;
            in_use(
                desk.store.rollback_directive(agent.org, agent.id).await?,
                out,
            )?;
        }
    }
    Ok(())
}

async fn add(
    file: &Path,
    mode: DirectiveMode,
    promote: bool,
    choice: &AgentChoice,
    desk: &Desk<'_>,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let agent = desk.chosen(choice).await?;
    let text = read(file)?;
    if text.trim().is_empty() || text.len() > MAX_BYTES {
        return Err(CliError::Failed(format!(
            "a directive has 1 to {MAX_BYTES} bytes; this one has {}",
            text.len()
        )));
    }
    (desk.directive_fits)(&text)?;
    let new = NewDirective {
        org: agent.org,
        agent: agent.id,
        content: text.into(),
        mode,
        created_at: desk.clock.now(),
    };
    let added = desk.store.add_directive(new).await?;
    if promote {
        return in_use(
            desk.store
                .promote_directive(agent.org, agent.id, added.version)
                .await?,
            out,
        );
    }
    let sentence = format!(
        "added version {0}; `ibex directive promote {0}` puts it in use",
        added.version
    );
    Ok(out.one(&DirectiveRecord::from(added), sentence)?)
}

async fn revoke(
    version: u32,
    choice: &AgentChoice,
    desk: &Desk<'_>,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let agent = desk.chosen(choice).await?;
    let revoked = desk
        .store
        .revoke_directive(agent.org, agent.id, version, desk.clock.now())
        .await?;
    let rest = match desk.store.active_directive(agent.org, agent.id).await? {
        Some(active) => format!("version {} is in use", active.version),
        None => "no version is in use".to_owned(),
    };
    let sentence = format!("version {version} is revoked; {rest}");
    Ok(out.one(&DirectiveRecord::from(revoked), sentence)?)
}

fn read(file: &Path) -> Result<String, CliError> {
    let text = if file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    text.map_err(|error| CliError::Failed(format!("{} cannot be read: {error}", file.display())))
}

async fn find(
    version: Option<u32>,
    choice: &AgentChoice,
    desk: &Desk<'_>,
) -> Result<DirectiveVersion, CliError> {
    let agent = desk.chosen(choice).await?;
    match version {
        None => {
            let active = desk.store.active_directive(agent.org, agent.id).await?;
            active.ok_or_else(|| CliError::Failed("the agent has no directive in use".to_owned()))
        }
        Some(version) => {
            let found = desk.store.directive_version(agent.org, agent.id, version);
            found
                .await?
                .ok_or_else(|| CliError::Failed(format!("there is no version {version}")))
        }
    }
}

fn in_use(directive: DirectiveVersion, out: &mut Out<'_>) -> Result<(), CliError> {
    let sentence = format!("version {} is in use", directive.version);
    Ok(out.one(&DirectiveRecord::from(directive), sentence)?)
}
