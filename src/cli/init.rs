//! `ibex init`: everything a first request needs. Run again, it answers with the same organisation and agent and a further token.

use clap::Args;
use serde::Serialize;

use crate::auth::Permissions;
use crate::ids::{AgentId, OrgId};

use super::{CliError, Desk, Out, TokenRequest, agent, org, token};

/// `ibex init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Name of the organisation, if it has to be created
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub org_name: String,
    /// Name of the agent, if it has to be created
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub agent_name: String,
}

/// What a client needs.
#[derive(Debug, Serialize)]
struct Ready<'a> {
    org_id: OrgId,
    agent_id: AgentId,
    token: &'a str,
}

/// Creates what is missing and always a token with every permission, bound to the agent so that clients need no header for it.
///
/// # Errors
/// When the store fails.
pub async fn run(args: InitArgs, desk: &Desk<'_>, out: &mut Out<'_>) -> Result<(), CliError> {
    let org = match desk.store.orgs().await?.into_iter().next() {
        Some(first) => first,
        None => org::create(desk, args.org_name).await?,
    };
    let agent = match desk.store.agents(org.id).await?.into_iter().next() {
        Some(first) => first,
        None => agent::create(desk, org.id, args.agent_name).await?,
    };
    let request = TokenRequest {
        org: org.id,
        agent: Some(agent.id),
        user: None,
        name: "init".to_owned(),
        permissions: Permissions::all(),
        created_at: desk.clock.now(),
        expires_at: None,
    };
    let minted = token::create(desk, request).await?;
    let ready = Ready {
        org_id: org.id,
        agent_id: agent.id,
        token: &minted.secret,
    };
    let text = format!(
        "organisation  {}  ({})\nagent         {}  ({})\ntoken         {}\n\n\
         The token is shown this once. Start the proxy with `ibex serve`, then give clients its address with /v1 as base URL, and the token as key.",
        org.id, org.name, agent.id, agent.name, minted.secret
    );
    Ok(out.one(&ready, text)?)
}
