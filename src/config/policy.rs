//! `[policy]` and `[[policy.rules]]`.

use serde::{Deserialize, Serialize};

use crate::ids::OrgId;

/// Model rules. The first rule that matches by ascending priority decides; without a match the model is allowed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// The rules.
    pub rules: Vec<RuleConfig>,
}

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// The model may be used.
    Allow,
    /// 403 `MODEL_NOT_ALLOWED`.
    Deny,
}

/// One model rule.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// Only this organisation; without it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<OrgId>,
    /// Lower goes first.
    #[serde(default)]
    pub priority: i32,
    /// A glob over the model name; `*` stops at `/`.
    pub model: String,
    /// `allow` or `deny`.
    pub effect: Effect,
    /// Whether requests under this rule get context; unset = as `context.enabled` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<bool>,
}
