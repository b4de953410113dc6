//! `ibex agent`.

use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;

use crate::ids::{AgentId, OrgId};
use crate::store::{Agent, AgentStatus, CaptureScope};

use super::args::AgentChoice;
use super::desk::readable;
use super::output::{Record, minute};
use super::{CliError, Desk, Out};

/// The commands about agents.
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Create an agent
    Create {
        /// A name for people
        name: String,
        /// Organisation, by name or identifier [default: the only one]
        #[arg(long, value_name = "ORG")]
        org: Option<String>,
    },
    /// List the agents of an organisation
    List {
        /// Organisation, by name or identifier [default: the only one]
        #[arg(long, value_name = "ORG")]
        org: Option<String>,
    },
    /// Change what of an agent's conversations becomes memory
    SetCapture {
        /// off, user (each user's own) or agent (seen by every user of the agent)
        #[arg(value_parser = capture)]
        capture: CaptureScope,
        /// The agent.
        #[command(flatten)]
        choice: AgentChoice,
    },
    /// Change whether an agent may be used
    SetStatus {
        /// active, paused, suspended or archived
        #[arg(value_parser = status)]
        status: AgentStatus,
        /// The agent.
        #[command(flatten)]
        choice: AgentChoice,
    },
}

fn capture(text: &str) -> Result<CaptureScope, &'static str> {
    CaptureScope::parse(text).ok_or("must be off, user or agent")
}

fn status(text: &str) -> Result<AgentStatus, &'static str> {
    AgentStatus::parse(text).ok_or("must be active, paused, suspended or archived")
}

#[derive(Debug, Serialize)]
struct AgentRecord {
    id: AgentId,
    org_id: OrgId,
    name: String,
    status: AgentStatus,
    capture: CaptureScope,
    created_at: Timestamp,
}

impl From<Agent> for AgentRecord {
    fn from(agent: Agent) -> Self {
        Self {
            id: agent.id,
            org_id: agent.org,
            name: agent.name,
            status: agent.status,
            capture: agent.capture,
            created_at: agent.created_at,
        }
    }
}

impl Record for AgentRecord {
    const HEADERS: &'static [&'static str] = &["ID", "NAME", "STATUS", "CAPTURE", "CREATED"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.status.as_str().to_owned(),
            self.capture.as_str().to_owned(),
            minute(self.created_at),
        ]
    }
}

/// Runs one of them.
///
/// # Errors
/// When the organisation or agent does not exist, or the store fails.
pub async fn run(
    command: AgentCommand,
    desk: &Desk<'_>,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    match command {
        AgentCommand::Create { name, org } => {
            let org = desk.org(org.as_deref()).await?;
            let agent = create(desk, org.id, name).await?;
            let sentence = format!("created agent {}", agent.id);
            out.one(&AgentRecord::from(agent), sentence)?;
        }
        AgentCommand::List { org } => {
            let org = desk.org(org.as_deref()).await?;
            let agents = desk.store.agents(org.id).await?;
            out.list(
                &agents
                    .into_iter()
                    .map(AgentRecord::from)
                    .collect::<Vec<_>>(),
            )?;
        }
        AgentCommand::SetCapture { capture, choice } => {
            let agent = desk.chosen(&choice).await?;
            desk.store
                .set_agent_capture(agent.org, agent.id, capture)
                .await?;
            let sentence = format!("agent {} captures: {}", agent.id, capture.as_str());
            out.one(&AgentRecord::from(Agent { capture, ..agent }), sentence)?;
        }
        AgentCommand::SetStatus { status, choice } => {
            let agent = desk.chosen(&choice).await?;
            desk.store
                .set_agent_status(agent.org, agent.id, status)
                .await?;
            let sentence = format!("agent {} is {}", agent.id, status.as_str());
            out.one(&AgentRecord::from(Agent { status, ..agent }), sentence)?;
        }
    }
    Ok(())
}

/// Creates an agent of `org`.
///
/// # Errors
/// When the store fails.
pub(super) async fn create(desk: &Desk<'_>, org: OrgId, name: String) -> Result<Agent, CliError> {
    let agent = Agent {
        id: AgentId::new(),
        org,
        name: readable(name)?,
        status: AgentStatus::Active,
        capture: CaptureScope::Off,
        created_at: desk.clock.now(),
    };
    desk.store.create_agent(agent.clone()).await?;
    Ok(agent)
}
