//! Stage 4, policy snapshot: takes a bound principal, yields the [`Admitted`] policy that holds for the whole request.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::app::Rules;
use crate::auth::Principal;
use crate::error::{ApiError, Code};
use crate::policy::Verdict;
use crate::providers::Registry;

/// Policy, providers and models as they were when the request came; a later change does not touch it.
#[derive(Debug, Clone)]
pub struct Admitted {
    rules: Arc<Rules>,
}

/// What the policy refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// A rule denies the model.
    #[error("this model is not allowed for your organisation")]
    ModelNotAllowed,
}

impl From<AdmissionError> for ApiError {
    fn from(error: AdmissionError) -> Self {
        match error {
            AdmissionError::ModelNotAllowed => {
                Self::new(Code::ModelNotAllowed, error.to_string()).param("model")
            }
        }
    }
}

/// Takes the snapshot.
#[must_use]
pub fn snapshot(rules: &ArcSwap<Rules>) -> Admitted {
    Admitted {
        rules: rules.load_full(),
    }
}

impl Admitted {
    /// The snapshot itself, for what is rendered by it later.
    #[must_use]
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// Providers and models.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.rules.registry
    }

    /// The word on `model`, once the body has named it.
    ///
    /// # Errors
    /// When a rule denies it.
    pub fn model(&self, principal: &Principal, model: &str) -> Result<Verdict, AdmissionError> {
        let verdict = self.rules.policy.verdict(principal.org(), model);
        if verdict.allowed {
            Ok(verdict)
        } else {
            Err(AdmissionError::ModelNotAllowed)
        }
    }
}
