//! What the commands work with: the store itself, opened directly, so that they need no running server and no token.

use std::fmt;

use jiff::Timestamp;

use crate::auth::{Permissions, Principal, operator_principal};
use crate::ids::{AgentId, OrgId, UserId};
use crate::seams::Clock;
use crate::store::{Agent, Org, Store, StoredToken};

use super::CliError;
use super::args::{AgentChoice, ScopeChoice};

/// What a new token shall be.
#[derive(Debug, Clone)]
pub struct TokenRequest {
    /// The tenant.
    pub org: OrgId,
    /// Binds the token to this agent.
    pub agent: Option<AgentId>,
    /// Binds the token to this user.
    pub user: Option<UserId>,
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub permissions: Permissions,
    /// Creation time.
    pub created_at: Timestamp,
    /// End of validity.
    pub expires_at: Option<Timestamp>,
}

/// A new token: the text for its owner, and what is stored of it.
pub struct Minted {
    /// The whole token; it cannot be shown again.
    pub secret: String,
    /// The row, with the digest.
    pub row: StoredToken,
}

/// Makes a token under the server's key.
pub type Mint<'a> = dyn Fn(TokenRequest) -> Result<Minted, CliError> + 'a;

/// Says why a directive is too large, if it is.
pub type DirectiveFits<'a> = dyn Fn(&str) -> Result<(), CliError> + 'a;

/// What the commands work with.
pub struct Desk<'a> {
    /// The store.
    pub store: &'a dyn Store,
    /// The time of day.
    pub clock: &'a dyn Clock,
    /// Makes tokens.
    pub mint: &'a Mint<'a>,
    /// Measures directives.
    pub directive_fits: &'a DirectiveFits<'a>,
}

impl fmt::Debug for Desk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

impl Desk<'_> {
    /// The organisation that `named` means, by name or identifier; without it the only one there is.
    ///
    /// # Errors
    /// When there is none, or more than one that could be meant.
    pub async fn org(&self, named: Option<&str>) -> Result<Org, CliError> {
        let orgs = self.store.orgs().await?;
        choose("organisation", "--org", orgs, named, |org| {
            (org.id.to_string(), org.name.clone())
        })
    }

    /// The agent that `named` means, by name or identifier; without it the organisation's only one.
    ///
    /// # Errors
    /// When there is none, or more than one that could be meant.
    pub async fn agent(&self, org: OrgId, named: Option<&str>) -> Result<Agent, CliError> {
        let agents = self.store.agents(org).await?;
        choose("agent", "--agent", agents, named, |agent| {
            (agent.id.to_string(), agent.name.clone())
        })
    }

    /// The agent of a command's flags.
    ///
    /// # Errors
    /// When the flags do not name exactly one.
    pub async fn chosen(&self, choice: &AgentChoice) -> Result<Agent, CliError> {
        let org = self.org(choice.org.as_deref()).await?;
        self.agent(org.id, choice.agent.as_deref()).await
    }

    /// The operator, acting for the agent and user of a command's flags.
    ///
    /// # Errors
    /// When the flags do not name exactly one agent.
    pub async fn principal(&self, scope: &ScopeChoice) -> Result<Principal, CliError> {
        let agent = self.chosen(&scope.choice).await?;
        operator_principal(self.store, agent.org, agent.id, scope.user.clone())
            .await
            .map_err(|e| CliError::Failed(e.to_string()))
    }
}

/// Longest name of an organisation or agent, in characters.
const NAME_CHARS: usize = 100;

/// A name that people can read and type.
///
/// # Errors
/// When it is blank, long, or has control characters.
pub(super) fn readable(name: String) -> Result<String, CliError> {
    let plain = !name.trim().is_empty() && !name.chars().any(char::is_control);
    if plain && name.chars().count() <= NAME_CHARS {
        return Ok(name);
    }
    Err(CliError::Usage(format!(
        "a name must have 1 to {NAME_CHARS} characters, not only spaces, and no control characters"
    )))
}

fn choose<T>(
    what: &str,
    flag: &str,
    items: Vec<T>,
    named: Option<&str>,
    describe: impl Fn(&T) -> (String, String),
) -> Result<T, CliError> {
    if items.is_empty() {
        return Err(CliError::Failed(format!(
            "there is no {what} yet; `ibex init` creates one"
        )));
    }
    let known: Vec<String> = items
        .iter()
        .map(&describe)
        .map(|(id, name)| format!("{name} ({id})"))
        .collect();
    let known = known.join(", ");
    let mut meant: Vec<T> = match named {
        // An identifier is exact; a name may be shared.
        Some(text) => items
            .into_iter()
            .filter(|item| matches!(describe(item), (id, name) if id == text || name == text))
            .collect(),
        None => items,
    };
    match (meant.pop(), meant.is_empty()) {
        (Some(item), true) => Ok(item),
        (None, _) => Err(CliError::Failed(format!(
            "there is no such {what}; known: {known}"
        ))),
        (Some(_), false) => Err(CliError::Usage(format!(
            "more than one {what} could be meant; give the identifier with {flag}: {known}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::choose;
    use crate::cli::CliError;

    fn pick(names: &[(&str, &str)], named: Option<&str>) -> Result<String, CliError> {
        let items = names
            .iter()
            .map(|(id, name)| ((*id).to_owned(), (*name).to_owned()))
            .collect();
        choose("agent", "--agent", items, named, Clone::clone).map(|(id, _)| id)
    }

    #[test]
    fn a_lone_item_needs_no_name() {
        assert_eq!(pick(&[("1", "a")], None).unwrap(), "1");
        assert!(
            matches!(pick(&[], None), Err(CliError::Failed(text)) if text.contains("ibex init"))
        );
        assert!(
            matches!(pick(&[("1", "a"), ("2", "b")], None), Err(CliError::Usage(text)) if text.contains("--agent") && text.contains("b (2)"))
        );
    }

    #[test]
    fn items_go_by_name_or_identifier() {
        let two = [("1", "a"), ("2", "b"), ("3", "b")];
        assert_eq!(pick(&two, Some("a")).unwrap(), "1");
        assert_eq!(pick(&two, Some("3")).unwrap(), "3");
        assert!(matches!(pick(&two, Some("b")), Err(CliError::Usage(_))));
        assert!(matches!(pick(&two, Some("c")), Err(CliError::Failed(_))));
    }
}
