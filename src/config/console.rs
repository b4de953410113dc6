//! `[console]`.

use serde::{Deserialize, Serialize};

use super::Environment;

/// The page for people who run the service, at `/console`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsoleConfig {
    /// Whether it is served, and what it shows is kept. Unset, in development only: a page that takes tokens shall not stand on a public
    /// address because nobody thought of it.
    pub enabled: Option<bool>,
    /// Context plans of the newest chat requests that this process keeps for it, without any text; 0 = none.
    pub recent_requests: usize,
}

impl Default for ConsoleConfig {
    fn default() -> Self {
        Self {
            enabled: None,
            recent_requests: 200,
        }
    }
}

impl ConsoleConfig {
    /// Whether the console is on in `environment`.
    #[must_use]
    pub fn is_on(&self, environment: Environment) -> bool {
        self.enabled.unwrap_or(match environment {
            Environment::Development => true,
            Environment::Staging | Environment::Production => false,
        })
    }
}
