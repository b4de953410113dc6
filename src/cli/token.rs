//! `ibex token`.

use clap::{Args, Subcommand};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::auth::Permissions;
use crate::ids::{AgentId, OrgId, TokenId, UserId};
use crate::store::StoredToken;

use super::output::{Record, minute};
use super::{CliError, Desk, Minted, Out, TokenRequest};

/// The commands about access tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token; it is shown this once
    Create(TokenCreateArgs),
    /// List the tokens of an organisation, without their secrets
    List {
        /// Organisation, by name or identifier [default: the only one]
        #[arg(long, value_name = "ORG")]
        org: Option<String>,
    },
    /// Make a token invalid for good
    Revoke {
        /// The token's identifier, or the token itself
        #[arg(value_name = "TOKEN", value_parser = token_id)]
        id: TokenId,
    },
}

/// `ibex token create`.
#[derive(Debug, Args)]
pub struct TokenCreateArgs {
    /// Organisation, by name or identifier [default: the only one]
    #[arg(long, value_name = "ORG")]
    org: Option<String>,
    /// Agent it works for, by name or identifier [default: any; X-IBEX-Agent-ID chooses]
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// User it works for [default: none]
    #[arg(long, value_name = "USER")]
    user: Option<UserId>,
    /// A name for people
    #[arg(long, default_value = "")]
    name: String,
    /// What it may do: a permission such as MemoryWrite, or chat (what a chat request needs), or all; repeatable
    #[arg(long = "permission", value_name = "NAME", default_value = "chat", value_delimiter = ',', value_parser = permission)]
    permissions: Vec<Permissions>,
    /// Validity, such as 30d, 12h or 45m [default: no end]
    #[arg(long, value_name = "DURATION", value_parser = validity)]
    expires_in: Option<SignedDuration>,
}

fn permission(text: &str) -> Result<Permissions, String> {
    match text {
        "all" => Ok(Permissions::all()),
        "chat" => Ok(Permissions::CHAT),
        name => Permissions::named(name).ok_or_else(|| {
            let names: Vec<&str> = Permissions::all().names().collect();
            format!("must be all, chat or one of {}", names.join(", "))
        }),
    }
}

fn validity(text: &str) -> Result<SignedDuration, &'static str> {
    const WRONG: &str = "must be a whole number with m, h, d or w: 45m, 12h, 30d";
    let unit = text.chars().last().ok_or(WRONG)?;
    let hours = |number: i64, each: i64| {
        number
            .checked_mul(each)
            .and_then(SignedDuration::try_from_hours)
    };
    let number: i64 = text
        .strip_suffix(unit)
        .and_then(|number| number.parse().ok())
        .filter(|number| *number > 0)
        .ok_or(WRONG)?;
    let duration = match unit {
        'm' => SignedDuration::try_from_mins(number),
        'h' => hours(number, 1),
        'd' => hours(number, 24),
        'w' => hours(number, 24 * 7),
        _ => None,
    };
    duration.ok_or(WRONG)
}

/// Accepts a whole token too: whoever wants to revoke a leaked one has that at hand.
fn token_id(text: &str) -> Result<TokenId, &'static str> {
    let id = text
        .strip_prefix("ibex_pat_")
        .and_then(|rest| rest.get(..36))
        .unwrap_or(text);
    id.parse()
        .map_err(|_| "is neither a token nor a token's identifier")
}

#[derive(Debug, Serialize)]
struct TokenRecord {
    id: TokenId,
    org_id: OrgId,
    agent_id: Option<AgentId>,
    user_id: Option<UserId>,
    name: String,
    permissions: Vec<&'static str>,
    status: &'static str,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
}

impl TokenRecord {
    fn new(token: &StoredToken, now: Timestamp) -> Self {
        let status = match (token.revoked_at, token.expires_at) {
            (Some(_), _) => "revoked",
            (None, Some(end)) if end <= now => "expired",
            (None, _) => "valid",
        };
        Self {
            id: token.id,
            org_id: token.org,
            agent_id: token.agent,
            user_id: token.user.clone(),
            name: token.name.clone(),
            permissions: token.permissions.names().collect(),
            status,
            created_at: token.created_at,
            expires_at: token.expires_at,
            revoked_at: token.revoked_at,
        }
    }
}

