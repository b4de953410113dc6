//! `ibex org`.

use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;

use crate::ids::OrgId;
use crate::store::{Org, OrgStatus};

use super::desk::readable;
use super::output::{Record, minute};
use super::{CliError, Desk, Out};

/// The commands about organisations.
#[derive(Debug, Subcommand)]
pub enum OrgCommand {
    /// Create an organisation
    Create {
        /// A name for people
        name: String,
    },
    /// List every organisation
    List,
    /// Refuse every request of an organisation
    Suspend {
        /// Organisation, by name or identifier
        org: String,
    },
    /// Take a suspension back
    Resume {
        /// Organisation, by name or identifier
        org: String,
    },
}

#[derive(Debug, Serialize)]
struct OrgRecord {
    id: OrgId,
    name: String,
    status: OrgStatus,
    created_at: Timestamp,
}

impl From<Org> for OrgRecord {
    fn from(org: Org) -> Self {
        Self {
            id: org.id,
            name: org.name,
            status: org.status,
            created_at: org.created_at,
        }
    }
}

impl Record for OrgRecord {
    const HEADERS: &'static [&'static str] = &["ID", "NAME", "STATUS", "CREATED"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            self.status.as_str().to_owned(),
            minute(self.created_at),
        ]
    }
}

/// Runs one of them.
///
/// # Errors
/// When the organisation does not exist, or the store fails.
pub async fn run(command: OrgCommand, desk: &Desk<'_>, out: &mut Out<'_>) -> Result<(), CliError> {
    match command {
        OrgCommand::Create { name } => {
            let org = create(desk, name).await?;
            let sentence = format!("created organisation {}", org.id);
            out.one(&OrgRecord::from(org), sentence)?;
        }
        OrgCommand::List => {
            let orgs = desk.store.orgs().await?;
            out.list(&orgs.into_iter().map(OrgRecord::from).collect::<Vec<_>>())?;
        }
        OrgCommand::Suspend { org } => set_status(desk, &org, OrgStatus::Suspended, out).await?,
        OrgCommand::Resume { org } => set_status(desk, &org, OrgStatus::Active, out).await?,
    }
    Ok(())
}

/// Creates an organisation.
///
/// # Errors
/// When the store fails.
pub(super) async fn create(desk: &Desk<'_>, name: String) -> Result<Org, CliError> {
    let org = Org {
        id: OrgId::new(),
        name: readable(name)?,
        status: OrgStatus::Active,
        created_at: desk.clock.now(),
    };
    desk.store.create_org(org.clone()).await?;
    Ok(org)
}

async fn set_status(
    desk: &Desk<'_>,
    named: &str,
    status: OrgStatus,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let org = desk.org(Some(named)).await?;
    desk.store.set_org_status(org.id, status).await?;
    let sentence = format!("organisation {} is {}", org.id, status.as_str());
    Ok(out.one(&OrgRecord::from(Org { status, ..org }), sentence)?)
}
