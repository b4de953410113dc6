//! Policy: which models an organisation may use, and whether its requests get context. An immutable snapshot, taken once a request.

use globset::{GlobBuilder, GlobMatcher};

use crate::config::{Config, Effect, RuleConfig};
use crate::ids::OrgId;

/// A rule that cannot be compiled.
#[derive(Debug, thiserror::Error)]
#[error("policy.rules: the pattern {pattern:?} is not a valid glob")]
pub struct InvalidPattern {
    pattern: String,
}

/// Compiles a glob in which `*` stops at `/` (contract, section 14). Alone it means every model: a rule that denies `*` must not let
/// `vendor/model` through.
///
/// # Errors
/// When it is no glob.
pub fn compile_glob(pattern: &str) -> Result<GlobMatcher, InvalidPattern> {
    let glob = GlobBuilder::new(pattern)
        .literal_separator(pattern != "*")
        .build();
    glob.map(|g| g.compile_matcher())
        .map_err(|_| InvalidPattern {
            pattern: pattern.to_owned(),
        })
}

#[derive(Debug)]
struct Rule {
    org: Option<OrgId>,
    model: GlobMatcher,
    effect: Effect,
    context: Option<bool>,
}

/// The rules in force, in order of priority.
#[derive(Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    context: bool,
}

/// What the policy says of one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the model may be used.
    pub allowed: bool,
    /// Whether context is assembled.
    pub context: bool,
}

impl Policy {
    /// Compiles the rules; equal priorities keep the order of the file.
    ///
    /// # Errors
    /// When a pattern is no glob.
    pub fn new(config: &Config) -> Result<Self, InvalidPattern> {
        let mut sorted: Vec<&RuleConfig> = config.policy.rules.iter().collect();
        sorted.sort_by_key(|r| r.priority);
        let compile = |r: &RuleConfig| {
            Ok(Rule {
                org: r.org,
                model: compile_glob(&r.model)?,
                effect: r.effect,
                context: r.context,
            })
        };
        Ok(Self {
            rules: sorted.into_iter().map(compile).collect::<Result<_, _>>()?,
            context: config.context.enabled,
        })
    }

    /// The first matching rule's word; without one the model is allowed.
    #[must_use]
    pub fn verdict(&self, org: OrgId, model: &str) -> Verdict {
        let rule = self
            .rules
            .iter()
            .find(|r| r.org.is_none_or(|o| o == org) && r.model.is_match(model));
        Verdict {
            allowed: rule.is_none_or(|r| r.effect == Effect::Allow),
            context: self.context && rule.and_then(|r| r.context).unwrap_or(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Policy, Verdict};
    use crate::config::{Config, Effect, PolicyConfig, RuleConfig};
    use crate::ids::OrgId;

    fn rule(priority: i32, model: &str, effect: Effect) -> RuleConfig {
        RuleConfig {
            org: None,
            priority,
            model: model.to_owned(),
            effect,
            context: None,
        }
    }

    #[test]
    fn the_lowest_priority_number_decides() {
        let org = OrgId::new();
        let other = RuleConfig {
            org: Some(org),
            context: Some(false),
            ..rule(1, "local-*", Effect::Allow)
        };
        let rules = vec![
            rule(20, "*", Effect::Deny),
            rule(10, "gpt-*", Effect::Allow),
            other,
        ];
        let config = Config {
            policy: PolicyConfig { rules },
            ..Config::default()
        };
        let policy = Policy::new(&config).expect("valid globs");
        assert_eq!(
            policy.verdict(org, "gpt-4o"),
            Verdict {
                allowed: true,
                context: true
            }
        );
        assert_eq!(
            policy.verdict(org, "local-1"),
            Verdict {
                allowed: true,
                context: false
            }
        );
        assert!(!policy.verdict(OrgId::new(), "local-1").allowed);
        assert!(
            !policy.verdict(org, "vendor/model").allowed,
            "`*` alone is every model"
        );
    }
}