impl Record for TokenRecord {
    const HEADERS: &'static [&'static str] = &[
        "ID",
        "NAME",
        "AGENT",
        "USER",
        "PERMISSIONS",
        "STATUS",
        "CREATED",
        "EXPIRES",
    ];

    fn cells(&self) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            self.id.to_string(),
            self.name.clone(),
            or_dash(self.agent_id.map(|id| id.to_string())),
            or_dash(self.user_id.as_ref().map(ToString::to_string)),
            self.permissions_in_short(),
            self.status.to_owned(),
            minute(self.created_at),
            or_dash(self.expires_at.map(minute)),
        ]
    }
}

impl TokenRecord {
    fn permissions_in_short(&self) -> String {
        if self.permissions.len() == Permissions::NAMED.len() {
            "all".to_owned()
        } else {
            self.permissions.join(",")
        }
    }
}

#[derive(Debug, Serialize)]
struct CreatedRecord<'a> {
    #[serde(flatten)]
    row: TokenRecord,
    token: &'a str,
}

/// Runs one of them.
///
/// # Errors
/// When the organisation, agent or token does not exist, or the store fails.
pub async fn run(
    command: TokenCommand,
    desk: &Desk<'_>,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    match command {
        TokenCommand::Create(args) => {
            let minted = create_from(args, desk).await?;
            let row = TokenRecord::new(&minted.row, desk.clock.now());
            out.one(
                &CreatedRecord {
                    row,
                    token: &minted.secret,
                },
                format_args!("{}", minted.secret),
            )?;
        }
        TokenCommand::List { org } => {
            let org = desk.org(org.as_deref()).await?;
            let now = desk.clock.now();
            let rows: Vec<_> = desk
                .store
                .tokens(org.id)
                .await?
                .iter()
                .map(|token| TokenRecord::new(token, now))
                .collect();
            out.list(&rows)?;
        }
        TokenCommand::Revoke { id } => {
            let now = desk.clock.now();
            desk.store.revoke_token(id, now).await?;
            let token = desk
                .store
                .token(id)
                .await?
                .ok_or_else(|| CliError::Failed("there is no such token".to_owned()))?;
            out.one(
                &TokenRecord::new(&token, now),
                format_args!("token {id} is revoked"),
            )?;
        }
    }
    Ok(())
}

async fn create_from(args: TokenCreateArgs, desk: &Desk<'_>) -> Result<Minted, CliError> {
    let org = desk.org(args.org.as_deref()).await?;
    let agent = match &args.agent {
        Some(named) => Some(desk.agent(org.id, Some(named)).await?.id),
        None => None,
    };
    let created_at = desk.clock.now();
    let expires_at = match args.expires_in {
        Some(validity) => {
            let end = created_at.checked_add(validity);
            Some(end.map_err(|_| {
                CliError::Usage("--expires-in lies too far in the future".to_owned())
            })?)
        }
        None => None,
    };
    let permissions = args
        .permissions
        .into_iter()
        .fold(Permissions::NONE, Permissions::with);
    create(
        desk,
        TokenRequest {
            org: org.id,
            agent,
            user: args.user,
            name: args.name,
            permissions,
            created_at,
            expires_at,
        },
    )
    .await
}

/// Makes a token and stores what is kept of it.
///
/// # Errors
/// When there is no randomness, or the store fails.
pub(super) async fn create(desk: &Desk<'_>, request: TokenRequest) -> Result<Minted, CliError> {
    let minted = (desk.mint)(request)?;
    desk.store.create_token(minted.row.clone()).await?;
    Ok(minted)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::{permission, token_id, validity};
    use crate::auth::Permissions;

    #[test]
    fn permissions_go_by_name() {
        assert_eq!(permission("MemoryWrite"), Ok(Permissions::MEMORY_WRITE));
        assert_eq!(permission("all"), Ok(Permissions::all()));
        assert_eq!(permission("chat"), Ok(Permissions::CHAT));
        assert!(
            permission("memorywrite")
                .unwrap_err()
                .contains("MemoryRead")
        );
    }

    #[test]
    fn validity_needs_a_unit_and_an_end() {
        assert_eq!(validity("30d"), Ok(SignedDuration::from_hours(720)));
        assert_eq!(validity("45m"), Ok(SignedDuration::from_mins(45)));
        for wrong in [
            "",
            "30",
            "d",
            "0d",
            "-1d",
            "1.5h",
            "30y",
            "9223372036854775807w",
            "3ä",
        ] {
            assert!(validity(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_whole_token_can_be_given_for_its_identifier() {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(token_id(id).unwrap().to_string(), id);
        assert_eq!(
            token_id(&format!("ibex_pat_{id}_secret"))
                .unwrap()
                .to_string(),
            id
        );
        assert!(token_id("ibex_pat_short").is_err());
    }
}
